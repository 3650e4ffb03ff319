"""Keeps what a stream has shown true and whole: what was sent cannot be taken back.

When a hop is asked again, its answer is followed silently as long as it repeats what was sent. One
that says something else breaks the stream off: two half answers would look like one.
"""

import re

from clawd.channels.http.exchange import GatewayEvent
from clawd.errors import ProviderError
from clawd.providers.base import Failed, Finished, Text
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    HopReset,
    QuestionAsked,
    ToolRequested,
)

# What goes on with an emoji: a joiner, selectors, skin tones, tags, the frame of a key.
_EXTENDS = re.compile("[\u200d\ufe0e\ufe0f\u20e3\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]+\\Z")
_EMOJI = re.compile("[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]\\Z")
_FLAGS = re.compile("[\U0001f1e6-\U0001f1ff]+\\Z")
_JOINER = "\u200d"
_MOST_PARTS = 8


class WholeEmoji:
    """Holds an emoji at the end of a text back until it is known that nothing more belongs to it.

    Models write one in several tokens: a family is four people and three joiners, and a client that
    draws each piece as it comes shows all of them one after the other.
    """

    def __init__(self) -> None:
        self._held = ""

    def take(self, event: GatewayEvent) -> list[GatewayEvent]:
        """Return what can be shown with an event: of a text all but an emoji at its end."""
        held, self._held = self._held, ""
        if not isinstance(event, Text) or event.logprobs:
            return [Text(text=held), event] if held else [event]
        text = held + event.text
        self._held = text[_open_from(text) :]
        shown = text[: len(text) - len(self._held)]
        return [Text(text=shown)] if shown else []


def _open_from(text: str) -> int:
    """Return where the emoji at the end of a text begins; its length where there is none."""
    if flags := _FLAGS.search(text):
        return len(text) - (flags.end() - flags.start()) % 2  # two letters are a flag
    at = len(text)
    for _ in range(_MOST_PARTS):
        extended = _EXTENDS.search(text, 0, at)
        begin = extended.start() if extended else at
        if _EMOJI.search(text, 0, begin) is None:
            return at
        at = begin - 1
        if not text.endswith(_JOINER, 0, at):
            return at
    return at


class Steady:
    """The events of one generation as they can be sent."""

    def __init__(self) -> None:
        self._sent: list[str] = []  # of the running hop
        self._again = ""  # what of it is to be repeated

    def take(self, event: GatewayEvent) -> GatewayEvent | None:
        """Return what to send of an event, None for nothing; a `Failed` ends the stream."""
        match event:
            case Text():
                return self._text(event)
            case HopReset():
                self._again = "".join(self._sent)
                return event
            case (
                Finished()
                | ToolRequested()
                | ApprovalRequested()
                | ApprovalResolved()
                | QuestionAsked()
            ):
                if self._again:
                    return _diverged()
                self._sent.clear()
                return event
            case _:
                return event

    def _text(self, event: Text) -> GatewayEvent | None:
        if not self._again:
            self._sent.append(event.text)
            return event
        if self._again.startswith(event.text):
            self._again = self._again[len(event.text) :]
            return None
        if not event.text.startswith(self._again):
            return _diverged()
        rest = event.text[len(self._again) :]
        self._again = ""
        self._sent.append(rest)
        return Text(text=rest)


def _diverged() -> Failed:
    error = ProviderError(
        "the answer broke off, and the next attempt at it said something else",
        kind="network",
        hint="Ask again.",
    )
    return Failed(error=error, partial=True)
