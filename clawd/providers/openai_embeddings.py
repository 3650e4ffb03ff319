"""OpenAI's /embeddings: the body, and the answer as vectors. Pure."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from clawd.errors import ProviderError
from clawd.providers.abilities import Vectors
from clawd.providers.base import RawPrompt


class _Vector(msgspec.Struct, frozen=True, kw_only=True):
    embedding: list[float]
    index: int | None = None


class _Usage(msgspec.Struct, frozen=True, kw_only=True):
    prompt_tokens: int = 0


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    data: list[_Vector]
    model: str | None = None
    usage: _Usage | None = None


def embedding_body(model: str, inputs: Sequence[RawPrompt]) -> dict[str, Any]:
    """Return the body; numbers as text, which every server writes."""
    given = [each if isinstance(each, str) else list(each) for each in inputs]
    return {"model": model, "input": given, "encoding_format": "float"}


def vectors_of(data: bytes, count: int, model: str) -> Vectors:
    """Return the vectors of an answer in the order of the inputs, of length 1.

    Raises:
        ProviderError: it is no such answer, or not of so many inputs.
    """
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ProviderError(
            f"the server sent what are no embeddings: {error}",
            kind="invalid",
            hint="Does this server have /embeddings, and the model make them?",
        ) from error
    given = [
        (each.index if each.index is not None else place, each)
        for place, each in enumerate(answer.data)
    ]
    found = {index: each.embedding for index, each in given}
    if len(given) != count or sorted(found) != list(range(count)):
        raise ProviderError(
            f"the server sent {len(given)} embeddings for {count} inputs", kind="invalid"
        )
    usage = answer.usage or _Usage()
    vectors = tuple(_normalised(found[index]) for index in range(count))
    return Vectors(vectors=vectors, tokens=max(usage.prompt_tokens, 0), model=answer.model or model)


def _normalised(numbers: list[float]) -> bytes:
    values = np.array(numbers, dtype=np.float64)
    length = float(np.linalg.norm(values))
    return (values / (length or 1.0)).astype("<f4").tobytes()
