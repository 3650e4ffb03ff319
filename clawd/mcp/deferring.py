"""Which schemas of remote tools requests carry, where all of them would take too much. Pure."""

from collections.abc import Mapping

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
