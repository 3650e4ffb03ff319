"""The library llm before a real daemon."""

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
    with gateway(tmp_path_factory.mktemp("llm")) as served:
        yield served.drive("llm")


def test_a_streamed_answer_is_the_whole_one_with_its_usage(seen: Seen) -> None:
    assert seen["stream"] == seen["chat"]
    assert seen["chat"]["text"] == SAID
    assert seen["chat"]["usage"][0] > 0
    assert seen["chat"]["usage"][1] == TOKENS
    assert seen["conversation"] == [SAID, SAID]


def test_a_tool_makes_its_round_trip(seen: Seen) -> None:
    trip = {"calls": [["get_weather", {"city": "Zürich"}]], "text": AFTER_TOOL}
    assert seen["tools"] == [trip, trip]


def test_a_schema_holds_the_answer(seen: Seen) -> None:
    assert [is_liked(value) for value in seen["structured"]] == [True, True]


def test_refusals_are_shown(seen: Seen) -> None:
    hold(seen["errors"])
    assert seen["errors"]["long_whole"] == seen["errors"]["long"]
    assert "scripted failure" in seen["errors"]["broken_off"]["message"]


def test_an_interrupted_program_frees_the_daemon(seen: Seen) -> None:
    assert seen["cancelled"] == {"shown": 20, "left": 1, "busy": [1, 0]}
