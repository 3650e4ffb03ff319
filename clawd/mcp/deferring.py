"""Which schemas of remote tools requests carry, where all of them would take too much. Pure."""

from collections.abc import Collection, Mapping

import msgspec

from clawd.providers.base import ToolSpec
from clawd.providers.ledger import estimate_tokens, tool_text


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool takes of every request, in tokens: with its schema, and without it."""

    whole: int
    deferred: int


def cost_of(whole: ToolSpec, deferred: ToolSpec) -> Cost:
    """Return what a tool costs in both forms; estimated, so that it is the same for each model."""
    return Cost(
        whole=estimate_tokens(tool_text(whole)), deferred=estimate_tokens(tool_text(deferred))
    )


def hidden_names(
    servers: Mapping[str, Mapping[str, Cost]], budget_tokens: int, first: Collection[str] = ()
) -> frozenset[str]:
    """Return the tools that requests do not even name.

    None while all fit by name and line. Otherwise each server has an equal share of the budget, and
    what one does not need is for the others; of each server at least one tool is named.

    Args:
        servers: by server, what its tools cost, in its order.
        budget_tokens: what all may take.
        first: tools that go before the others of their server.
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
        names = sorted(least[server], key=lambda name: name not in first)
        for place, name in enumerate(names):
            if place and used + least[server][name] > share:
                hidden.add(name)
            else:
                used += least[server][name]
        left = max(0, left - used)
    return frozenset(hidden)


def deferred_names(
    costs: Mapping[str, Cost], budget_tokens: int, first: Collection[str] = ()
) -> frozenset[str]:
    """Return the tools whose schemas are left out of requests.

    Nothing is left out while all fit. Otherwise the smallest schemas are carried, as those are
    the most that fit; of equals, the first by name; those of `first` go before all others. A tool
    that gains nothing by it is carried.
    The order of the tools makes no difference.
    """
    if sum(cost.whole for cost in costs.values()) <= budget_tokens:
        return frozenset()
    gains = {name: cost.whole - cost.deferred for name, cost in costs.items()}
    used = sum(min(cost.whole, cost.deferred) for cost in costs.values())
    left_out: set[str] = set()
    for name in sorted(gains, key=lambda each: (each not in first, gains[each], each)):
        if gains[name] <= 0:
            continue
        if left_out or used + gains[name] > budget_tokens:
            left_out.add(name)
        else:
            used += gains[name]
    return frozenset(left_out)
