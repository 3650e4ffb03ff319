"""Anthropic's SDK before a real daemon."""

from collections.abc import Iterator

import pytest

from tests.clients.daemon import (
    AFTER_TOOL,
    CALLED,
    IN_PICTURE,
    MODELS,
    SAID,
    THOUGHT,
    TOKENS,
    Seen,
    gateway,
    hold,
)

pytestmark = [
    pytest.mark.sdks,
    pytest.mark.daemon,
    pytest.mark.real_model,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with gateway(tmp_path_factory.mktemp("anthropic")) as served:
        yield served.drive("anthropic")


def test_a_streamed_answer_is_the_whole_one_with_its_usage(seen: Seen) -> None:
    whole, streamed = seen["chat"], seen["stream"]
    assert whole["content"] == [{"type": "text", "text": SAID}]
    assert (whole["end"], whole["model"]) == ("end_turn", "mock")
    assert whole["usage"]["output_tokens"] == TOKENS
    assert whole["usage"]["input_tokens"] > 0
    assert streamed["text"] == streamed["whole"] == streamed["raw"] == SAID
    assert streamed["end"] == "end_turn"
    assert streamed["usage"]["output_tokens"] == TOKENS
    assert streamed["kinds"] == [
        "message_start",
        "content_block_start",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert seen["streamed_async"] == SAID


def test_a_real_models_answer_is_the_same_both_ways_and_counted_right(seen: Seen) -> None:
    told = seen["same_both_ways"]
    whole, streamed = told["both"]
    assert whole == streamed
    assert whole["text"].startswith("Hello!")
    assert whole["answer"] > 10
    assert told["counted"] == whole["prompt"]
    assert 0 < told["cached"] < whole["prompt"]


def test_the_environment_alone_is_enough(seen: Seen) -> None:
    assert seen["by_environment"] == SAID


def test_a_tool_makes_its_round_trip(seen: Seen) -> None:
    trip = {"end": "tool_use", **CALLED, "text": AFTER_TOOL, "last": "end_turn"}
    assert seen["tools"] == [trip, trip]
    assert seen["forced"] == [["get_weather", ["city"]]] * 2


def test_the_sdks_runner_of_tools_goes_on_without_a_thread(seen: Seen) -> None:
    told = seen["tool_runner"]
    assert told["blocks"] == [["tool_use"], ["text"]]
    assert told["kept"]["status"] == 400
    assert "conversations are not kept here" in told["kept"]["message"]


def test_clawds_own_tools_work_for_who_brings_none(seen: Seen) -> None:
    assert seen["own_tools"] == "There is plan.txt."


def test_a_schema_holds_the_answer(seen: Seen) -> None:
    told = seen["structured"]
    assert set(told["parsed"]) == set(told["plain"]) == {"name", "color", "likes_it"}
    assert told["parsed"]["name"] in {"Ada", "Grace"}
    for value in told.values():
        assert value["color"] in {"red", "green", "blue"}
        assert isinstance(value["likes_it"], bool)


def test_thoughts_are_signed_blocks_that_may_be_sent_back(seen: Seen) -> None:
    assert seen["thinking"] == {
        "both": [[["thinking", THOUGHT], ["text", SAID]]] * 2,
        "signed": True,
        "events": ["thinking", "signature", "text"],
        "again": SAID,
        "hidden": ["text"],
    }


def test_refusals_are_raised_as_the_sdk_knows_them(seen: Seen) -> None:
    told = seen["errors"]
    hold(told)
    assert [told[name]["type"] for name in ("unknown", "bad", "key", "long", "uncounted")] == [
        "NotFoundError",
        "BadRequestError",
        "AuthenticationError",
        "BadRequestError",
        "NotFoundError",
    ]
    assert "prompt is too long: " in told["long"]["message"]
    assert told["bad_streamed"] == told["bad"]
    assert told["long_streamed"] == told["long"]
    assert "scripted failure" in told["broken_off"]["message"]


def test_a_client_that_leaves_frees_the_daemon(seen: Seen) -> None:
    assert seen["cancelled"] == {"raised": "APITimeoutError", "left": [1, 1], "busy": [1, 0]}


def test_models_are_listed_and_found(seen: Seen) -> None:
    told = seen["models"]
    assert (told["listed"], told["one"]) == (MODELS, "embedded")
    assert told["unknown"]["status"] == 404


def test_a_picture_reaches_the_model_and_a_model_without_eyes_is_named(seen: Seen) -> None:
    told = seen["pictures"]
    unseen = told.pop("unseen")
    assert unseen["status"] == 400
    assert "sees no pictures" in unseen["message"]
    assert "embedded" in unseen["message"]
    assert len(set(told.values())) == 1
    assert IN_PICTURE.fullmatch(told["chat"])
