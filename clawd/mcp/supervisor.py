"""One server for the daemon's life: connected in the background, kept so, called, and told of.

Everything that a server can do ends here as a state or as a result. The SDK is loaded when the
first connection is made, not before.

All MCP servers of a daemon. See `RemoteServers` for what each method promises.

    servers = Servers(settings, sandbox=sandbox, folder=layout.home / "mcp", is_stopped=stop.is_set)
    servers.start()                 # connects in the background, delays nothing
    …
    await servers.close()

The SDK is not loaded here, but by the first server that is connected.
"""

import asyncio
import contextlib
import hashlib
import logging
import random
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from clawd.errors import ClawError, NotFoundError
from clawd.mcp.connection_end import StderrLog, Trouble, shown
from clawd.mcp.events import Ear, EventListener, EventPattern
from clawd.mcp.model import Progress, RemoteResult, ServerSettings, ServerState
from clawd.mcp.mount import load
from clawd.mcp.server_hosts import ConnectError, ConnectionContext, ServerReach
from clawd.security.redact import Redactor
from clawd.security.sandbox.run import Sandbox
from clawd.tools.call_hosts import ReachSettings

# How long to wait before the next try: doubling, with jitter, and from the start when it held.


class Backoff:
    """Counts the tries that failed.

    Args:
        first_s: the first wait.
        most_s: no wait is longer.
    """

    def __init__(self, *, first_s: float = 1.0, most_s: float = 60.0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._next_s = first_s

    def next(self) -> float:
        """Return the seconds to wait now, between half of the step and all of it."""
        step = min(self._next_s, self._most_s)
        self._next_s = min(step * 2, self._most_s)
        return step * random.uniform(0.5, 1.0)  # noqa: S311 - only spreads the tries

    def reset(self) -> None:
        """Begin anew; what was connected has held."""
        self._next_s = self._first_s


_log = logging.getLogger(__name__)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How patient a supervisor is, in seconds; tests are less so.

    Attributes:
        first_s, most_s: the waits between tries.
        held_s: what was connected for so long was connected well.
        wait_s: how long a call waits for a connection.
        settle_s: how long a call that changed the tools waits until they were read again.
        list_every_s: a server that says all the time that its tools changed is asked so often.
        leave_s: how long a server may take to leave politely; then it is hurried.
        close_s: how long an end may take after that; then it is left to itself.
    """

    first_s: float = 1.0
    most_s: float = 60.0
    held_s: float = 30.0
    wait_s: float = 5.0
    settle_s: float = 1.0
    list_every_s: float = 1.0
    leave_s: float = 5.0
    close_s: float = 10.0


_MAX_CALLS = 16
"""How many calls of one server are under way at once; further ones wait."""


class Supervisor:
    """Keeps one server connected. Used from one event loop.

    Args:
        settings: how it is reached.
        around: makes what a connection needs; is given what takes an address to sign in at.
        on_change: called when its state or its tools have changed.
        is_stopped: whether the emergency stop is set; no process is started then.
        timing: how patient it is.
    """

    def __init__(
        self,
        settings: ServerSettings,
        around: Callable[[Callable[[str], None]], ConnectionContext],
        *,
        on_change: Callable[[], None],
        is_stopped: Callable[[], bool],
        timing: Timing,
    ) -> None:
        self.settings = settings
        self._around = around(self._tell_sign_in)
        self._on_change = on_change
        self._is_stopped = is_stopped
        self._timing = timing
        self._state = msgspec.structs.replace(_first_state(settings), since=time.time())
        self._task: asyncio.Task[None] | None = None
        self._leaving = asyncio.Event()
        self._changing = asyncio.Lock()
        self._link: Any = None
        self._trouble = Trouble()
        self._is_legacy = settings.mode == "legacy"
        self._was_slow = False
        self._backoff = Backoff(first_s=timing.first_s, most_s=timing.most_s)
        self._tried = asyncio.Event()
        self._ready = asyncio.Event()
        self._nudge = asyncio.Event()
        self._listed = asyncio.Event()
        self._is_listing = False
        self._room = asyncio.Semaphore(_MAX_CALLS)

    @property
    def state(self) -> ServerState:
        """How it stands."""
        reach, ear = shown(self._around.reach.problem), shown(self._around.ear.problem)
        return msgspec.structs.replace(self._state, reach_problem=reach, deaf_problem=ear)

    @property
    def ear(self) -> Ear:
        """What of the server is listened to."""
        return self._around.ear

    def start(self) -> None:
        """Begin to connect, in the background; idempotent."""
        if self._task is None:
            self._tried.clear()
            self._set(link="connecting", problem="")
            name = f"mcp-{self.settings.alias}"
            self._leaving = asyncio.Event()
            run = self._run(self._leaving)
            self._task = asyncio.get_running_loop().create_task(run, name=name)
            self._task.add_done_callback(self._ended)

    async def connect(self) -> ServerState:
        """Connect anew and wait until that has come to something."""
        async with self._changing:
            await self._end()
            self._backoff.reset()
            self._is_legacy = self.settings.mode == "legacy"
            self._was_slow = False
            self.start()
        # Of two tries: the second may be in the old way.
        limit_s = 4 * self.settings.connect_timeout_s + self._timing.close_s
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._tried.wait()
        return self.state

    async def disconnect(self) -> ServerState:
        """End the connection; nothing is offered any more."""
        async with self._changing:
            await self._end()
            self._set(link="off", problem="", tools=(), quarantined=(), revision="")
        return self._state

    async def close(self) -> None:
        """End the connection and everything that it has started, in a bounded time."""
        async with self._changing:
            await self._end()
            self._state = msgspec.structs.replace(self._state, link="off")

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, progress: Progress
    ) -> RemoteResult:
        """Make one call; never raises for what the server does."""
        began = time.monotonic()
        deadline = asyncio.get_running_loop().time() + self.settings.call_timeout_s
        reach = self._around.reach
        window = reach.begin()
        try:
            result = await self._called(tool, arguments, deadline, progress)
            reached = await reach.told(window)
        finally:
            reach.leave()
        result = msgspec.structs.replace(result, contacted=reached.lines, refused=reached.refused)
        took_ms = max(1, round((time.monotonic() - began) * 1000))
        state = self._state
        self._state = msgspec.structs.replace(
            state,
            calls=state.calls + 1,
            failures=state.failures + bool(result.failure),
            last_call_ms=took_ms,
        )
        return result

    async def _called(
        self, tool: str, arguments: Mapping[str, Any], deadline: float, progress: Progress
    ) -> RemoteResult:
        try:
            async with asyncio.timeout_at(deadline):
                await self._room.acquire()
        except TimeoutError:
            return self._failed("is busy: too many calls are under way")
        try:
            result, trouble = await self._called_once(tool, arguments, deadline, progress)
            # It did not act on the call: nobody was there, or nobody knew the session.
            if result.failure and (trouble.is_lost or trouble.is_unreachable):
                result, _ = await self._called_once(tool, arguments, deadline, progress)
            return result
        finally:
            self._room.release()

    async def _called_once(
        self, tool: str, arguments: Mapping[str, Any], deadline: float, progress: Progress
    ) -> tuple[RemoteResult, Trouble]:
        loop = asyncio.get_running_loop()
        if self._trouble.is_over.is_set():
            self._ready.clear()  # its end was told; the supervisor gets to know at its next step
        if self._task is not None and not self._ready.is_set():
            self._nudge.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(self._timing.wait_s, deadline - loop.time())):
                    await self._ready.wait()
        link, trouble = self._link, self._trouble
        if link is None or not self._ready.is_set():
            return self._failed(self._why_away()), Trouble()
        limit_s = max(0.0, deadline - loop.time())
        result: RemoteResult = await link.call(tool, arguments, limit_s=limit_s, progress=progress)
        if result.failure and trouble.problem:
            return self._failed(f"was lost: {trouble.problem}"), trouble
        await self._settle(link)
        return result, trouble

    async def _settle(self, link: Any) -> None:
        """Let the tools be read that a call has changed: the request after it should have them."""
        if self._link is not link or not (link.has_change or self._is_listing):
            return
        self._listed.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._timing.settle_s):
                await self._listed.wait()

    def _why_away(self) -> str:
        state = self._state
        if state.link == "off":
            return "is disconnected; a person can connect it with: clawctl mcp connect"
        return f"is not connected: {state.problem or 'it is just being connected'}"

    def _failed(self, sentence: str) -> RemoteResult:
        failure = f"tool transport error: the MCP server {self.settings.alias} {sentence}"
        return RemoteResult(failure=failure)

    async def _run(self, leaving: asyncio.Event) -> None:
        # A cancellation can be lost where the SDK's task groups end; the event cannot.
        while not leaving.is_set():
            await self._wait_for_leave()
            at_once = await self._try()
            if not at_once and not leaving.is_set():
                self._tried.set()
                delay_s = self._backoff.next()
                self._nudge.clear()
                # A call may hurry it, but not more often than the first wait.
                await asyncio.sleep(min(delay_s, self._timing.first_s))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, delay_s - self._timing.first_s)):
                        await self._nudge.wait()

    async def _wait_for_leave(self) -> None:
        """Hold while the emergency stop is set: what it ended must not be started again."""
        while self.settings.command and self._is_stopped():
            self._set(link="waiting", problem="the emergency stop is set")
            self._tried.set()
            await asyncio.sleep(self._timing.first_s)

    async def _try(self) -> bool:
        """Live through one connection; return whether to begin the next at once."""
        self._trouble = trouble = Trouble()
        self._set(link="connecting")
        ready_at, is_newer = 0.0, False
        try:
            async with self._dialed(trouble) as link:
                ready_at = time.monotonic()
                is_newer = await self._serve(link, trouble)
        except Exception as error:  # noqa: BLE001 - whatever a server makes the SDK do ends here
            bottom = _bottom(error)
            if isinstance(bottom, ConnectError) and bottom.try_legacy and not self._is_legacy:
                self._is_legacy = True
                return True
            trouble.end(self._words(bottom))
        finally:
            self._link = None
            self._ready.clear()
            self._is_listing = False
            self._listed.set()
        if is_newer:
            self._was_slow = True
            return True
        held = ready_at and time.monotonic() - ready_at > self._timing.held_s
        if held:
            self._backoff.reset()
        if trouble.ignores_discover and not trouble.speaks_newest:
            self._is_legacy = True
        elif not ready_at and not trouble.is_unreachable:
            # A guess that came to nothing is not made twice: it may only have been slow.
            self._is_legacy = self.settings.mode == "legacy"
        refused = self._around.reach.problem
        self._set(
            link="waiting", problem=shown("; ".join(filter(None, (trouble.problem, refused))))
        )
        _log.info("an MCP server is away: %s: %s", self.settings.alias, self._state.problem)
        return bool(ready_at) and trouble.is_lost

    @contextlib.asynccontextmanager
    async def _dialed(self, trouble: Trouble) -> AsyncIterator[Any]:
        # It loads the SDK: 40 MB, and up to seconds.
        module = await load("clawd.mcp.connection")
        async with module.linked(
            self.settings, self._around, trouble, is_legacy=self._is_legacy
        ) as link:
            listing = await link.list_tools()
            self._link = link
            self._ready.set()
            self._set(
                link="ready",
                problem="",
                tools=listing.tools,
                quarantined=listing.quarantined,
                revision=link.revision,
                server_name=link.server_name,
                server_version=link.server_version,
                connects=self._state.connects + 1,
            )
            self._tried.set()
            _log.info("an MCP server is connected: %s, %s", self.settings.alias, link.revision)
            yield link

    async def _serve(self, link: Any, trouble: Trouble) -> bool:
        """Stay while the connection lasts, and read its tools again when they change.

        Returns whether to connect anew, as the server speaks a newer revision than was agreed on.
        """
        while not trouble.is_over.is_set():
            await trouble.stir.wait()
            trouble.stir.clear()
            if trouble.is_over.is_set():
                return False
            # Once: one that is as slow again would be connected for ever.
            if trouble.speaks_newest and link.is_idle and not self._was_slow:
                return True
            if link.take_change():
                self._is_listing = True
                listing = await link.list_tools()
                self._is_listing = False
                self._set(tools=listing.tools, quarantined=listing.quarantined)
                if not link.has_change:
                    self._listed.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._timing.list_every_s):
                        await trouble.is_over.wait()
        return False

    def _words(self, error: BaseException) -> str:
        if isinstance(error, ConnectError):
            return error.problem
        if isinstance(error, ClawError):
            return error.message
        # Not its text, which may be the server's.
        _log.info("an MCP connection failed: %s: %s", self.settings.alias, type(error).__name__)
        return shown(str(error)) or type(error).__name__

    async def _end(self) -> None:
        """Cancel the task and wait for it, for a bounded time."""
        task, self._task = self._task, None
        if task is None:
            return
        self._leaving.set()
        self._trouble.end("it was disconnected")
        for limit_s in (self._timing.leave_s, self._timing.close_s):
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=limit_s)
            if done:
                break
        else:
            _log.error("an MCP server does not end: %s", self.settings.alias)
        self._link = None
        self._ready.clear()

    def _ended(self, done: asyncio.Task[None]) -> None:
        """Show a server as away whose supervision ended by a defect; a person may connect anew."""
        if done.cancelled() or (error := done.exception()) is None:
            return
        _log.error("the supervision of an MCP server ended by a defect", exc_info=error)
        away = "its supervision ended by a defect; try: clawctl mcp connect"
        self._state = msgspec.structs.replace(self._state, link="waiting", problem=away)

    def _tell_sign_in(self, address: str) -> None:
        self._trouble.sign_in = f"a person must sign in; open {address}"
        self._set(problem=self._trouble.sign_in)

    def _set(self, **changes: Any) -> None:
        before = self._state
        if changes.get("link", before.link) != before.link:
            changes["since"] = time.time()
        self._state = msgspec.structs.replace(before, **changes)
        if self._state != before:
            self._on_change()


def _first_state(settings: ServerSettings) -> ServerState:
    """Return how a server stands before anything was done."""
    return ServerState(alias=settings.alias, transport="stdio" if settings.command else "http")


def _bottom(error: BaseException) -> BaseException:
    """Return the first error that a group of them is about: task groups wrap what ends them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


_FOLDER_MODE = 0o700
_SAFE_NAME = re.compile(r"[A-Za-z0-9-]{1,64}")


class Servers:
    """The servers of a daemon; nothing raises for what a server does.

    Args:
        servers: what is configured.
        sandbox: starts those on standard input and output.
        folder: of the home, for tokens and what servers print on standard error; made if needed.
        is_stopped: whether the emergency stop is set.
        timing: how patient the supervisors are.
        ways: what leads the servers' programs out to hosts.
    """

    def __init__(
        self,
        servers: tuple[ServerSettings, ...],
        *,
        sandbox: Sandbox,
        folder: Path,
        is_stopped: Callable[[], bool] = lambda: False,
        timing: Timing | None = None,
        ways: ReachSettings | None = None,
    ) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._is_stopped = is_stopped
        self._timing = timing or Timing()
        self._ways = ways or ReachSettings()
        self._listeners: list[Callable[[], None]] = []
        self._adopting = asyncio.Lock()
        self._is_closed = False
        self._wanted = servers
        self._by_alias: dict[str, Supervisor] = {}
        self._heard: Mapping[str, tuple[EventPattern, ...]] = {}
        self._listener: EventListener | None = None

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
                self._lend_ear(settings.alias)
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

    def listen(
        self, wanted: Mapping[str, tuple[EventPattern, ...]], listener: EventListener
    ) -> None:
        """Hear these events of servers by their aliases from now on, and no others."""
        self._heard, self._listener = wanted, listener
        for alias in self._by_alias:
            self._lend_ear(alias)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Be told, on the loop, when states or tools have changed."""
        self._listeners.append(listener)

    async def close(self) -> None:
        """End every connection and every process; idempotent."""
        self._is_closed = True
        async with self._adopting:
            await _close_all(list(self._by_alias.values()))

    def _lend_ear(self, alias: str) -> None:
        self._by_alias[alias].ear.want(alias, self._heard.get(alias, ()), self._listener)

    def _state(self, settings: ServerSettings) -> ServerState:
        running = self._by_alias.get(settings.alias)
        return running.state if running is not None else _first_state(settings)

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

    def _around(
        self, settings: ServerSettings, on_sign_in: Callable[[str], None]
    ) -> ConnectionContext:
        known = [settings.token, *settings.env.values()]
        redact = Redactor(known, secrets.token_bytes(32)).text
        log = StderrLog(self._folder / f"{_file_name(settings.alias)}.stderr.log", redact)
        reach = ServerReach(settings, self._ways)
        return ConnectionContext(self._sandbox, self._folder, log, on_sign_in, reach)

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
