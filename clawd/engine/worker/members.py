"""Rules for members that come once at most, and some must: few in any order, many in one."""

from collections.abc import Sequence

from clawd.engine.worker.gbnf import Rules

# Every set of members that may still come is a rule: 2 to the power of this many.
MAX_IN_ANY_ORDER = 5


def members_rule(
    rules: Rules,
    members: Sequence[tuple[str, bool]],
    separator: str,
    *,
    keeps_order: bool = False,
) -> str:
    """Return a rule for one or more members, each (rule, is required); "" when there are none.

    `separator` is the expression between two; `keeps_order` holds also few to their order.
    """
    if not keeps_order and len(members) <= MAX_IN_ANY_ORDER:
        return _in_any_order(rules, members, separator)
    return _in_order(rules, members, separator)


def _in_any_order(rules: Rules, members: Sequence[tuple[str, bool]], separator: str) -> str:
    more = {0: '""'}
    first = ""
    for left in sorted(range(1, 1 << len(members)), key=int.bit_count):
        here = [index for index in range(len(members)) if left >> index & 1]
        first = rules.choice(
            [rules.add(f"{members[index][0]} {more[left & ~(1 << index)]}") for index in here]
        )
        must = any(members[index][1] for index in here)
        more[left] = _more(rules, f"{separator} {first}", must=must)
    return first


def _in_order(rules: Rules, members: Sequence[tuple[str, bool]], separator: str) -> str:
    """Return a rule for members in their order, made from the last to the first.

    `first` begins with one of the members from here on, `more` may follow a member. After a
    separator few rules are open at a time, not one per subset.
    """
    first, more, must = "", '""', False
    for rule, is_required in reversed(members):
        here = rules.add(f"{rule} {more}")
        first = here if is_required or not first else rules.add(f"{here} | {first}")
        must = must or is_required
        more = _more(rules, f"{separator} {first}", must=must)
    return first


def _more(rules: Rules, following: str, *, must: bool) -> str:
    return rules.add(following if must else f"({following})?")
