"""The parts of `make bench-http`: its client, its dialects, its rounds; no time is judged."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawctl.client import connect
from tests.bench.http import many
from tests.bench.http.client import Connection, Gathering, Heard
from tests.bench.http.daemon import Gateway, ask_socket, running_gateway
from tests.bench.http.dialects import CHAT, DIALECTS, Asked, Dialect, Told, told
from tests.bench.http.rows import LLAMA, ROWS, chosen, row, verdict
from tests.bench.http.scale import QUICK
from tests.bench.streams import BenchError

EVENTS = (
    b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"He"}}]}\n\n',
    b'data: {"choices":[{"delta":{"content":"llo"}}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n',
)
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%b\r\n" % (len(event), event) for event in (*EVENTS, b"")
)


def heard(data: bytes, borders: set[int]) -> Heard:
    """Feed a response in pieces; each comes a second after the other."""
    places = [0, *sorted(borders), len(data)]
    gathering = Gathering()
    ends = []
    for number, (begin, end) in enumerate(pairwise(places)):
        ends.append(gathering.feed(data[begin:end], float(number)))
    assert ends == [False] * (len(ends) - 1) + [True]
    return gathering.heard(sent_at=-1.0)


@given(st.sets(st.integers(1, len(STREAM) - 1)))
def test_a_stream_is_the_same_at_every_border(borders: set[int]) -> None:
    answer = told(CHAT, heard(STREAM, borders), stream=True)
    assert (answer.text, answer.counts) == ("Hello", (3, 2))


def test_the_first_text_is_neither_the_head_nor_the_role() -> None:
    at = STREAM.index(EVENTS[1])
    answer = told(CHAT, heard(STREAM, {20, at, at + len(EVENTS[1]) + 2}), stream=True)
    assert answer.first_byte_at == 1.0
    assert answer.text_at == (2.0, 3.0)
    assert answer.first_ms == 3000.0


def test_an_answer_that_is_an_error_is_no_measurement() -> None:
    refused = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}"
    with pytest.raises(BenchError, match="answered 400"):
        told(CHAT, heard(refused, set()), stream=True)


def test_rows_are_chosen_by_the_beginning_of_their_names() -> None:
    assert chosen("llama") == LLAMA
    assert set(chosen("script_pass,many")) < set(ROWS)
    with pytest.raises(argparse.ArgumentTypeError, match="begins none"):
        chosen("speed")


def test_the_aim_of_a_row_is_told_as_reached_or_not() -> None:
    reached, missed = ([(ours, 10.0)] * 9 for ours in (11.0, 12.0))
    assert verdict(row("llama_first_warm", reached)).endswith("1.10)  aim ≤ 1.1: reached")
    assert verdict(row("llama_first_warm", missed)).endswith("1.20)  aim ≤ 1.1: NOT reached")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running_gateway(tmp_path_factory.mktemp("bench") / "g", provider="mock") as running:
        yield running


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("one_pass", [True, False])
def test_every_dialect_tells_what_the_socket_tells(
    gateway: Gateway, dialect: Dialect, stream: bool, one_pass: bool
) -> None:
    with connect(gateway.socket) as client, closing(Connection(gateway.port)) as connection:
        expected = ask_socket(client, "one two three")
        asked = Asked(text="one two three", model="mock", stream=stream)
        answer = gateway.ask(connection, dialect, asked, one_pass=one_pass)
    assert answer.text == expected.text == "one two three"
    assert answer.counts[1] == expected.counts[1] == 3
    assert one_pass or answer.counts == expected.counts


@pytest.mark.parametrize("ask", [many.over_http, many.over_socket])
def test_streams_side_by_side_are_whole_and_counted(gateway: Gateway, ask: many.Ask) -> None:
    found = many.one_round(gateway, QUICK, ask, "a")
    assert found.memory_mb > 0


def test_a_round_that_lost_something_is_no_measurement(gateway: Gateway) -> None:
    async def lossy(gateway: Gateway, texts: Sequence[str]) -> list[Told]:
        *whole, last = await many.over_http(gateway, texts)
        return [*whole, msgspec.structs.replace(last, text=last.text[:-1])]

    with pytest.raises(BenchError, match="characters"):
        many.one_round(gateway, QUICK, lossy, "a")
