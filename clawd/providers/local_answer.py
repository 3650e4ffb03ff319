"""One answer of a local model on its way: events of the engine to deltas, tokens to their texts.

A parser takes markers and reasoning out and holds text back; what it lets through is found again
in what the tokens say, in their order.
"""

import codecs
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import assert_never

import msgspec

from clawd.engine import protocol
from clawd.engine.client import GenerationEvent
from clawd.engine.process import failure
from clawd.errors import ProviderError
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    ScoredText,
    StopReason,
)
from clawd.providers.local_request import Fitted, fitted
from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.detect import also_in_tags, end_of_thought
from clawd.wire import events

_LOOPED = "the answer was ended as it did nothing but repeat itself (stop_loops in [engine])"
_OPENED, _CLOSED, _RESULT = "<tool_call>", "</tool_call>", "<tool_response>"
_LIFTED = "the answer was held to its schema for a part of it only: "
_LEFT_OUT = "the answer is not held to all of its schema, as strict is false; left out: "
_TOOL_LEFT_OUT = "the arguments of {} are not held to all of its schema; left out: {}"
logger = logging.getLogger(__name__)
MAX_LOOSE = 2_000
_BROKEN = "\ufffd"


class LocalAnswer:
    """One answer on its way: parses the text, counts, remembers what was said."""

    def __init__(
        self, provider: str, model: str, request: ChatRequest, loose: "LooseSchemas"
    ) -> None:
        self._loose = loose
        self.provider = provider
        self.model = model
        self.has_content = False
        self.parser: ToolCallParser | None = None
        self.parser_after: Callable[[str], ToolCallParser] | None = None
        self._tool_choice = request.tool_choice if request.tools else "auto"
        self.note = ""
        self.sure_from = 0.0  # so likely its calls are to be
        self._has_calls = False
        self._one_call = request.parallel_calls is False
        self._streams_calls = request.streams_calls
        self._options = ParserOptions(
            calls=bool(request.tools),
            streams=request.streams_calls,
            drafts=not request.streams_calls,
            schemas={
                tool.name: tool.held_to
                for tool in (*request.tools, *request.found, *request.unlisted)
            },
        )
        self._begins_anew = False
        self._strays = StrayMarks() if request.tools else None
        self._logprobs: list[protocol.TokenLogprob] = []
        self._trail = TokenTrail()

    def go_on(self, fit: Fitted) -> list[Delta]:
        """Return what is left of the reasoning, behind which another request goes on."""
        left = self.parser.finish(is_cut=True) if self.parser else []
        self.parser, self.parser_after = fit.parser, None
        self._begins_anew = True
        return self._deltas([each for each in left if isinstance(each, events.ReasoningDelta)])

    def take(self, event: GenerationEvent) -> list[Delta]:
        """Return what an event of the engine is to who asked."""
        match event:
            case events.PromptProgress():
                return [event]
            case protocol.GenerationStarted():
                return self._begin(event)
            case protocol.Tokens():
                self._logprobs += event.logprobs
                self._trail.push(event.logprobs)
                return self._deltas(self.parser.feed(event.text) if self.parser else [])
            case protocol.GenerationDone():
                return self._finish(event)
            case protocol.GenerationFailed():
                return [Failed(error=failure(event), partial=self.has_content)]
            case _:
                assert_never(event)

    def _begin(self, event: protocol.GenerationStarted) -> list[Delta]:
        if self.parser_after is not None and event.prompt_end:
            self.parser = self.parser_after(event.prompt_end)
        if event.fallback and self.parser is not None:
            # The chat template could not be used for calls: the prompt asked for them in tags.
            self.parser = also_in_tags(self.parser, self._options)
        tools = {name: why for name, why in event.quarantined.items() if name}
        self._loose.note(tools)
        left_out = event.quarantined.get("", "")
        notes = [_LEFT_OUT + left_out] if left_out else []
        if self._streams_calls:  # nobody here checks what a client's tools are called with
            notes += [_TOOL_LEFT_OUT.format(name, why) for name, why in tools.items()]
        evaluated = events.PromptEvaluated(
            tokens=event.tokens,
            cached=event.cached,
            elapsed_ms=event.elapsed_ms,
            context_used=event.tokens,
            context_size=event.n_ctx,
            new=event.tokens - event.cached,
        )
        return [*(events.Notice(level="warning", text=note) for note in notes), evaluated]

    def _deltas(self, parsed: list[ParsedDelta]) -> list[Delta]:
        deltas: list[Delta] = []
        for delta in parsed:
            self.has_content = self.has_content or not isinstance(delta, events.ToolDraft)
            match delta:
                case events.TextDelta():
                    text = delta.text if self._strays is None else self._strays.feed(delta.text)
                    logprobs = self._trail.take(text)
                    if self._begins_anew:  # blanks behind reasoning belong to neither
                        text = text.lstrip()
                        self._begins_anew = not text
                    if text:
                        is_same = text == delta.text and not logprobs
                        deltas.append(delta if is_same else _text(text, logprobs))
                case events.ReasoningDelta() | events.ToolDraft():
                    deltas.append(delta)
                case CallDelta() if self._one_call and delta.index:
                    continue  # of a family whose calls no grammar can tell from text
                case CallDelta():
                    if self._strays is not None:
                        self._strays.leave_call()
                    self._has_calls = True
                    if delta.name:
                        call_id = f"call_{secrets.token_hex(6)}"
                        delta = msgspec.structs.replace(delta, id=call_id)
                    deltas.append(delta)
                case _:
                    assert_never(delta)
        return deltas

    def _finish(self, done: protocol.GenerationDone) -> list[Delta]:
        is_cut = self._streams_calls and (done.reason == "length" or done.is_loop)
        deltas = self._deltas(self.parser.finish(is_cut=is_cut) if self.parser else [])
        if self._strays is not None and (text := self._strays.finish()):
            deltas.append(_text(text, self._trail.take(text)))
        if self._lacks_call() and done.reason == "stop":
            error = ProviderError(
                f"the model called no tool, though tool_choice is {self._tool_choice!r}",
                kind="invalid",
                hint="Ask again, or use tool_choice auto.",
            )
            return [*deltas, Failed(error=error, partial=self.has_content)]
        reason: StopReason = done.reason
        if self._has_calls and reason == "stop":
            reason = "tool_calls"
        elapsed_s = done.elapsed_ms / 1000
        finished = Finished(
            reason=reason,
            usage=events.HopUsage(
                prompt_tokens=done.prompt_tokens,
                cached_tokens=done.cached_tokens,
                completion_tokens=done.completion_tokens,
                drafted_tokens=done.drafted_tokens,
                accepted_tokens=done.accepted_tokens,
                tokens_per_s=done.completion_tokens / elapsed_s if elapsed_s > 0 else 0.0,
            ),
            provider=self.provider,
            model=self.model,
            logprobs=tuple(self._logprobs),
            stopped_by=done.stopped_by,
            is_unsure=not done.likely >= self.sure_from,  # nor is what is no number
        )
        if note := _LOOPED if done.is_loop else _LIFTED + done.lifted if done.lifted else self.note:
            deltas.append(events.Notice(level="warning", text=note))
        return [*deltas, finished]

    def _lacks_call(self) -> bool:
        return self._tool_choice not in {"auto", "none"} and not self._has_calls


class StrayMarks:
    """Leaves marks out that belong to nothing, as small models write them.

    These are marks that close calls where no call was opened and the answer ends with them, and
    that of a result with nothing but a call behind it. What explains a mark goes on behind it; what
    opened a call and cannot be read stays whole.
    """

    def __init__(self) -> None:
        self._held = ""
        self._seen = ""  # the end of what was passed: a mark may be parted
        self._has_opened = False

    def feed(self, text: str) -> str:
        """Return what of the text so far is no such end, and was not returned before."""
        held = self._held + text
        if not self._seen.strip() and _opens_result(held):
            self._held = held
            return ""
        self._has_opened = self._has_opened or _OPENED in self._seen + held
        cut = len(held) if self._has_opened else len(held) - _begun(held)
        while not self._has_opened and (before := held[:cut].rstrip()).endswith(_CLOSED):
            cut = len(before) - len(_CLOSED)
        passed, self._held = held[:cut], held[cut:]
        self._seen = (self._seen + passed)[-len(_OPENED) :]
        return passed

    def leave_call(self) -> None:
        """Take note that a call came."""
        self._seen = ""
        if _opens_result(self._held):
            self._held = ""

    def finish(self) -> str:
        """Return what was held back and is no mark."""
        left = self._held.replace(_CLOSED, "").strip()
        self._held = ""
        return left


def _opens_result(text: str) -> bool:
    """Return whether a text is the mark of a result, or its beginning, and blanks."""
    mark = text.strip()
    return bool(mark) and _RESULT.startswith(mark)


def _begun(text: str) -> int:
    """Return how many characters at the end of a text may begin a mark."""
    longest = range(min(len(_CLOSED) - 1, len(text)), 0, -1)
    return next((size for size in longest if _CLOSED.startswith(text[-size:])), 0)


class ThoughtLimit:
    """Watches the reasoning of an answer, and makes the request that goes on behind it.

    Args:
        request: says how many tokens it may have.
        template: of the model that answers.
    """

    def __init__(self, request: ChatRequest, template: str) -> None:
        self._request = request
        self._template = template
        self._limit = (request.sampling.reasoning_tokens if request.sampling else None) or 0
        self._written: list[str] = []
        self._evaluated: protocol.GenerationStarted | None = None
        self._spent = 0
        self._is_over = not self._limit or request.prompt is not None
        self._closing = ""
        self._began = time.monotonic()

    def is_passed(self, event: GenerationEvent, deltas: list[Delta]) -> bool:
        """Take an event and what was told of it; return whether the reasoning is to end here."""
        if isinstance(event, protocol.GenerationStarted):
            self._evaluated, self._began = event, time.monotonic()
        if self._is_over or not isinstance(event, protocol.Tokens) or self._evaluated is None:
            return False
        self._is_over = any(
            isinstance(each, events.TextDelta | CallDelta | events.ToolDraft) for each in deltas
        )
        self._written.append(event.text)
        self._spent += event.count
        if self._is_over or self._spent < self._limit:
            return False
        self._is_over = True
        end, written = self._evaluated.prompt_end, "".join(self._written)
        self._closing = end_of_thought(self._template, end, written)
        return bool(self._closing)

    def rest(self, generate: protocol.Generate) -> Fitted:
        """Return what goes on behind the reasoning."""
        written, behind = "".join(self._written), f"{self._closing}\n\n"
        sampling = generate.sampling
        if sampling.max_tokens:
            left = max(sampling.max_tokens - self._spent, 1)
            sampling = msgspec.structs.replace(sampling, max_tokens=left)
        begun = protocol.ChatMessage(role="assistant", content=written + behind)
        asked = msgspec.structs.replace(
            generate, messages=(*generate.messages, begun), sampling=sampling
        )
        found = fitted(asked, self._request, self._template)
        begun = msgspec.structs.replace(begun, content=written)
        messages = (*generate.messages, begun)
        asked = msgspec.structs.replace(found.generate, messages=messages, appended=behind)
        return found._replace(generate=asked)

    def as_one(self, event: GenerationEvent) -> GenerationEvent:
        """Return an event behind the reasoning as one of the whole answer."""
        first = self._evaluated
        if not isinstance(event, protocol.GenerationDone) or first is None:
            return event
        return msgspec.structs.replace(
            event,
            prompt_tokens=first.tokens,
            cached_tokens=first.cached,
            completion_tokens=self._spent + event.completion_tokens,
            elapsed_ms=(time.monotonic() - self._began) * 1000,
        )


class LooseSchemas:
    """The tools whose arguments no grammar holds to their schemas, and why; each is logged once."""

    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def note(self, found: Mapping[str, str]) -> None:
        """Take note of what a request met."""
        for name, reason in found.items():
            if self.reasons.get(name) == reason:
                continue
            self.reasons[name] = reason
            logger.warning(
                "arguments of tool %s are not held to its whole schema while they are written: %s",
                name,
                reason,
            )
        while len(self.reasons) > MAX_LOOSE:
            del self.reasons[next(iter(self.reasons))]


def _text(text: str, logprobs: tuple[protocol.TokenLogprob, ...]) -> events.TextDelta:
    return ScoredText(text=text, logprobs=logprobs) if logprobs else events.TextDelta(text=text)


class TokenTrail:
    """The tokens of one answer that no text was told of yet."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._waiting: deque[tuple[str, protocol.TokenLogprob | None]] = deque()

    def push(self, logprobs: Iterable[protocol.TokenLogprob]) -> None:
        """Take the next tokens."""
        for each in logprobs:
            self._waiting.append((self._decoder.decode(each.piece), each))

    def take(self, text: str) -> tuple[protocol.TokenLogprob, ...]:
        """Return the tokens that say the next text; those before it are dropped.

        A token that two texts share goes with the first. Nothing is told of a text that the
        tokens do not say.
        """
        if not self._waiting or not text:
            return ()
        said = "".join(part for part, _ in self._waiting)
        at = said.find(text)
        if at < 0 and text.endswith(_BROKEN):
            # The answer ended inside a character, whose tokens are the last.
            at, text = said.find(text[:-1]), said[max(said.find(text[:-1]), 0) :] + _BROKEN
        return self._taken(at, at + len(text)) if at >= 0 else ()

    def _taken(self, start: int, end: int) -> tuple[protocol.TokenLogprob, ...]:
        taken: list[protocol.TokenLogprob] = []
        position = 0
        while self._waiting and position < end:
            part, token = self._waiting.popleft()
            after = position + len(part)
            if token is not None and (after > start or (not part and position >= start)):
                taken.append(token)
            if after > end:
                self._waiting.appendleft((part[end - position :], None))
            position = after
        return tuple(taken)
