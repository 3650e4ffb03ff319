"""The tools of all servers: named, judged against what was first seen, some without their schema.

The same servers and the same settings give the same tools in the same order.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

import msgspec

from clawd.mcp.model import Quarantined, RemoteServers, ServerSettings, ServerState
from clawd.mcp.pins import MAX_TOOLS, Judged, PinFile, offer_of
from clawd.mcp.tools import McpTool, ToolPlan, mcp_tool, settings_mark, text_of
from clawd.providers.base import ToolSpec
from clawd.providers.ledger import estimate_tokens, tool_text
from clawd.tools.offer import specs
from clawd.tools.session_files import SessionStore
from clawd.wire.mcp import McpDifference

# Which schemas of remote tools requests carry, where all of them would take too much. Pure.


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool takes of every request, in tokens: with its schema, and without it."""

    whole: int
    deferred: int


def _cost_of(whole: ToolSpec, deferred: ToolSpec) -> Cost:
    """Return what a tool costs in both forms; estimated, so that it is the same for each model."""
    return Cost(
        whole=estimate_tokens(tool_text(whole)), deferred=estimate_tokens(tool_text(deferred))
    )


def hidden_names(servers: Mapping[str, Mapping[str, Cost]], budget_tokens: int) -> frozenset[str]:
    """Return the tools that requests do not even name.

    None while all fit by name and line. Otherwise each server has an equal share of the budget, and
    what one does not need is for the others; of each server at least one tool is named.

    Args:
        servers: by server, what its tools cost, in its order.
        budget_tokens: what all may take.
    """
    least = {
        server: {name: min(cost.whole, cost.deferred) for name, cost in costs.items()}
        for server, costs in servers.items()
    }
    if sum(sum(costs.values()) for costs in least.values()) <= budget_tokens:
        return frozenset()
    hidden: set[str] = set()
    left = budget_tokens
    ordered = sorted(least, key=lambda server: (sum(least[server].values()), server))
    for number, server in enumerate(ordered):
        share, used = left // (len(ordered) - number), 0
        for place, name in enumerate(least[server]):
            if place and used + least[server][name] > share:
                hidden.add(name)
            else:
                used += least[server][name]
        left = max(0, left - used)
    return frozenset(hidden)


def deferred_names(costs: Mapping[str, Cost], budget_tokens: int) -> frozenset[str]:
    """Return the tools whose schemas are left out of requests.

    Nothing is left out while all fit. Otherwise the smallest schemas are carried, as those are
    the most that fit; of equals, the first by name. A tool that gains nothing by it is carried.
    The order of the tools makes no difference.
    """
    if sum(cost.whole for cost in costs.values()) <= budget_tokens:
        return frozenset()
    gains = {name: cost.whole - cost.deferred for name, cost in costs.items()}
    used = sum(min(cost.whole, cost.deferred) for cost in costs.values())
    left_out: set[str] = set()
    for name in sorted(gains, key=lambda each: (gains[each], each)):
        if gains[name] <= 0:
            continue
        if left_out or used + gains[name] > budget_tokens:
            left_out.add(name)
        else:
            used += gains[name]
    return frozenset(left_out)


# What tools of MCP servers are called here: `alias__tool`, and back. Pure.
#
#     files + read_file      files__read_file
#     files + read.file      files__read_file_1f6a2c08     no dots in names of tools here
#     9p + stat              m_9p__stat                    a name begins with a letter
#
# A name depends on its server's alias and on the tool's own name, never on other servers or on the
# order of things, so it is the same after a restart. An alias has no underscore: what stands before
# the first two of them is the alias.

_SEPARATOR = "__"
MODELS_PREFIX = f"mcp{_SEPARATOR}"
"""What models write before the names of such tools."""
_NAME_LIMIT = 64
_DIGEST_LENGTHS = (8, 16)
_BEFORE_A_DIGIT = "m_"

_ALLOWED = re.compile(r"[A-Za-z0-9_-]+")
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]+")


class _ServerNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names of one server's tools.

    Attributes:
        names: what each tool is called here, by its own name; in the order of the server.
        others: further spellings that lead to a tool, by its own name; none is one of `names`.
        lost: own names of tools that can have no name, as another tool of the server has it.
    """

    names: dict[str, str]
    others: dict[str, tuple[str, ...]]
    lost: tuple[str, ...] = ()


def prefix_of(alias: str) -> str:
    """Return what the names of a server's tools begin with, the separator included."""
    return (alias if alias[:1].isalpha() else _BEFORE_A_DIGIT + alias) + _SEPARATOR


def alias_of(name: str) -> str:
    """Return the alias in a name; "" where there is none."""
    before, separator, _ = name.partition(_SEPARATOR)
    return before.removeprefix(_BEFORE_A_DIGIT) if separator else ""


def names_of(alias: str, tools: Iterable[str]) -> _ServerNames:
    """Name the tools of a server.

    A tool whose own name fits keeps it whatever the others are called; one that comes twice is
    the first of its name.
    """
    prefix, own = prefix_of(alias), tuple(dict.fromkeys(tools))
    taken = {prefix + tool for tool in own if _fits(prefix, tool)}
    names: dict[str, str] = {}
    lost: list[str] = []
    for tool in own:
        if _fits(prefix, tool):
            names[tool] = prefix + tool
            continue
        name = next((each for each in _mapped(prefix, tool) if each not in taken), "")
        if not name:
            lost.append(tool)
            continue
        taken.add(name)
        names[tool] = name
    return _ServerNames(names=names, others=_others(prefix, names), lost=tuple(lost))


def is_matched(tool: str, patterns: Iterable[str]) -> bool:
    """Return whether a tool's own name is one of the patterns, which may end in `*`."""
    return any(
        tool.startswith(pattern[:-1]) if pattern.endswith("*") else tool == pattern
        for pattern in patterns
    )


def approval_of(alias: str, tool: str, name: str, entries: Iterable[str]) -> str:
    """Return the entry of auto_approve that names a tool; "" where there is none.

    An entry is `alias__tool` with the tool's own name, the name that it has here, or `alias__*`;
    one that names the tool goes before the pattern.
    """
    found = set(entries)
    wanted = (f"{alias}{_SEPARATOR}{tool}", name, f"{alias}{_SEPARATOR}*")
    return next((entry for entry in wanted if entry in found), "")


def _fits(prefix: str, tool: str) -> bool:
    return bool(_ALLOWED.fullmatch(tool)) and len(prefix) + len(tool) <= _NAME_LIMIT


def _mapped(prefix: str, tool: str) -> Iterable[str]:
    digest = hashlib.sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()
    readable = _FORBIDDEN.sub("_", tool).strip("_") or "tool"
    for length in _DIGEST_LENGTHS:
        room = _NAME_LIMIT - len(prefix) - length - 1
        yield f"{prefix}{readable[:room]}_{digest[:length]}"


def _others(prefix: str, names: dict[str, str]) -> dict[str, tuple[str, ...]]:
    """Return what models write as well: `mcp__files__read`, and a mapped name without its end."""
    taken, wanted = set(names.values()), dict[str, list[str]]()
    for tool, name in names.items():
        spellings = [f"mcp{_SEPARATOR}{name}"]
        if name != prefix + tool:
            spellings.append(prefix + (_FORBIDDEN.sub("_", tool).strip("_") or "tool"))
        for spelling in spellings:
            if len(spelling) <= _NAME_LIMIT and spelling not in taken:
                wanted.setdefault(spelling, []).append(tool)
    others: dict[str, tuple[str, ...]] = {}
    for spelling, tools in wanted.items():
        if len(tools) == 1:  # what could mean two tools means none
            others[tools[0]] = (*others.get(tools[0], ()), spelling)
    return others


_TOO_MANY = (
    f"the server has shown more than {MAX_TOOLS} different tools, and what a further one was "
    "cannot be kept; look at what it offers now with clawctl mcp diff {}, and accept that"
)


class CatalogueRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a configuration says of all servers' tools.

    Attributes:
        servers: the settings of each by its alias.
        budget_tokens: what their schemas may take of a request.
    """

    servers: Mapping[str, ServerSettings] = {}
    budget_tokens: int = 4_000


class ToolCatalogue(msgspec.Struct, frozen=True, kw_only=True):
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
    """

    def __init__(
        self, servers: RemoteServers, pins: PinFile, sessions: SessionStore | None
    ) -> None:
        self._servers = servers
        self._pins = pins
        self._sessions = sessions

    def catalogue(self, rules: CatalogueRules, taken: Collection[str] = ()) -> ToolCatalogue:
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
        return ToolCatalogue(
            tools=tuple(self._tool(plan) for plan in plans), left_out=left_out, tokens=tokens
        )

    def _fitted(
        self, plans: list[ToolPlan], costs: Mapping[str, Cost], budget_tokens: int
    ) -> list[ToolPlan]:
        """Return the plans with what of them requests carry, so that all fits."""
        by_server: dict[str, dict[str, Cost]] = {}
        for plan in plans:
            by_server.setdefault(plan.server.alias, {})[plan.name] = costs[plan.name]
        hidden = hidden_names(by_server, budget_tokens)
        named = {name: cost for name, cost in costs.items() if name not in hidden}
        deferred = deferred_names(named, budget_tokens)
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
        return mcp_tool(plan, self._servers, self._sessions)

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

    def differences(self, server: ServerSettings, state: ServerState) -> tuple[McpDifference, ...]:
        """Return the tools that are not what was seen of the server, or were not seen then."""
        mark, seen = settings_mark(server), _seen(state)
        judged = self._pins.judged(state.alias, mark, seen)
        found: list[McpDifference] = []
        for name, text in seen.items():
            if name in judged.changed:
                was = self._pins.text(state.alias, mark, name)
                found.append(McpDifference(tool=name, kind="changed", was=was or "", now=text))
            elif name in judged.new | judged.refused:
                kind: Literal["new", "refused"] = "new" if name in judged.new else "refused"
                found.append(McpDifference(tool=name, kind=kind, now=text))
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
    return _cost_of(first, second)
