"""One hop: a request to a provider, its deltas as events, what came of it, and what it cost.

Which answers are none, how they are asked for again, and how often:

    only thoughts         reasoning, no text, no calls        asked again twice; then the reasoning
                                                              of the last attempt is the answer
    empty, or broken off  nothing came; the end never came    asked again twice, where wanted
    unreadable            text that was to be a call          asked once to write it again

A discarded attempt leaves nothing: `HopReset` voids what was displayed of it, and the same request
goes out again. A request for repair extends the one before by the text and a remark; the hop after
it begins again at what both extend.
"""

import asyncio
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, assert_never

import msgspec

from clawd.errors import ClawError, ProviderError
from clawd.providers.base import (
    CONTEXT_OPEN,
    CallAssembler,
    CallDelta,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Message,
    Provider,
    ToolCall,
)
from clawd.providers.ledger import PartTokens, TokenCounter, estimated, tokens_by_kind
from clawd.providers.toolcalls.families import CALL_MARKERS
from clawd.runtime.context import UNSAID
from clawd.wire import events

Emit = Callable[[events.Event], None]

_CALL_COST = 64  # bytes of an answer that a call counts for beside its name and arguments


class HopResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a hop.

    Attributes:
        failure: why it broke off; text before it is in `text`.
        has_begun: something of the answer came.
        overlong: the answer was cut at the limit of bytes.
        evaluated: the prompt's evaluation, where the provider reports it.
        reasoning: what came beside the answer; the template says in which later prompts it is.
        is_promoted: `text` is the reasoning, as nothing else came.
        unreadable: text that was to be a call and could not be read as one; `text` is without it.
        repaired: such text of the attempt before, which was written again.
    """

    text: str
    calls: tuple[ToolCall, ...]
    finished: Finished | None = None
    failure: Exception | None = None
    has_begun: bool = False
    overlong: bool = False
    evaluated: events.PromptEvaluated | None = None
    reasoning: str = ""
    is_promoted: bool = False
    unreadable: str = ""
    repaired: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether a limit ended it: the model's on tokens, or ours on bytes."""
        return self.overlong or (self.finished is not None and self.finished.reason == "length")

    @property
    def sequence_tokens(self) -> int:
        """How many tokens a next prompt of the conversation begins with; 0 for unknown.

        An answer that came with reasoning is no part of them: where a template leaves that out,
        every token of the answer stands elsewhere.
        """
        if self.finished is not None and self.finished.usage.prompt_tokens:
            usage = self.finished.usage
            kept = 0 if self.reasoning else usage.completion_tokens
            return usage.prompt_tokens + kept
        return self.evaluated.tokens if self.evaluated is not None else 0


async def run_hop(
    provider: Provider, request: ChatRequest, emit: Emit, *, limit_bytes: int, known_tokens: int = 0
) -> HopResult:
    """Stream one answer. Failures of the provider are in the result, never raised.

    `known_tokens` is the `sequence_tokens` of the hop before.
    """
    collected = _Collected(emit, limit_bytes, known_tokens)
    deltas = provider.chat(request)
    try:
        async for delta in deltas:
            if (result := collected.take(delta)) is not None:
                return result
        lost = ProviderError("the answer broke off without an end", kind="network")
        return collected.result(failure=lost)
    finally:
        close = getattr(deltas, "aclose", None)
        if close is not None:
            await close()


@dataclass(eq=False, slots=True)
class _Collected:
    _emit: Emit
    _room: int  # in bytes
    _known_tokens: int
    _reasoning: list[str] = field(default_factory=list)
    _has_begun: bool = False
    _text: list[str] = field(default_factory=list)
    _calls: CallAssembler = field(default_factory=CallAssembler)
    _indexes: set[int] = field(default_factory=set)
    _names: dict[int, str] = field(default_factory=dict)  # of calls that come in pieces
    _evaluated: events.PromptEvaluated | None = None

    def take(self, delta: Delta) -> HopResult | None:
        self._has_begun = self._has_begun or isinstance(
            delta, events.TextDelta | events.ReasoningDelta | CallDelta
        )
        match delta:
            case events.TextDelta():
                text = self._within_limit(delta.text)
                self._text.append(text)
                self._emit(delta if text is delta.text else events.TextDelta(text=text))
            case events.ReasoningDelta():
                thought = self._within_limit(delta.text)
                self._reasoning.append(thought)
                self._emit(delta if thought is delta.text else events.ReasoningDelta(text=thought))
            case (
                events.ToolDraft()
                | events.ModelLoading()
                | events.PromptProgress()
                | events.Notice()
            ):
                self._emit(delta)
            case CallDelta():
                self._show_draft(delta)
                self._calls.add(delta)
                self._within_limit(delta.arguments)
                if delta.index not in self._indexes:  # calls without arguments are not for nothing
                    self._indexes.add(delta.index)
                    self._room -= len(delta.id) + len(delta.name) + _CALL_COST
            case events.PromptEvaluated():
                new = new_tokens(delta.tokens, delta.cached, self._known_tokens)
                old = delta.tokens - delta.cached - new
                self._evaluated = msgspec.structs.replace(delta, new=new, reevaluated=old)
                self._emit(self._evaluated)
            case Failed():
                return self.result(failure=delta.error)
            case Finished():
                usage = delta.usage
                cached = min(usage.cached_tokens, usage.prompt_tokens)
                new = new_tokens(usage.prompt_tokens, cached, self._known_tokens)
                usage = msgspec.structs.replace(
                    usage,
                    cached_tokens=cached,
                    new_tokens=new,
                    reevaluated_tokens=usage.prompt_tokens - cached - new,
                )
                self._emit(events.HopFinished(usage=usage))
                return self.result(finished=delta)
            case _:
                assert_never(delta)
        return self.result(overlong=True) if self._room < 0 else None

    def _within_limit(self, text: str) -> str:
        """Return what of the text still fits into the answer; less than all of it ends the hop."""
        data = text.encode(errors="replace")
        room, self._room = self._room, self._room - len(data)
        return text if self._room >= 0 else data[:room].decode(errors="ignore")

    def _show_draft(self, delta: CallDelta) -> None:
        """Show a piece of a call that a server writes bit by bit; a whole one is no draft."""
        if delta.name and delta.arguments:
            return
        if delta.name:
            self._names[delta.index] = delta.name
        if name := self._names.get(delta.index):
            self._emit(events.ToolDraft(tool=name, text=delta.arguments, index=delta.index))

    def result(
        self,
        *,
        finished: Finished | None = None,
        failure: Exception | None = None,
        overlong: bool = False,
    ) -> HopResult:
        calls = () if failure or overlong else self._calls.calls()
        if finished is not None and finished.reason == "length":
            calls = with_last_broken_off(calls)
        return HopResult(
            text="".join(self._text),
            calls=calls,
            finished=finished,
            failure=failure,
            has_begun=self._has_begun,
            overlong=overlong,
            evaluated=self._evaluated,
            reasoning="".join(self._reasoning),
        )


def with_last_broken_off(calls: tuple[ToolCall, ...]) -> tuple[ToolCall, ...]:
    """Return the calls of an answer that was cut: one cut before its arguments is not without any.

    What breaks off is refused by dispatch, and a receipt says so.
    """
    if not calls or calls[-1].arguments.strip() != "{}":
        return calls
    return (*calls[:-1], msgspec.structs.replace(calls[-1], arguments="{"))


def new_tokens(prompt: int, cached: int, known: int) -> int:
    """Return how many tokens of a prompt were evaluated because they were never seen before."""
    return min(max(prompt - known, 0), prompt - cached)


def as_claw_error(error: Exception) -> ClawError:
    """Return the error itself, or a provider's own exception as one that can be told."""
    if isinstance(error, ClawError):
        return error
    return ProviderError(f"{type(error).__name__}: {error}", kind="invalid")


def why(error: BaseException) -> str:
    """Return a few words on why something ended."""
    if isinstance(error, asyncio.CancelledError):
        return "it was cancelled"
    return error.message if isinstance(error, ClawError) else type(error).__name__


# What a turn has spent, hop by hop, and how much of its prompt the model has read before.


@dataclass(eq=False)
class TurnMeter:
    """Adds up the hops of one turn, discarded attempts as well: they were paid for.

    Attributes:
        known_tokens: how many tokens the next prompt begins with that the model has read.
        last_hop: the tokens of the last hop.
        usage: the sums.
    """

    known_tokens: int
    last_hop: events.HopUsage = field(default_factory=events.HopUsage)
    usage: events.TurnUsage = field(default_factory=events.TurnUsage)

    def note_hop(self, result: HopResult) -> None:
        """Take one hop."""
        self.known_tokens = result.sequence_tokens or self.known_tokens
        self.last_hop = result.finished.usage if result.finished is not None else events.HopUsage()
        usage, finished, evaluated = self.usage, result.finished, result.evaluated
        changes: dict[str, float | int] = {}
        if finished is not None:
            changes = {
                "prompt_tokens": usage.prompt_tokens + finished.usage.prompt_tokens,
                "cached_tokens": usage.cached_tokens + finished.usage.cached_tokens,
                "completion_tokens": usage.completion_tokens + finished.usage.completion_tokens,
                "tokens_per_s": finished.usage.tokens_per_s,
            }
        if evaluated is not None:
            generated = finished.usage.completion_tokens if finished else 0
            changes["context_used"] = evaluated.context_used + generated
            changes["context_size"] = evaluated.context_size
        elif finished is not None and (of_hop := finished.usage).prompt_tokens:
            # Another server's: it counts when it has answered, and tells no size.
            changes["context_used"] = of_hop.prompt_tokens + of_hop.completion_tokens
            changes["context_size"] = 0
        self.usage = msgspec.structs.replace(usage, **changes)

    def forget_answer(self) -> None:
        """Note that the last answer is in no later prompt; its prompt was read all the same."""
        self.known_tokens = self.last_hop.prompt_tokens

    def note_round(self, calls: int) -> None:
        """Take one round of calls."""
        self.usage = msgspec.structs.replace(
            self.usage, rounds=self.usage.rounds + 1, tool_calls=self.usage.tool_calls + calls
        )


# What fills the context of a turn, by part; counted while the model answers, not before.
#
# The tokens of a request's texts are counted in a task of its own that begins when the prompt is
# evaluated: the worker counts between two tokens of the answer, and nobody waits for it but the
# turn's end, and that not for long.

PATIENCE_S = 2.0


@dataclass(eq=False)
class TurnLedger:
    """Counts the requests of one turn, the last of which is reported."""

    provider: Provider
    patience_s: float = PATIENCE_S
    _request: ChatRequest | None = field(default=None, init=False)
    _counting: asyncio.Task[PartTokens] | None = field(default=None, init=False)

    def begin(self, request: ChatRequest) -> None:
        """Begin to count a request; what was counted of the one before is remembered."""
        self.close()
        self._request = request
        if isinstance(self.provider, TokenCounter):
            self._counting = asyncio.create_task(_count(self.provider, request))

    async def report(self, usage: events.HopUsage, *, used: int, size: int) -> events.TokenLedger:
        """Return the ledger of the request begun last, with the answer to it.

        Args:
            usage: of the hop that answered; zero tokens where the provider reports none.
            used: tokens of the context in use after it.
            size: of the context, 0 for unknown.
        """
        if self._request is None:
            return events.TokenLedger()
        done = set[asyncio.Task[PartTokens]]()
        if self._counting is not None:
            done, _ = await asyncio.wait({self._counting}, timeout=self.patience_s)
        counted = done.pop().result() if done else estimated(self._request)
        return ledger_of(counted, usage, used=used, size=size)

    def close(self) -> None:
        """Stop counting; idempotent."""
        if self._counting is not None:
            self._counting.cancel()
            self._counting = None


async def _count(counter: TokenCounter, request: ChatRequest) -> PartTokens:
    return await counter.count_parts(request)


def ledger_of(
    tokens: PartTokens, usage: events.HopUsage, *, used: int, size: int
) -> events.TokenLedger:
    """Return the ledger of a request and the answer to it.

    Estimates are scaled so that they add up to the prompt, where the provider says how long it is.
    """
    sums = tokens_by_kind(tokens)
    counted = sum(sums.values())
    if tokens.is_estimate and counted and usage.prompt_tokens:
        sums = {kind: count * usage.prompt_tokens // counted for kind, count in sums.items()}
        counted = sum(sums.values())
    if usage.completion_tokens:
        sums["history"] = sums.get("history", 0) + usage.completion_tokens
    parts = [events.TokenPart(name=kind, tokens=count) for kind, count in sums.items()]
    around = usage.prompt_tokens - counted
    if around > 0 and not tokens.is_estimate:
        parts.append(events.TokenPart(name="template", tokens=around))
    used = used or counted + usage.completion_tokens
    return events.TokenLedger(
        parts=tuple(parts),
        free=max(size - used, 0),
        context_size=size,
        is_estimate=tokens.is_estimate,
    )


# Text of a model that poses as something else: how it is told, and what is asked. Pure.
#
# It was to be a tool call and is none, or has the form of what others say: a tool's result, a
# notice.
#
# What stands in backticks or in a code fence is quoted, not called: a model may explain a format.

SHOWN_CHARS = 8 * 1024
TOLD_CHARS = 200

STOPPED = "I stopped: "
"""How the words begin with which a turn ends that clawd gave up."""

REMARK = """\
Your last message was to be a tool call, but it could not be read, so nothing was run. Write the \
call again, complete and alone: the name of one tool that you are offered, and its arguments as \
one JSON object. If you meant no call, answer in plain words."""

_QUOTED = re.compile(r"```(?!tool_c).*?(?:```|\Z)|(?<!`)`(?!`)[^`\n]+`(?!`)", re.DOTALL)
_RESULT = "<tool_response>"
_HEAD_CHARS = 400
_BARE = re.compile(r'\s*(?:```(?:json)?\s*)?\[?\s*\{\s*"(?:name|function|tool)"\s*:\s*"([^"]*)"')
_FREE = frozenset({"auto", "none"})
_BEGUN = re.compile(r"\s*(?:```(?:json)?\s*)?[\[{<]")  # as an answer begins that must be a call
_ARGUMENTS = re.compile(r'"(?:arguments|parameters|args)"\s*:')


def was_to_be_a_call(text: str, request: ChatRequest) -> bool:
    """Return whether text that came as no call was meant as one, of a request that offers tools."""
    if not request.tools:
        return False
    if request.tool_choice not in _FREE and _BEGUN.match(text):
        return True
    bare = _BARE.match(text[:_HEAD_CHARS])
    if bare and bare[1] in {tool.name for tool in request.tools} and _ARGUMENTS.search(text):
        return True
    plain = _QUOTED.sub("", text)
    return any(marker in plain for marker in CALL_MARKERS)


def posing(text: str) -> str:
    """Return what to tell a person of an answer in which a model repeats what others say.

    Small models go on in the form of what they read last; a person could take it for the truth.
    """
    plain = _QUOTED.sub("", text)
    if _RESULT in plain:
        return "the answer has the form of a tool's result; no tool gave it, the model wrote it"
    if plain.lstrip().startswith(CONTEXT_OPEN):
        return "the answer repeats the facts that clawd puts before a message"
    if plain.lstrip().startswith(STOPPED) or plain.strip() == UNSAID:
        return "the model repeats a notice of clawd in its own words; nothing was stopped this time"
    return ""


def head(text: str) -> str:
    """Return the beginning of such a text in one line, as a person is told it."""
    line = " ".join(text.split())
    return line if len(line) <= TOLD_CHARS else f"{line[:TOLD_CHARS]}… ({len(text)} characters)"


def kept(text: str) -> str:
    """Return as much of such a text as a log takes."""
    return text[:SHOWN_CHARS]


def asking_to_repair(request: ChatRequest, text: str) -> ChatRequest:
    """Return the request with the text and a remark on it; an extension of the one before."""
    again = (
        Message(role="assistant", content=text[:SHOWN_CHARS]),
        Message(role="user", content=REMARK),
    )
    return msgspec.structs.replace(request, messages=(*request.messages, *again))


Flaw = Literal["only thoughts", "incomplete", "unreadable"]

RETRIES: dict[Flaw, int] = {"only thoughts": 2, "incomplete": 2, "unreadable": 1}

_REASONS: dict[Flaw, str] = {
    "only thoughts": "the model only thought and said nothing",
    "incomplete": "the answer was empty or broke off",
    "unreadable": "a tool call could not be read",
}

Ask = Callable[[ChatRequest], Awaitable[HopResult]]


@dataclass(eq=False)
class Attempts:
    """Asks until an answer is one, or the attempts are used up.

    Args:
        ask: makes one attempt; failures of the provider are in its result.
        emit: takes events.
        meter: learns which answers are in no later prompt.
        retries_incomplete: whether empty and broken-off answers are asked for again.

    Attributes:
        broken_off: the newest text of an attempt that broke off; nothing of it is shown any more.
    """

    ask: Ask
    emit: Emit
    meter: TurnMeter
    retries_incomplete: bool = True
    broken_off: str = field(default="", init=False)
    _spent: Counter[Flaw] = field(default_factory=Counter, init=False)
    _repaired: str = field(default="", init=False)

    async def run(self, request: ChatRequest) -> HopResult:
        """Return the answer to a request, or the last attempt at one."""
        asked, known = request, 0
        while True:
            result = await self.ask(asked)
            flaw = flaw_of(result, request)
            if flaw is None or not self._may_retry(flaw, result):
                break
            self._spent[flaw] += 1
            self.emit(events.HopReset(reason=_REASONS[flaw]))
            if flaw == "incomplete" and not was_to_be_a_call(result.text, request):
                self.broken_off = result.text if result.text.strip() else self.broken_off
            if flaw == "unreadable":
                self._repaired = result.text
                known = self.meter.last_hop.prompt_tokens
                asked = asking_to_repair(request, result.text)
            else:
                self.meter.forget_answer()
        if asked is not request:
            self.meter.known_tokens = known
        if flaw is not None or result.failure is not None:
            result = self._settled(result, flaw, request)
        return msgspec.structs.replace(result, repaired=self._repaired)

    def _may_retry(self, flaw: Flaw, result: HopResult) -> bool:
        if result.is_cut and (flaw == "only thoughts" or result.overlong):
            return False  # the next attempt would run into the same limit
        if flaw == "incomplete" and not self.retries_incomplete:
            return False
        return self._spent[flaw] < RETRIES[flaw]

    def _settled(self, result: HopResult, flaw: Flaw | None, request: ChatRequest) -> HopResult:
        """Return what is to be made of the last attempt."""
        if result.failure is not None:
            return self._failed(result, request)
        if flaw == "unreadable":
            self.emit(events.HopReset(reason=_REASONS[flaw]))
            return msgspec.structs.replace(result, text="", unreadable=result.text)
        if flaw == "only thoughts":
            self.emit(
                events.Notice(
                    level="warning", text="the model only thought; its thoughts are the answer"
                )
            )
            thoughts = self._saying(result, result.reasoning.strip())
            return msgspec.structs.replace(thoughts, is_promoted=True)
        if flaw == "incomplete":
            self.emit(events.Notice(level="warning", text="the model gave an empty answer"))
        return result

    def _failed(self, result: HopResult, request: ChatRequest) -> HopResult:
        """Return a failure with the newest text that came before one, but never half a call."""
        if result.text.strip() and not was_to_be_a_call(result.text, request):
            return result
        if not self.broken_off:
            return msgspec.structs.replace(result, text="")
        if result.text:
            self.emit(events.HopReset(reason=_REASONS["incomplete"]))
        return self._saying(result, self.broken_off)

    def _saying(self, result: HopResult, text: str) -> HopResult:
        self.emit(events.TextDelta(text=text))
        return msgspec.structs.replace(result, text=text)


def flaw_of(result: HopResult, request: ChatRequest) -> Flaw | None:
    """Return why an attempt is no answer; None where it is one, or is a failure of another kind."""
    if result.failure is not None:
        return "incomplete" if _is_broken_off(result) else None
    is_cancelled = result.finished is not None and result.finished.reason == "cancelled"
    if result.calls or is_cancelled:
        return None
    if was_to_be_a_call(result.text, request):
        return "unreadable"
    if result.text.strip():
        return None
    if result.reasoning.strip():
        return "only thoughts"
    return None if result.is_cut else "incomplete"


def _is_broken_off(result: HopResult) -> bool:
    """Return whether the connection was lost in mid-answer; before it, providers try again."""
    is_lost = isinstance(result.failure, ProviderError) and result.failure.kind == "network"
    return is_lost and result.has_begun


SAME_CALL_LIMIT = 3
STALE_ROUND_LIMIT = 6


@dataclass(eq=False)
class LoopGuard:
    """Watches the rounds of one turn."""

    _last: ToolCall | None = None
    _repeats: int = 0
    _seen: set[bytes] = field(default_factory=set)
    _stale_rounds: int = 0

    def note(self, calls: Sequence[ToolCall], results: Sequence[str]) -> str:
        """Take a finished round; return why the turn should stop, or ""."""
        for call in calls:
            last, self._last = self._last, call
            is_same = (
                last is not None
                and last.name == call.name
                and _canonical(last.arguments) == _canonical(call.arguments)
            )
            self._repeats = self._repeats + 1 if is_same else 1
            if self._repeats >= SAME_CALL_LIMIT:
                return f"the same {call.name} call was made {self._repeats} times in a row"
        marks = {hashlib.sha256(text.encode(errors="replace")).digest() for text in results}
        self._stale_rounds = self._stale_rounds + 1 if marks <= self._seen else 0
        self._seen |= marks
        if self._stale_rounds >= STALE_ROUND_LIMIT:
            return f"{self._stale_rounds} rounds in a row brought nothing new"
        return ""


def _canonical(arguments: str) -> bytes:
    """Return JSON arguments without what makes no difference: blanks and the order of keys.

    Blanks around a value count as none, as they do where paths and commands are read.
    """
    try:
        value = msgspec.json.decode(arguments)
        if isinstance(value, dict):
            value = {k: v.strip() if isinstance(v, str) else v for k, v in value.items()}
        return msgspec.json.encode(value, order="sorted")
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError):
        return arguments.encode(errors="replace")
