"""OpenAI's SDK before a real daemon."""

from collections.abc import Iterator

import pytest

from tests.clients.daemon import (
    AFTER_TOOL,
    IN_PICTURE,
    MODELS,
    SAID,
    THOUGHT,
    TOKENS,
    Seen,
    gateway,
    hold,
    is_liked,
)

pytestmark = [
    pytest.mark.sdks,
    pytest.mark.daemon,
    pytest.mark.real_model,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with gateway(tmp_path_factory.mktemp("openai")) as served:
        yield served.drive("openai")


def test_a_streamed_answer_is_the_whole_one_with_its_usage(seen: Seen) -> None:
    whole, streamed = seen["chat"], seen["stream"]
    assert (whole["text"], whole["end"], whole["model"]) == (SAID, "stop", "mock")
    assert (streamed["text"], streamed["ends"], streamed["ids"]) == (SAID, ["stop"], 1)
    assert streamed["pieces"] > 1
    assert streamed["usage"] == whole["usage"]
    assert whole["usage"]["completion_tokens"] == TOKENS
    assert whole["usage"]["total_tokens"] == whole["usage"]["prompt_tokens"] + TOKENS


def test_a_real_models_words_tokens_and_counts_are_the_same_both_ways(seen: Seen) -> None:
    told = seen["same_both_ways"]
    whole, streamed = told["both"]
    assert whole == streamed
    assert whole["text"] == whole["tokens"] != ""
    assert whole["likely"]
    assert {"content.delta", "content.done", "logprobs.content.done"} <= set(told["kinds"])


def test_the_environment_alone_is_enough(seen: Seen) -> None:
    assert seen["by_environment"] == SAID


def test_a_tool_makes_its_round_trip(seen: Seen) -> None:
    whole, streamed = seen["tools"], seen["tools_streamed"]
    assert whole.pop("calls") is None
    assert "tool_calls.function.arguments.done" in streamed.pop("kinds")
    assert whole == streamed
    assert whole == {
        "end": "tool_calls",
        "name": "get_weather",
        "arguments": {"city": "Zürich"},
        "text": AFTER_TOOL,
    }
    assert seen["forced"] == [["get_weather", ["city"]]] * 2


def test_clawds_own_tools_work_for_who_brings_none(seen: Seen) -> None:
    assert seen["own_tools"] == {
        "texts": ["There is plan.txt."] * 2,
        "calls": ["allowed"],
        "told": ["clawd.tool_call", "clawd.tool_result"],
    }


def test_a_schema_holds_the_answer(seen: Seen) -> None:
    assert {way: is_liked(value) for way, value in seen["structured"].items()} == {
        "parsed": True,
        "streamed": True,
        "response": True,
        "plain": True,
    }


def test_thoughts_come_apart_from_the_answer(seen: Seen) -> None:
    assert seen["reasoning"] == [THOUGHT, THOUGHT]


def test_refusals_are_raised_as_the_sdk_knows_them(seen: Seen) -> None:
    told = seen["errors"]
    hold(told)
    assert [told[name]["type"] for name in ("unknown", "bad", "key", "long")] == [
        "NotFoundError",
        "BadRequestError",
        "AuthenticationError",
        "BadRequestError",
    ]
    assert told["bad_streamed"] == told["bad"]
    assert told["long_streamed"] == told["long"]
    assert (told["broken_off"]["type"], told["broken_off"]["text"]) == ("APIError", "Half of")
    assert "scripted failure" in told["broken_off"]["message"]


def test_a_client_that_leaves_frees_the_daemon(seen: Seen) -> None:
    assert seen["cancelled"] == {"raised": "APITimeoutError", "left": [1, 1], "busy": [1, 0]}


def test_completions_go_on_with_a_text(seen: Seen) -> None:
    told = seen["completions"]
    assert told["streamed"] == told["logprobs"] == told["text"] != ""
    assert told["several"] == [told["text"]] * 4
    assert told["indices"] == [0, 1, 2, 3]
    assert (told["end"], told["usage"]) == ("length", 8)


def test_responses_tell_the_same_and_make_the_round_trip(seen: Seen) -> None:
    told = seen["responses"]
    assert told["text"] == told["streamed"] == told["deltas"] == SAID
    assert told["status"] == "completed"
    assert told["usage"] > TOKENS
    assert told["numbers"]
    assert (told["first"], told["last"]) == ("response.created", "response.completed")
    assert "scripted failure" in told["broken_off"]["message"]
    call = {"name": "get_weather", "status": "completed", "text": AFTER_TOOL}
    assert seen["responses_tools"] == [call, call]


def test_embeddings_are_of_length_one_in_both_forms(seen: Seen) -> None:
    told = seen["embeddings"]
    assert told["indices"] == [0, 1, 2]
    assert told["lengths"] == pytest.approx([1.0] * 3)
    assert told["same"]
    assert told["usage"] > 3
    assert told["forms"] == 0.0
    assert told["refused"]["status"] == 501


def test_models_are_listed_and_found(seen: Seen) -> None:
    told = seen["models"]
    assert told["listed"] == MODELS
    assert (told["one"], told["slash"]) == ("embedded", "mock/large")
    assert told["unknown"]["status"] == 404


def test_a_picture_reaches_the_model_and_a_model_without_eyes_is_named(seen: Seen) -> None:
    told = seen["pictures"]
    unseen = told.pop("unseen")
    assert unseen["status"] == 400
    assert "sees no pictures" in unseen["message"]
    assert "embedded" in unseen["message"]
    assert len(set(told.values())) == 1
    assert IN_PICTURE.fullmatch(told["chat"])
