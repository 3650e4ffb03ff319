"""The queue of inputs that want vectors: one in a step, requests in turn. Knows no llama.cpp."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from clawd.engine.protocol import Embed, Embedded, FromWorker, QuestionFailed, RawPrompt
from clawd.engine.worker.backend import Vocabulary
from clawd.engine.worker.files import LoadError
from clawd.engine.worker.prompt import UnknownTokenError, check_tokens

Tokenize = Callable[..., list[int]]
"""Cuts a text into tokens, as `Vocabulary.tokenize` does."""

# No vocabulary packs this many characters into every token; longer inputs are refused unread.
_MAX_CHARACTERS_PER_TOKEN = 64
_CHARACTERS_PER_TOKEN = 4


class VectorError(Exception):
    """A vector could not be made."""


class VectorMaker(Protocol):
    """Makes vectors.

    Attributes:
        size: numbers in a vector; 0 means that it makes none.
        limit: tokens of its longest input.
        ranks: its vector of a pair is one number: how well the document answers the query.
    """

    size: int
    limit: int
    ranks: bool

    def pair(self, tokenize: Tokenize, query: str, document: str) -> list[int]:
        """Return the tokens of a query and a document as the model was trained to read them."""
        ...

    def vector(self, tokens: Sequence[int]) -> bytes:
        """Return the vector of 1 to `limit` tokens.

        Raises:
            VectorError: it failed.
            LoadError: there is too little memory.
        """
        ...


class _Asked:
    def __init__(self, request: Embed) -> None:
        self.number = request.id
        self.query = request.query
        self.left = deque(enumerate(request.inputs, start=request.first))
        self.vectors: list[bytes] = []
        self.counts: list[int] = []


class _RefusedError(Exception):
    """An input that cannot be used; `failed` says why."""

    def __init__(self, failed: QuestionFailed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class EmbeddingQueue:
    """Answers Embed."""

    def __init__(self, vocabulary: Vocabulary, maker: VectorMaker) -> None:
        self._vocabulary = vocabulary
        self._maker = maker
        self._asked: deque[_Asked] = deque()

    @property
    def has_work(self) -> bool:
        """Return whether a step would do anything."""
        return bool(self._asked)

    def submit(self, request: Embed) -> list[FromWorker]:
        """Queue a request; return the answer where there is nothing to do."""
        if request.query is not None and not self._maker.ranks:
            return [_ranks_none(request.id)]
        if request.query is None and not self._maker.size:
            return [_makes_none(request.id)]
        if not request.inputs:
            return [Embedded(id=request.id, vectors=(), counts=())]
        self._asked.append(_Asked(request))
        return []

    def cancel(self, number: int) -> None:
        """Forget a request; unknown ids do nothing."""
        self._asked = deque(each for each in self._asked if each.number != number)

    def step(self) -> list[FromWorker]:
        """Make one vector; return the answer of a request that is done with it."""
        if not self._asked:
            return []
        asked = self._asked.popleft()
        place, given = asked.left.popleft()
        try:
            tokens = self._tokens(asked, place, given)
            asked.vectors.append(self._maker.vector(tokens))
        except _RefusedError as error:
            return [error.failed]
        except (VectorError, LoadError) as error:
            told = f"the embedding of input {place} failed: {error}"
            return [QuestionFailed(id=asked.number, code="engine", message=told)]
        asked.counts.append(len(tokens))
        if asked.left:
            self._asked.append(asked)
            return []
        return [Embedded(id=asked.number, vectors=tuple(asked.vectors), counts=tuple(asked.counts))]

    def _tokens(self, asked: _Asked, place: int, given: RawPrompt) -> Sequence[int]:
        limit, number, query = self._maker.limit, asked.number, asked.query
        if isinstance(given, str):
            length = len(given) + len(query or "")
            if length > limit * _MAX_CHARACTERS_PER_TOKEN:
                told = f"{length} characters"
                raise _too_long(number, place, told, (length // _CHARACTERS_PER_TOKEN, limit))
            if query is not None:
                given = tuple(self._maker.pair(self._vocabulary.tokenize, query, given))
            else:
                given = tuple(
                    self._vocabulary.tokenize(given, parse_special=True, add_special=True)
                )
        elif query is not None:
            raise _refused(number, f"input {place}: what is ranked is a text")
        else:
            try:
                check_tokens(given, self._vocabulary)
            except UnknownTokenError as error:
                raise _refused(number, f"input {place}: {error}") from error
        if not given:
            raise _refused(number, f"input {place} is empty")
        if len(given) > limit:
            raise _too_long(number, place, f"{len(given)} tokens", (len(given), limit))
        return given


def _makes_none(number: int) -> QuestionFailed:
    return QuestionFailed(
        id=number,
        code="invalid_request",
        message="this model makes no embeddings: its file names no pooling type",
        hint="use an embedding model, such as a GGUF of nomic-embed-text or bge",
    )


def _ranks_none(number: int) -> QuestionFailed:
    return QuestionFailed(
        id=number,
        code="invalid_request",
        message="this model ranks nothing: the pooling type in its file is not that of a reranker",
        hint="use a reranker, such as a GGUF of bge-reranker or jina-reranker",
    )


def _refused(number: int, message: str) -> _RefusedError:
    return _RefusedError(QuestionFailed(id=number, code="invalid_request", message=message))


def _too_long(number: int, place: int, told: str, counts: tuple[int, int]) -> _RefusedError:
    count, limit = counts
    return _RefusedError(
        QuestionFailed(
            id=number,
            code="context_full",
            message=f"input {place} is too large: it has {told}, the model takes {limit} tokens",
            hint="cut it into pieces, or raise n_ubatch of the model up to its context",
            n_prompt_tokens=count,
            n_ctx=limit,
        )
    )
