"""Keeps what a stream has shown true: what was sent cannot be taken back.

When a hop is asked again, its answer is followed silently as long as it repeats what was sent. One
that says something else breaks the stream off: two half answers would look like one.
"""

from clawd.channels.http.exchange import GatewayEvent
from clawd.errors import ProviderError
from clawd.providers.base import Failed, Finished, Text
from clawd.wire.events import HopReset, ToolRequested


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
            case Finished() | ToolRequested():
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
