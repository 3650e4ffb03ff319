"""What the tests of MCP servers share: the servers under test, a well-behaved one beside them."""

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from clawd.mcp.model import RemoteResult, ServerSettings, ServerState
from clawd.mcp.supervisor import Servers, Timing
from clawd.security.sandbox.process import Level
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.call_hosts import ReachSettings
from tests.security.test_sandbox_process import Registry

PROGRAM = (Path(__file__).parent / "stdio_program.py").read_text(encoding="utf-8")
FAST = Timing(first_s=0.05, most_s=0.2, wait_s=2.0, held_s=5.0, list_every_s=0.1)
LIMIT_S = 200.0

PATIENT = msgspec.structs.replace(FAST, wait_s=LIMIT_S)
"""For calls that are to come through, however slowly a server comes up."""


def nothing(_now: float, _total: float | None, _message: str) -> None:
    """Take progress and do nothing."""


class World:
    """Makes servers of one sandbox; `tag` is in the command line of each process."""

    def __init__(self, root: Path, level: Level = "bwrap", timing: Timing = FAST) -> None:
        self.level = level
        self.home, self.workspace = root / "home", root / "workspace"
        self.home.mkdir()
        self.workspace.mkdir()
        self.folder = self.home / "mcp"
        self.tag = f"clawd-test-{os.getpid()}-{time.monotonic_ns()}"
        self.registry = Registry()
        self.timing = timing
        self.is_stopped = False
        self.changes = 0
        self.problems: set[str] = set()
        self.links: set[tuple[str, str]] = set()
        self.changed = asyncio.Event()
        settings = SandboxSettings(
            mode="off" if level == "none" else "required",
            home=self.home,
            levels=() if level == "none" else (level,),
        )
        self.sandbox = Sandbox(settings, registry=self.registry)
        self.ways = ReachSettings()
        self.servers = self.made(())

    def made(self, settings: tuple[ServerSettings, ...]) -> Servers:
        """Return servers that are not started."""
        servers = Servers(
            settings,
            sandbox=self.sandbox,
            folder=self.folder,
            is_stopped=lambda: self.is_stopped,
            timing=self.timing,
            ways=self.ways,
        )
        servers.on_change(self._heard)
        return servers

    def start(self, *settings: ServerSettings) -> Servers:
        """Start servers; `self.servers` from then on."""
        self.servers = self.made(settings)
        self.servers.start()
        return self.servers

    def program(self, how: str, revision: str = "2025-11-25", **more: Any) -> ServerSettings:
        """Return a server that runs the test program."""
        fenced = {} if self.level != "landlock" else {"FENCED": "1"}
        settings = ServerSettings(
            alias=how,
            command=("/usr/bin/python3", "-I", "-S", "-c", PROGRAM, how, revision, self.tag),
            workspace=str(self.workspace),
            env=fenced,
            connect_timeout_s=LIMIT_S,
            call_timeout_s=LIMIT_S,
        )
        return msgspec.structs.replace(settings, **more)

    def state(self, alias: str) -> ServerState:
        """Return how a server stands."""
        return next(each for each in self.servers.states() if each.alias == alias)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, looking after every change."""
        async with asyncio.timeout(LIMIT_S):
            while not is_so():
                self.changed.clear()
                await self.changed.wait()

    async def ready(self, alias: str, connects: int = 1) -> ServerState:
        """Wait until a server is connected."""

        def is_ready() -> bool:
            state = self.state(alias)
            return state.link == "ready" and state.connects >= connects

        await self.until(is_ready)
        return self.state(alias)

    async def printed(self, alias: str, words: str, *, at_least: int = 0) -> str:
        """Wait until a server has printed words on its standard error, and that many bytes."""
        log = self.servers._by_alias[alias]._around.log
        async with asyncio.timeout(LIMIT_S):
            while words not in (text := log._text()) or len(text) < at_least:
                await asyncio.sleep(0.01)
        return text

    async def call(self, alias: str, text: str = "hi", tool: str = "echo") -> RemoteResult:
        """Make a call within a limit that is this test's own."""
        async with asyncio.timeout(LIMIT_S):
            return await self.servers.call(alias, tool, {"text": text}, progress=nothing)

    async def call_beside(self, how: str, words: str) -> None:
        """Call a server whose answer says these words; the good one beside it notices nothing."""
        async with asyncio.TaskGroup() as group:
            result = group.create_task(self.call(how))
            others = [group.create_task(self.call("beside", f"n{i}")) for i in range(5)]
        said = told(result.result())
        assert words in said, said
        assert [told(each.result()) for each in others] == [f"n{i}" for i in range(5)]
        assert told(await self.call("beside", "still here")) == "still here"
        assert self.state("beside").connects == 1

    async def close(self) -> None:
        """End everything, within a limit."""
        async with asyncio.timeout(LIMIT_S):
            await self.servers.close()

    def _heard(self) -> None:
        self.changes += 1
        self.problems |= {each.problem for each in self.servers.states()}
        self.links |= {(each.alias, each.link) for each in self.servers.states()}
        self.changed.set()


def told(result: RemoteResult) -> str:
    """Return all that a model could read of a result."""
    return result.failure + "".join(block.text for block in result.content)
