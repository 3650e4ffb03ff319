"""Numbers between bounds as GBNF: digits, not arithmetic.

Of the fractions between bounds that are no whole numbers, only those between two whole numbers
that are both within are described: all that is described is within.
"""

import math

from clawd.engine.worker.gbnf import SchemaError

MAX_DIGITS = 16
# The last digit is not 0, so that a fraction is never a whole number: bounds may exclude those.
_FRACTION = '"." [0-9]{0,5} [1-9]'


def integer_between(low: float, high: float) -> str:
    """Return an expression for the whole numbers from `low` to `high`; infinite is no bound.

    Raises:
        SchemaError: there are none, or they have more digits than can be told.
    """
    alternatives = _whole_numbers(low, high)
    if not alternatives:
        raise SchemaError(f"there is no whole number from {low} to {high}")
    return " | ".join(alternatives)


def number_between(low: float, high: float, *, low_open: bool, high_open: bool) -> str:
    """Return an expression for numbers from `low` to `high`, without an open bound itself.

    Raises:
        SchemaError: no whole number is between the bounds or on them.
    """
    first = low if math.isinf(low) else math.ceil(low)
    last = high if math.isinf(high) else math.floor(high)
    whole = _whole_numbers(
        first + 1 if low_open and first == low else first,
        last - 1 if high_open and last == high else last,
    )
    fractions = [
        f"{sign}({' | '.join(parts)}) {_FRACTION}"
        for sign, parts in (
            ("", _digits(max(first, 0), last - 1)),
            ('"-" ', _digits(max(-last, 0), -first - 1)),
        )
        if parts
    ]
    if not whole and not fractions:
        raise SchemaError(f"no numbers from {low} to {high} can be told digit by digit")
    return " | ".join((*whole, *fractions))


def _whole_numbers(low: float, high: float) -> list[str]:
    negative = _digits(max(-high, 1), -low)
    found = [f'"-" ({" | ".join(negative)})'] if negative else []
    return found + _digits(max(low, 0), high)


def _digits(low: float, high: float) -> list[str]:
    """Return alternatives for the whole numbers from `low` (not negative) to `high`."""
    if low > high:
        return []
    first = str(math.ceil(low))
    if len(first) >= MAX_DIGITS:
        raise SchemaError(f"{low} has more than {MAX_DIGITS - 1} digits")
    if math.isinf(high) or high >= 10**MAX_DIGITS:
        same = _same_length(first, "9" * len(first))
        more = MAX_DIGITS - len(first) - 1
        return [*same, f"[1-9] [0-9]{{{len(first)},{len(first) + more}}}"]
    last = str(math.floor(high))
    if len(first) == len(last):
        return _same_length(first, last)
    found = _same_length(first, "9" * len(first))
    for length in range(len(first) + 1, len(last)):
        found.append(f"[1-9] [0-9]{{{length - 1}}}")
    return found + _same_length("1" + "0" * (len(last) - 1), last)


def _same_length(first: str, last: str) -> list[str]:
    if len(first) == 1:
        return [f"[{first}-{last}]"]
    rest = len(first) - 1
    if first[1:] == "0" * rest and last[1:] == "9" * rest:
        return [f"[{first[0]}-{last[0]}] [0-9]{{{rest}}}"]
    if first[0] == last[0]:
        return [f'"{first[0]}" {tail}' for tail in _same_length(first[1:], last[1:])]
    lower, upper = int(first[0]), int(last[0])
    found: list[str] = []
    if first[1:] != "0" * rest:
        found += [f'"{lower}" {tail}' for tail in _same_length(first[1:], "9" * rest)]
        lower += 1
    tails: list[str] = []
    if last[1:] != "9" * rest:
        tails = [f'"{upper}" {tail}' for tail in _same_length("0" * rest, last[1:])]
        upper -= 1
    if lower <= upper:
        found.append(f"[{lower}-{upper}] [0-9]{{{rest}}}")
    return found + tails
