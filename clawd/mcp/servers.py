"""All MCP servers of a daemon. See `RemoteServers` for what each method promises.

    servers = Servers(settings, sandbox=sandbox, folder=layout.home / "mcp", is_stopped=stop.is_set)
    servers.start()                 # connects in the background, delays nothing
    …
    await servers.close()

The SDK is not loaded here, but by the first server that is connected.
"""

import asyncio
import hashlib
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from clawd.errors import NotFoundError
from clawd.mcp.dialing import Surroundings
from clawd.mcp.model import Progress, RemoteResult, ServerSettings, ServerState
from clawd.mcp.stderr_log import StderrLog
from clawd.mcp.supervisor import Supervisor, Timing, first_state
from clawd.security.redact import Redactor
from clawd.security.sandbox import Sandbox

_FOLDER_MODE = 0o700
_SAFE_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")

_log = logging.getLogger(__name__)


class Servers:
    """The servers of a daemon; nothing raises for what a server does.

    Args:
        servers: what is configured.
        sandbox: starts those on standard input and output.
        folder: of the home, for tokens and what servers print on standard error; made if needed.
        is_stopped: whether the emergency stop is set.
        timing: how patient the supervisors are.
    """

    def __init__(
        self,
        servers: tuple[ServerSettings, ...],
        *,
        sandbox: Sandbox,
        folder: Path,
        is_stopped: Callable[[], bool] = lambda: False,
        timing: Timing | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._is_stopped = is_stopped
        self._timing = timing or Timing()
        self._listeners: list[Callable[[], None]] = []
        self._adopting = asyncio.Lock()
        self._is_closed = False
        self._wanted = servers
        self._by_alias: dict[str, Supervisor] = {}

    def start(self) -> None:
        """Begin to connect, in the background; returns at once. Must be called on the loop."""
        if self._wanted and not self._is_closed:
            try:
                self._folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            except OSError as error:  # logs and tokens are not kept then
                _log.warning("no folder for MCP servers at %s: %s", self._folder, error)
        for settings in self._wanted:
            if not self._is_closed and settings.alias not in self._by_alias:
                self._by_alias[settings.alias] = self._supervisor(settings)
                self._by_alias[settings.alias].start()

    def states(self) -> tuple[ServerState, ...]:
        """Return all servers, in the order of the config."""
        return tuple(self._state(each) for each in self._wanted)

    async def call(
        self, alias: str, tool: str, arguments: Mapping[str, Any], *, progress: Progress
    ) -> RemoteResult:
        """Make one call by the tool's own name, within the server's time limit."""
        supervisor = self._by_alias.get(alias)
        if supervisor is None:
            failure = f"tool transport error: there is no MCP server {alias!r}"
            return RemoteResult(failure=failure)
        return await supervisor.call(tool, arguments, progress=progress)

    async def connect(self, alias: str) -> ServerState:
        """Connect a server now (again), and wait for the outcome within its limits.

        Raises:
            NotFoundError: there is no such server.
        """
        return await self._known(alias).connect()

    async def disconnect(self, alias: str) -> ServerState:
        """Disconnect a server until it is connected by hand.

        Raises:
            NotFoundError: there is no such server.
        """
        return await self._known(alias).disconnect()

    async def adopt(self, servers: tuple[ServerSettings, ...]) -> None:
        """Take another configuration: new servers start, changed ones start anew, others stop."""
        async with self._adopting:
            wanted = {each.alias: each for each in servers}
            gone = [
                alias
                for alias, running in self._by_alias.items()
                if wanted.get(alias) != running.settings
            ]
            ending = [self._by_alias.pop(alias) for alias in gone]
            self._wanted = servers
            await _close_all(ending)
            self.start()
        self._tell()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Be told, on the loop, when states or tools have changed."""
        self._listeners.append(listener)

    async def close(self) -> None:
        """End every connection and every process; idempotent."""
        self._is_closed = True
        async with self._adopting:
            await _close_all(list(self._by_alias.values()))

    def _state(self, settings: ServerSettings) -> ServerState:
        running = self._by_alias.get(settings.alias)
        return running.state if running is not None else first_state(settings)

    def _known(self, alias: str) -> Supervisor:
        supervisor = self._by_alias.get(alias)
        if supervisor is None:
            names = ", ".join(each.alias for each in self._wanted) or "none is configured"
            raise NotFoundError(f"there is no MCP server {alias!r}", hint=f"There are: {names}.")
        return supervisor

    def _supervisor(self, settings: ServerSettings) -> Supervisor:
        return Supervisor(
            settings,
            partial(self._around, settings),
            on_change=self._tell,
            is_stopped=self._is_stopped,
            timing=self._timing,
        )

    def _around(self, settings: ServerSettings, on_sign_in: Callable[[str], None]) -> Surroundings:
        known = [settings.token, *settings.env.values()]
        redact = Redactor(known, secrets.token_bytes(32)).text
        log = StderrLog(self._folder / f"{_file_name(settings.alias)}.stderr.log", redact)
        return Surroundings(self._sandbox, self._folder, log, on_sign_in)

    def _tell(self) -> None:
        for listener in self._listeners:
            try:
                listener()
            except Exception as error:  # noqa: BLE001 - one that fails must not end a supervisor
                _log.error("a listener of MCP servers failed", exc_info=error)


async def _close_all(supervisors: list[Supervisor]) -> None:
    """Close several side by side: each may take seconds."""
    async with asyncio.TaskGroup() as group:
        for supervisor in supervisors:
            group.create_task(supervisor.close())


def _file_name(alias: str) -> str:
    if _SAFE_NAME.fullmatch(alias):
        return alias
    return hashlib.sha256(alias.encode()).hexdigest()[:32]
