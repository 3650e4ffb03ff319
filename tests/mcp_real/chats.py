"""Chats with a real daemon whose mock provider calls what a test wants, heard event by event."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from clawctl.client import Client, Stream, connect
from clawd.wire.events import (
    ApprovalRequested,
    Event,
    ToolFinished,
    ToolProgress,
    TurnFinished,
)
from clawd.wire.mcp import ListMcpServers, McpServerLine
from clawd.wire.turns import SendMessage
from tests.support.home import Home

LIMIT_S = 180.0


class Heard(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a turn.

    Attributes:
        said: the turn's last text: all that the model was told, as a plan lets it repeat that.
        asked: what a person was asked.
    """

    conversation: str
    said: str
    results: tuple[ToolFinished, ...]
    asked: tuple[ApprovalRequested, ...]
    progress: tuple[str, ...]


def planned(calls: dict[str, list[tuple[str, dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Return replies: a message that holds a word makes its calls; the results are then said."""
    replies: list[dict[str, Any]] = []
    for word, wanted in calls.items():
        made = [{"name": name, "arguments": arguments} for name, arguments in wanted]
        replies.append({"when": word, "tool_calls": made})
        replies.append({"when": word, "after": "tool", "text": "{{tool_results}}"})
    return [*replies, {"text": "no plan"}]


@contextmanager
def client_of(home: Home) -> Iterator[Client]:
    """Give a connection to the daemon of a home."""
    with connect(home.path / "run" / "clawd.sock") as client:
        yield client


def send(client: Client, word: str, conversation: str = "") -> Stream[TurnFinished]:
    """Begin a turn in which somebody can be asked."""
    return client.stream(SendMessage(text=word, conversation_id=conversation, interactive=True))


def chat(home: Home, word: str, conversation: str = "", answer: str = "once") -> Heard:
    """Hold one turn to its end; a person answers every approval alike."""
    events: list[Event] = []
    with client_of(home) as client:
        stream = send(client, word, conversation)
        for event in stream:
            events.append(event)
            if isinstance(event, ApprovalRequested):
                stream.answer(event.approval_id, answer, event.digest)
        finished = stream.result
    return Heard(
        conversation=finished.conversation_id,
        said=finished.text,
        results=tuple(each for each in events if isinstance(each, ToolFinished)),
        asked=tuple(each for each in events if isinstance(each, ApprovalRequested)),
        progress=tuple(each.text for each in events if isinstance(each, ToolProgress)),
    )


def lines(home: Home) -> dict[str, McpServerLine]:
    """Return how the servers stand, by alias."""
    with client_of(home) as client:
        return {each.alias: each for each in client.call(ListMcpServers()).items}


def until_link(home: Home, *aliases: str, link: str = "ready", connects: int = 0) -> None:
    """Wait until servers stand as wanted."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        found = lines(home)
        if all(
            found[alias].link == link and found[alias].connects >= connects for alias in aliases
        ):
            return
        assert time.monotonic() < deadline, (found, home.log())
        time.sleep(0.05)


def until_problem(home: Home, alias: str, words: str) -> None:
    """Wait until the last try to connect a server came to this."""
    deadline = time.monotonic() + LIMIT_S
    while words not in (found := lines(home)[alias]).problem:
        assert time.monotonic() < deadline, (found, home.log())
        time.sleep(0.05)


def receipts(home: Home) -> list[tuple[str, str, str]]:
    """Return tool, status and approval of all receipts, oldest first."""
    return [(each["tool"], each["status"], each["approval"]) for each in home.receipt_lines()]


def call_of(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a reply that makes one call."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def as_json(text: str) -> Any:
    """Return the JSON value that a result is."""
    return json.loads(text)
