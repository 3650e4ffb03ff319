"""What the local provider does beside chatting: tokens, prompts, embeddings, slots."""

from collections.abc import Callable, Sequence

import msgspec

from clawd.engine.protocol import (
    Embed,
    Generate,
    ModelConfig,
    RenderPrompt,
    SamplingConfig,
    Tokenize,
)
from clawd.engine.supervisor import Engine
from clawd.errors import InvalidRequestError
from clawd.providers.abilities import (
    Described,
    SlotState,
    TokenList,
    Vectors,
    WrittenPrompt,
)
from clawd.providers.base import ChatRequest, RawPrompt
from clawd.providers.local_request import LocalOptions, fitted, generate_for

# In one frame: between two, others get their turn, and whoever asked may have left.
INPUTS_AT_A_TIME = 32
_MAX_TOKEN = 2**31 - 1


class LocalModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model by its name: how it is loaded, and how it is sampled where a request is silent."""

    config: ModelConfig
    sampling: SamplingConfig = SamplingConfig()


class LocalAbilities:
    """Answers `Tokenizing`, `Embedding` and `Serving` with models of this machine."""

    def __init__(
        self,
        engine: Engine,
        find: Callable[[str], LocalModel],
        default_model: str,
        options: LocalOptions,
    ) -> None:
        self._engine = engine
        self._find = find
        self._default_model = default_model
        self._options = options

    async def tokenize(
        self, model: str, text: str, *, add_special: bool, parse_special: bool
    ) -> TokenList:
        """Cut a text into tokens."""
        question = Tokenize(id=0, text=text, add_special=add_special, parse_special=parse_special)
        found = await self._engine.tokenize(self._config(model), question)
        return TokenList(tokens=found.tokens, pieces=found.pieces)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> bytes:
        """Return the text of tokens.

        Raises:
            InvalidRequestError: a number that is no token of the model.
        """
        unknown = next((token for token in tokens if not 0 <= token <= _MAX_TOKEN), None)
        if unknown is not None:
            raise InvalidRequestError(f"{unknown} is no token")
        return await self._engine.detokenize(self._config(model), tokens)

    async def render(self, request: ChatRequest) -> WrittenPrompt:
        """Return the prompt of a request, and the `prompt_tokens` that an answer would tell."""
        request = self._offered(request)
        model, generate = self._asked(request)
        info = await self._engine.load(model.config)
        generate = fitted(generate, request, info.chat_template).generate
        question = RenderPrompt(
            id=0,
            messages=generate.messages,
            tools=generate.tools,
            template_kwargs=generate.template_kwargs,
            prompt=generate.prompt,
        )
        rendered = await self._engine.render(model.config, question)
        return WrittenPrompt(text=rendered.text, tokens=rendered.tokens)

    async def embed(self, model: str, inputs: Sequence[RawPrompt]) -> Vectors:
        """Return a vector of each input, in their order."""
        config = self._config(model)
        info = await self._engine.load(config)
        if not info.embedding_size:
            name = model or self._default_model
            raise InvalidRequestError(
                f"model {name} makes no embeddings: its file names no pooling type",
                hint="Use an embedding model: `clawctl model add FILE` with a GGUF of "
                "nomic-embed-text, bge or the like.",
            )
        vectors: list[bytes] = []
        tokens = 0
        for start in range(0, len(inputs), INPUTS_AT_A_TIME):
            some = tuple(inputs[start : start + INPUTS_AT_A_TIME])
            made = await self._engine.embed(config, Embed(id=0, inputs=some, first=start + 1))
            vectors += made.vectors
            tokens += sum(made.counts)
        return Vectors(vectors=tuple(vectors), tokens=tokens, model=model or self._default_model)

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
            sampling=msgspec.to_builtins(found.sampling),
            embedding_size=info.embedding_size,
            generates=info.generates,
        )

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

    def _config(self, model: str) -> ModelConfig:
        return self._find(model or self._default_model).config

    def _offered(self, request: ChatRequest) -> ChatRequest:
        """Return the request without tools for a model that can call none."""
        if self._options.tools:
            return request
        return msgspec.structs.replace(request, tools=(), tool_choice="auto")

    def _asked(self, request: ChatRequest) -> tuple[LocalModel, Generate]:
        """Return the model that a request is for, and what the engine is asked."""
        model = self._find(request.model or self._default_model)
        return model, generate_for(request, model.sampling, self._options)
