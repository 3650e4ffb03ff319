"""POST /v1/embeddings, and what every dialect's embeddings are made with.

{"model": "…", "input": "a text" | ["a text", [1, 2, 3]] | [1, 2, 3],
 "encoding_format": "float" | "base64", "dimensions": 768}

POST /v1/rerank: documents in the order in which they answer a query, as Jina and Cohere have it.

{"model": "bge-reranker", "query": "who wrote it?", "documents": ["…", {"text": "…"}], "top_n": 3}
{"model": "bge-reranker", "results": [{"index": 1, "relevance_score": 2.5}, …], "usage": {…}}

The score is the model's own number, as llama-server tells it: more is better, but it need not lie
between 0 and 1.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from aiohttp import web

from clawd.channels.http.app import GATEWAY, Gateway, caller_of
from clawd.channels.http.body import (
    RankedDocument,
    RankedText,
    RerankAnswer,
    RerankBody,
    RerankUsage,
    check_items,
    field,
    invalid,
    is_token,
    read_object,
)
from clawd.channels.http.catalogue import find_able
from clawd.channels.http.model_api import Caller
from clawd.errors import ContextFullError, InvalidRequestError
from clawd.providers.base import Embedding, Ranking, RawPrompt, Tokenizing

_MAX_INPUTS = 2048
_CHARACTERS_PER_TOKEN = 16  # more than a text needs to fill the model
_FORMATS = ("float", "base64")


class _EmbeddingResult(msgspec.Struct, frozen=True, kw_only=True):
    """Vectors in the order of the inputs.

    Attributes:
        vectors: little-endian float32 each, of length 1 (L2).
        tokens: of all inputs.
        model: the name to answer with.
    """

    vectors: tuple[bytes, ...]
    tokens: int
    model: str

    def numbers(self) -> list[list[float]]:
        """Return the vectors as lists of numbers."""
        return [np.frombuffer(vector, "<f4").tolist() for vector in self.vectors]

    @property
    def size(self) -> int:
        """How many numbers a vector has; 0 without one."""
        return len(self.vectors[0]) // 4 if self.vectors else 0


async def embed_cut(
    gateway: Gateway, caller: Caller, model: str, inputs: Sequence[RawPrompt]
) -> _EmbeddingResult:
    """Return the embeddings of the beginnings of inputs, as much of each as the model takes.

    Raises:
        ClawError: as `embed` does, but for what is too long.
    """
    try:
        return await embed(gateway, caller, model, inputs)
    except ContextFullError as error:
        limit = int((error.data or {}).get("n_ctx", 0))
        if limit <= 0:
            raise
        tokenizing, own_name, _ = await find_able(
            gateway,
            model,
            Tokenizing,  # type: ignore[type-abstract]
            "cannot cut texts",
        )
    cut = [await _cut(tokenizing, own_name, each, limit) for each in inputs]
    return await embed(gateway, caller, model, cut)


async def _cut(tokenizing: Tokenizing, model: str, given: RawPrompt, limit: int) -> RawPrompt:
    """Return as much of an input as fits, with the token that the model wants at a text's end."""
    if not isinstance(given, str):
        return given[:limit]
    text = given[: limit * _CHARACTERS_PER_TOKEN]
    bare, whole = [
        (await tokenizing.tokenize(model, text, add_special=special, parse_special=True)).tokens
        for special in (False, True)
    ]
    if len(whole) <= limit:
        return tuple(whole) if len(text) < len(given) else given
    has_end = bool(bare) and whole[-1] != bare[-1]
    return (*whole[: limit - 1], whole[-1]) if has_end else tuple(whole[:limit])


async def embed(
    gateway: Gateway, caller: Caller, model: str, inputs: Sequence[RawPrompt]
) -> _EmbeddingResult:
    """Return the embeddings of texts or token lists.

    Args:
        gateway: what handlers work with.
        caller: who asks.
        model: as the client named it; empty for the default.
        inputs: in any mixture; none gives no vectors.

    Raises:
        ClawError: the model is not there, makes no embeddings, or an input does not fit.
    """
    del caller  # every key that reaches a model may have its vectors
    provider, own_name, name = await find_able(
        gateway,
        model,
        Embedding,  # type: ignore[type-abstract]
        "makes no embeddings",
    )
    made = await provider.embed(own_name, inputs)
    return _EmbeddingResult(vectors=made.vectors, tokens=made.tokens, model=name)


async def _post_embeddings(request: web.Request) -> web.Response:
    """Answer POST /v1/embeddings."""
    body = await read_object(request)
    inputs = inputs_of(body.get("input"))
    encoding = field(body, "encoding_format", str, "float")
    if encoding not in _FORMATS:
        raise invalid("encoding_format", f"{encoding!r} is none of {', '.join(_FORMATS)}")
    dimensions = field(body, "dimensions", int, 0)
    result = await embed(
        request.app[GATEWAY], caller_of(request), field(body, "model", str, ""), inputs
    )
    if dimensions and dimensions != result.size:
        raise invalid(
            "dimensions",
            f"this model's vectors have {result.size} numbers and are not cut; {dimensions} asked",
        )
    # Thousands of vectors take a while to be written as numbers.
    data = await asyncio.to_thread(_encoded, result, encoding)
    return web.Response(body=data, content_type="application/json")


def inputs_of(value: Any, name: str = "input") -> list[RawPrompt]:
    """Return the inputs that a field holds: a text, token ids, or a list of both.

    Raises:
        InvalidRequestError: it holds none, too many, or something else.
    """
    if isinstance(value, str):
        return [value]
    if not isinstance(value, list) or not value:
        raise invalid(name, "expected a text, token ids, or a list of these that is not empty")
    if is_token(value[0]):
        return [_tokens(value, name)]
    if len(value) > _MAX_INPUTS:
        raise invalid(name, f"{len(value)} inputs, at most {_MAX_INPUTS} at a time")
    return [
        each if isinstance(each, str) else _tokens(each, f"{name}[{number}]")
        for number, each in enumerate(value)
    ]


def _tokens(value: Any, name: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(map(is_token, value)):
        raise invalid(name, "expected a text, or a list of token ids that is not empty")
    return tuple(value)


def _told(result: _EmbeddingResult, encoding: str) -> dict[str, Any]:
    vectors: Sequence[Any] = result.numbers()
    if encoding == "base64":
        vectors = [base64.b64encode(vector).decode("ascii") for vector in result.vectors]
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ],
        "model": result.model,
        "usage": {"prompt_tokens": result.tokens, "total_tokens": result.tokens},
    }


def _encoded(result: _EmbeddingResult, encoding: str) -> bytes:
    return msgspec.json.encode(_told(result, encoding))


async def _post_rerank(request: web.Request) -> web.Response:
    """Answer POST /v1/rerank."""
    caller_of(request)
    asked = await _asked(request)
    texts = [each if isinstance(each, str) else each.text for each in asked.documents]
    ranking, own_name, name = await find_able(
        request.app[GATEWAY],
        asked.model,
        Ranking,  # type: ignore[type-abstract]
        "ranks nothing",
    )
    found = await ranking.rank(own_name, asked.query, texts)
    best = sorted(enumerate(found.scores), key=lambda each: -each[1])[: asked.top_n]
    told = RerankAnswer(
        model=name,
        results=tuple(
            RankedDocument(
                index=index,
                relevance_score=score,
                document=RankedText(text=texts[index]) if asked.return_documents else None,
            )
            for index, score in best
        ),
        usage=RerankUsage(prompt_tokens=found.tokens, total_tokens=found.tokens),
    )
    return web.Response(body=msgspec.json.encode(told), content_type="application/json")


async def _asked(request: web.Request) -> RerankBody:
    """Return the body.

    Raises:
        InvalidRequestError: it cannot be meant.
    """
    body = await read_object(request)
    check_items("documents", body.get("documents"))
    try:
        asked = msgspec.convert(
            {name: value for name, value in body.items() if value is not None}, RerankBody
        )
    except msgspec.ValidationError as error:
        raise InvalidRequestError(
            f"{error}; expected a query, and documents as a list of texts"
        ) from error
    if not asked.documents:
        raise invalid("documents", "expected at least one")
    if len(asked.documents) > _MAX_INPUTS:
        raise invalid("documents", f"{len(asked.documents)} of them, at most {_MAX_INPUTS}")
    if asked.top_n is not None and asked.top_n < 1:
        raise invalid("top_n", f"is {asked.top_n}, expected 1 or more")
    return asked


_PATHS = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")


ROUTES = [
    web.post("/v1/embeddings", _post_embeddings),
    web.post("/embeddings", _post_embeddings),
    *(web.post(path, _post_rerank) for path in _PATHS),
]
