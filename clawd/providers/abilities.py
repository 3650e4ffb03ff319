"""What some providers can do beside chatting: tokens, prompts, embeddings, slots. Protocols only.

Ask with `able`: a provider that lacks an ability simply does not have it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from clawd.errors import InvalidRequestError
from clawd.providers.base import ChatRequest, Provider, RawPrompt
from clawd.wire.pictures import Picture

_T = TypeVar("_T")
Vision = Literal["auto", "yes", "no"]
# Families of models that see, as their servers name them; in these some do not.
_SEEING = re.compile(
    r"gpt-4o|gpt-4-turbo|gpt-4\.1|gpt-4\.5|gpt-5|\bo[134]\b|claude-(3|opus|sonnet|haiku)|gemini"
    r"|vision|multimodal|[-_.\d](vl|vlm|omni)\b|llava|pixtral|gemma-?3|llama-?4|minicpm-?[vo]"
    r"|moondream|internvl|glm-4[.\d]*v|molmo|idefics|smolvlm|grok-4|nova-(lite|pro|premier)"
    r"|mistral-(small-3\.[1-9]|medium-3)",
    re.IGNORECASE,
)
_BLIND = re.compile(r"o[13]-(mini|preview)|gemma-?3[n:_-]*(1b|270m)|audio|embed", re.IGNORECASE)


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    """A text as tokens; a piece may end inside a UTF-8 character."""

    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...]


class WrittenPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A request as its model reads it, and how many tokens that is."""

    text: str
    tokens: int


class Vectors(msgspec.Struct, frozen=True, kw_only=True):
    """Embeddings in the order of the inputs: little-endian float32 each, of length 1 (L2).

    `tokens` is how many the inputs had, all together.
    """

    vectors: tuple[bytes, ...]
    tokens: int
    model: str


class Ranks(msgspec.Struct, frozen=True, kw_only=True):
    """How well documents answer a query, in their order: the model's own numbers, more is better.

    `tokens` is how many were read, the query anew with each document.
    """

    scores: tuple[float, ...]
    tokens: int
    model: str


class SlotState(msgspec.Struct, frozen=True, kw_only=True):
    """One of the places in which a model generates."""

    id: int
    n_ctx: int
    is_processing: bool


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What a loaded model is to its clients.

    Attributes:
        sampling: how it answers where a request is silent, by llama.cpp's names.
        embedding_size: numbers in a vector of its embeddings; 0 when it makes none.
        generates: False for a model that makes embeddings only.
    """

    name: str
    path: str
    n_ctx: int
    n_parallel: int
    chat_template: str
    bos_token: str
    eos_token: str
    sampling: dict[str, Any]
    embedding_size: int
    generates: bool


@runtime_checkable
class Tokenizing(Protocol):
    """A provider with the tokenizers and templates of its models; "" is the default model.

    Each loads the model if need be, and raises ClawError for a model that is not there.
    """

    async def tokenize(
        self, model: str, text: str, *, add_special: bool, parse_special: bool
    ) -> TokenList:
        """Cut a text into tokens.

        Args:
            model: its name.
            text: what to cut.
            add_special: with what the model wants at a text's beginning and end.
            parse_special: control tokens that are written out become control tokens.
        """
        ...

    async def detokenize(self, model: str, tokens: Sequence[int]) -> bytes:
        """Return the text of tokens; it need be no whole UTF-8.

        Raises:
            InvalidRequestError: a number that is no token of the model.
        """
        ...

    async def render(self, request: ChatRequest) -> WrittenPrompt:
        """Return the prompt of a request, and the `prompt_tokens` that an answer would tell."""
        ...


@runtime_checkable
class Holding(Protocol):
    """A provider that holds arguments of calls to their schemas while they are written."""

    def loose_schemas(self) -> Mapping[str, str]:
        """Return by tool why a schema could not be held; only what a request has met so far."""
        ...


@runtime_checkable
class Thinking(Protocol):
    """A provider that knows how its models are told to think."""

    def thinking_variables(self, model: str) -> frozenset[str] | None:
        """Return which variables about thinking a chat template reads; None for not known yet."""
        ...


@runtime_checkable
class Embedding(Protocol):
    """A provider that makes embeddings."""

    async def embed(self, model: str, inputs: Sequence[RawPrompt]) -> Vectors:
        """Return a vector of each input, in their order; nothing of an empty list.

        Raises:
            InvalidRequestError: the model makes none, or an input has no tokens.
            ContextFullError: an input is too long; tells how long.
            ClawError: the model is not there, or failed.
        """
        ...


@runtime_checkable
class Ranking(Protocol):
    """A provider that tells how well documents answer a query."""

    async def rank(self, model: str, query: str, documents: Sequence[str]) -> Ranks:
        """Return the score of each document.

        Raises:
            InvalidRequestError: the model is no reranker.
            ContextFullError: a document with the query is too long; tells how long.
            ClawError: the model is not there, or failed.
        """
        ...


@runtime_checkable
class Sampled(Protocol):
    """A provider that samples itself."""

    def sampled(self, request: ChatRequest) -> dict[str, Any]:
        """Return the values in force for a request, by the names of `Sampling`; loads nothing.

        Raises:
            ClawError: the model or the preset is not there.
        """
        ...


@runtime_checkable
class Hosting(Protocol):
    """A provider whose models take the memory of this machine."""

    def has_room(self, model: str) -> bool:
        """Return whether a model is loaded, or could be without another one having to go.

        Raises:
            ModelNotFoundError: it is not there.
        """
        ...

    async def digest(self, model: str) -> str:
        """Return by what a model's file is told from any other.

        Raises:
            ModelNotFoundError: it is not there.
        """
        ...


@runtime_checkable
class Serving(Protocol):
    """A provider that runs models itself, and can say how."""

    async def describe(self, model: str) -> Described:
        """Return what a model is; loads it if need be."""
        ...

    async def slots(self, model: str) -> tuple[SlotState, ...]:
        """Return the places of a model and which are busy; never loads it."""
        ...


@runtime_checkable
class ToolReading(Protocol):
    """A provider that knows whether the prompts of its models hold the tools of a request."""

    def reads_tools(self, model: str) -> bool:
        """Return whether they do; True where it is not known. Never loads a model."""
        ...

    def reads_schemas(self, model: str) -> bool:
        """Return whether they hold more than what tools and arguments are called; as above."""
        ...


@runtime_checkable
class Warming(Protocol):
    """A provider that can have a model read ahead what prompts begin with."""

    def file_of(self, model: str) -> str:
        """Return the file of a model.

        Raises:
            ClawError: it is not there.
        """
        ...

    def is_loaded(self, model: str) -> bool:
        """Return whether a model is in memory; False for one that is not there."""
        ...

    async def warm(self, request: ChatRequest) -> None:
        """Load the model of a request, and have it read that when it has time.

        Its one message, if there is one, is what that of a user begins with.

        Raises:
            ClawError: it is not there, or cannot be loaded.
        """
        ...


@runtime_checkable
class Seeing(Protocol):
    """A provider that knows which of its models see pictures."""

    def sees(self, model: str) -> bool:
        """Return whether a model does; False for one that is not there. Never loads it."""
        ...


@runtime_checkable
class Fronting(Protocol):
    """A provider that answers with others, and does what else they can do with them."""

    def fronted(self, model: str) -> Sequence[tuple[Provider, str]]:
        """Return who may be asked in its place, the first one first, and their name of a model."""
        ...


def able(provider: Provider, ability: type[_T], model: str) -> tuple[_T, str] | None:
    """Return who has an ability where a provider is asked, and its name of a model; None: nobody.

    Behind one that answers with others it is always the same one: vectors and tokens of two models
    do not go together.

    Args:
        provider: who is asked.
        ability: one of the protocols here.
        model: its name of the model.
    """
    if isinstance(provider, ability):
        return provider, model
    if not isinstance(provider, Fronting):
        return None
    found = (able(each, ability, name) for each, name in provider.fronted(model))
    return next((each for each in found if each is not None), None)


def sees(provider: Provider, model: str) -> bool:
    """Return whether a model sees pictures; behind one that answers with others all of them must.

    Args:
        provider: who is asked.
        model: its name of the model.
    """
    if isinstance(provider, Seeing):
        return provider.sees(model)
    fronted = provider.fronted(model) if isinstance(provider, Fronting) else ()
    return bool(fronted) and all(sees(each, name) for each, name in fronted)


def check_seen(pictures: Sequence[Picture], provider: Provider, model: str) -> None:
    """Refuse pictures for a model that sees none.

    Raises:
        InvalidRequestError: there are some, and it does not; names the model.
    """
    if pictures and not sees(provider, model):
        name = f"{provider.name()}/{model}" if model else provider.name()
        raise InvalidRequestError(
            f"model {name} sees no pictures, only text",
            hint="Leave the pictures out, or ask a model with `vision` among its capabilities. Of "
            'a model of another server that sees, say so: vision = "yes" in its section.',
        )


def sees_by_name(vision: Vision, model: str) -> bool:
    """Return whether a model of another server sees: as the operator says, else by its name."""
    if vision != "auto":
        return vision == "yes"
    return _SEEING.search(model) is not None and _BLIND.search(model) is None
