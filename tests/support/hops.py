"""What a conversation's hops may cost: what is new, and one token."""

import itertools
from collections.abc import Sequence

from clawd.wire.events import HopUsage


def lost_prefixes(hops: Sequence[HopUsage]) -> list[str]:
    """Return a line for each hop that evaluated more than its new tokens and one.

    New is what a prompt has beyond the hop before: its prompt and its answer. It is counted here
    from the three plain figures of each hop, whatever the daemon itself calls new.
    """
    lost: list[str] = []
    for number, (before, hop) in enumerate(itertools.pairwise(hops), start=2):
        known = before.prompt_tokens + before.completion_tokens
        new = hop.prompt_tokens - known
        evaluated = hop.prompt_tokens - hop.cached_tokens
        if evaluated > new + 1:
            lost.append(f"hop {number}: {evaluated} tokens evaluated, {new} of them new")
    return lost
