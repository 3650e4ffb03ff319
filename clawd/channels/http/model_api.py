"""The one internal form of a request and of what comes of it. Dialects translate to it and back.

A dialect makes a `ModelRequest` of a body, and bytes or a JSON value of the events. It knows no
provider, no tool and no conversation; what runs requests (`Generations`) knows no dialect.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Protocol

import msgspec

from clawd.engine.protocol import TokenLogprob
from clawd.providers.base import (
    CallAssembler,
    CallDelta,
    Delta,
    Failed,
    Finished,
    Infill,
    Message,
    RawPrompt,
    Sampling,
    ToolCall,
    ToolSpec,
)
from clawd.security.principal import Principal
from clawd.wire import events

SideEvent = (
    events.ToolRequested
    | events.ToolStarted
    | events.ToolProgress
    | events.ToolFinished
    | events.ApprovalRequested
    | events.ApprovalResolved
    | events.QuestionAsked
    | events.PlanChanged
    | events.HopReset
    | events.Notice
)
"""What clawd's own loop does beside the answer; dialects show it only where clients bear it."""

GatewayEvent = Delta | SideEvent

PRESET_WORDS = "words"


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who sent a request.

    Attributes:
        principal: as whom it acts.
        scopes: what its key allows: `models`, `chat` (and so models), `tools`, `admin`.
        key_id: of the key it showed; empty for a keyless one.
    """

    principal: Principal
    scopes: frozenset[str] = frozenset()
    key_id: str = ""


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request, whatever dialect it came in.

    Attributes:
        messages: the conversation as the client tells it, without system messages.
        system: the client's; None where it brought none, then clawd's own stands.
        tools: the client's. With them the answer is one pass and calls go back to the client;
            without, clawd's own are offered and run in the daemon.
        prompt: a text or token ids that no chat template touches, or a gap to be filled in;
            messages are empty then.
        parallel_calls: whether several calls in one answer are welcome; None says nothing.
        sampling: of this request only.
        model: as the client named it; empty for the default.
        inject: False leaves clawd's system prompt and tools out.
        is_plain: one pass without clawd's tools, as log probabilities and several choices need it.
        conversation_id: of a conversation here that the message belongs to; empty to find it.
        wants_progress: the client asked to be told of prompt evaluation.
        metadata: hints for routers.
        preset: to sample with; `words` where the messages of the user may begin with the name of
            one, which is no part of their text then.
        tells_waiting: a person reads the answer as it comes, and nothing else of what happens: say
            in its text when a call waits for an approval.
        is_kept: whether a turn of clawd's own loop stays in memory.
        program: what asks, as its User-Agent names it.
        max_rounds: after how many rounds of calls a turn of clawd's own loop ends; 0 is as
            configured.
    """

    messages: tuple[Message, ...] = ()
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: str = "auto"
    parallel_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    prompt: RawPrompt | Infill | None = None
    sampling: Sampling = Sampling()
    model: str = ""
    inject: bool = True
    is_plain: bool = False
    conversation_id: str = ""
    wants_progress: bool = False
    metadata: dict[str, str] = {}
    preset: str = ""
    tells_waiting: bool = False
    is_kept: bool = True
    program: str = ""
    max_rounds: int = 0


class Generation(Protocol):
    """One answer on its way. Iterate it: it ends with exactly one `Finished` or `Failed`.

    Attributes:
        model: the name to answer with.
        conversation_id: where the answer is kept; empty for a forwarded request.
    """

    model: str
    conversation_id: str

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        """Return the events."""
        ...

    async def aclose(self) -> None:
        """Stop the work at once, wherever it is; idempotent."""
        ...


class Generations(Protocol):
    """Runs requests."""

    async def open(self, request: ModelRequest, caller: Caller) -> Generation:
        """Check a request and begin it.

        Raises:
            ClawError: it cannot be answered; nothing has begun.
        """
        ...

    async def count(self, request: ModelRequest, caller: Caller) -> int:
        """Return how many tokens the prompt of a request has.

        Raises:
            ClawError: the model is not there, or nobody can count for it.
        """
        ...


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer: the events of one generation folded together."""

    text: str
    reasoning: str
    calls: tuple[ToolCall, ...]
    finished: Finished
    evaluated: events.PromptEvaluated | None = None
    side: tuple[SideEvent, ...] = ()

    @property
    def usage(self) -> events.HopUsage:
        """Tokens."""
        return self.finished.usage

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        """Of the tokens of the answer, where asked for."""
        return self.finished.logprobs


class Folding:
    """Folds events into a whole answer, the same text that a stream of them shows."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls = CallAssembler()
        self._evaluated: events.PromptEvaluated | None = None
        self._side: list[SideEvent] = []
        self._hop = (0, 0)  # where text and reasoning of the running hop begin

    def add(self, event: GatewayEvent) -> Answered | None:
        """Take an event; return the answer when it is whole.

        Raises:
            Exception: the error of a `Failed`.
        """
        match event:
            case events.TextDelta():
                self._text.append(event.text)
            case events.ReasoningDelta():
                self._reasoning.append(event.text)
            case CallDelta():
                self._calls.add(event)
            case events.PromptEvaluated():
                self._evaluated = event
            case events.ModelLoading() | events.PromptProgress() | events.ToolDraft():
                pass
            case Failed():
                raise event.error
            case Finished():
                return Answered(
                    text="".join(self._text),
                    reasoning="".join(self._reasoning),
                    calls=self._calls.calls(),
                    finished=event,
                    evaluated=self._evaluated,
                    side=tuple(self._side),
                )
            case _:
                self._take_side(event)
        return None

    def _take_side(self, event: SideEvent) -> None:
        """Take a side event; what the running hop said is void when it is asked again."""
        self._side.append(event)
        if isinstance(event, events.HopReset):
            del self._text[self._hop[0] :]
            del self._reasoning[self._hop[1] :]
        elif isinstance(event, events.ToolRequested):
            self._hop = len(self._text), len(self._reasoning)


class Dialect(Protocol):
    """Writes one answer in a client's own words. A new one is made for every request.

    Attributes:
        content_type: of a stream.
        ping: bytes that keep an idle stream alive and that every client of the dialect ignores;
            empty where there are none.
    """

    content_type: str
    ping: bytes

    def begin(self, generation: Generation) -> Iterable[bytes]:
        """Return what opens a stream; called once, with the first event at hand."""
        ...

    def take(self, event: GatewayEvent) -> Iterable[bytes]:
        """Return what an event becomes in the stream; `Finished` closes it."""
        ...

    def broken(self, error: Exception) -> Iterable[bytes]:
        """Return what tells an error after the stream began."""
        ...

    def whole(self, generation: Generation, answered: Answered) -> Any:
        """Return the JSON value of a whole answer."""
        ...


# A call's arguments as the object that clients read, whatever the model wrote.


def object_of(arguments: str) -> dict[str, Any]:
    """Return the arguments; what is no JSON object stands under `unreadable`."""
    try:
        value = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {"unreadable": arguments}
    return value if isinstance(value, dict) else {"unreadable": arguments}


def is_whole(arguments: str) -> bool:
    """Return whether the text is a whole JSON value."""
    try:
        msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


# JSON for streams in which a line ends an event, whatever a reader takes for a line's end.

# Some readers end lines as Unicode has it, and would cut a value in two.
_LINE_ENDS = {b"\xc2\x85": b"\\u0085", b"\xe2\x80\xa8": b"\\u2028", b"\xe2\x80\xa9": b"\\u2029"}


def on_one_line(value: Any) -> bytes:
    """Return a value as JSON text that no reader takes for two lines."""
    data = msgspec.json.encode(value)
    for raw, escaped in _LINE_ENDS.items():
        data = data.replace(raw, escaped)
    return data
