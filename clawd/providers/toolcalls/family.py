"""A family of models: how its chat template is recognised, its parser, and what it writes."""

from collections.abc import Callable
from typing import NamedTuple

from clawd.engine.call_frame import CallFrame
from clawd.providers.toolcalls.base import THINK, ParserFactory

Frames = tuple[CallFrame, ...]


class Family(NamedTuple):
    """A family's name, and what is known of its answers.

    Attributes:
        name: the family's name.
        matches: says whether a chat template is one of the family's.
        make: makes the parser of one answer.
        frames: returns how calls are written under a chat template, the usual way first.
        thoughts: the markers around reasoning that may open an answer.
        hides_calls: what looks like a call within reasoning is none.
    """

    name: str
    matches: Callable[[str], bool]
    make: ParserFactory
    frames: Callable[[str], Frames]
    thoughts: tuple[tuple[str, str], ...] = (THINK,)
    hides_calls: bool = True


def always(*frames: CallFrame) -> Callable[[str], Frames]:
    """Return what returns these frames whatever the template."""
    return lambda _template: frames


def preferring(mark: str, if_there: CallFrame, otherwise: CallFrame) -> Callable[[str], Frames]:
    """Return what returns two frames, the one first that a mark in the template tells."""

    def frames(template: str) -> Frames:
        return (if_there, otherwise) if mark in template else (otherwise, if_there)

    return frames
