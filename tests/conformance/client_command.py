"""The client that the conformance suite runs: clawd's own connections, and a person beside them.

    python -m tests.conformance.client_command SOCKET

It runs for all scenarios, as a daemon does for all servers: `relay.py` is the command that the
suite starts, and hands on a line with the URL, `MCP_CONFORMANCE_SCENARIO`, which names what is
wanted, and `MCP_CONFORMANCE_CONTEXT`, JSON that some scenarios need. Everything goes through
`Servers`. The address that a person must open to sign in is opened here.
"""

import asyncio
import importlib
import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2

from clawd.mcp.model import RemoteTool, ServerSettings, ServerState
from clawd.mcp.supervisor import Servers, Timing
from clawd.security.sandbox.run import Sandbox, SandboxSettings

ALIAS = "conformance"
LIMIT_S = 220.0
CONNECT_S = 120.0
"""Long: dozens of scenarios begin at once, each with servers of its own, on few processors."""

TIMING = Timing(first_s=300.0, wait_s=30.0)
"""A scenario looks at one try, however long that takes here: not at the next one as well."""

ARGUMENTS: dict[str, dict[str, Any]] = {"add_numbers": {"a": 5, "b": 3}}
_SAMPLES: dict[str, Any] = {
    "string": "x",
    "integer": 0,
    "number": 0,
    "boolean": False,
    "object": {},
    "array": [],
}
_SIGN_IN = re.compile(r"open (http\S+)")


class Person:
    """Opens the address of a sign-in, as a browser does where all is agreed to already."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._opened: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.changed = asyncio.Event()

    def look(self) -> None:
        """Look whether there is an address to open."""
        self.changed.set()
        for state in self._servers.states():
            found = _SIGN_IN.search(state.problem)
            if found is not None and found[1] not in self._opened:
                self._opened.add(found[1])
                self._tasks.add(asyncio.create_task(_open(found[1])))


async def _open(address: str) -> None:
    async with httpx2.AsyncClient(
        follow_redirects=True, trust_env=False, timeout=LIMIT_S
    ) as browser:
        await browser.get(address)


def _ignore(_now: float, _total: float | None, _message: str) -> None:
    return


async def _ready(servers: Servers, person: Person) -> ServerState:
    """Wait until the server is connected, or a try came to nothing for good."""
    while True:
        (state,) = servers.states()
        if state.link in {"ready", "waiting"}:
            return state
        person.changed.clear()
        await person.changed.wait()


def _calls(scenario: str, context: dict[str, Any], tools: tuple[RemoteTool, ...]) -> Any:
    """Return what to call with what, in order."""
    offered = {tool.name: tool for tool in tools}
    if "toolCalls" in context:
        given = ((each["name"], each.get("arguments") or {}) for each in context["toolCalls"])
        return [each for each in given if each[0] in offered]
    if "json_schema_echo" in offered:
        return [("json_schema_echo", {"schema": offered["json_schema_2020_12_tool"].schema})]
    if scenario.startswith("auth/"):
        return [(name, {}) for name in list(offered)[:1]]
    if scenario in {"initialize", "json-schema-ref-no-deref"}:
        return []
    return [(name, ARGUMENTS.get(name) or _sample(tool.schema)) for name, tool in offered.items()]


def _sample(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    return {
        name: _SAMPLES.get(str(properties.get(name, {}).get("type")), "x")
        for name in schema.get("required", [])
    }


async def _run(url: str, scenario: str, context: dict[str, Any], folder: Path) -> list[str]:
    settings = ServerSettings(
        alias=ALIAS,
        url=url,
        oauth=scenario.startswith("auth/"),
        oauth_client_id=context.get("client_id", ""),
        oauth_client_secret=context.get("client_secret", ""),
        connect_timeout_s=CONNECT_S,
        call_timeout_s=CONNECT_S,
    )
    sandbox = Sandbox(SandboxSettings(mode="off", home=folder))
    servers = Servers((settings,), sandbox=sandbox, folder=folder, timing=TIMING)
    person = Person(servers)
    servers.on_change(person.look)
    servers.start()
    try:
        state = await _ready(servers, person)
        seen = [f"{state.link} {state.revision} {state.problem}"]
        for name, arguments in _calls(scenario, context, state.tools):
            result = await servers.call(ALIAS, name, arguments, progress=_ignore)
            seen.append(f"{name} {result}")
        return seen
    finally:
        await servers.close()


async def _take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Run what one relay asks for; tell it what was seen, or what went wrong."""
    asked = json.loads(await reader.readline())
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with asyncio.timeout(LIMIT_S):
                seen = await _run(asked["url"], asked["scenario"], asked["context"], Path(folder))
    except Exception as error:  # noqa: BLE001 - it is the relay's, not the others'
        seen = [f"failed: {error!r}"]
    writer.write("\n".join(seen).encode())
    writer.close()
    await writer.wait_closed()


async def main() -> None:
    """Serve relays until standard input ends."""
    for part in ("connection", "http", "oauth"):  # else the first scenarios would wait for the SDK
        importlib.import_module(f"clawd.mcp.{part}")
    server = await asyncio.start_unix_server(_take, sys.argv[1], limit=1 << 20)
    async with server:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
