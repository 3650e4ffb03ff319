"""Server-sent events in every split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import ProviderError
from clawd.providers.http import MAX_EVENT_BYTES, SseEvent, SseParser
from tests.support.rows import each_row

STREAM = (
    b"\xef\xbb\xbf: a comment\n\n"
    b"data: one\n\n"
    b"data:two\ndata:  three\n\n"
    b"event: named\r\ndata: four\r\n\r\n"
    b"data: five\r\r"
    b"id: 7\nretry: 10\nunknown\n:\ndata\n\n"
    b"event: nothing\n\n"
    b"data: \xc3\xbc\xf0\x9f\xa6\x80\n\n"
    b"data: last"
)
EVENTS = [
    SseEvent(data="one"),
    SseEvent(data="two\n three"),
    SseEvent(data="four", event="named"),
    SseEvent(data="five"),
    SseEvent(data=""),
    SseEvent(data="ü🦀"),
    SseEvent(data="last"),
]


def parse(pieces: list[bytes]) -> list[SseEvent]:
    parser = SseParser()
    events = [event for piece in pieces for event in parser.feed(piece)]
    return events + parser.finish()


def test_a_stream_gives_the_same_events_in_every_split() -> None:
    assert parse([STREAM]) == EVENTS
    assert parse([bytes([byte]) for byte in STREAM]) == EVENTS
    for cut in range(len(STREAM) + 1):
        assert parse([STREAM[:cut], STREAM[cut:]]) == EVENTS


PIECES = [b"\r", b"\n", b"data:", b" ", b"x", b":", b"event:", b"\xff"]


@given(pieces=st.lists(st.sampled_from(PIECES)))
def test_any_bytes_in_any_pieces_give_the_same_events(pieces: list[bytes]) -> None:
    assert parse(pieces) == parse([b"".join(pieces)])


def test_an_event_is_given_as_soon_as_its_blank_line_is_there() -> None:
    parser = SseParser()
    assert parser.feed(b"data: x\r\n") == []
    assert parser.feed(b"\r") == [SseEvent(data="x")]
    assert parser.feed(b"\ndata: y\n\n") == [SseEvent(data="y")]


@each_row("line", [b"x", b"data: x\n"])
def test_an_event_without_end_is_refused_and_not_kept(line: bytes) -> None:
    parser = SseParser()
    piece = line * (1024 * 1024)
    with pytest.raises(ProviderError, match="more than"):
        for _ in range(MAX_EVENT_BYTES // len(piece) + 12):
            parser.feed(piece)
