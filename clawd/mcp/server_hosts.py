"""The hosts that a server on standard input and output reaches, and the receipts that list them.

A server outlives its calls, so what it reaches cannot be told apart by calls: the receipt of a call
lists what the server reached and was refused since the receipt before it, and during the call.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from clawd.mcp.connection_end import StderrLog
from clawd.mcp.events import Ear
from clawd.mcp.model import ServerSettings
from clawd.security.sandbox.egress import Denial, WayOut
from clawd.security.sandbox.run import Sandbox
from clawd.tools.call_hosts import ReachSettings
from clawd.wire.policy import covers_host, this_machine_among

_KEPT = 100
"""So many hosts that nothing leads to are remembered between two receipts."""

_Counts = dict[str, tuple[int, int, int]]


class Reached(msgspec.Struct, frozen=True, kw_only=True):
    """What a server reached: names and lines as receipts have them, and why others were refused."""

    names: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    refused: dict[str, str] = {}

    def __add__(self, more: "Reached") -> "Reached":
        return Reached(
            names=(*self.names, *(name for name in more.names if name not in self.names)),
            lines=self.lines + more.lines,
            refused=self.refused | more.refused,
        )


class _Window(msgspec.Struct, frozen=True, kw_only=True):
    """What was told of a way out when a call began."""

    way_out: WayOut | None
    contacts: _Counts
    refusals: dict[str, int]


class ServerReach:
    """The hosts of one server, over all its connections. Use from the event loop.

    Args:
        settings: of the server; its `hosts` are all that it may reach.
        ways: what leads out.
    """

    def __init__(self, settings: ServerSettings, ways: ReachSettings) -> None:
        self._settings = settings
        self._ways = ways
        self._way_out: WayOut | None = None
        self._contacts: _Counts = {}
        self._refusals: dict[str, int] = {}
        self._before = Reached()
        self._calls = 0

    def way_out(self) -> WayOut | None:
        """Return the way out of a new connection; None where it may reach nothing."""
        if self._way_out is not None:  # what the one before reached stands in the next receipt
            self._before += self._since(self._contacts, self._refusals)
        self._contacts, self._refusals, self._way_out = {}, {}, None
        egress, hosts = self._ways.egress, self._settings.hosts
        if egress is not None and hosts:
            self._way_out = egress.way_out(
                self._decide, named=this_machine_among(hosts), is_lasting=True
            )
        return self._way_out

    @property
    def refused(self) -> tuple[str, ...]:
        """The hosts that it was refused since it was connected."""
        return tuple(self._way_out.refused) if self._way_out is not None else ()

    @property
    def problem(self) -> str:
        """Why it reaches nothing, or not all that it wants; empty when all is well."""
        way = self._way_out
        if way is None:
            return ""
        if way.problem:
            return f"it has no way out by name: {way.problem}"
        names = ", ".join(list(way.refused)[:10])
        listed = f"hosts of [mcp.servers.{self._settings.alias}]"
        return f"it was refused {names}, which {listed} would have to list" if names else ""

    def begin(self) -> _Window:
        """Note that a call begins."""
        self._calls += 1
        return _Window(
            way_out=self._way_out, contacts=dict(self._contacts), refusals=dict(self._refusals)
        )

    def leave(self) -> None:
        """Count a call out that has begun."""
        self._calls -= 1

    async def told(self, window: _Window) -> Reached:
        """Return what the receipt of a call lists; the next one goes on from here."""
        way = self._way_out
        before, self._before = self._before, Reached()
        if way is None:
            return before
        await way.measure()
        is_same = window.way_out is way
        found = before + self._since(
            window.contacts if is_same else {}, window.refusals if is_same else {}
        )
        self._contacts = {name: _counts(way, name) for name in way.contacts}
        self._refusals = dict(way.refusals)
        if self._calls == 1 and len(way.contacts) + len(way.refused) > _KEPT:
            way.forget([*way.contacts, *way.refused])
            self._contacts = {name: _counts(way, name) for name in way.contacts}
            self._refusals = {}
        return found

    def _since(self, contacts: _Counts, refusals: dict[str, int]) -> Reached:
        """Return what was reached and refused since these were counted."""
        way = self._way_out
        assert way is not None
        names, lines = [], []
        for name, contact in way.contacts.items():
            before, now = contacts.get(name, (0, 0, 0)), _counts(way, name)
            if now != before:
                moved = f"{max(0, now[1] - before[1])}/{max(0, now[2] - before[2])}"
                names.append(name)
                lines.append(f"{name} {contact.address} {moved} config")
        refused = {
            name: why
            for name, why in way.refused.items()
            if way.refusals[name] != refusals.get(name, 0)
        }
        if way.problem and way.losses:
            refused["*"] = way.problem
        return Reached(names=tuple(names), lines=tuple(lines), refused=refused)

    async def _decide(self, host: str, port: int) -> Denial | None:
        """Hold a server to the hosts that the config gives it: there is nobody to be asked."""
        alias, name = self._settings.alias, f"{host}:{port}"
        if not self._ways.is_on():
            return Denial(reason=f'{name}: egress = "off" in [security]')
        if any(covers_host(each, host, port) for each in self._settings.hosts):
            return None
        return Denial(
            reason=f"{name} is not among the hosts of the MCP server {alias}",
            hint=f'to allow it: hosts = ["{name}"] in [mcp.servers.{alias}]',
        )


def _counts(way: WayOut, name: str) -> tuple[int, int, int]:
    contact = way.contacts[name]
    return contact.connections, contact.up, contact.down


# What a connection needs of its supervisor, and how it says that it came to nothing.
#
# Loads nothing of the SDK: `connection` does, and is imported when a server is to be connected.

_SIGN_IN_S = 330.0


class ConnectError(Exception):
    """A server could not be connected. `try_legacy`: the old handshake may work at once."""

    def __init__(self, problem: str, *, try_legacy: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.try_legacy = try_legacy


class ConnectionContext:
    """What is there around one connection.

    Args:
        sandbox: starts servers.
        folder: of the home, for tokens.
        log: takes the server's standard error.
        on_sign_in: takes the address that a person must open.
        reach: what hosts it reaches.

    Attributes:
        ear: what of the server is listened to.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        folder: Path,
        log: StderrLog,
        on_sign_in: Callable[[str], None],
        reach: ServerReach,
    ) -> None:
        self.sandbox = sandbox
        self.folder = folder
        self.log = log
        self.reach = reach
        self.ear = Ear(log)
        self._on_sign_in = on_sign_in
        self._limits: list[asyncio.Timeout] = []

    @contextlib.asynccontextmanager
    async def connecting(self, limit_s: float) -> AsyncIterator[None]:
        """Limit the body, which a person who signs in may prolong. Raises TimeoutError.

        Limits may stand within each other; a sign-in prolongs all of them.
        """
        async with asyncio.timeout(limit_s) as limit:
            self._limits.append(limit)
            try:
                yield
            finally:
                self._limits.remove(limit)

    async def on_sign_in(self, address: str) -> None:
        """Tell that a person must open an address, and wait longer."""
        for limit in self._limits:
            if limit.expired():
                continue  # it is over, and the processes in it do not know yet
            limit.reschedule(asyncio.get_running_loop().time() + _SIGN_IN_S)
        self._on_sign_in(address)
