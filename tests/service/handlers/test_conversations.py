"""Handlers about conversations: exports in pieces that fit a frame, ids by their beginning."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest

from clawd.memory.rows import NewMessage
from clawd.providers.base import Message
from clawd.service.handlers.conversations import CHUNK_CHARACTERS
from clawd.wire.conversations import (
    CompressConversation,
    DeleteConversation,
    ExportConversation,
    ForkConversation,
    ListConversations,
    OpenConversation,
    RenameConversation,
    SetMode,
    ShowConversation,
)
from clawd.wire.receipts import ListReceipts
from clawd.wire.tools import RunTool, ToolOutcome
from clawd.wire.turns import SendMessage
from tests.security.fakes import ROOT
from tests.support.inprocess import Inside, daemon_in
from tests.support.rows import each_row
from tests.support.secret_forms import FORMS, filled, secrets_of

Format = Literal["jsonl", "markdown"]


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    async with daemon_in(tmp_path) as made:
        yield made


async def talk(inside: Inside, turns: int) -> str:
    conversation_id = ""
    for number in range(turns):
        sent = SendMessage(text=f"question {number}", conversation_id=conversation_id)
        conversation_id = (await inside.ask(sent)).conversation_id
    return conversation_id


async def exported(inside: Inside, conversation_id: str, how: Format) -> list[str]:
    pieces: list[str] = []
    request = ExportConversation(conversation_id=conversation_id, format=how)
    while True:
        chunk = await inside.ask(request)
        pieces.append(chunk.text)
        if not chunk.cursor:
            return pieces
        request = ExportConversation(
            conversation_id=conversation_id, format=how, cursor=chunk.cursor
        )


@each_row("how", ["jsonl", "markdown"], fresh=["inside"])
async def test_a_big_export_comes_in_pieces_that_add_up(how: Format, inside: Inside) -> None:
    conversation_id = await talk(inside, 3)
    sizes = (CHUNK_CHARACTERS * 2, 10, CHUNK_CHARACTERS - 200, 0)
    rows = [
        NewMessage(message=Message(role="user", content=f"begin{'é' * size}end")) for size in sizes
    ]
    messages = inside.daemon.memory.messages
    await messages.append(conversation_id, rows, owner=None, turn_id="t")
    pieces = await exported(inside, conversation_id, how)
    assert max(map(len, pieces)) <= CHUNK_CHARACTERS
    assert len(pieces) > 3
    text = "".join(pieces)
    assert text.count("begin") == text.count("end") == len(sizes)
    if how == "jsonl":
        values = [json.loads(line) for line in text.splitlines()]
        assert len(values) == 1 + 6 + len(sizes)
        assert [v["content"] for v in values[7:]] == [f"begin{'é' * n}end" for n in sizes]


async def test_many_messages_are_exported_in_order_with_checkpoints_last(inside: Inside) -> None:
    conversation_id = await talk(inside, 35)
    await inside.ask(CompressConversation(conversation_id=conversation_id))
    text = "".join(await exported(inside, conversation_id, "jsonl"))
    values = [json.loads(line) for line in text.splitlines()]
    assert [v["type"] for v in values][:-1] == ["conversation", *["message"] * 70]
    assert values[-1]["type"] == "checkpoint"
    ids = [v["id"] for v in values[1:-1]]
    assert ids == sorted(set(ids))


@each_row(
    "cursor",
    ["x", "1", "1:-1", "-2:0", "9" * 50, "9" * 30 + ":0", "1:2:3", "-1:x"],
    fresh=["inside"],
)
async def test_a_cursor_that_is_none_is_refused(cursor: str, inside: Inside) -> None:
    conversation_id = await talk(inside, 1)
    request = ExportConversation(conversation_id=conversation_id, cursor=cursor)
    assert (await inside.refused(request)).code == "invalid_request"


async def test_lists_say_what_is_replaced_and_where_a_fork_came_from(inside: Inside) -> None:
    conversation_id = await talk(inside, 5)
    report = await inside.ask(CompressConversation(conversation_id=conversation_id[:10]))
    assert report.conversation_id == conversation_id
    assert (report.messages_replaced, report.messages_shown) == (6, 6)
    forked = await inside.ask(ForkConversation(conversation_id=conversation_id))
    assert (forked.messages, forked.replaced, forked.forked_from) == (10, 6, conversation_id)
    page = await inside.ask(ListConversations())
    assert {line.id: line.replaced for line in page.items} == {conversation_id: 6, forked.id: 6}
    opened = await inside.ask(OpenConversation(conversation_id=conversation_id))
    assert (opened.messages, opened.replaced) == (10, 6)
    shown = await inside.ask(ShowConversation(conversation_id=conversation_id))
    assert len(shown.messages) == 10
    undone = await inside.ask(CompressConversation(conversation_id=conversation_id, undo="all"))
    assert (undone.undone, undone.messages_replaced, undone.messages_shown) == (1, 0, 10)


async def test_lists_are_of_one_folder_and_tell_the_last_words_where_that_is_asked(
    inside: Inside,
) -> None:
    other = inside.workspace / "other"
    other.mkdir()
    first = await talk(inside, 1)
    token = "ghp_" + "a1B2c3D4" * 5
    said = SendMessage(text=f"take\n{token} \x1b[2J", workspace=str(other))
    second = (await inside.ask(said)).conversation_id
    rows = [NewMessage(message=Message(role="tool", content="done", tool_call_id="1"))]
    await inside.daemon.memory.messages.append(second, rows, owner=None, turn_id="t")
    opened = await inside.ask(OpenConversation(workspace=str(other)))
    page = await inside.ask(ListConversations(last_words=True))
    told = {line.id: line.last_words for line in page.items}
    assert set(told) == {first, second, opened.id}
    assert told[opened.id] == ""
    assert told[first] == "question 0"
    assert told[second].startswith("take [secret:")
    assert token not in told[second] and "\x1b" not in told[second]
    page = await inside.ask(ListConversations(workspace=str(other)))
    assert {line.id: line.last_words for line in page.items} == {second: "", opened.id: ""}
    assert (await inside.ask(ListConversations(workspace="/nowhere"))).items == ()
    newest = await inside.ask(OpenConversation(workspace=str(other), resume=True))
    assert newest.id == opened.id
    newest = await inside.ask(OpenConversation(resume=True))
    assert newest.id == first


async def test_what_is_refused_says_why(inside: Inside) -> None:
    conversation_id = await talk(inside, 1)
    for request, code in (
        (RenameConversation(conversation_id=conversation_id, title=" "), "invalid_request"),
        (CompressConversation(conversation_id=conversation_id), "invalid_request"),
        (CompressConversation(conversation_id=conversation_id, undo="last"), "invalid_request"),
        (ForkConversation(conversation_id=conversation_id, message_id=-5), "invalid_request"),
        (DeleteConversation(conversation_id=""), "invalid_request"),
        (DeleteConversation(conversation_id="conv-none"), "not_found"),
    ):
        assert (await inside.refused(request)).code == code, request


async def test_a_deleted_conversation_is_gone(inside: Inside) -> None:
    conversation_id = await talk(inside, 1)
    await inside.ask(DeleteConversation(conversation_id=conversation_id))
    assert (await inside.ask(ListConversations())).items == ()
    sent = SendMessage(text="more", conversation_id=conversation_id)
    assert (await inside.refused(sent)).code == "not_found"


async def test_s4_no_form_of_a_secret_that_a_tool_read_is_exported(tmp_path: Path) -> None:
    calls = [
        {"name": "file_read", "arguments": {"path": f"{number}.txt"}}
        for number in range(len(FORMS))
    ]
    replies = [{"tool_calls": calls}, {"text": "I have read them."}]
    (tmp_path / "script.json").write_text(json.dumps({"replies": replies}))
    tables = f'script = "{tmp_path / "script.json"}"\n'
    async with daemon_in(tmp_path, tables) as inside:
        for number, form in enumerate(FORMS):
            (inside.workspace / f"{number}.txt").write_text(f"settings\n{filled(form)}\nend\n")
        sent = await inside.ask(SendMessage(text="Read them all."))
        for how in ("jsonl", "markdown"):
            text = "".join(await exported(inside, sent.conversation_id, how))
            assert text.count("settings") >= len(FORMS) - 5  # a key without an end takes the rest
            secrets = {each for form in FORMS for each in secrets_of(form)}
            leaked = [part for part in text.split("settings") if any(s in part for s in secrets)]
            assert leaked == []


async def test_r5_what_a_model_thought_is_shown_whole_and_exported_without_secrets(
    inside: Inside,
) -> None:
    conversation_id = await talk(inside, 1)
    form = next(each for each in FORMS if secrets_of(each))
    said = Message(role="assistant", content="so", reasoning=f"settings {filled(form)}")
    row = NewMessage(message=said, metadata={"unreadable": [f"<tool_call>{filled(form)}"]})
    messages = inside.daemon.memory.messages
    await messages.append(conversation_id, [row], owner=None, turn_id="t")
    shown = await inside.ask(ShowConversation(conversation_id=conversation_id))
    assert shown.messages[-1].reasoning == said.reasoning
    assert shown.messages[-1].unreadable == (f"<tool_call>{filled(form)}",)
    for how in ("jsonl", "markdown"):
        text = "".join(await exported(inside, conversation_id, how))
        assert ("settings" in text, "<tool_call>" in text) == (True, True)
        assert [secret for secret in secrets_of(form) if secret in text] == []


async def test_a_mode_is_the_conversations_own_kept_and_on_record(inside: Inside) -> None:
    first = await inside.ask(SendMessage(text="hello", mode="readonly"), ROOT)
    conversation_id = first.conversation_id

    async def run() -> ToolOutcome:
        edit = '{"path": "a.md", "content": "x"}'
        call = RunTool(name="file_write", arguments=edit, conversation_id=conversation_id)
        return await inside.ask(call, ROOT)

    assert "readonly runs low risk only" in (await run()).output
    line = await inside.ask(SetMode(conversation_id=conversation_id, mode="edits"), ROOT)
    assert line.mode == "edits"
    assert (await run()).status == "allowed"
    fork = await inside.ask(ForkConversation(conversation_id=conversation_id), ROOT)
    assert fork.mode == "edits"
    receipts = (await inside.ask(ListReceipts(), ROOT)).items
    changes = [each for each in receipts if each.tool == "conversation_mode"]
    assert [(each.risk, each.approval) for each in changes] == [
        ("medium", "user"),
        ("low", "user"),
    ]
    assert changes[0].reason == "mode edits, before readonly"


async def test_a_mode_that_goes_too_far_is_refused_and_opens_nothing(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, '[security]\nmax_autonomy = "supervised"') as inside:
        with pytest.raises(AssertionError, match="mode full goes further than supervised"):
            await inside.ask(SendMessage(text="hello", mode="full"), ROOT)
        assert (await inside.ask(ListConversations())).items == ()
        assert (await inside.ask(ListReceipts())).items == ()
