"""A real model on the real daemon: it loads, answers, streams, and is shown as what it is."""

import pytest

from clawd.wire.conversations import ShowConversation
from clawd.wire.events import HopFinished, PromptEvaluated, TextDelta, TurnStarted
from clawd.wire.turns import SendMessage, SteerTurn
from tests.support.lent_home import LentHome
from tests.support.smollm2 import NAME, SMOLLM2, smollm2_provider

pytestmark = [pytest.mark.daemon, pytest.mark.real_model, pytest.mark.smollm2]

# The prompt is short: this is about the model, not about what is put before it. With a thread on
# every core it would wait for whatever else a test run computes.
PLAIN = """
[channels.cli]
tools_allow = []

[agent]
system_prompt = "You are a helpful assistant."

[engine]
n_threads = 1
temperature = 0.0
max_tokens = 24
"""


@pytest.fixture
def home(lent_home: LentHome) -> LentHome:
    lent_home.configure(provider=NAME, tables=smollm2_provider(PLAIN))
    return lent_home


def test_r10_a_real_model_answers_in_a_stream_goes_on_where_it_ended_and_is_listed_as_loaded(
    home: LentHome,
) -> None:
    home.start()
    with home.client() as client:
        stream = client.stream(SendMessage(text="Hello"))
        events = list(stream)
        finished = stream.result
        again = SendMessage(text="Thanks.", conversation_id=finished.conversation_id)
        (second,) = (event for event in client.stream(again) if isinstance(event, PromptEvaluated))
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(pieces) == finished.text
    assert len(pieces) > 3
    assert "hello" in finished.text.lower()
    (prompt,) = (event for event in events if isinstance(event, PromptEvaluated))
    assert prompt.tokens > 10
    assert 3 < finished.usage.completion_tokens <= 24
    # All but the new message and the template's words around it.
    assert second.cached > second.tokens - 24

    (model,) = home.json("model", "ps")
    assert model["name"] == str(SMOLLM2)
    assert model["running"] == 0
    assert model["context_size"] == 8192


def test_what_is_said_to_a_turn_of_a_real_model_is_read_and_nothing_is_read_again(
    home: LentHome,
) -> None:
    tables = PLAIN.replace("tools_allow = []", 'tools_allow = ["time"]')
    home.configure(provider=NAME, tables=smollm2_provider(tables))
    home.start()
    with home.client() as client, home.client() as aside:
        stream = client.stream(SendMessage(text="What time is it?", tool_choice="time"))
        started = next(event for event in stream if isinstance(event, TurnStarted))
        said = SteerTurn(
            conversation_id=started.conversation_id,
            turn_id=started.turn_id,
            text="Say it in words.",
        )
        saying = aside.stream(said)
        events = list(stream)
        assert list(saying) == []
        assert saying.result.joined
        shown = client.call(ShowConversation(conversation_id=started.conversation_id))
    roles = [message.role for message in shown.messages]
    assert roles == ["user", "assistant", "tool", "user", "assistant"]
    first, second = (event.usage for event in events if isinstance(event, HopFinished))
    # What was read stays read; only the call may be told in other tokens than it was written in.
    assert second.cached_tokens >= first.prompt_tokens - 1, (first, second)
