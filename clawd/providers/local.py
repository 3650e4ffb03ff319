"""The `local` provider: a chat request to the engine, its events to deltas."""

import logging
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import assert_never

import msgspec

from clawd.engine.mailbox import GenerationEvent
from clawd.engine.protocol import (
    ChatMessage,
    Generate,
    GenerationDone,
    GenerationFailed,
    ModelConfig,
    PromptEvaluated,
    PromptProgress,
    SamplingConfig,
    Tokens,
)
from clawd.engine.protocol import TokenLogprob as EngineLogprob
from clawd.engine.supervisor import Engine
from clawd.errors import (
    BusyError,
    ClawError,
    ContextFullError,
    EngineError,
    InvalidRequestError,
    ProviderError,
)
from clawd.providers.base import (
    CallDelta,
    Capabilities,
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
from clawd.providers.constraint import grammar_for
from clawd.providers.ledger import (
    MAX_COUNTED_CHARACTERS,
    PartTokens,
    TokenBook,
    biggest_parts,
    estimated,
    parts_of,
)
from clawd.providers.local_request import LocalOptions, generate_for
from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.detect import detect, habits_of

GREEDY = SamplingConfig(temperature=0.0)

logger = logging.getLogger(__name__)


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model by its name: how it is loaded, and how it is sampled where a request is silent."""

    config: ModelConfig
    sampling: SamplingConfig = SamplingConfig()


class LocalProvider:
    """Answers with a model of this machine.

    `find` turns a model's name into what the engine needs; it raises ModelNotFoundError.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        find: Callable[[str], LocalModel],
        *,
        default_model: str,
        options: LocalOptions | None = None,
    ) -> None:
        self._name = name
        self._engine = engine
        self._find = find
        self._default_model = default_model
        self._options = options or LocalOptions()
        self._tokens = TokenBook()

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._name

    def capabilities(self) -> Capabilities:
        """Return what it can do; the context's size is known once the model is loaded."""
        try:
            config = self._find(self._default_model).config
        except ClawError:
            return Capabilities(local=True, tools=self._options.tools, parallel=1)
        return Capabilities(
            local=True,
            tools=self._options.tools,
            context_size=self.context_size_of(self._default_model),
            parallel=config.n_parallel,
        )

    def context_size_of(self, model: str) -> int:
        """Return the size of a model's context, 0 for a model that is not there or not loaded."""
        try:
            config = self._find(model or self._default_model).config
        except ClawError:
            return 0
        info = self._engine.info(config)
        return info.n_ctx if info else config.n_ctx

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request."""
        if not self._options.tools:
            request = msgspec.structs.replace(request, tools=(), tool_choice="auto")
        answer = _Answer(self._name, request.model or self._default_model, request)
        try:
            model = self._find(answer.model)
            generate = generate_for(request, model.sampling, self._options)
            info = await self._engine.load(model.config)
            options = ParserOptions(
                calls=bool(generate.tools),
                schemas={tool.name: tool.parameters for tool in request.tools},
            )
            answer.parser = detect(info.chat_template)(options)
            grammar = grammar_for(request, habits_of(info.chat_template))
            generate = msgspec.structs.replace(generate, grammar=grammar)
            async with aclosing(self._engine.generate(model.config, generate)) as events:
                async for event in events:
                    for delta in answer.take(event):
                        yield await self._explained(delta, request)
        except ClawError as error:
            yield Failed(error=error, partial=answer.has_content)

    async def count_parts(self, request: ChatRequest) -> PartTokens:
        """Count the parts of a request by the model's tokenizer, or estimate if it is not loaded.

        A text is counted once; what is over 128 Ki characters by its beginning.
        """
        try:
            config = self._find(request.model or self._default_model).config
            if self._engine.info(config) is None:
                return estimated(request)
            parts = parts_of(request)
            counts = await self._tokens.count(
                config.path,
                [part.text for part in parts],
                lambda texts: self._engine.count_tokens(config, texts),
            )
        except ClawError as error:
            logger.info("tokens are estimated: %s", error.code)
            return estimated(request)
        is_long = any(len(part.text) > MAX_COUNTED_CHARACTERS for part in parts)
        return PartTokens(parts=parts, counts=counts, is_estimate=is_long)

    async def _explained(self, delta: Delta, request: ChatRequest) -> Delta:
        """Name the biggest parts of a prompt that does not fit."""
        if not isinstance(delta, Failed) or not isinstance(delta.error, ContextFullError):
            return delta
        error = delta.error
        biggest = biggest_parts(await self.count_parts(request))
        told = ContextFullError(f"{error.message}; its biggest parts: {biggest}", hint=error.hint)
        return msgspec.structs.replace(delta, error=told)

    async def check(self) -> str:
        """Generate one token.

        Raises:
            ClawError: the model cannot be loaded or does not answer.
        """
        model = self._find(self._default_model)
        started = time.monotonic()
        info = await self._engine.load(model.config)
        request = Generate(
            id=0,
            messages=(ChatMessage(role="user", content="Hello"),),
            sampling=SamplingConfig(temperature=0.0, max_tokens=1),
        )
        async with aclosing(self._engine.generate(model.config, request)) as events:
            async for event in events:
                if isinstance(event, GenerationFailed):
                    raise _failure(event)
        elapsed_ms = (time.monotonic() - started) * 1000
        return (
            f"{self._default_model} ({info.architecture}, {info.n_params / 1e6:.1f} M parameters, "
            f"context {info.n_ctx}) answered in {elapsed_ms:.0f} ms"
        )

    async def close(self) -> None:
        """Do nothing: the engine belongs to the service, which closes it."""


class _Answer:
    """One answer on its way: parses the text, counts, remembers what was said."""

    def __init__(self, provider: str, model: str, request: ChatRequest) -> None:
        self.provider = provider
        self.model = model
        self.has_content = False
        self.parser: ToolCallParser | None = None
        self._tool_choice = request.tool_choice if request.tools else "auto"
        self._has_calls = False
        self._logprobs: list[TokenLogprob] = []

    def take(self, event: GenerationEvent) -> list[Delta]:
        match event:
            case PromptProgress():
                return [Progress(processed=event.processed, cached=event.cached, total=event.total)]
            case PromptEvaluated():
                _log_quarantined(event.quarantined)
                return [
                    Evaluated(
                        tokens=event.tokens,
                        cached=event.cached,
                        elapsed_ms=event.elapsed_ms,
                        context_used=event.tokens,
                        context_size=event.n_ctx,
                    )
                ]
            case Tokens():
                self._logprobs += map(_logprob, event.logprobs)
                return self._deltas(self.parser.feed(event.text) if self.parser else [])
            case GenerationDone():
                return self._finish(event)
            case GenerationFailed():
                return [Failed(error=_failure(event), partial=self.has_content)]
            case _:
                assert_never(event)

    def _deltas(self, parsed: list[ParsedDelta]) -> list[Delta]:
        deltas: list[Delta] = []
        for delta in parsed:
            self.has_content = True
            match delta:
                case Text() | Reasoning():
                    deltas.append(delta)
                case CallDelta():
                    self._has_calls = True
                    call_id = f"call_{secrets.token_hex(6)}"
                    deltas.append(msgspec.structs.replace(delta, id=call_id))
                case _:
                    assert_never(delta)
        return deltas

    def _finish(self, done: GenerationDone) -> list[Delta]:
        deltas = self._deltas(self.parser.finish() if self.parser else [])
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
        )
        return [*deltas, finished]

    def _lacks_call(self) -> bool:
        return self._tool_choice not in {"auto", "none"} and not self._has_calls


def _log_quarantined(quarantined: dict[str, str]) -> None:
    for name, reason in quarantined.items():
        logger.warning(
            "arguments of tool %s are not held to its schema while they are written: %s",
            name,
            reason,
        )


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


def _failure(event: GenerationFailed) -> ClawError:
    match event.code:
        case "busy":
            return BusyError(event.message, retry_after_s=event.retry_after_s, hint=event.hint)
        case "context_full":
            return ContextFullError(event.message, hint=event.hint)
        case "invalid_request":
            return InvalidRequestError(event.message, hint=event.hint)
        case _:
            return EngineError(event.message, code=event.code, hint=event.hint)
