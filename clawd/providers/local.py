"""The `local` provider: a chat request to the engine, its events to deltas."""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import msgspec

from clawd.engine.failures import failure
from clawd.engine.protocol import (
    ChatMessage,
    Generate,
    GenerationFailed,
    SamplingConfig,
)
from clawd.engine.supervisor import Engine
from clawd.errors import (
    ClawError,
    ContextFullError,
)
from clawd.providers.base import (
    Capabilities,
    ChatRequest,
    Delta,
    Failed,
    Loading,
)
from clawd.providers.ledger import (
    MAX_COUNTED_CHARACTERS,
    PartTokens,
    TokenBook,
    biggest_parts,
    estimated,
    parts_of,
)
from clawd.providers.local_abilities import LocalAbilities
from clawd.providers.local_abilities import LocalModel as LocalModel
from clawd.providers.local_answer import LocalAnswer, LooseSchemas
from clawd.providers.local_request import LocalOptions, fitted

GREEDY = SamplingConfig(temperature=0.0)

logger = logging.getLogger(__name__)


class LocalProvider(LocalAbilities):
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
        super().__init__(engine, find, default_model, options or LocalOptions())
        self._name = name
        self._tokens = TokenBook()
        self._loose = LooseSchemas()

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._name

    def loose_schemas(self) -> Mapping[str, str]:
        """Return the tools whose arguments no grammar held to their schemas, and why."""
        return self._loose.reasons

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

    @property
    def default_model(self) -> str:
        """The name of the model that answers where none is asked for."""
        return self._default_model

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request."""
        request = self._offered(request)
        answer = LocalAnswer(self._name, request.model or self._default_model, request, self._loose)
        try:
            model, generate = self._asked(request)
            async with aclosing(self._engine.loading(model.config)) as steps:
                async for step in steps:
                    yield Loading(
                        model=answer.model,
                        loaded_bytes=step.loaded_bytes,
                        total_bytes=step.total_bytes,
                    )
            info = await self._engine.load(model.config)
            generate, answer.parser = fitted(generate, request, info.chat_template)
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
        if request.prompt is not None:
            return delta
        biggest = biggest_parts(await self.count_parts(request))
        told = ContextFullError(
            f"{error.message}; its biggest parts: {biggest}", hint=error.hint, data=error.data
        )
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
                    raise failure(event)
        elapsed_ms = (time.monotonic() - started) * 1000
        return (
            f"{self._default_model} ({info.architecture}, {info.n_params / 1e6:.1f} M parameters, "
            f"context {info.n_ctx}) answered in {elapsed_ms:.0f} ms"
        )

    async def close(self) -> None:
        """Do nothing: the engine belongs to the service, which closes it."""
