"""A turn of clawd's own loop as one answer: its events, its hops as one text, its usage as one sum.

The texts of the hops stand one below the other. What may yet turn out to be a call that could not
be read is held back until that is known, so that it need not be taken back.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import get_args

import msgspec

from clawd.channels.http.model_api import GatewayEvent, SideEvent
from clawd.errors import BusyError, ClawError
from clawd.providers.base import Failed, Finished
from clawd.providers.toolcalls.detect import looks_like_call
from clawd.providers.toolcalls.families import CALL_MARKERS
from clawd.runtime.inbox import CANCEL_LIMIT_S, Ticket
from clawd.wire import events
from clawd.wire.safe_text import visible_line

BETWEEN_HOPS = "\n\n"
NOTED_CHARS = 300
_HELD_CHARS = 400
_MARKER_CHARS = 40
_MAY_BE_CALL = re.compile(
    r'\s*(?:`{0,3}(?:j(?:s(?:on?)?)?)?\s*)?\[?\s*(?:\{\s*(?:"\w{0,8}"?\s*:?\s*)?)?'
)
_BARE_CALL = re.compile(r'\s*(?:```(?:json)?\s*)?\[?\s*\{\s*"(?:name|function|tool)"\s*:')
_MARKER_STARTS = frozenset(marker[0] for marker in CALL_MARKERS)
_MARKER_BEGINNINGS = frozenset(
    marker[:length] for marker in CALL_MARKERS for length in range(1, len(marker))
)
_SIDE = get_args(SideEvent)

Ending = Callable[[str], Awaitable[None]]
"""Called once, when the turn is stored, with the text that was told."""


class TurnStream:
    """The answer of one turn.

    Args:
        ticket: of the turn.
        model: the name to answer with.
        told: called with the whole text before the last event; what it raises fails the answer.
        closed: called when the turn has ended, however.
        telling: turns the events of the turn into those of the answer.
    """

    def __init__(
        self,
        ticket: Ticket,
        *,
        model: str,
        told: Ending,
        closed: Callable[[bool], Awaitable[None]],
        telling: "Telling | None" = None,
    ) -> None:
        self.model = model
        self._telling = telling or Telling()
        self.conversation_id = ticket.conversation_id
        self._ticket = ticket
        self._told = told
        self._closed = closed
        self._is_closed = False
        self._is_answered = False
        self._events = self._run()

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        """Return the events."""
        return self._events

    async def aclose(self) -> None:
        """Cancel the turn if it runs, and wait for its end; idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._ticket.cancel()
        try:
            await self._events.aclose()
            with contextlib.suppress(ClawError, TimeoutError):
                async with asyncio.timeout(CANCEL_LIMIT_S):
                    await self._ticket.finished()
        finally:
            await self._closed(self._is_answered)

    async def _run(self) -> AsyncGenerator[GatewayEvent, None]:
        telling = self._telling
        async for event in self._ticket.events:
            for told in telling.take(event):
                yield told
        if self._ticket.events.stalled:
            yield Failed(error=BusyError("nobody took the answer", retry_after_s=1.0))
            return
        try:
            finished = await self._ticket.finished()
            await self._told(telling.text)
        except ClawError as error:
            yield Failed(error=error, partial=bool(telling.text))
            return
        self._is_answered = True
        yield telling.finished(finished)


class Telling:
    """Turns the events of a turn into those of an answer.

    Args:
        tells_waiting: say in the text that a call waits for an approval, and what came of it.
    """

    def __init__(self, *, tells_waiting: bool = False) -> None:
        self._tells_waiting = tells_waiting
        self._asked: dict[str, str] = {}  # tools that wait, by the approval
        self._text: list[str] = []
        self._hop = 0  # where the text of the running hop begins
        self._held = ""
        self._tail = ""  # of what was told of the hop: a marker may begin in it
        self._is_plain = False  # what the hop says is no call, by how it begins
        self._usage = events.HopUsage()

    @property
    def text(self) -> str:
        """What was told, without what was taken back."""
        return "".join(self._text)

    def take(self, event: events.Event) -> list[GatewayEvent]:
        """Return what an event of the turn is to those who wait for the answer."""
        told: list[GatewayEvent] = []
        match event:
            case events.TextDelta():
                told = self._say(event.text)
            case (
                events.ReasoningDelta()
                | events.ModelLoading()
                | events.PromptProgress()
                | events.PromptEvaluated()
            ):
                told = [event]
            case events.HopFinished():
                self._usage = _sum(self._usage, event)
            case events.HopReset():
                del self._text[self._hop :]
                self._begin_hop()
                told = [event]
            case events.ToolRequested():
                told = [*self._release(), event]
                self._begin_hop()
            case events.ApprovalRequested() | events.QuestionAsked() | events.ApprovalResolved():
                told = [*self._release(), *self._note(event), event]
            case events.TurnFinished():
                told = self._release()
            case _:
                told = [event] if isinstance(event, _SIDE) else []
        return told

    def _note(
        self, event: events.ApprovalRequested | events.QuestionAsked | events.ApprovalResolved
    ) -> list[events.TextDelta]:
        """Return what a person reads who sees nothing but the text."""
        match event:
            case events.ApprovalRequested():
                self._asked[event.approval_id] = event.tool
                name = event.approval_id
                note = (
                    f"clawd waits for your approval of {visible_line(event.tool, NOTED_CHARS)} "
                    f"{visible_line(event.arguments, NOTED_CHARS)}. {_within(event)}: "
                    f"clawctl approval approve {name} (or deny {name})"
                )
            case events.QuestionAsked():
                note = (
                    f"clawd asks: {visible_line(event.text, NOTED_CHARS)} {_within(event)}: "
                    f"POST /questions/{event.question_id}"
                )
            case _:
                tool = self._asked.pop(event.approval_id, "the call")
                why = f" ({visible_line(event.reason, NOTED_CHARS)})" if event.reason else ""
                note = f"{visible_line(tool, NOTED_CHARS)}: {event.answer}{why}"
        if not self._tells_waiting:
            return []
        text = f"\n\n[{note}]\n\n" if self._text else f"[{note}]\n\n"
        self._text.append(text)
        self._begin_hop()
        return [events.TextDelta(text=text)]

    def finished(self, turn: events.TurnFinished) -> Finished:
        """Return the last event of an answer."""
        return Finished(
            reason="length" if turn.stop_reason == "length" else "stop",
            usage=msgspec.structs.replace(self._usage, tokens_per_s=turn.usage.tokens_per_s),
            provider=turn.provider,
            model=turn.model,
        )

    def _say(self, text: str) -> list[GatewayEvent]:
        """Tell a piece of text, or hold it back as long as a call may become of it."""
        self._held += text
        is_open = not self._is_plain and may_be_call(self._held)
        newest = self._tail + self._held
        if is_open or looks_like_call(newest):
            return []
        told = self._release(_begun_marker(newest))
        self._is_plain = self._is_plain or bool(told)
        return told

    def _release(self, kept: int = 0) -> list[GatewayEvent]:
        """Tell what is held, but for so many characters at its end."""
        until = max(0, len(self._held) - kept)
        text, self._held = self._held[:until], self._held[until:]
        if not text:
            return []
        is_first = len(self._text) == self._hop
        if is_first and self._hop and not self._text[-1].endswith("\n"):
            text = BETWEEN_HOPS + text
        self._text.append(text)
        self._tail = text[-_MARKER_CHARS:]
        return [events.TextDelta(text=text)]

    def _begin_hop(self) -> None:
        self._hop = len(self._text)
        self._held = self._tail = ""
        self._is_plain = False


def _within(event: events.ApprovalRequested | events.QuestionAsked) -> str:
    """Return until when an answer counts; while somebody follows, nothing ends it."""
    return f"Answer within {event.expires_in_s:.0f} s" if event.expires_in_s else "Answer"


def may_be_call(text: str) -> bool:
    """Return whether a text may be the beginning of a call that was written as plain JSON."""
    if _BARE_CALL.match(text):
        return True
    return len(text) <= _HELD_CHARS and _MAY_BE_CALL.fullmatch(text) is not None


def _begun_marker(text: str) -> int:
    """Return how long the end of a text is that a marker of calls may begin with."""
    tail = text[-_MARKER_CHARS:]
    for at, letter in enumerate(tail):
        # Asked for every token: where no marker can begin, no piece of the text is made.
        if letter in _MARKER_STARTS and tail[at:] in _MARKER_BEGINNINGS:
            return len(tail) - at
    return 0


def _sum(usage: events.HopUsage, hop: events.HopFinished) -> events.HopUsage:
    names = events.HopUsage.__struct_fields__
    sums = {name: getattr(usage, name) + getattr(hop.usage, name) for name in names}
    return msgspec.structs.replace(usage, **sums)
