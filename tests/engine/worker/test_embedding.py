"""The queue of inputs that want vectors, with a maker in place of a model."""

from collections.abc import Sequence

from clawd.engine.protocol import Embed, Embedded, FromWorker, QuestionFailed, RawPrompt
from clawd.engine.worker.embedding import EmbeddingQueue, Tokenize, VectorError
from clawd.engine.worker.files import LoadError
from tests.engine.worker.test_prompt import PAIR, Characters


class Maker:
    """Makes a vector that is the tokens as text."""

    def __init__(self, size: int = 4, limit: int = 5, *, ranks: bool = False) -> None:
        self.size = size
        self.ranks = ranks
        self.limit = limit
        self.made: list[tuple[int, ...]] = []
        self.error: Exception | None = None

    def pair(self, tokenize: Tokenize, query: str, document: str) -> list[int]:
        asked, read = (tokenize(text, parse_special=False) for text in (query, document))
        return [*asked, 0, *read]

    def vector(self, tokens: Sequence[int]) -> bytes:
        if self.error is not None:
            raise self.error
        self.made.append(tuple(tokens))
        return repr(list(tokens)).encode()


def queue(maker: Maker | None = None) -> EmbeddingQueue:
    return EmbeddingQueue(Characters(), maker or Maker())


def embed(number: int, *inputs: RawPrompt, first: int = 1) -> Embed:
    return Embed(id=number, inputs=inputs, first=first)


def all_of(waiting: EmbeddingQueue) -> list[FromWorker]:
    events: list[FromWorker] = []
    while waiting.has_work:
        events += waiting.step()
    return events


def failed(waiting: EmbeddingQueue) -> QuestionFailed:
    (event,) = all_of(waiting)
    assert isinstance(event, QuestionFailed)
    return event


def test_inputs_become_vectors_in_their_order_one_in_a_step() -> None:
    waiting = queue()
    assert waiting.submit(embed(1, "ab", (7, 8), "c")) == []
    assert waiting.step() == []
    assert waiting.step() == []
    assert waiting.step() == [
        Embedded(id=1, vectors=(b"[5]", b"[7, 8]", b"[99]"), counts=(1, 2, 1))
    ]
    assert not waiting.has_work


def test_requests_take_turns() -> None:
    maker = Maker()
    waiting = queue(maker)
    waiting.submit(embed(1, "a", "b", "c"))
    waiting.submit(embed(2, "x"))
    assert [event.id for event in all_of(waiting) if isinstance(event, Embedded)] == [2, 1]
    assert maker.made == [(97,), (120,), (98,), (99,)]


def test_nothing_to_embed_is_answered_at_once() -> None:
    assert queue().submit(embed(3)) == [Embedded(id=3, vectors=(), counts=())]


def test_a_model_that_makes_none_says_so() -> None:
    (event,) = queue(Maker(size=0)).submit(embed(1, "a"))
    assert isinstance(event, QuestionFailed)
    assert event.code == "invalid_request"
    assert "no embeddings" in event.message


def test_a_cancelled_request_is_forgotten_and_others_go_on() -> None:
    maker = Maker()
    waiting = queue(maker)
    waiting.submit(embed(1, "a", "b"))
    waiting.submit(embed(2, "x"))
    waiting.cancel(1)
    waiting.cancel(99)
    assert [event.id for event in all_of(waiting) if isinstance(event, Embedded)] == [2]
    assert maker.made == [(120,)]


def test_an_input_that_is_too_long_is_refused_with_the_counts() -> None:
    waiting = queue()
    waiting.submit(embed(1, "ok", "cccccc", first=33))
    event = failed(waiting)
    assert (event.code, event.n_prompt_tokens, event.n_ctx) == ("context_full", 6, 5)
    assert "input 34" in event.message


def test_a_text_far_too_long_is_not_even_cut_into_tokens() -> None:
    waiting = queue()
    waiting.submit(embed(1, "x" * 100_000))
    event = failed(waiting)
    assert (event.code, event.n_prompt_tokens) == ("context_full", 25_000)


def test_an_input_without_tokens_is_refused() -> None:
    for empty in ("", ()):
        waiting = queue()
        waiting.submit(embed(1, "a", empty))
        event = failed(waiting)
        assert (event.code, event.message) == ("invalid_request", "input 2 is empty")


def test_a_number_that_is_no_token_is_refused() -> None:
    waiting = queue()
    waiting.submit(embed(1, (PAIR, -3)))
    event = failed(waiting)
    assert event.code == "invalid_request"
    assert "-3 is no token" in event.message


def test_a_failure_ends_that_request_alone() -> None:
    for error in (VectorError("no"), LoadError("no memory")):
        maker = Maker()
        waiting = queue(maker)
        waiting.submit(embed(1, "a"))
        maker.error = error
        assert failed(waiting).code == "engine"
        maker.error = None
        waiting.submit(embed(2, "a"))
        assert all_of(waiting) == [Embedded(id=2, vectors=(b"[97]",), counts=(1,))]


def test_h7_a_query_is_read_with_each_document_by_a_model_that_ranks_and_no_other() -> None:
    maker = Maker(size=0, ranks=True)
    waiting = queue(maker)
    assert waiting.submit(Embed(id=1, inputs=("b", "cd"), query="a")) == []
    assert all_of(waiting) == [
        Embedded(id=1, vectors=(b"[97, 0, 98]", b"[97, 0, 99, 100]"), counts=(3, 4))
    ]
    waiting.submit(Embed(id=2, inputs=("bcde",), query="a"))
    too_long = failed(waiting)
    assert (too_long.code, too_long.n_prompt_tokens, too_long.n_ctx) == ("context_full", 6, 5)
    waiting.submit(Embed(id=3, inputs=((7, 8),), query="a"))
    assert failed(waiting).code == "invalid_request"
    for asked, other in (
        (Embed(id=4, inputs=("b",), query="a"), Maker()),
        (Embed(id=5, inputs=("b",)), maker),
    ):
        (refused,) = queue(other).submit(asked)
        assert isinstance(refused, QuestionFailed) and refused.code == "invalid_request"
