"""Whatever a call comes to, what is handed on is bounded and readable."""

import base64
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clawd.mcp.message_filter import MAX_BLOCKS, read_result
from clawd.mcp.model import Content, RemoteResult
from clawd.mcp.server import _result
from clawd.tools.outcome import CallOutcome
from tests.mcp.test_tool_checks import JSON
from tests.support.pictures import picture

KINDS = st.sampled_from(["text", "image", "audio", "resource", "resource_link", "hologram"])
BLOCKS = st.fixed_dictionaries(
    {"type": KINDS | JSON},
    optional={
        "text": JSON,
        "data": JSON | st.binary(max_size=50).map(lambda data: base64.b64encode(data).decode()),
        "mimeType": JSON,
        "uri": JSON,
        "resource": JSON | st.fixed_dictionaries({}, optional={"text": JSON, "blob": JSON}),
    },
)
RESULTS = st.fixed_dictionaries(
    {},
    optional={
        "content": JSON | st.lists(BLOCKS | JSON, max_size=6),
        "structuredContent": JSON,
        "isError": JSON,
        "resultType": JSON,
    },
)


@given(RESULTS, st.integers(0, 200))
def test_a_result_never_fails_and_never_exceeds_its_limit(result: Any, limit: int) -> None:
    read = read_result(result, limit)
    texts = sum(len(each.text.encode()) for each in read.content if each.kind == "text")
    blobs = sum(len(each.data) for each in read.content)
    cuts = 80 * len(read.content)
    assert texts + blobs <= limit + cuts
    msgspec.json.encode(read)


def test_every_kind_of_content_is_read() -> None:
    data = base64.b64encode(b"png").decode()
    result = {
        "content": [
            {"type": "text", "text": "hello"},
            {"type": "image", "data": data, "mimeType": "image/png"},
            {"type": "audio", "data": data, "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "f:a", "text": "lines", "mimeType": "a/b"}},
            {"type": "resource", "resource": {"uri": "f:b", "blob": data}},
            {"type": "resource_link", "uri": "f:c", "name": "c", "mimeType": "x/y"},
        ],
        "structuredContent": {"a": [1, None]},
        "isError": True,
    }
    assert read_result(result, 1000) == RemoteResult(
        content=(
            Content(kind="text", text="hello"),
            Content(kind="blob", data=b"png", mime="image/png"),
            Content(kind="blob", data=b"png", mime="audio/wav"),
            Content(kind="blob", data=b"lines", mime="a/b", uri="f:a"),
            Content(kind="blob", data=b"png", uri="f:b"),
            Content(kind="link", uri="f:c", name="c", mime="x/y"),
        ),
        structured={"a": [1, None]},
        is_error=True,
    )


def test_text_is_cut_between_characters() -> None:
    read = read_result({"content": [{"type": "text", "text": "ä" * 10}]}, 5)
    assert read.content[0].text.startswith("ää\n[cut: ")


def test_what_is_no_base64_is_named_and_not_guessed() -> None:
    read = read_result({"content": [{"type": "image", "data": "é"}]}, 100)
    assert (read.content[0].kind, "no base64" in read.content[0].text) == ("other", True)


def test_very_many_blocks_are_cut() -> None:
    read = read_result({"content": [{"type": "text", "text": "x"}] * 5000}, 1 << 20)
    assert len(read.content) == MAX_BLOCKS + 1


def test_a_server_that_asks_for_more_input_is_told_off_in_words() -> None:
    read = read_result({"resultType": "input_required", "inputRequests": {}}, 100)
    assert read.failure.startswith("tool dispatch failed: the server asks for more input")


def test_missing_content_and_a_null_for_an_error_are_an_empty_success() -> None:
    assert read_result({"isError": None}, 100) == RemoteResult()


def test_clients_of_clawd_get_the_pictures_of_a_result_beside_its_text() -> None:
    shown = picture()
    outcome = CallOutcome(
        kind="ok",
        status="allowed",
        text="taken",
        receipt_id="",
        risk="low",
        duration_ms=1,
        pictures=(shown,),
    )
    text, image = _result(outcome).model_dump(by_alias=True)["content"]
    assert text["text"] == "taken"
    assert (image["type"], image["mimeType"]) == ("image", "image/png")
    assert base64.b64decode(image["data"]) == shown.data
