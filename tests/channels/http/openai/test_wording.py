"""What OpenAI's endpoints say alike."""

import json

from hypothesis import given
from hypothesis import strategies as st

from clawd.channels.http.openai.wording import of_content, sse
from clawd.engine.protocol import TokenLogprob
from tests.support.rows import each_row


def tokens(*pieces: bytes) -> tuple[TokenLogprob, ...]:
    return tuple(TokenLogprob(token=0, piece=piece, logprob=-1.0) for piece in pieces)


@each_row(
    ("pieces", "text", "found"),
    [
        ((b"a", b"b"), "ab", (b"a", b"b")),
        ((b"<think>", b"ab", b"</think>", b"a", b"b", b"<end>"), "ab", (b"a", b"b")),
        ((b"a", b"b"), "", ()),
        ((b"a", b"b"), "other", (b"a", b"b")),
        ((b"one", b" two", b" three"), "one tw", (b"one", b" two")),
        ((b"x", "\u00e9".encode()[:1], "\u00e9".encode()[1:]), "\u00e9", (b"\xc3", b"\xa9")),
        ((b"aa", b"a"), "a", (b"a",)),
        ((b"", b"a", b""), "a", (b"a",)),
    ],
)
def test_the_tokens_of_the_content_are_found_among_all(
    pieces: tuple[bytes, ...], text: str, found: tuple[bytes, ...]
) -> None:
    assert tuple(token.piece for token in of_content(tokens(*pieces), text)) == found


@given(st.lists(st.binary(max_size=3), max_size=6), st.integers(0, 6), st.integers(0, 6))
def test_a_run_of_tokens_that_is_a_text_is_found_as_that_text(
    pieces: list[bytes], start: int, count: int
) -> None:
    joined = b"".join(pieces[start : start + count])
    try:
        text = joined.decode()
    except UnicodeDecodeError:
        return
    found = of_content(tokens(*pieces), text)
    assert b"".join(token.piece for token in found) == joined


@given(st.text(st.characters(exclude_categories=["Cs"])), st.sampled_from(["", "a.b"]))
def test_an_event_is_two_lines_at_most_for_every_reader_of_lines(text: str, name: str) -> None:
    *named, data, empty = sse({"text": text}, name).decode().split("\n")[:-1]
    assert (named, empty) == ([f"event: {name}"] if name else [], "")
    assert data.splitlines() == [data]
    assert json.loads(data.removeprefix("data: ")) == {"text": text}
