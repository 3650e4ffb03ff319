"""The MCP servers of others: how they are started, and the tables of a config that name them."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.clients.places import folder, node_binary, program, python_of

SLOW_S = 60.0  # their runtimes start slowly on a machine that has much to do
MARK = "CLAWD_TEST_MARK"


def table(alias: str, **keys: Any) -> str:
    """Return the table of one server; a dict becomes an inline table."""
    lines = [f"[mcp.servers.{alias}]"]
    lines += [f"{key} = {_toml(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def npm(alias: str, command: str, *words: str, **keys: Any) -> str:
    """Return the table of a server that npm installed."""
    node = node_binary()
    return table(
        alias,
        command=[str(node), program("mcp", command), *words],
        readonly_paths=[str(node.parents[1]), str(folder() / "mcp")],
        connect_timeout_s=SLOW_S,
        **keys,
    )


def pypi(alias: str, command: str, *words: str, **keys: Any) -> str:
    """Return the table of a server that pip installed."""
    prefix = Path(python_of("servers")).resolve().parents[1]
    return table(
        alias,
        command=[program("servers", command), *words],
        readonly_paths=[str(folder() / "servers"), str(prefix)],
        connect_timeout_s=SLOW_S,
        **keys,
    )


def real_servers(workspace: Path, mark: str) -> str:
    """Return the tables of all that speak on standard input and output.

    `mark` is in the environment of each of their processes.
    """
    env = {MARK: mark}
    memory = {**env, "MEMORY_FILE_PATH": str(workspace / "memory.jsonl")}
    repository = ("--repository", str(workspace))
    tables = [
        npm("everything", "mcp-server-everything", workspace_access="none", env=env),
        npm("files", "mcp-server-filesystem", str(workspace), workspace_access="write", env=env),
        npm("memory", "mcp-server-memory", workspace_access="write", env=memory),
        npm("thinking", "mcp-server-sequential-thinking", workspace_access="none", env=env),
        pypi("clock", "mcp-server-time", "--local-timezone=UTC", workspace_access="none", env=env),
        pypi("git", "mcp-server-git", *repository, workspace_access="write", env=env),
    ]
    return "\n".join(tables)


def hostile(alias: str, how: str, mark: str, **keys: Any) -> str:
    """Return the table of a server that behaves as the test program is told."""
    script = Path(__file__).parents[1] / "mcp" / "stdio_program.py"
    return table(
        alias,
        command=[sys.executable, "-I", "-S", str(script), how, "2025-11-25", mark],
        readonly_paths=[str(script.parent), sys.prefix, sys.base_prefix],
        **{"connect_timeout_s": SLOW_S, **keys},
    )


STDIO = ("everything", "files", "memory", "thinking", "clock", "git")


@contextlib.contextmanager
def everything_over_http() -> Iterator[str]:
    """Run the everything server on a loopback port, and give its URL."""
    with socket.socket() as held:
        # Kept from everybody else until the server, which allows for this, listens on it.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        with _everything_on(held.getsockname()[1]) as url:
            yield url


@contextlib.contextmanager
def _everything_on(port: int) -> Iterator[str]:
    process = subprocess.Popen(
        [str(node_binary()), program("mcp", "mcp-server-everything"), "streamableHttp"],
        env={"PATH": os.environ["PATH"], "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        while "listening on port" not in (line := process.stderr.readline()):
            assert line, "it ended before it listened"
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def repository_in(workspace: Path) -> None:
    """Make a workspace a git repository with one commit."""
    (workspace / "a.txt").write_text("one\n")
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q", "-b", "main"], ["add", "a.txt"], [*who, "commit", "-qm", "First"]):
        subprocess.run(["git", *words], cwd=workspace, check=True)


def marked(mark: str) -> set[int]:
    """Return the processes that have a word in their environment or command line."""
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        for name in ("environ", "cmdline"):
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / name).read_bytes():
                    found.add(int(entry.name))
    return found


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
