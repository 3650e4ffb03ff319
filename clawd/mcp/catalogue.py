"""The tools of all servers: named, judged against what was first seen, some without their schema.

The same servers and the same settings give the same tools in the same order.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Literal

import msgspec

from clawd.mcp.deferring import Cost, cost_of, deferred_names, hidden_names
from clawd.mcp.model import Quarantined, RemoteServers, ServerSettings, ServerState
from clawd.mcp.naming import approval_of, is_matched, names_of
from clawd.mcp.pins import MAX_TOOLS, Judged, Pins, offer_of
from clawd.mcp.tools import McpTool, ToolPlan, mcp_tool, settings_mark, text_of
from clawd.tools.offer import specs
from clawd.tools.session_files import SessionStore

MAX_LOOKED = 16
"""So many hidden tools that were looked at are carried; those of long ago are hidden again."""

_TOO_MANY = (
    f"the server has shown more than {MAX_TOOLS} different tools, and what a further one was "
    "cannot be kept; look at what it offers now with clawctl mcp diff {}, and accept that"
)

DifferenceKind = Literal["changed", "new", "refused"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is not what was seen of its server.

    Attributes:
        was, now: all that the server said of it, as JSON; `was` is empty where it was not kept.
    """

    tool: str
    kind: DifferenceKind
    was: str = ""
    now: str


class CatalogueRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration says of all servers' tools.

    Attributes:
        servers: the settings of each by its alias.
        budget_tokens: what their schemas may take of a request.
    """

    servers: Mapping[str, ServerSettings] = {}
    budget_tokens: int = 4_000


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The tools that are offered, and what is not.

    Attributes:
        tools: by server, each in the order of its server.
        left_out: by alias, what of a server's tools cannot be offered here, and why.
        tokens: by alias, what its tools take of every request; estimated.
    """

    tools: tuple[McpTool, ...] = ()
    left_out: Mapping[str, tuple[Quarantined, ...]] = {}
    tokens: Mapping[str, int] = {}

    def of(self, alias: str) -> tuple[McpTool, ...]:
        """Return the tools of one server."""
        return tuple(tool for tool in self.tools if tool.plan.server.alias == alias)


class Maker:
    """Makes catalogues.

    Args:
        servers: makes the calls of the tools, and says what there is.
        pins: what was first seen of each tool.
        sessions: keeps results that are no text.

    Attributes:
        on_look: called when other tools are to be carried, as somebody looked at a hidden one.
    """

    def __init__(self, servers: RemoteServers, pins: Pins, sessions: SessionStore | None) -> None:
        self._servers = servers
        self._pins = pins
        self._sessions = sessions
        self._looked: dict[str, None] = {}
        self.on_look: Callable[[], None] = lambda: None

    def catalogue(self, rules: CatalogueRules, taken: Collection[str] = ()) -> Catalogue:
        """Return the catalogue of the servers as they stand.

        Args:
            rules: of the configuration.
            taken: names that other tools have; those keep them.
        """
        plans: list[ToolPlan] = []
        left_out: dict[str, tuple[Quarantined, ...]] = {}
        for state in self._servers.states():
            server = rules.servers.get(state.alias)
            if server is None or state.link == "off":
                continue
            found, missing = self._plans(server, state, frozenset(taken))
            plans += found
            left_out[state.alias] = missing
        plans = _with_free_spellings(plans)
        costs = {plan.name: _cost(plan, self._servers) for plan in plans}
        plans = self._fitted(plans, costs, rules.budget_tokens)
        tokens: dict[str, int] = {}
        for plan in plans:
            cost, alias = costs[plan.name], plan.server.alias
            if plan.is_hidden:
                continue
            carried = cost.deferred if plan.is_deferred else cost.whole
            tokens[alias] = tokens.get(alias, 0) + carried
        return Catalogue(
            tools=tuple(self._tool(plan) for plan in plans),
            left_out=left_out,
            tokens=tokens,
        )

    def _fitted(
        self, plans: list[ToolPlan], costs: Mapping[str, Cost], budget_tokens: int
    ) -> list[ToolPlan]:
        """Return the plans with what of them requests carry, so that all fits."""
        by_server: dict[str, dict[str, Cost]] = {}
        for plan in plans:
            by_server.setdefault(plan.server.alias, {})[plan.name] = costs[plan.name]
        hidden = hidden_names(by_server, budget_tokens, self._looked)
        named = {name: cost for name, cost in costs.items() if name not in hidden}
        deferred = deferred_names(named, budget_tokens, self._looked)
        count = Counter(plan.server.alias for plan in plans if plan.name in hidden)
        fitted: list[ToolPlan] = []
        for plan in plans:
            is_hidden = plan.name in hidden
            more = 0 if is_hidden else count.pop(plan.server.alias, 0)
            fitted.append(
                msgspec.structs.replace(
                    plan, is_deferred=plan.name in deferred, is_hidden=is_hidden, more=more
                )
            )
        return fitted

    def _tool(self, plan: ToolPlan) -> McpTool:
        tool = mcp_tool(plan, self._servers, self._sessions)
        tool.on_look = self._look
        return tool

    def _look(self, name: str) -> None:
        """Let requests carry a hidden tool from now on, and forget who was looked at long ago."""
        self._looked.pop(name, None)
        self._looked[name] = None
        while len(self._looked) > MAX_LOOKED:
            del self._looked[next(iter(self._looked))]
        self.on_look()

    def note(self, rules: CatalogueRules) -> dict[str, Judged]:
        """Keep the first sight of tools; return how those of each server compare with it."""
        judged: dict[str, Judged] = {}
        for state in self._servers.states():
            server = rules.servers.get(state.alias)
            if server is None:
                continue
            mark, seen = settings_mark(server), _seen(state)
            judged[state.alias] = self._pins.judged(state.alias, mark, seen)
            self._pins.note(state.alias, mark, seen)
        return judged

    def offer(self, state: ServerState) -> str:
        """Return the hash of what a server offers; empty for nothing."""
        return offer_of(_seen(state)) if state.tools else ""

    def accept(self, server: ServerSettings, state: ServerState) -> None:
        """Take the tools of a server as they are now."""
        self._pins.accept(state.alias, settings_mark(server), _seen(state))

    def differences(self, server: ServerSettings, state: ServerState) -> tuple[Difference, ...]:
        """Return the tools that are not what was seen of the server, or were not seen then."""
        mark, seen = settings_mark(server), _seen(state)
        judged = self._pins.judged(state.alias, mark, seen)
        found: list[Difference] = []
        for name, text in seen.items():
            if name in judged.changed:
                was = self._pins.text(state.alias, mark, name)
                found.append(Difference(tool=name, kind="changed", was=was or "", now=text))
            elif name in judged.new | judged.refused:
                kind: DifferenceKind = "new" if name in judged.new else "refused"
                found.append(Difference(tool=name, kind=kind, now=text))
        return tuple(found)

    def _plans(
        self, server: ServerSettings, state: ServerState, taken: frozenset[str]
    ) -> tuple[list[ToolPlan], tuple[Quarantined, ...]]:
        wanted = {
            tool.name: tool
            for tool in reversed(state.tools)
            if is_matched(tool.name, server.allow) and not is_matched(tool.name, server.deny)
        }
        order = [tool.name for tool in state.tools if tool.name in wanted]
        named = names_of(server.alias, order)
        judged = self._pins.judged(state.alias, settings_mark(server), _seen(state))
        missing = [
            Quarantined(name=lost, reason="another tool of the server has the only name for it")
            for lost in named.lost
        ]
        plans: list[ToolPlan] = []
        for own, name in named.names.items():
            if own in judged.refused:
                missing.append(Quarantined(name=own, reason=_TOO_MANY.format(server.alias)))
                continue
            if name in taken:
                reason = f"a tool of this machine is called {name} already"
                missing.append(Quarantined(name=own, reason=reason))
                continue
            others = (other for other in named.others.get(own, ()) if other not in taken)
            plans.append(
                ToolPlan(
                    server=server,
                    tool=wanted[own],
                    name=name,
                    others=tuple(others),
                    preapproved=approval_of(server.alias, own, name, server.auto_approve),
                    is_changed=own in judged.changed,
                    is_new=own in judged.new,
                )
            )
        return plans, tuple(missing)


def _with_free_spellings(plans: list[ToolPlan]) -> list[ToolPlan]:
    """Return the plans without spellings that another tool has, or that two tools would have."""
    counts = Counter(spelling for plan in plans for spelling in (plan.name, *plan.others))
    return [
        msgspec.structs.replace(
            plan, others=tuple(other for other in plan.others if counts[other] == 1)
        )
        for plan in plans
    ]


def _seen(state: ServerState) -> dict[str, str]:
    return {tool.name: text_of(tool) for tool in reversed(state.tools)}


def _cost(plan: ToolPlan, servers: RemoteServers) -> Cost:
    whole = msgspec.structs.replace(plan, is_deferred=False)
    deferred = msgspec.structs.replace(plan, is_deferred=True)
    first, second = specs([mcp_tool(each, servers) for each in (whole, deferred)])
    return cost_of(first, second)
