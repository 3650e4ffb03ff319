"""LangChain's classes for OpenAI before a real daemon."""

from collections.abc import Iterator

import pytest

from tests.clients.daemon import AFTER_TOOL, SAID, TOKENS, Seen, gateway, hold, is_liked

pytestmark = [
    pytest.mark.sdks,
    pytest.mark.daemon,
    pytest.mark.real_model,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with gateway(tmp_path_factory.mktemp("langchain")) as served:
        yield served.drive("langchain")


def test_a_streamed_answer_is_the_whole_one_with_its_usage(seen: Seen) -> None:
    assert seen["chat"] == {"text": SAID, "end": "stop", "usage": TOKENS}
    assert seen["stream"] == {"text": SAID, "usage": TOKENS}
    assert seen["responses"] == [SAID, SAID]


def test_a_tool_makes_its_round_trip(seen: Seen) -> None:
    assert seen["tools"] == [["get_weather", {"city": "Zürich"}, AFTER_TOOL]] * 4
    assert seen["forced"] == [["get_weather", ["city"]]] * 2


def test_a_schema_holds_the_answer(seen: Seen) -> None:
    assert [is_liked(value) for value in seen["structured"]] == [True, True]


def test_refusals_are_raised(seen: Seen) -> None:
    hold(seen["errors"])
    assert seen["errors"]["long_streamed"] == seen["errors"]["long"]
    assert "scripted failure" in seen["errors"]["broken_off"]["message"]


def test_a_client_that_leaves_frees_the_daemon(seen: Seen) -> None:
    assert seen["cancelled"] == {"raised": "OpenAITimeoutError", "left": [1, 1], "busy": [1, 0]}


def test_embeddings_are_of_length_one(seen: Seen) -> None:
    assert seen["embeddings"] == [1.0, 1.0]
