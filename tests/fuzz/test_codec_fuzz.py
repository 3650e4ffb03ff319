"""Whatever comes over the socket: the codec answers with a frame or with one of its two errors."""

import contextlib

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clawd.errors import InvalidRequestError, ProtocolError
from clawd.wire.codec import (
    HEADER,
    Cancel,
    FrameReader,
    Request,
    decode_client_frame,
    decode_server_frame,
    encode_frame,
    unpack,
    unpack_event,
)
from clawd.wire.methods import METHODS

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    st.binary(max_size=8),
    st.datetimes(),
    st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=13)),
)
KEYS = st.one_of(
    st.sampled_from(["type", "id", "method", "params", "min", "max", "data", "event", "question"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.integers(-5, 5),
)
VALUES = st.recursive(
    LEAVES | st.sampled_from(["request", "hello", "failure", "cancel", "event", "text"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=20,
)
BODIES = st.one_of(
    st.binary(max_size=200),
    VALUES.map(msgspec.msgpack.encode),
    # a frame that is one, with a byte exchanged, cut or added
    st.builds(
        lambda at, with_: (
            lambda good: good[: at % len(good)] + with_ + good[at % len(good) + 1 :]
        )(msgspec.msgpack.encode(Request(id=7, method="list_receipts"))),
        st.integers(0, 1000),
        st.binary(max_size=3),
    ),
)


@settings(max_examples=400, deadline=None)
@given(BODIES)
@example(b"\xdd\xff\xff\xff\xff")
@example(b"\x81" * 3000)
@example(b"\x82\xa4type\xa6cancel\xa2id\xd7\xff" + b"\xff" * 8)
def test_no_body_does_anything_but_decode_or_be_refused(body: bytes) -> None:
    for decode in (decode_client_frame, decode_server_frame):
        with contextlib.suppress(ProtocolError):
            decode(body)
    raw = msgspec.Raw(body)
    with contextlib.suppress(ProtocolError):
        unpack_event(raw)
    for kind in METHODS.values():
        with contextlib.suppress(InvalidRequestError):
            unpack(raw, kind)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=64), max_size=20))
def test_no_stream_makes_the_reader_do_anything_but_cut_or_refuse(chunks: list[bytes]) -> None:
    reader = FrameReader(max_frame_bytes=100)
    taken = given_out = 0
    for chunk in chunks:
        taken += len(chunk)
        try:
            bodies = reader.feed(chunk)
        except ProtocolError:
            return
        assert all(0 < len(body) <= 100 for body in bodies)
        given_out += sum(HEADER.size + len(body) for body in bodies)
        assert 0 <= taken - given_out < HEADER.size + 100


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 200), st.binary(min_size=1, max_size=60))
def test_bytes_between_two_frames_never_damage_the_first(at: int, garbage: bytes) -> None:
    first = encode_frame(Cancel(id=at))
    reader = FrameReader(max_frame_bytes=100)
    (body,) = reader.feed(first)
    assert decode_client_frame(body) == Cancel(id=at)
    with contextlib.suppress(ProtocolError):
        for body in reader.feed(garbage + first):
            decode_client_frame(body)
