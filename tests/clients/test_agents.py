"""OpenAI's Agents SDK before a real daemon, by both of its interfaces."""

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
    with gateway(tmp_path_factory.mktemp("agents")) as served:
        yield served.drive("agents")


BY = ("chat", "responses")


def test_a_streamed_answer_is_the_whole_one_with_its_usage(seen: Seen) -> None:
    assert seen["chat"] == {by: [SAID, TOKENS] for by in BY}
    assert seen["stream"] == {by: [SAID, SAID] for by in BY}


def test_a_tool_makes_its_round_trip(seen: Seen) -> None:
    assert seen["tools"] == {by: [["Zürich"], AFTER_TOOL] for by in BY}
    items = ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert seen["tools_streamed"] == {by: [["Zürich"], AFTER_TOOL, items] for by in BY}


def test_a_schema_holds_the_answer(seen: Seen) -> None:
    assert {by: is_liked(value) for by, value in seen["structured"].items()} == {
        "chat": True,
        "responses": True,
    }


@pytest.mark.parametrize("by", BY)
def test_refusals_are_raised(seen: Seen, by: str) -> None:
    hold(seen["errors"][by])


def test_a_client_that_leaves_frees_the_daemon(seen: Seen) -> None:
    assert seen["cancelled"] == {by: ["TimeoutError", 1] for by in BY}
