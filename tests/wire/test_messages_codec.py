"""Frames to bytes and back: round trips, every split of a stream, lengths that lie."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.errors import InvalidRequestError, ProtocolError
from clawd.wire.codec import (
    HEADER,
    MAX_FRAME_BYTES,
    Answer,
    Cancel,
    ClientFrame,
    EventFrame,
    Failure,
    FrameReader,
    Hello,
    Request,
    Result,
    ServerFrame,
    Welcome,
    decode_client_frame,
    decode_server_frame,
    encode_frame,
    pack,
    to_builtins,
    unpack,
)
from clawd.wire.receipts import ListReceipts
from clawd.wire.turns import SendMessage
from tests.support.rows import each_row

INTS = st.integers(-(2**63), 2**64 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | INTS | TEXT | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)

CLIENT_FRAMES: st.SearchStrategy[ClientFrame] = st.one_of(
    st.builds(Hello, min=INTS, max=INTS, client=TEXT, version=TEXT),
    st.builds(Request, id=INTS, method=TEXT, params=JSON.map(pack)),
    st.builds(Cancel, id=INTS),
    st.builds(Answer, id=INTS, question=TEXT, value=TEXT, digest=TEXT),
)
SERVER_FRAMES: st.SearchStrategy[ServerFrame] = st.one_of(
    st.builds(Welcome, protocol=INTS, version=TEXT, pid=INTS, home=TEXT, role=TEXT),
    st.builds(Result, id=INTS, value=JSON.map(pack)),
    st.builds(
        Failure,
        id=st.none() | INTS,
        code=TEXT,
        message=TEXT,
        hint=TEXT,
        data=st.none() | st.dictionaries(TEXT, JSON, max_size=3),
    ),
    st.builds(EventFrame, id=INTS, event=JSON.map(pack)),
)


def plain(frame: ClientFrame | ServerFrame) -> dict[str, object]:
    """Return the fields, what is raw decoded: Raw compares by identity."""
    fields = msgspec.structs.asdict(frame)
    return {"kind": type(frame).__name__} | {
        name: msgspec.msgpack.decode(value) if isinstance(value, msgspec.Raw) else value
        for name, value in fields.items()
    }


def body_of(frame: ClientFrame | ServerFrame) -> bytes:
    (body,) = FrameReader().feed(encode_frame(frame))
    return body


@settings(deadline=None)
@given(CLIENT_FRAMES)
def test_what_a_client_sends_arrives_as_it_was(frame: ClientFrame) -> None:
    assert plain(decode_client_frame(body_of(frame))) == plain(frame)


@settings(deadline=None)
@given(SERVER_FRAMES)
def test_what_the_daemon_sends_arrives_as_it_was(frame: ServerFrame) -> None:
    assert plain(decode_server_frame(body_of(frame))) == plain(frame)


@settings(deadline=None)
@given(st.lists(CLIENT_FRAMES, min_size=1, max_size=5), st.data())
def test_a_stream_may_be_cut_anywhere(frames: list[ClientFrame], data: st.DataObject) -> None:
    stream = b"".join(map(encode_frame, frames))
    reader, bodies = FrameReader(), list[bytes]()
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        bodies += reader.feed(stream[:size])
        stream = stream[size:]
    assert [plain(decode_client_frame(body)) for body in bodies] == [plain(f) for f in frames]


def test_every_split_of_a_stream_gives_the_same_frames() -> None:
    stream = encode_frame(Cancel(id=1)) + encode_frame(Hello(min=1, max=1, client="c"))
    whole = FrameReader().feed(stream)
    for at in range(len(stream) + 1):
        reader = FrameReader()
        assert reader.feed(stream[:at]) + reader.feed(stream[at:]) == whole
    one_by_one = FrameReader()
    assert [b for i in range(len(stream)) for b in one_by_one.feed(stream[i : i + 1])] == whole


def test_an_empty_read_changes_nothing() -> None:
    reader = FrameReader()
    assert reader.feed(b"") == []
    assert reader.feed(HEADER.pack(1)) == []
    assert reader.feed(b"") == []
    assert reader.feed(b"\xc0") == [b"\xc0"]


@each_row("size", [0, MAX_FRAME_BYTES + 1, 2**31, 2**32 - 1])
def test_a_length_that_lies_is_refused_before_its_bytes_come(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        FrameReader().feed(HEADER.pack(size))


def test_the_largest_length_is_awaited_and_one_more_is_not() -> None:
    reader = FrameReader(max_frame_bytes=4)
    assert reader.feed(HEADER.pack(4) + b"abcd") == [b"abcd"]
    with pytest.raises(ProtocolError):
        reader.feed(HEADER.pack(5) + b"abcde")


def test_a_stream_that_was_refused_stays_refused() -> None:
    reader = FrameReader()
    for data in (HEADER.pack(0), encode_frame(Cancel(id=1))):
        with pytest.raises(ProtocolError):
            reader.feed(data)


def test_a_frame_over_the_limit_is_not_encoded() -> None:
    room = MAX_FRAME_BYTES - len(encode_frame(Result(id=1, value=pack(b"")))) + HEADER.size
    filler = pack(bytes(room - 3))  # a bin of over 64 KiB has a header of 5 bytes instead of 2
    assert len(encode_frame(Result(id=1, value=filler))) == HEADER.size + MAX_FRAME_BYTES
    with pytest.raises(ProtocolError, match="over the limit") as caught:
        encode_frame(Result(id=1, value=pack(bytes(room - 2))))
    assert caught.value.hint


def test_a_request_over_the_limit_is_refused_by_what_is_in_it() -> None:
    large = SendMessage(text="?", pictures=(bytes(MAX_FRAME_BYTES),))
    with pytest.raises(InvalidRequestError, match=r"a request of 167[0-9]* bytes") as caught:
        encode_frame(Request(id=1, method="send_message", params=pack(large)))
    assert "smaller files" in caught.value.hint


def test_halves_of_surrogate_pairs_cross_as_the_replacement_character() -> None:
    sent = Failure(id=1, code="x", message="file \udcff", data={"\ud800": ["\udfff", 1, None]})
    assert decode_server_frame(body_of(sent)) == Failure(
        id=1, code="x", message="file �", data={"�": ["�", 1, None]}
    )
    assert unpack(pack(SendMessage(text="a\ud800b")), SendMessage) == SendMessage(text="a�b")


def test_unknown_fields_are_tolerated() -> None:
    newer = msgspec.msgpack.encode({"type": "cancel", "id": 3, "why": "because", "depth": [[1]]})
    assert decode_client_frame(newer) == Cancel(id=3)
    params = pack({"limit": 7, "colour": "red"})
    assert unpack(params, ListReceipts) == ListReceipts(limit=7)


@each_row(
    "value",
    [
        None,
        1,
        "request",
        [],
        {},
        {"type": "request"},
        {"type": "nonsense", "id": 1},
        {"type": "cancel", "id": "one"},
        {"type": "cancel", "id": 1.5},
        {"type": "hello", "min": None, "max": 1},
        {"type": "result", "id": 1, "value": 1},
        {"type": 5, "id": 1},
        {"id": 1},
    ],
)
def test_what_is_no_frame_of_a_client_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError, match="not a frame of a client"):
        decode_client_frame(msgspec.msgpack.encode(value))


@each_row("value", [None, [], {"type": "request", "id": 1, "method": "ping"}])
def test_what_is_no_frame_of_a_daemon_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError, match="not a frame of a daemon"):
        decode_server_frame(msgspec.msgpack.encode(value))


@each_row("depth", [20_000, 100_000, 5_000_000])
@each_row("opening", [b"\x91", b"\x81\xa1a"])
def test_deep_nesting_is_refused_in_a_sentence(depth: int, opening: bytes) -> None:
    deep = opening * depth + b"\xc0"
    head = b"\xa4type\xa7request\xa2id\x01\xa6method\xa4ping"
    for body in (deep, b"\x84" + head + b"\xa6params" + deep, b"\x84" + head + b"\xa1x" + deep):
        with pytest.raises(ProtocolError, match=r"recursion|Expected"):
            decode_client_frame(body)
    with pytest.raises(ProtocolError):
        decode_server_frame(deep)
    with pytest.raises(InvalidRequestError):
        unpack(msgspec.Raw(deep), dict)


@each_row("lie", [b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9"])
def test_a_value_that_claims_four_gigabytes_takes_none(lie: bytes) -> None:
    head = b"\x85\xa4type\xa7failure\xa2id\xc0\xa4code\xa1a\xa7message\xa1a\xa4data\x81\xa1a"
    with pytest.raises(ProtocolError, match="truncated"):
        decode_server_frame(head + lie + b"\xff\xff\xff\xff")


def test_wrong_parameters_name_the_place() -> None:
    with pytest.raises(InvalidRequestError, match=r"invalid ListReceipts: .*limit"):
        unpack(pack({"limit": "many"}), ListReceipts)
    with pytest.raises(InvalidRequestError, match="text"):
        unpack(pack({}), SendMessage)


def test_builtins_are_what_json_can_hold() -> None:
    assert to_builtins(Cancel(id=1)) == {"type": "cancel", "id": 1}
    assert to_builtins(Failure(id=None, code="a", message="b", data={"c": [1]})) == {
        "type": "failure",
        "id": None,
        "code": "a",
        "message": "b",
        "hint": "",
        "data": {"c": [1]},
    }
