"""A plugin's tool in the real sandbox: what it is given, what it may do, what it may answer."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.plugins.loader import PluginPins, PluginStore
from clawd.plugins.process import MAX_ANSWER_BYTES, PluginTool, plugin_tools
from clawd.security.principal import Principal
from clawd.security.sandbox.plan import ChildCommand
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import ToolContext, ToolResult
from tests.plugins.plugin_files import ANSWERS, manifest_text, plugin

pytestmark = pytest.mark.sandbox

SH = "#!/bin/sh\ncat > /dev/null\n"


class Noting(Sandbox):
    """Remembers the commands, and may act just before one begins."""

    def __init__(self, settings: SandboxSettings) -> None:
        super().__init__(settings)
        self.commands: list[ChildCommand] = []
        self.before: Any = None

    async def run(self, command: ChildCommand, **how: Any) -> ChildResult:
        self.commands.append(command)
        if self.before is not None:
            self.before(command)
        return await super().run(command, **how)


class Bench:
    def __init__(self, base: Path) -> None:
        self.base = base
        self.workspace = base / "ws"
        self.workspace.mkdir()
        (self.workspace / "a.txt").write_text("hello")
        self.home = base / "home"
        self.home.mkdir()
        (self.home / "key").write_text("private")
        self.store = PluginStore(self.home / "plugins", PluginPins(self.home / "pins.json"))
        self.sandbox = Noting(SandboxSettings(home=self.home))

    def tool(self, program: str = ANSWERS, *capabilities: str, more: str = "") -> PluginTool:
        number = len(list(self.base.glob("source*")))
        text = manifest_text(capabilities=capabilities, more=more)
        source = plugin(self.base / f"source{number}", program, text)
        self.store.install(source, digest=self.store.inspect(source).digest, by=1)
        (installed,) = self.store.installed()
        (tool,) = plugin_tools(installed, sandbox=self.sandbox, most_s=300.0)
        return tool

    def context(self) -> ToolContext:
        return ToolContext(
            conversation_id="c1",
            call_id="k1",
            principal=Principal(uid=1000, gid=1000, pid=1),
            workspace=self.workspace,
        )

    async def call(self, tool: PluginTool, **arguments: Any) -> ToolResult:
        return await tool.invoke(arguments, self.context())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_it_is_given_the_call_and_answers(bench: Bench) -> None:
    hostile = "; rm -rf /\n$(x) é\0"
    result = await bench.call(bench.tool(), text=hostile)
    assert result.success, result.error
    assert json.loads(result.output) == {
        "tool": "probe_tool",
        "arguments": {"text": hostile},
        "workspace": None,
    }
    assert result.metadata["sandbox"] == "bwrap"


@pytest.mark.landlock
@pytest.mark.parametrize("capabilities", [(), ("workspace-read",), ("workspace-write",)])
async def test_it_runs_in_the_landlock_sandbox_too(
    bench: Bench, capabilities: tuple[str, ...]
) -> None:
    bench.sandbox = Noting(SandboxSettings(home=bench.home, levels=("landlock",)))
    program = SH + (
        f'cat "{bench.home}/key" >&2 && exit 9\n'
        f'echo x > "{bench.workspace}/made"\n'
        f'cat "{bench.workspace}/a.txt" > /dev/null && R=yes\n'
        'echo "{\\"success\\": true, \\"output\\": \\"${R:-no}\\"}"\n'
    )
    result = await bench.call(bench.tool(program, *capabilities))
    assert result.metadata["sandbox"] == "landlock"
    assert result.output == ("yes" if capabilities else "no"), result.error
    assert (bench.workspace / "made").exists() == ("workspace-write" in capabilities)


async def test_it_does_not_run_where_commands_could_change_its_copy(bench: Bench) -> None:
    tool = bench.tool()
    context = msgspec.structs.replace(bench.context(), workspace=Path(tempfile.gettempdir()))
    result = await tool.invoke({}, context)
    assert "plugins do not run in" in result.error
    assert bench.sandbox.commands == []


async def test_without_capabilities_it_sees_no_file_and_no_network(bench: Bench) -> None:
    program = SH + (
        f"ls {bench.workspace} {bench.home} 2>&1 | head -c 300 > /tmp/o; wc -l < /proc/net/dev\n"
    )
    tool = bench.tool(program)
    result = await bench.call(tool)
    assert "answered no JSON object" in result.error
    (command,) = bench.sandbox.commands
    assert not command.workspace_writable
    assert not tool.reaches_hosts
    assert bench.workspace not in (command.workspace, *command.readonly_paths)


@pytest.mark.parametrize(
    ("capabilities", "reads", "writes"),
    [((), False, False), (("workspace-read",), True, False), (("workspace-write",), True, True)],
)
async def test_a_capability_is_what_it_can_do(
    bench: Bench, capabilities: tuple[str, ...], *, reads: bool, writes: bool
) -> None:
    program = SH + (
        f'R=no; W=no; grep -q hello "{bench.workspace}/a.txt" && R=yes\n'
        f'echo x > "{bench.workspace}/made" && W=yes\n'
        f'cat "{bench.home}/key" && R=home\n'
        'echo > "$(dirname "$0")/mine" && W=own\n'
        'echo "{\\"success\\": true, \\"output\\": \\"$R $W\\"}"\n'
    )
    tool = bench.tool(program, *capabilities)
    result = await bench.call(tool)
    words = {True: "yes", False: "no"}
    assert result.output == f"{words[reads]} {words[writes]}", result.error
    assert (bench.workspace / "made").exists() == writes
    touched = tool.touches({}, bench.context())
    assert bool(touched.reads) == reads
    assert bool(touched.writes) == writes


async def test_text_of_a_plugin_with_network_is_untrusted(bench: Bench) -> None:
    shut = bench.tool()
    assert shut.outward is False
    assert "untrusted_source" not in (await bench.call(shut)).metadata
    granted = bench.tool(ANSWERS, "network")
    assert granted.outward is True
    assert (await bench.call(granted)).metadata["untrusted_source"] == "the plugin probe"


@pytest.mark.parametrize(
    ("program", "error"),
    [
        (SH, "answered nothing, expected one JSON object"),
        (SH + "echo hello", "answered no JSON object"),
        (SH + "echo '[]'", "answered no JSON object"),
        (SH + "echo '{}'", "`success`"),
        (SH + 'echo \'{"success": "yes"}\'', "answered no JSON object"),
        (SH + "echo '{\"success\": true} {}'", "answered no JSON object"),
        (SH + "printf '\\377\\376'", "answered no JSON object"),
        (SH + "head -c 2000000 /dev/zero", f"answered more than {MAX_ANSWER_BYTES} bytes"),
        (SH + "yes '[' | tr -d '\\n' | head -c 900000", "answered no JSON object"),
        (SH + "exit 3", "exited with code 3"),
        (SH + "echo why >&2; exit 3", "exited with code 3; it said on standard error: why"),
        (SH + "echo '{\"success\": true}'; exit 3", "though it called that a success"),
        (SH + "kill -9 $$", "exited with code 137"),
        (SH + "echo '{\"success\": false}'", "did not say why"),
        (SH + 'echo \'{"success": false, "error": "no such note"}\'; exit 1', "no such note"),
        ("#!/no/such/interpreter\n", "exited with code 127"),
        ("no program at all", "exited with code"),
    ],
)
async def test_rubbish_is_a_readable_error(bench: Bench, program: str, error: str) -> None:
    result = await bench.call(bench.tool(program))
    assert not result.success
    assert error in result.error
    assert len(result.error) < 1000


async def test_it_has_its_time_and_is_asked_to_end(bench: Bench) -> None:
    program = SH + "trap 'exit 0' TERM\nwhile :; do sleep 0.05; done"
    result = await bench.call(bench.tool(program, more="timeout_ms = 300"))
    assert result.error.startswith("The plugin probe was ended after 0.3 s")


async def test_an_output_that_is_no_text_is_told_as_json(bench: Bench) -> None:
    program = SH + 'echo \'{"success": true, "output": {"a": [1, null]}, "more": 1}\''
    assert (await bench.call(bench.tool(program))).output == '{"a":[1,null]}'
    assert (await bench.call(bench.tool(SH + "echo '{\"success\": true}'"))).output == "(no output)"


async def test_a_changed_plugin_is_blocked_and_does_not_run(bench: Bench) -> None:
    tool = bench.tool()
    assert tool.risk({}, bench.context()).blocked == ""
    assert tool.risk({}, bench.context()).risk == "medium"
    run = bench.home / "plugins" / "probe" / "run"
    run.write_text(SH + 'echo \'{"success": true, "output": "changed"}\'')
    blocked = tool.risk({}, bench.context())
    assert blocked.risk == "high"
    assert "clawctl plugin approve probe" in blocked.blocked
    with pytest.raises(Exception, match="was changed since it was approved"):
        await bench.call(tool)
    assert bench.sandbox.commands == []
    run.write_text(ANSWERS)
    assert tool.risk({}, bench.context()).blocked == ""
    assert (await bench.call(tool)).success


async def test_what_is_swapped_after_the_check_does_not_run(bench: Bench) -> None:
    tool = bench.tool(SH + 'echo \'{"success": true, "output": "approved"}\'')
    run = bench.home / "plugins" / "probe" / "run"

    def swap(_command: ChildCommand) -> None:
        run.write_text(SH + 'echo \'{"success": true, "output": "swapped"}\'')

    bench.sandbox.before = swap
    assert (await bench.call(tool)).output == "approved"
    assert "swapped" in run.read_text()


async def test_nothing_of_the_copy_is_left_not_even_when_cancelled(bench: Bench) -> None:
    tool = bench.tool(SH + "touch begun; sleep 300", "workspace-write")
    task = asyncio.create_task(bench.call(tool))
    async with asyncio.timeout(60):
        while not (bench.workspace / "begun").exists():
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (command,) = bench.sandbox.commands
    assert not Path(command.argv[0]).parent.exists()


async def test_the_example_shows_headings(bench: Bench) -> None:
    source = Path(__file__).parents[2] / "etc/plugins/outline"
    bench.store.install(source, digest=bench.store.inspect(source).digest, by=1)
    (installed,) = bench.store.installed()
    (tool,) = plugin_tools(installed, sandbox=bench.sandbox, most_s=300.0)
    (bench.workspace / "a.md").write_text("# One\n## Two\n```\n# code\n```\n### Three\n")
    assert (await bench.call(tool, path="a.md", depth=2)).output == "One\n  Two"
    missing = await bench.call(tool, path="none.md")
    assert missing.error == "none.md cannot be read: No such file or directory"


async def test_m7_the_echo_plugin_runs_as_it_is_written(bench: Bench) -> None:
    manifest = (
        'name = "echo"\nversion = "0.1.0"\ncapabilities = ["tool"]\n\n[[tools]]\nname = "echo"\n'
        'description = "Echoes."\ncommand = "./echo-plugin"\nschema = { type = "object" }\n'
    )
    source = plugin(bench.base / "source-echo", manifest=manifest)
    (source / "run").rename(source / "echo-plugin")
    bench.store.install(source, digest=bench.store.inspect(source).digest, by=1)
    (installed,) = bench.store.installed()
    (tool,) = plugin_tools(installed, sandbox=bench.sandbox, most_s=300.0)
    result = await bench.call(tool, text="hi", more=[1])
    assert result.success
    told = {"tool": "echo", "arguments": {"text": "hi", "more": [1]}, "workspace": None}
    assert json.loads(result.output) == told
