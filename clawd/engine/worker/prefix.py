"""How much two token sequences have in common at their beginning."""

from collections.abc import Sequence

_STRIDE = 256


def shared_length(kept: Sequence[int], tokens: Sequence[int]) -> int:
    """Return the length of the longest common prefix (compared in strides: C speed)."""
    limit = min(len(kept), len(tokens))
    start = 0
    while start < limit and kept[start : start + _STRIDE] == tokens[start : start + _STRIDE]:
        start += _STRIDE
    while start < limit and kept[start] == tokens[start]:
        start += 1
    return min(start, limit)
