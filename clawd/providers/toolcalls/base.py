"""What a streaming tool-call parser takes and gives, and the search for markers they share."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from clawd.providers.base import CallDelta, Reasoning, Text

THINK = ("<think>", "</think>")

ParsedDelta = Text | Reasoning | CallDelta


class ToolCallParser(Protocol):
    """Turns a model's text into deltas: forward only, linear, without recursion.

    In whatever pieces a text is fed, the deltas add up to the same text, reasoning and calls.
    Nothing raises: what is no call is text, verbatim. A call is delivered whole, so that nothing
    of one that turns out malformed is ever acted on; its `id` is left empty. Where the options ask
    for it, a call is told while it is written instead: its name, then its arguments in pieces. One
    that breaks off stays as far as it came, so its arguments are no JSON.
    """

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        ...

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        """Take the end of the text; nothing is fed after it.

        Of a text that was cut (`is_cut`) the beginning of a call at its end is no text.
        """
        ...


class ParserOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a parser is made for.

    Attributes:
        calls: look for tool calls; False when no tool is offered.
        starts_in_reasoning: the prompt ends with the marker that opens reasoning.
        streams: tell calls of offered tools while they are written, where the format allows it.
        schemas: the offered tools' parameters by name, as JSON Schema; what a format's bare
            values are typed by.
    """

    calls: bool = True
    starts_in_reasoning: bool = False
    streams: bool = False
    schemas: dict[str, dict[str, Any]] = {}


ParserFactory = Callable[[ParserOptions], ToolCallParser]


def split_at_marker(text: str, markers: Sequence[str]) -> tuple[str, str, str]:
    """Split at the earliest marker: what is before it, the marker, what is after it.

    Without a whole marker the second part is empty, and the third is the longest end of the text
    that may still become one.
    """
    found = [(at, marker) for marker in markers if (at := text.find(marker)) >= 0]
    if found:
        at, marker = min(found)
        return text[:at], marker, text[at + len(marker) :]
    held = max((_overlap(text, marker) for marker in markers), default=0)
    return text[: len(text) - held], "", text[len(text) - held :]


def _overlap(text: str, marker: str) -> int:
    """Return the length of the longest end of the text with which the marker begins."""
    for length in range(min(len(marker) - 1, len(text)), 0, -1):
        if text.endswith(marker[:length]):
            return length
    return 0
