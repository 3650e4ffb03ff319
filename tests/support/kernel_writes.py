"""Tries to write to the kernel from every kind of sandboxed child, and prints what could be opened.

    python -m tests.support.kernel_writes FOLDER UID     (a JSON object on standard output)

For each level and each kind of child: which files of /proc and /sys it could open for writing, how
many it tried, and what came of a trap in core_pattern. The commands are those that the tools
themselves give to the sandbox; only the program in them is another. `outside` is what this user can
open without a sandbox: only where that is something does nothing inside prove anything.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from clawd.errors import SandboxUnavailableError
from clawd.mcp.connection_end import StderrLog, Trouble
from clawd.mcp.model import ServerSettings
from clawd.mcp.server_hosts import ConnectionContext, ServerReach
from clawd.mcp.stdio import stdio_transport
from clawd.plugins.loader import PluginPins, PluginStore
from clawd.plugins.process import plugin_tools
from clawd.security.policy import PolicySettings
from clawd.security.principal import Principal
from clawd.security.sandbox.egress import WayOut
from clawd.security.sandbox.long_lived import OpenChild
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.process import ChildResult, Level
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import Tool, ToolContext
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.call_hosts import ReachSettings
from clawd.tools.external import external_tool
from clawd.tools.reader import Reader
from tests.plugins.plugin_files import plugin
from tests.tools.external_files import entry, manifest, read

KINDS = ("shell", "evaluate", "external", "plugin", "reader", "mcp")
LEVELS: tuple[Level, ...] = ("bwrap", "landlock")
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")

_PYTHON = "/usr/bin/python3"
_LIMIT_S = 100.0
_MOST_OF_SYS = 400
# Tries what the host has, and what it finds itself; opening writes nothing.
_PROBE = r"""
import json, os, sys
paths, trap = set(sys.argv[1].split("\n")), sys.argv[2]
for top in ("/proc", "/sys"):
    for folder, names, files in os.walk(top):
        if folder == "/proc":
            names[:] = [n for n in names if not n.isdigit() and n not in ("self", "thread-self")]
        paths |= {f"{folder}/{name}" for name in files}
opened = []
for path in sorted(paths):
    try: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError: continue
    opened.append(path)
try: open("/proc/sys/kernel/core_pattern", "w").write("|" + trap)
except OSError as error: core = "refused"
else: core = "written"
sys.stdout.write(json.dumps({"opened": opened, "tried": len(paths), "core": core}) + "\n")
sys.stdout.flush()
if core == "written": os.abort()
"""


class Swapping(Sandbox):
    """Runs the probe in the place of whatever it is given, and keeps what that printed."""

    def __init__(self, settings: SandboxSettings, words: tuple[str, ...]) -> None:
        super().__init__(settings)
        self._words = words
        self.said = ""

    def _swapped(self, command: ChildCommand) -> ChildCommand:
        # An interpreter that lies in root's home cannot be shown to anybody else.
        shown = tuple(path for path in command.readonly_paths if os.access(path, os.R_OK))
        return msgspec.structs.replace(
            command,
            argv=self._words,
            stdin=b"",
            cwd=None,
            readonly_paths=shown,
            timeout_s=_LIMIT_S,
            separate_errors=False,
        )

    async def run(self, command: ChildCommand, **how: Any) -> ChildResult:
        """Run the probe with all that the command may."""
        how["on_output"] = None
        result = await super().run(self._swapped(command), **how)
        self.said = result.output
        return result

    @contextlib.asynccontextmanager
    async def open(
        self,
        command: ChildCommand,
        *,
        on_errors: Callable[[bytes], None],
        way_out: WayOut | None = None,
    ) -> AsyncIterator[OpenChild]:
        """Run the probe to its end in the place of what would stay, which does not come up."""
        swapped = self._swapped(command)
        async with super().open(swapped, on_errors=on_errors, way_out=way_out) as child:
            while data := await child.read():
                self.said += data.decode()
        raise SandboxUnavailableError("this was the probe")
        yield child


def files_of_the_kernel() -> list[str]:
    """Return the files of /proc that belong to no process, and some of /sys that can be written."""
    found, of_sys = [], 0
    for folder, names, files in os.walk("/proc"):
        if folder == "/proc":
            names[:] = [each for each in names if not each.isdigit() and "self" not in each]
        found += [f"{folder}/{name}" for name in files]
    for folder, _, files in os.walk("/sys"):
        writable = [f"{folder}/{name}" for name in files if os.access(f"{folder}/{name}", os.W_OK)]
        of_sys += len(writable)
        found += writable
        if of_sys > _MOST_OF_SYS:
            break
    return found


def outside(paths: list[str]) -> int:
    """Return how many of them this process can open for writing."""
    count = 0
    for path in paths:
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            count += 1
    return count


async def of_kind(kind: str, sandbox: Swapping, home: Path, folder: Path) -> str:
    """Have a child of one kind run the probe; return what it printed."""
    workspace = folder / "workspace"
    workspace.mkdir(parents=True)
    sandbox.said = ""
    context = ToolContext(
        conversation_id="c",
        call_id="k",
        principal=Principal(uid=os.getuid(), gid=os.getgid(), pid=os.getpid()),
        workspace=workspace,
        report=lambda _text: None,
    )
    deps = BuiltinDeps(policy=PolicySettings(), home=home, sandbox=sandbox)
    builtin = {tool.name: tool for tool in builtin_tools(deps)}
    if kind == "mcp":
        await _serve(sandbox, home, workspace)
    elif kind == "reader":
        await Reader(sandbox, timeout_s=_LIMIT_S, memory_bytes=1 << 30).read({}, b"")
    else:
        tools = {
            "shell": lambda: builtin["shell"],
            "evaluate": lambda: builtin["evaluate"],
            "external": lambda: _external(sandbox),
            "plugin": lambda: _plugin(sandbox, home, folder),
        }
        tool: Tool = tools[kind]()
        await tool.invoke({"command": "true", "code": "1"}, context)
    return sandbox.said


async def _serve(sandbox: Sandbox, home: Path, workspace: Path) -> None:
    settings = ServerSettings(
        alias="a", command=("server",), workspace=str(workspace), workspace_access="none"
    )
    log = StderrLog(home / "log", redact=lambda text: text)
    reach = ServerReach(settings, ReachSettings())
    around = ConnectionContext(sandbox, home, log, lambda _address: None, reach)
    with contextlib.suppress(SandboxUnavailableError):
        async with stdio_transport(settings, around, Trouble(), lambda _id: False):
            pass


def _external(sandbox: Sandbox) -> Tool:
    (spec,) = read(manifest(entry()))
    return external_tool(spec, sandbox=sandbox, environ={}, most_s=300.0)


def _plugin(sandbox: Sandbox, home: Path, folder: Path) -> Tool:
    store = PluginStore(home / "plugins", PluginPins(home / "pins.json"))
    source = plugin(folder / "source")
    store.install(source, digest=store.inspect(source).digest, by=os.getuid())
    (installed,) = store.installed()
    (tool,) = plugin_tools(installed, sandbox=sandbox, most_s=300.0)
    return tool


async def everything(base: Path) -> dict[str, Any]:
    """Run the probe in every kind of child at every level."""
    # Named here, because a module that is found only later may be out of the new user's reach.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(4))
    paths = files_of_the_kernel()
    trap = base / "trap"
    trap.write_text(f"#!/bin/sh\n: > {base}/fired\n")
    trap.chmod(0o755)
    words = (_PYTHON, "-I", "-c", _PROBE, "\n".join(paths), str(trap))
    before = CORE_PATTERN.read_text("utf-8")
    found = {}
    try:
        for level in LEVELS:
            home = base / level
            home.mkdir()
            settings = SandboxSettings(home=home, levels=(level,), python=_PYTHON)
            sandbox = Swapping(settings, words)
            status = await sandbox.probe()
            assert status.level == level, status
            for kind in KINDS:
                said = await of_kind(kind, sandbox, home, base / f"{level}-{kind}")
                found[f"{kind} at {level}"] = json.loads(said)
    finally:
        after = CORE_PATTERN.read_text("utf-8")
        if after != before:
            CORE_PATTERN.write_text(before, "utf-8")
    return {
        "children": found,
        "outside": outside(paths),
        "core_pattern": after == before,
        "fired": (base / "fired").exists(),
    }


def main() -> None:
    """Become the user, try everything, print it."""
    base, uid = Path(sys.argv[1]), int(sys.argv[2])
    if os.getuid() != uid:
        os.chown(base, uid, uid)
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    os.chdir("/")
    json.dump(asyncio.run(everything(base)), sys.stdout)


if __name__ == "__main__":
    main()
