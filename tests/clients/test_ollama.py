"""Ollama's library for Python before a real daemon."""

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
    with gateway(tmp_path_factory.mktemp("ollama")) as served:
        yield served.drive("ollama")


def test_a_streamed_answer_is_the_whole_one_with_its_counts(seen: Seen) -> None:
    whole, streamed = seen["chat"], seen["stream"]
    assert (whole["text"], whole["end"], whole["model"]) == (SAID, "stop", "mock")
    assert (streamed["text"], streamed["end"], streamed["done"]) == (SAID, "stop", 1)
    assert streamed["counts"] == whole["counts"]
    assert whole["counts"][0] > 0
    assert whole["counts"][1] == TOKENS
    (whole, streamed) = seen["same_both_ways"]
    assert whole == streamed
    assert whole[0].startswith("Hello!")


def test_the_environment_alone_is_enough(seen: Seen) -> None:
    assert seen["by_environment"] == SAID


def test_a_tool_makes_its_round_trip(seen: Seen) -> None:
    assert seen["tools"] == [{**CALLED, "text": AFTER_TOOL}] * 2


def test_clawds_own_tools_work_for_who_brings_none(seen: Seen) -> None:
    assert seen["own_tools"] == "There is plan.txt."


def test_a_schema_holds_the_answer(seen: Seen) -> None:
    assert [is_liked(value) for value in seen["structured"]] == [True, True]


def test_thoughts_come_apart_from_the_answer(seen: Seen) -> None:
    assert seen["thinking"] == [[THOUGHT, SAID], [THOUGHT, SAID], None]


def test_a_prompt_is_gone_on_with(seen: Seen) -> None:
    assert seen["generate"] == {
        "text": SAID,
        "streamed": SAID,
        "end": "stop",
        "short": ["length", 3, True],
        "loaded": "load",
    }


def test_embeddings_are_of_length_one(seen: Seen) -> None:
    told = seen["embed"]
    assert told["lengths"] == pytest.approx([1.0] * 3)
    assert told["same"]
    assert told["width"][0] == told["width"][1] > 0
    assert told["counted"] > 3


def test_models_are_listed_shown_and_seen_running(seen: Seen) -> None:
    told = seen["about_models"]
    assert told["tags"] == MODELS
    assert told["capabilities"] == ["completion", "tools"]
    assert told["mock"] == ["completion", "tools", "vision"]
    assert told["family"] == "llama"
    assert told["context"] > 0
    assert told["running"]


def test_refusals_are_raised_as_the_library_knows_them(seen: Seen) -> None:
    told = seen["errors"]
    hold(told)
    assert {told[name]["type"] for name in told} == {"ResponseError"}
    assert told["unshown"]["status"] == 404
    assert told["long_streamed"] == told["long"]
    assert "scripted failure" in told["broken_off"]["message"]
    assert told["pull"]["status"] == 400
    assert "is not pulled over HTTP" in told["pull"]["message"]


def test_a_client_that_leaves_frees_the_daemon(seen: Seen) -> None:
    assert seen["cancelled"] == {"raised": "ReadTimeout", "left": [1, 1], "busy": [1, 0]}


def test_a_picture_reaches_the_model_and_a_model_without_eyes_is_named(seen: Seen) -> None:
    told = seen["pictures"]
    unseen = told.pop("unseen")
    assert unseen["status"] == 400
    assert "sees no pictures" in unseen["message"]
    assert "embedded" in unseen["message"]
    assert len(set(told.values())) == 1
    assert IN_PICTURE.fullmatch(told["chat"])
