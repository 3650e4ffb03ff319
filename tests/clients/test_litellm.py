"""litellm before a real daemon, by each of the dialects."""

from collections.abc import Iterator

import pytest

from tests.clients.daemon import AFTER_TOOL, SAID, THOUGHT, TOKENS, Seen, gateway, hold, is_liked

pytestmark = [
    pytest.mark.litellm,
    pytest.mark.daemon,
    pytest.mark.real_model,
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    with gateway(tmp_path_factory.mktemp("litellm")) as served:
        yield served.drive("litellm", "litellm")


BY = ("openai", "anthropic", "ollama_chat")


def test_a_streamed_answer_is_the_whole_one_with_its_usage(seen: Seen) -> None:
    assert seen["chat"] == {by: [SAID, "stop", [True, TOKENS]] for by in BY}
    assert seen["stream"] == {by: [SAID, "stop", TOKENS] for by in BY}


def test_a_tool_makes_its_round_trip(seen: Seen) -> None:
    trips = {by: ["get_weather", {"city": "Zürich"}, AFTER_TOOL] for by in BY}
    assert seen["tools"] == seen["tools_streamed"] == trips


def test_a_schema_holds_the_answer(seen: Seen) -> None:
    found = {by: is_liked(value) for by, value in seen["structured"].items()}
    assert found == {"openai": True, "ollama_chat": True}


def test_thoughts_come_apart_from_the_answer(seen: Seen) -> None:
    assert seen["thinking"] == {by: [THOUGHT, SAID] for by in BY}


@pytest.mark.parametrize("by", BY)
def test_refusals_are_raised(seen: Seen, by: str) -> None:
    hold(seen["errors"][by])


def test_a_client_that_leaves_frees_the_daemon(seen: Seen) -> None:
    assert seen["cancelled"] == {by: ["Timeout", 1] for by in BY}


def test_embeddings_are_of_length_one(seen: Seen) -> None:
    assert seen["embeddings"] == [1.0, 1.0]
