"""The `local` provider: a chat request to the engine; its tokens, prompts, embeddings, slots."""

import asyncio
import logging
import struct
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from clawd import errors
from clawd.engine import protocol
from clawd.engine.embedded import embedded_model_path
from clawd.engine.models import EMBEDDED, TOY_LIMIT, CallThresholds, sampled_digest
from clawd.engine.process import failure
from clawd.engine.slot import FileMark, file_mark
from clawd.engine.supervisor import Engine
from clawd.providers import ledger
from clawd.providers.base import (
    Capabilities,
    ChatRequest,
    Delta,
    Described,
    Failed,
    Message,
    Ranks,
    RawPrompt,
    SlotState,
    TokenList,
    Vectors,
    WrittenPrompt,
    strip_context_block,
)
from clawd.providers.local_answer import LocalAnswer, LooseSchemas, ThoughtLimit
from clawd.providers.local_request import LocalOptions, fitted, generate_for, resolve_sampling
from clawd.providers.toolcalls.detect import thinking_variables
from clawd.wire.events import ModelLoading, PromptProgress

# In one frame: between two, others get their turn, and the client may have left.
INPUTS_AT_A_TIME = 32
_MAX_TOKEN = 2**31 - 1
logger = logging.getLogger(__name__)
SMALL_MODEL_PARAMS = 1_000_000_000
_SMALL_FILE_BYTES = 750 << 20  # with four bits and some for each parameter


def _values(sampling: protocol.Sampling) -> dict[str, Any]:
    """Return the values that are given, by their names."""
    values = msgspec.structs.asdict(sampling)
    kept = {name: values[name] for name in values if values[name] is not None and name != "preset"}
    found: dict[str, Any] = msgspec.to_builtins(kept)
    return found


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model by its name: how it is loaded, and what holds where a request is silent.

    Attributes:
        sampling: how it is sampled.
        template_kwargs: variables of its chat template.
        calls: when it makes calls.
    """

    config: protocol.ModelConfig
    sampling: protocol.Sampling = protocol.Sampling()
    template_kwargs: dict[str, Any] = {}
    calls: CallThresholds = CallThresholds()


class _LocalAbilities:
    """Answers with models of this machine all that base.py names but `Fronting`."""

    def __init__(
        self,
        engine: Engine,
        find: Callable[[str], LocalModel],
        options: LocalOptions,
        default_model: Callable[[], str],
    ) -> None:
        self._engine = engine
        self._find = find
        self._default_name = default_model
        self._options = options
        self._digests: dict[FileMark | None, str] = {}  # of the file that was asked for last

    @property
    def _default_model(self) -> str:
        return self._default_name()

    async def tokenize(
        self, model: str, text: str, *, add_special: bool, parse_special: bool
    ) -> TokenList:
        """Cut a text into tokens."""
        question = protocol.Tokenize(
            id=0, text=text, add_special=add_special, parse_special=parse_special
        )
        found = await self._engine.tokenize(self._config(model), question)
        return TokenList(tokens=found.tokens, pieces=found.pieces)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> bytes:
        """Return the text of tokens.

        Raises:
            InvalidRequestError: a number that is no token of the model.
        """
        unknown = next((token for token in tokens if not 0 <= token <= _MAX_TOKEN), None)
        if unknown is not None:
            raise errors.InvalidRequestError(f"{unknown} is no token")
        return await self._engine.detokenize(self._config(model), tokens)

    async def render(self, request: ChatRequest) -> WrittenPrompt:
        """Return the prompt of a request, and the `prompt_tokens` that an answer would tell."""
        request = self._offered(request)
        model, generate = self._asked(request)
        info = await self._engine.load(model.config)
        generate = fitted(generate, request, info.chat_template).generate
        question = protocol.RenderPrompt(
            id=0,
            messages=generate.messages,
            tools=generate.tools,
            template_kwargs=generate.template_kwargs,
            frames=generate.grammar.frames,
            prompt=generate.prompt,
        )
        rendered = await self._engine.render(model.config, question)
        return WrittenPrompt(text=rendered.text, tokens=rendered.tokens)

    def file_of(self, model: str) -> str:
        """Return the file of a model."""
        return self._config(model).path

    def is_loaded(self, model: str) -> bool:
        """Return whether a model is in memory; False for one that is not there."""
        try:
            return self._engine.info(self._config(model)) is not None
        except errors.ClawError:
            return False

    async def warm(self, request: ChatRequest) -> None:
        """Have a model read ahead what prompts with this system prompt and tools begin with."""
        request = self._offered(request)
        model, generate = self._asked(request)
        info = await self._engine.load(model.config)
        generate = fitted(generate, request, info.chat_template).generate
        await self._engine.warm(model.config, generate)

    async def embed(self, model: str, inputs: Sequence[RawPrompt]) -> Vectors:
        """Return a vector of each input, in their order."""
        config = self._config(model)
        info = await self._engine.load(config)
        if not info.embedding_size:
            name = model or self._default_model
            raise errors.InvalidRequestError(
                f"model {name} makes no embeddings: its file names no pooling type",
                hint="Use an embedding model: `clawctl model add FILE` with a GGUF of "
                "nomic-embed-text, bge or the like.",
            )
        vectors: list[bytes] = []
        tokens = 0
        for start in range(0, len(inputs), INPUTS_AT_A_TIME):
            some = tuple(inputs[start : start + INPUTS_AT_A_TIME])
            made = await self._engine.embed(
                config, protocol.Embed(id=0, inputs=some, first=start + 1)
            )
            vectors += made.vectors
            tokens += sum(made.counts)
        return Vectors(vectors=tuple(vectors), tokens=tokens, model=model or self._default_model)

    async def rank(self, model: str, query: str, documents: Sequence[str]) -> Ranks:
        """Return how well each document answers a query."""
        config = self._config(model)
        name = model or self._default_model
        if not (await self._engine.load(config)).ranks:
            raise errors.InvalidRequestError(
                f"model {name} ranks nothing: the pooling type in its file is not that of a "
                "reranker",
                hint="Use a reranker: `clawctl model add FILE` with a GGUF of bge-reranker, "
                "jina-reranker or the like.",
            )
        scores: list[float] = []
        tokens = 0
        for start in range(0, len(documents), INPUTS_AT_A_TIME):
            some = tuple(documents[start : start + INPUTS_AT_A_TIME])
            question = protocol.Embed(id=0, inputs=some, first=start + 1, query=query)
            made = await self._engine.embed(config, question)
            scores += (struct.unpack("<f", each)[0] for each in made.vectors)
            tokens += sum(made.counts)
        return Ranks(scores=tuple(scores), tokens=tokens, model=name)

    def has_room(self, model: str) -> bool:
        """Return whether a model is loaded, or could be without another one having to go."""
        return self._engine.has_room(self._config(model))

    async def digest(self, model: str) -> str:
        """Return by what a model's file is told from any other."""
        path = self._config(model).path
        mark = file_mark(path)
        if mark not in self._digests:
            try:
                self._digests = {mark: await asyncio.to_thread(sampled_digest, Path(path))}
            except OSError as error:
                told = f"model {path} cannot be read: {error.strerror}"
                raise errors.ModelNotFoundError(told) from error
        return self._digests[mark]

    async def describe(self, model: str) -> Described:
        """Return what a model is; loads it if need be."""
        found = self._find(model or self._default_model)
        info = await self._engine.load(found.config)
        return Described(
            name=model or self._default_model,
            path=found.config.path,
            n_ctx=info.n_ctx,
            n_parallel=info.n_parallel,
            chat_template=info.chat_template,
            bos_token=info.bos,
            eos_token=info.eos,
            sampling=_values(found.sampling),
            embedding_size=info.embedding_size,
            generates=info.generates,
        )

    def sampled(self, request: ChatRequest) -> dict[str, Any]:
        """Return the values in force for a request; loads nothing."""
        found = self._find(request.model or self._default_model)
        allowed = self._options.allow_request_penalties
        return _values(resolve_sampling(found.sampling, request, allow_penalties=allowed))

    async def slots(self, model: str) -> tuple[SlotState, ...]:
        """Return the places of a model and which are busy; never loads it."""
        config = self._config(model)
        info, doing = self._engine.info(config), await self._engine.working(config)
        n_ctx = info.n_ctx if info is not None else config.n_ctx
        busy = doing.running if doing is not None else 0
        return tuple(
            SlotState(id=number, n_ctx=n_ctx, is_processing=number < busy)
            for number in range(config.n_parallel)
        )

    def _config(self, model: str) -> protocol.ModelConfig:
        return self._find(model or self._default_model).config

    def _offered(self, request: ChatRequest) -> ChatRequest:
        """Return the request without tools for a model that can call none."""
        if self._options.tools:
            return request
        return msgspec.structs.replace(request, tools=(), tool_choice="auto")

    def _asked(self, request: ChatRequest) -> tuple[LocalModel, protocol.Generate]:
        """Return the model that a request is for, and what the engine is asked."""
        model = self._find(request.model or self._default_model)
        is_further = bool(request.messages) and request.messages[-1].role == "tool"
        least = model.calls.further if is_further else model.calls.first
        sampling = msgspec.structs.replace(model.sampling, call_from=least)
        generate = generate_for(request, sampling, self._options)
        variables = model.template_kwargs | generate.template_kwargs
        return model, msgspec.structs.replace(generate, template_kwargs=variables)


class LocalProvider(_LocalAbilities):
    """Answers with a model of this machine.

    `find` turns a model's name into what the engine needs; it raises ModelNotFoundError. `resolve`
    tells which model the default's name means now.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        find: Callable[[str], LocalModel],
        *,
        default_model: str,
        options: LocalOptions | None = None,
        resolve: Callable[[str], str] = str,
    ) -> None:
        super().__init__(engine, find, options or LocalOptions(), lambda: resolve(default_model))
        self._name = name
        self._tokens = ledger.TokenBook()
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
        except errors.ClawError:
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
        except errors.ClawError:
            return 0
        info = self._engine.info(config)
        return info.n_ctx if info else config.n_ctx

    def is_small(self, model: str) -> bool:
        """Return whether a model has less than a billion parameters; by its file, unless loaded."""
        try:
            config = self._find(model or self._default_model).config
            info = self._engine.info(config)
            if info is not None:
                return info.n_params < SMALL_MODEL_PARAMS
            return Path(config.path).stat().st_size < _SMALL_FILE_BYTES
        except (errors.ClawError, OSError):
            return False

    def reads_tools(self, model: str) -> bool:
        """Return whether tools stand in a model's prompts: the embedded one knows its own."""
        try:
            config = self._find(model or self._default_model).config
        except errors.ClawError:
            return True
        info = self._engine.info(config)
        return info.reads_tools if info else config.path != str(embedded_model_path())

    def reads_schemas(self, model: str) -> bool:
        """Return whether a model reads more of tools than names: the packaged ones do not."""
        try:
            config = self._find(model or self._default_model).config
        except errors.ClawError:
            return True
        info = self._engine.info(config)
        return info.reads_schemas if info else not config.template_file

    def sees(self, model: str) -> bool:
        """Return whether a model reads pictures; by whether it has a projector, unless loaded."""
        try:
            config = self._find(model or self._default_model).config
        except errors.ClawError:
            return False
        info = self._engine.info(config)
        return info.vision if info else bool(config.mmproj)

    def thinking_variables(self, model: str) -> frozenset[str] | None:
        """Return which variables about thinking a chat template reads; None if it is not loaded."""
        try:
            info = self._engine.info(self._config(model))
        except errors.ClawError:
            return None
        return thinking_variables(info.chat_template) if info is not None else None

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
            answer.note = _cut_by_toy(model.config.alias, request.messages)
            answer.sure_from = model.calls.change
            async with aclosing(self._engine.loading(model.config)) as steps:
                async for step in steps:
                    yield ModelLoading(
                        model=answer.model,
                        loaded_bytes=step.loaded_bytes,
                        total_bytes=step.total_bytes,
                    )
            info = await self._engine.load(model.config)
            fit = fitted(generate, request, info.chat_template)
            answer.parser, answer.parser_after = fit.parser, fit.parser_after
            limit = ThoughtLimit(request, info.chat_template)
            async with aclosing(self._engine.generate(model.config, fit.generate)) as events:
                async for event in events:
                    deltas = answer.take(event)
                    for delta in deltas:
                        yield await self._explained(delta, request)
                    if limit.is_passed(event, deltas):
                        break
                else:
                    return
            fit = limit.rest(generate)
            for delta in answer.go_on(fit):
                yield delta
            async with aclosing(self._engine.generate(model.config, fit.generate)) as events:
                async for event in events:
                    deltas = answer.take(limit.as_one(event))
                    if not isinstance(event, PromptProgress | protocol.GenerationStarted):
                        for delta in deltas:
                            yield await self._explained(delta, request)
        except errors.ClawError as error:
            yield Failed(error=error, partial=answer.has_content)

    async def count_parts(self, request: ChatRequest) -> ledger.PartTokens:
        """Count the parts of a request by the model's tokenizer, or estimate if it is not loaded.

        A text is counted once; what is over 128 Ki characters by its beginning.
        """
        try:
            config = self._find(request.model or self._default_model).config
            if self._engine.info(config) is None:
                return ledger.estimated(request)
            parts = ledger.parts_of(request)
            counts = await self._tokens.count(
                config.path,
                [part.text for part in parts],
                lambda texts: self._engine.count_tokens(config, texts),
            )
        except errors.ClawError as error:
            logger.info("tokens are estimated: %s", error.code)
            return ledger.estimated(request)
        counts = tuple(count + part.beside for part, count in zip(parts, counts, strict=True))
        is_long = any(
            part.beside or len(part.text) > ledger.MAX_COUNTED_CHARACTERS for part in parts
        )
        return ledger.PartTokens(parts=parts, counts=counts, is_estimate=is_long)

    async def _explained(self, delta: Delta, request: ChatRequest) -> Delta:
        """Name the biggest parts of a prompt that does not fit."""
        if not isinstance(delta, Failed) or not isinstance(delta.error, errors.ContextFullError):
            return delta
        error = delta.error
        if request.prompt is not None:
            return delta
        biggest = ledger.biggest_parts(await self.count_parts(request))
        told = errors.ContextFullError(
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
        request = protocol.Generate(
            id=0,
            messages=(protocol.ChatMessage(role="user", content="Hello"),),
            sampling=protocol.Sampling(temperature=0.0, max_tokens=1),
        )
        async with aclosing(self._engine.generate(model.config, request)) as events:
            async for event in events:
                if isinstance(event, protocol.GenerationFailed):
                    raise failure(event)
        elapsed_ms = (time.monotonic() - started) * 1000
        return (
            f"{self._default_model} ({info.architecture}, {info.n_params / 1e6:.1f} M parameters, "
            f"context {info.n_ctx}) answered in {elapsed_ms:.0f} ms"
        )

    async def close(self) -> None:
        """Do nothing: the engine belongs to the service, which closes it."""


def _cut_by_toy(model: str, messages: Sequence[Message]) -> str:
    """Return what a person should know of a message that the toy reads the beginning of, once.

    What is cut was told already where it happened before in the conversation, or in this turn.
    """
    if model != EMBEDDED or not messages or messages[-1].role != "user":
        return ""
    said = [strip_context_block(each.content or "") for each in messages if each.role == "user"]
    if len(said[-1]) <= TOY_LIMIT or any(len(each) > TOY_LIMIT for each in said[:-1]):
        return ""
    return (
        f"the toy read the first {TOY_LIMIT:,} of {len(said[-1]):,} characters of this message, "
        "and none of earlier ones; clawctl model list --available names better models"
    )
