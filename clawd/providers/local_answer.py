"""One answer of a local model on its way: events of the engine to deltas."""

import logging
import secrets
from collections.abc import Mapping
from typing import assert_never

import msgspec

from clawd.engine.failures import failure
from clawd.engine.mailbox import GenerationEvent
from clawd.engine.protocol import (
    GenerationDone,
    GenerationFailed,
    PromptEvaluated,
    PromptProgress,
    Tokens,
)
from clawd.engine.protocol import TokenLogprob as EngineLogprob
from clawd.errors import ProviderError
from clawd.providers.base import (
    CallDelta,
    ChatRequest,
    Delta,
    Evaluated,
    Failed,
    Finished,
    LikelyToken,
    Progress,
    Reasoning,
    StopReason,
    Text,
    TokenLogprob,
    Usage,
)
from clawd.providers.logprobs import TokenTrail
from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.detect import also_in_tags

_LEFT_OUT = "the answer is not held to all of its schema, as strict is false; left out: "

logger = logging.getLogger(__name__)

MAX_LOOSE = 2_000
_FALLBACKS: set[str] = set()  # models of which it was said


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
        self._tool_choice = request.tool_choice if request.tools else "auto"
        self._has_calls = False
        self._one_call = request.parallel_calls is False
        self._streams_calls = request.streams_calls
        self._options = ParserOptions(
            calls=bool(request.tools),
            streams=request.streams_calls,
            schemas={tool.name: tool.parameters for tool in request.tools},
        )
        self._logprobs: list[TokenLogprob] = []
        self._trail = TokenTrail()

    def take(self, event: GenerationEvent) -> list[Delta]:
        """Return what an event of the engine is to who asked."""
        match event:
            case PromptProgress():
                return [Progress(processed=event.processed, cached=event.cached, total=event.total)]
            case PromptEvaluated():
                self._note_fallback(event.fallback)
                left_out = event.quarantined.get("", "")
                self._loose.note({name: why for name, why in event.quarantined.items() if name})
                return [
                    Evaluated(
                        tokens=event.tokens,
                        cached=event.cached,
                        elapsed_ms=event.elapsed_ms,
                        context_used=event.tokens,
                        context_size=event.n_ctx,
                        notes=(_LEFT_OUT + left_out,) if left_out else (),
                    )
                ]
            case Tokens():
                logprobs = [_logprob(each) for each in event.logprobs]
                self._logprobs += logprobs
                self._trail.push(logprobs)
                return self._deltas(self.parser.feed(event.text) if self.parser else [])
            case GenerationDone():
                return self._finish(event)
            case GenerationFailed():
                return [Failed(error=failure(event), partial=self.has_content)]
            case _:
                assert_never(event)

    def _note_fallback(self, why: str) -> None:
        """Read what the prompt asked for where the chat template could not be used for calls."""
        if not why or self.parser is None:
            return
        self.parser = also_in_tags(self.parser, self._options)
        if self.model not in _FALLBACKS:
            _FALLBACKS.add(self.model)
            logger.warning(
                "the chat template of %s could not be used for tool calls, which are asked for and "
                "read as text in tags: %s",
                self.model,
                why,
            )

    def _deltas(self, parsed: list[ParsedDelta]) -> list[Delta]:
        deltas: list[Delta] = []
        for delta in parsed:
            self.has_content = True
            match delta:
                case Text():
                    logprobs = self._trail.take(delta.text)
                    deltas.append(Text(text=delta.text, logprobs=logprobs))
                case Reasoning():
                    deltas.append(delta)
                case CallDelta() if self._one_call and delta.index:
                    continue  # of a family whose calls no grammar can tell from text
                case CallDelta():
                    self._has_calls = True
                    if delta.name:
                        call_id = f"call_{secrets.token_hex(6)}"
                        delta = msgspec.structs.replace(delta, id=call_id)
                    deltas.append(delta)
                case _:
                    assert_never(delta)
        return deltas

    def _finish(self, done: GenerationDone) -> list[Delta]:
        is_cut = self._streams_calls and done.reason == "length"
        deltas = self._deltas(self.parser.finish(is_cut=is_cut) if self.parser else [])
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
            usage=Usage(
                prompt_tokens=done.prompt_tokens,
                cached_tokens=done.cached_tokens,
                completion_tokens=done.completion_tokens,
                drafted_tokens=done.drafted_tokens,
                accepted_tokens=done.accepted_tokens,
            ),
            provider=self.provider,
            model=self.model,
            tokens_per_s=done.completion_tokens / elapsed_s if elapsed_s > 0 else 0.0,
            logprobs=tuple(self._logprobs),
            stopped_by=done.stopped_by,
        )
        return [*deltas, finished]

    def _lacks_call(self) -> bool:
        return self._tool_choice not in {"auto", "none"} and not self._has_calls


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
                "arguments of tool %s are not held to its schema while they are written: %s",
                name,
                reason,
            )
        while len(self.reasons) > MAX_LOOSE:
            del self.reasons[next(iter(self.reasons))]


def _logprob(found: EngineLogprob) -> TokenLogprob:
    return TokenLogprob(
        text=found.piece.decode(errors="replace"),
        piece=found.piece,
        logprob=found.logprob,
        top=tuple(
            LikelyToken(
                text=one.piece.decode(errors="replace"), piece=one.piece, logprob=one.logprob
            )
            for one in found.top
        ),
    )
