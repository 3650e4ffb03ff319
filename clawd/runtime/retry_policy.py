"""The attempts of one hop: which answers are none, how they are asked for again, and how often.

    only thoughts         reasoning, no text, no calls        asked again twice; then the reasoning
                                                              of the last attempt is the answer
    empty, or broken off  nothing came; the end never came    asked again twice, where wanted
    unreadable            text that was to be a call          asked once to write it again

A discarded attempt leaves nothing: `HopReset` voids what was shown of it, and the same request goes
out again. A request for repair extends the one before by the text and a remark; the hop after it
begins again at what both extend.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from clawd.errors import ProviderError
from clawd.providers.base import CONTEXT_OPEN, ChatRequest, Message, ToolCall
from clawd.providers.toolcalls.detect import looks_like_call
from clawd.runtime.context import UNSAID
from clawd.runtime.model_request import Emit, HopResult, TurnMeter
from clawd.wire.events import HopReset, Notice, TextDelta

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
    return looks_like_call(_QUOTED.sub("", text))


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
            self.emit(HopReset(reason=_REASONS[flaw]))
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
        settled = self._settled(result, flaw, request)
        return msgspec.structs.replace(settled, repaired=self._repaired)

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
            self.emit(HopReset(reason=_REASONS[flaw]))
            return msgspec.structs.replace(result, text="", unreadable=result.text)
        if flaw == "only thoughts":
            self.emit(
                Notice(level="warning", text="the model only thought; its thoughts are the answer")
            )
            thoughts = self._saying(result, result.reasoning.strip())
            return msgspec.structs.replace(thoughts, is_promoted=True)
        if flaw == "incomplete":
            self.emit(Notice(level="warning", text="the model gave an empty answer"))
        return result

    def _failed(self, result: HopResult, request: ChatRequest) -> HopResult:
        """Return a failure with the newest text that came before one, but never half a call."""
        if result.text.strip() and not was_to_be_a_call(result.text, request):
            return result
        if not self.broken_off:
            return msgspec.structs.replace(result, text="")
        if result.text:
            self.emit(HopReset(reason=_REASONS["incomplete"]))
        return self._saying(result, self.broken_off)

    def _saying(self, result: HopResult, text: str) -> HopResult:
        self.emit(TextDelta(text=text))
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

    _last: tuple[str, bytes] = ("", b"")
    _repeats: int = 0
    _seen: set[bytes] = field(default_factory=set)
    _stale_rounds: int = 0

    def note(self, calls: Sequence[ToolCall], results: Sequence[str]) -> str:
        """Take a finished round; return why the turn should stop, or ""."""
        for call in calls:
            this = (call.name, _canonical(call.arguments))
            self._repeats = self._repeats + 1 if this == self._last else 1
            self._last = this
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
