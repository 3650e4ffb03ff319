"""Conversations that last: compressed, killed in the middle, forked, exported; the real daemon."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clawctl.client import Client, Stream, connect
from clawd.errors import ClawError
from clawd.wire.conversations import CompressConversation
from clawd.wire.events import ContextCompressed, Event, Notice, TurnFinished
from clawd.wire.turns import SendMessage
from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = pytest.mark.daemon

SUMMARY = {"when": "<transcript>", "text": "They talked about adapters."}
ANSWER = {"text": "You said: {{last_user}}"}
SHORT = "[compression]\nat_messages = 12\nkeep_least = 2\nkeep_most = 4\n"
CONTEXT = 3_000


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


@contextmanager
def client_of(home: Home) -> Iterator[Client]:
    with connect(Path(home.json("status")["socket"])) as client:
        yield client


def say(client: Client, text: str, conversation_id: str = "") -> TurnFinished:
    stream = client.stream(SendMessage(text=text, conversation_id=conversation_id))
    for _ in stream:
        pass
    return stream.result


def talk(client: Client, turns: int) -> str:
    conversation_id = ""
    for number in range(turns):
        conversation_id = say(client, f"question {number}", conversation_id).conversation_id
    return conversation_id


def wait_for(stream: Stream[TurnFinished], kind: type[Event]) -> Any:
    for event in stream:
        if isinstance(event, kind):
            return event
    pytest.fail(f"no {kind.__name__} came")


def messages(home: Home, conversation_id: str) -> list[tuple[str, str]]:
    shown = home.json("conversation", "show", conversation_id)["messages"]
    return [(m["role"], m["content"]) for m in shown]


def said(turns: int) -> list[tuple[str, str]]:
    return [
        pair
        for n in range(turns)
        for pair in (("user", f"question {n}"), ("assistant", f"You said: question {n}"))
    ]


def test_three_hundred_messages_stay_in_the_budget_and_in_memory(home: Home) -> None:
    home.configure(
        SUMMARY,
        {"text": "You said: {{last_user}} " + "and more " * 60},
        tables=f"[compression]\ncontext_tokens = {CONTEXT}\n",
    )
    home.start()
    prompts: list[int] = []
    compressed = 0
    conversation_id = ""
    with client_of(home) as client:
        for number in range(150):
            request = SendMessage(text=f"question {number}", conversation_id=conversation_id)
            stream = client.stream(request)
            compressed += sum(isinstance(event, ContextCompressed) for event in stream)
            conversation_id = stream.result.conversation_id
            prompts.append(stream.result.usage.prompt_tokens)
        assert compressed >= 3
        assert max(prompts) <= CONTEXT * 75 // 100
        undone = client.call(CompressConversation(conversation_id=conversation_id, undo="all"))
    assert (undone.undone, undone.messages_shown) == (compressed, 300)
    kept = messages(home, conversation_id)
    assert [text for role, text in kept if role == "user"] == [f"question {n}" for n in range(150)]
    assert len(kept) == 300


def test_a_daemon_killed_while_it_summarises_has_lost_nothing(home: Home) -> None:
    home.configure(SUMMARY | {"delay_s": 60}, ANSWER, tables=SHORT)
    home.start()
    with client_of(home) as client:
        conversation_id = talk(client, 6)
        stream = client.stream(SendMessage(text="more", conversation_id=conversation_id))
        told = wait_for(stream, Notice)
        assert "being summarised" in told.text
        home.kill()
    home.configure(SUMMARY, ANSWER, tables=SHORT)
    home.start()
    assert messages(home, conversation_id) == said(6)
    with client_of(home) as client:
        stream = client.stream(SendMessage(text="more", conversation_id=conversation_id))
        assert wait_for(stream, ContextCompressed).messages_replaced == 8
        assert wait_for(stream, TurnFinished).text == "You said: more"
    assert len(messages(home, conversation_id)) == 14
    assert home.json("receipt", "verify")["ok"]


def test_a_daemon_killed_after_the_checkpoint_goes_on_with_it(home: Home) -> None:
    slow = {"when": "slow", "text": "late", "delay_s": 60}
    home.configure(SUMMARY, slow, ANSWER, tables=SHORT)
    home.start()
    with client_of(home) as client:
        conversation_id = talk(client, 6)
        stream = client.stream(SendMessage(text="slow", conversation_id=conversation_id))
        wait_for(stream, ContextCompressed)
        home.kill()
    home.configure(SUMMARY, ANSWER, tables=SHORT)
    home.start()
    assert messages(home, conversation_id) == said(6)
    (line,) = home.json("conversation", "list")
    assert line["replaced"] == 8
    with client_of(home) as client:
        assert say(client, "more", conversation_id).text == "You said: more"
        undone = client.call(CompressConversation(conversation_id=conversation_id, undo="all"))
    assert undone.messages_shown == 14
    assert home.json("receipt", "verify")["ok"]


def test_compress_by_hand_and_back_again(home: Home) -> None:
    home.configure(SUMMARY, ANSWER)
    with client_of(home) as client:
        conversation_id = talk(client, 5)
    done = home.ctl("conversation", "compress", conversation_id)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("A summary stands for 6 messages; the model is shown 6.")
    assert "They talked about adapters." in done.stdout
    shown = home.ctl("conversation", "show", conversation_id).stdout
    assert "the model is shown a summary of the first 6 messages" in shown
    back = home.ctl("conversation", "compress", conversation_id, "--undo")
    assert back.stdout == "1 compression taken back; the model is shown 10 messages.\n"
    again = home.ctl("conversation", "compress", conversation_id, "--undo")
    assert (again.returncode, "is not compressed" in again.stderr) == (1, True)


def test_rename_fork_export_and_delete(home: Home) -> None:
    home.configure({"text": "```\nfenced\n```"}, ANSWER)
    with client_of(home) as client:
        conversation_id = talk(client, 3)
    renamed = home.json("conversation", "rename", conversation_id, "adapters", "for\tthe lab")
    assert renamed["title"] == "adapters for the lab"
    shown = home.json("conversation", "show", conversation_id)["messages"]
    forked = home.json("conversation", "fork", conversation_id, "--at", str(shown[1]["id"]))
    assert (forked["messages"], forked["forked_from"]) == (2, conversation_id)
    assert messages(home, forked["id"]) == messages(home, conversation_id)[:2]

    lines = home.ctl("conversation", "export", conversation_id).stdout.splitlines()
    head, *rest = [json.loads(line) for line in lines]
    assert (head["type"], head["title"]) == ("conversation", "adapters for the lab")
    assert [line["content"] for line in rest] == [m["content"] for m in shown]
    file = home.workspace / "talk.md"
    done = home.ctl(
        "conversation", "export", conversation_id, "--format", "markdown", "-o", str(file)
    )
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert text.startswith("# adapters for the lab\n")
    assert "question 2" in text
    assert file.stat().st_mode & 0o777 == 0o600
    twice = home.ctl("conversation", "export", conversation_id, "-o", str(file))
    assert (twice.returncode, "cannot be written" in twice.stderr) == (1, True)
    assert file.read_text() == text

    refused = home.ctl("conversation", "delete", conversation_id)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    home.json("conversation", "delete", conversation_id, "--yes")
    assert [line["id"] for line in home.json("conversation", "list")] == [forked["id"]]


def test_a_title_by_the_model_comes_after_the_answer_and_never_over_ones_own(home: Home) -> None:
    title = {"when": "Give this conversation its title", "text": '"Adapters and plugs"\n'}
    home.configure(title, ANSWER, tables='[agent]\ntitles = "model"\n')
    with client_of(home) as client:
        conversation_id = talk(client, 1)
        line = next(filter(lambda each: each["title"] != "question 0", _lists(home)))
        assert line["title"] == "Adapters and plugs"
        home.json("conversation", "rename", conversation_id, "mine")
        say(client, "more", conversation_id)
    home.close()
    home.start()
    assert home.json("conversation", "list")[0]["title"] == "mine"


def _lists(home: Home) -> Iterator[dict[str, Any]]:
    for _ in range(200):
        yield home.json("conversation", "list")[0]
    raise ClawError("no title came")
