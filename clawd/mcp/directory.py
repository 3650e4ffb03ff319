"""The MCP servers of a daemon and their tools, between the connections and those who use them.

It says when the tools have become others, keeps what was first seen of them, and holds no
connection itself.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

import msgspec

from clawd.errors import ClawError, InvalidRequestError, NotFoundError, StorageError
from clawd.kernel.concurrency import settled
from clawd.mcp import catalogue
from clawd.mcp.events import EventListener, EventPattern
from clawd.mcp.model import RemoteServers, ServerSettings, ServerState
from clawd.mcp.pins import Judged, PinFile
from clawd.mcp.tools import McpTool
from clawd.tools.naming import nearest
from clawd.tools.session_files import SessionStore
from clawd.wire.mcp import McpDifference

MAX_ADDED = 32
ARRIVAL_S = 10.0
"""So long, after the start, the first turns wait for servers that are just being connected."""

CHANGE_INTERVAL_S = 0.1
CHANGE_BURST = 10
"""So many changes in a row are told at once; one without end is heard once in the interval."""

_SHOWN_NAMES = 20

_log = logging.getLogger(__name__)


class WantedServers(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration wants of MCP.

    Attributes:
        rules: of the servers that can be started.
        problems: by alias, why one that is configured is not started.
        wait_s: how long, after the start, turns wait for servers that are just being connected.
    """

    rules: catalogue.CatalogueRules = catalogue.CatalogueRules()
    problems: Mapping[str, str] = {}
    wait_s: float = ARRIVAL_S


class ServerDirectory:
    """The servers.

    Args:
        servers: makes connections and calls.
        pins: what was first seen of each tool.
        sessions: keeps results that are no text.

    Attributes:
        wanted: what the configuration in force wants.
        catalogue: the tools that are in force.
    """

    def __init__(
        self, servers: RemoteServers, pins: PinFile, sessions: SessionStore | None = None
    ) -> None:
        self._servers = servers
        self._pins = pins
        self._maker = catalogue.Maker(servers, pins, sessions)
        self._on_tools: Callable[[], None] = lambda: None
        self._shown: object = ()
        self._judged: dict[str, Judged] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_waiting = False
        self._due = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._added: dict[str, ServerSettings] = {}
        self._arrival_ends = 0.0
        self._stirred = asyncio.Event()
        self._reported: set[str] = set()
        self._saving = asyncio.Lock()
        self.wanted = WantedServers()
        self.is_awaited = False
        self.catalogue = catalogue.ToolCatalogue()

    async def open(self, wanted: WantedServers, on_tools: Callable[[], None]) -> None:
        """Begin: servers are connected in the background, this waits for none of them.

        Args:
            wanted: what the configuration wants.
            on_tools: told, on the loop, when the tools have become others.
        """
        self.wanted, self._on_tools = wanted, on_tools
        self.is_awaited = bool(wanted.rules.servers)
        await asyncio.to_thread(self._pins.load)
        if self._pins.problem:
            _log.warning("what was seen of MCP tools is not known: %s", self._pins.problem)
        self._servers.on_change(self._changed_something)
        self._arrival_ends = asyncio.get_running_loop().time() + wanted.wait_s
        if wanted.rules.servers:
            self._spawn(self._adopt())

    async def add(self, server: ServerSettings) -> None:
        """Take a server that the configuration does not have, until this ends.

        Raises:
            InvalidRequestError: the configuration has one of its alias.
        """
        alias = server.alias
        known = {*self.wanted.rules.servers, *self.wanted.problems} - self._added.keys()
        if alias in known:
            raise InvalidRequestError(
                f"there is an MCP server {alias} in the config; choose another alias",
                hint=f"Connect that one with: clawctl mcp connect {alias}",
            )
        if alias not in self._added and len(self._added) >= MAX_ADDED:
            raise InvalidRequestError(f"{MAX_ADDED} MCP servers were added already")
        self._added[alias] = server
        _log.warning("an MCP server was added by hand", extra={"server": alias})
        await self.adopt(self.wanted)

    def listen(
        self, wanted: Mapping[str, tuple[EventPattern, ...]], listener: EventListener
    ) -> None:
        """Hear these events of servers by their aliases from now on, and no others."""
        self._servers.listen(wanted, listener)

    def check_configured(self, alias: str) -> None:
        """Refuse a server that will not be there after the next start.

        Raises:
            NotFoundError: there is no such server.
            InvalidRequestError: it is not started, or was added by hand; the message says so.
        """
        self._check_started(alias)
        if alias in self._added:
            raise InvalidRequestError(
                f"the MCP server {alias} was added by hand, and ends with the daemon",
                hint="Add it to [mcp.servers] of the config, then: clawctl tool reload",
            )

    async def adopt(self, wanted: WantedServers) -> None:
        """Take another configuration: what it refuses is refused at once, then servers change."""
        taken = {*wanted.rules.servers, *wanted.problems}
        more = {alias: each for alias, each in self._added.items() if alias not in taken}
        servers = {**wanted.rules.servers, **more, **(self._added if wanted is self.wanted else {})}
        rules = msgspec.structs.replace(wanted.rules, servers=servers)
        self.wanted = msgspec.structs.replace(wanted, rules=rules)
        self.is_awaited = bool(servers)
        self._tell()
        await self._adopt()

    async def close(self) -> None:
        """End all connections; idempotent."""
        if self._timer is not None:
            self._timer.cancel()
        self._on_tools = lambda: None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._servers.close()
        if self._pins.is_unsaved:
            await self._save()

    def tools(
        self, taken: Collection[str], rules: catalogue.CatalogueRules | None = None
    ) -> tuple[McpTool, ...]:
        """Return the tools under rules, which are those in force if None; then they are shown.

        Args:
            taken: names that other tools have.
            rules: of another configuration.
        """
        if rules is not None:
            return self._maker.catalogue(rules, taken).tools
        self.catalogue = self._maker.catalogue(self.wanted.rules, taken)
        return self.catalogue.tools

    def why_missing(self, name: str) -> str:
        """Return why there is no tool of this name, where it can only be one of a server's."""
        alias = catalogue.alias_of(name.removeprefix(catalogue.MODELS_PREFIX))
        state = next((each for each in self.states() if each.alias == alias), None)
        if state is None:
            return ""
        begun = f"there is no tool {name[:64]!r}: the MCP server {alias}"
        if alias not in self.wanted.rules.servers:
            return f"{begun} is not started: {state.problem}"
        if state.link == "off":
            return f"{begun} is disconnected; a person can connect it: clawctl mcp connect {alias}"
        if not state.tools and state.link != "ready":
            why = state.problem or "it is just being connected; try again in a moment"
            return f"{begun} is not connected: {why}"
        offered = [tool.name for tool in self.catalogue.of(alias)]
        own = name.removeprefix(catalogue.MODELS_PREFIX).removeprefix(catalogue.prefix_of(alias))
        known = {each.removeprefix(catalogue.prefix_of(alias)): each for each in offered}
        near = nearest(own, known)
        told = f"the nearest are: {', '.join(near)}" if near else "it has: " + _some(offered)
        return f"{begun} has none of this name; {told}"

    async def arrived(self) -> tuple[str, ...]:
        """Wait for servers that are connected for the first time, until the start is over.

        Returns a sentence on each that has never been connected, once.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._arrival_ends):
                while self._on_their_way():
                    self._stirred.clear()
                    await self._stirred.wait()
        self._tell()  # what has arrived is offered to who has waited for it
        missing = [
            state
            for state in self.states()
            if state.alias in self.wanted.rules.servers
            and state.link in {"connecting", "waiting"}
            and not state.connects
            and state.alias not in self._reported
        ]
        self._reported.update(state.alias for state in missing)
        return tuple(_missing(state) for state in missing)

    def _on_their_way(self) -> bool:
        known = {state.alias: state for state in self._servers.states()}
        return any(
            alias not in known or (known[alias].link == "connecting" and not known[alias].connects)
            for alias in self.wanted.rules.servers
        )

    def states(self) -> tuple[ServerState, ...]:
        """Return the servers as they stand, those that are not started among them."""
        found = {state.alias: state for state in self._servers.states()}
        names = (*self.wanted.rules.servers, *self.wanted.problems)
        return tuple(
            found.get(alias)
            or ServerState(alias=alias, problem=self.wanted.problems.get(alias, ""))
            for alias in names
        )

    def state(self, alias: str) -> ServerState:
        """Return one server.

        Raises:
            NotFoundError: there is none of this alias; the message names those that are.
        """
        states = {state.alias: state for state in self.states()}
        if alias not in states:
            known = ", ".join(states) or "none"
            raise NotFoundError(
                f"there is no MCP server {alias[:64]!r}; configured are: {known}",
                hint="Add it to [mcp.servers] of the config, then: clawctl tool reload",
            )
        return states[alias]

    def tool(self, alias: str, tool: str) -> McpTool:
        """Return a tool by its own name or by what it is called here.

        Raises:
            NotFoundError: there is none; the message says why, or which there are.
        """
        state = self.state(alias)
        found = self.catalogue.of(alias)
        for each in found:
            if tool in {each.plan.tool.name, each.name}:
                return each
        for lost in (*state.quarantined, *self.catalogue.left_out.get(alias, ())):
            if lost.name == tool:
                raise NotFoundError(
                    f"the tool {tool[:64]!r} of {alias} cannot be used: {lost.reason}"
                )
        known = ", ".join(each.plan.tool.name for each in found) or "none"
        why = f" ({state.problem})" if state.problem else ""
        raise NotFoundError(f"{alias} has no tool {tool[:64]!r}; it has: {known}{why}")

    async def connect(self, alias: str, *, accept: str = "") -> ServerState:
        """Connect a server now (again), and wait for the outcome within its limits.

        Args:
            alias: of the server.
            accept: the hash of an offer; it is accepted if it is what the server offers then.

        Raises:
            NotFoundError: there is no such server.
            InvalidRequestError: it is not started, or offers something else; the message says why.
        """
        self._check_started(alias)
        state = await self._servers.connect(alias)
        self._tell()
        return self.accept(alias, accept) if accept else state

    def accept(self, alias: str, offer: str) -> ServerState:
        """Take the tools of a server as they are now.

        Args:
            alias: of the server.
            offer: the hash of what was looked at.

        Raises:
            NotFoundError: there is no such server.
            InvalidRequestError: it is not started, or offers something else than that.
        """
        self._check_started(alias)
        state = self.state(alias)
        now = self._maker.offer(state)
        if not now or offer != now:
            raise InvalidRequestError(
                f"nothing was accepted: {offer[:64]!r} is not what {alias} offers now, {now!r}",
                hint=f"Look at what it offers now: clawctl mcp diff {alias}",
            )
        self._maker.accept(self.wanted.rules.servers[alias], state)
        _log.warning("MCP tools were accepted", extra={"server": alias, "offer": now})
        self._shown = ()
        self._tell()
        return state

    def differences(self, alias: str) -> tuple[str, tuple[McpDifference, ...]]:
        """Return the hash of what a server offers, and what of that was not seen before.

        Raises:
            NotFoundError: there is no such server.
            InvalidRequestError: it is not started.
        """
        self._check_started(alias)
        state = self.state(alias)
        return self._maker.offer(state), self._maker.differences(
            self.wanted.rules.servers[alias], state
        )

    async def disconnect(self, alias: str) -> ServerState:
        """Disconnect a server until it is connected by hand.

        Raises:
            NotFoundError: there is no such server.
            InvalidRequestError: it is not started; the message says why.
        """
        self._check_started(alias)
        state = await self._servers.disconnect(alias)
        self._tell()
        return state

    def _check_started(self, alias: str) -> None:
        state = self.state(alias)
        if alias not in self.wanted.rules.servers:
            raise InvalidRequestError(
                f"the MCP server {alias} is not started: {state.problem}",
                hint="Change the config, then: clawctl tool reload",
            )

    async def _adopt(self) -> None:
        await self._servers.adopt(tuple(self.wanted.rules.servers.values()))
        self._stirred.set()
        self._tell()

    def _changed_something(self) -> None:
        """Tell of a change at once, but of many in a row not more often than is good."""
        self._stirred.set()
        if self._is_waiting or self._seen() == self._shown:
            return
        loop = asyncio.get_running_loop()
        wait = self._due - CHANGE_BURST * CHANGE_INTERVAL_S - loop.time()
        if wait <= 0:
            self._tell()
            return
        self._is_waiting = True
        self._timer = loop.call_later(wait, self._tell)

    def _tell(self) -> None:
        """Tell that there are other tools, if there are."""
        self._is_waiting = False
        shown = self._seen()
        if shown == self._shown:
            return
        self._due = max(self._due, asyncio.get_running_loop().time()) + CHANGE_INTERVAL_S
        self._shown = shown
        self._note()
        try:
            self._on_tools()
        except ClawError as error:
            _log.error("the tools of MCP servers could not be offered: %s", error.message)

    def _seen(self) -> object:
        """Return what the tools follow from; calls and failures are no part of it."""
        states = self._servers.states()
        return self.wanted, tuple(
            (state.alias, state.link == "off", state.tools) for state in states
        )

    def _note(self) -> None:
        judged = self._maker.note(self.wanted.rules)
        for alias, now in judged.items():
            before = self._judged.get(alias, Judged())
            for name in sorted(now.changed - before.changed):
                _log.warning(
                    "an MCP server changed a tool since it was first seen",
                    extra={"server": alias, "tool": name[:200]},
                )
            if now.refused and not before.refused:
                _log.warning(
                    "an MCP server shows more tools than are kept",
                    extra={"server": alias, "refused": len(now.refused)},
                )
        self._judged = judged
        if self._pins.is_unsaved:
            self._spawn(self._save())

    async def _save(self) -> None:
        async with self._saving:  # of two at once the older might be the one that stays
            if not self._pins.is_unsaved:
                return
            try:
                await settled(asyncio.to_thread(self._pins.save))
            except StorageError as error:
                _log.warning("what was seen of MCP tools is not kept: %s", error.message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("work for MCP servers failed", exc_info=error)


def _missing(state: ServerState) -> str:
    why = state.problem or "it is still being connected"
    return f"the tools of the MCP server {state.alias} are not there: {why}"


def _some(names: list[str]) -> str:
    more = ", …" if len(names) > _SHOWN_NAMES else ""
    return (", ".join(names[:_SHOWN_NAMES]) or "none") + more
