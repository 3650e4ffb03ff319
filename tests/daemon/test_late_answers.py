"""Questions that wait: without end while somebody is there, else until a clock ends; late answers.

A turn that nobody watches ends at a call that nobody answers for. The call is kept and may be
answered late, over a restart and over a crash; whatever is not as it was shown is a no.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawctl.client import Client, connect
from clawd.memory.approvals import MAX_KEPT
from clawd.memory.rows import Conversation
from clawd.wire.codec import EventFrame, Failure, Result, unpack, unpack_event
from clawd.wire.conversations import ShowConversation
from clawd.wire.daemon import ClearEstop, Reload, SetEstop
from clawd.wire.events import ApprovalRequested, ApprovalResolved, Event, TurnFinished
from clawd.wire.memory import ClearMemory
from clawd.wire.policy import AnswerApproval, ApprovalLine, ListApprovals
from clawd.wire.turns import FollowConversation, ListTurns, SendMessage
from tests.channels.rpc.rig import LIMIT_S, RawClient, request
from tests.security.fakes import BOB
from tests.skills.skill_files import skill
from tests.support.inprocess import OWNER, Inside, daemon_in
from tests.support.lent_home import LentHome
from tests.support.passing import pass_time
from tests.support.rows import Rows

Change = Callable[[Inside, ApprovalLine], Awaitable[None]]

SHORT_S = 0.2
WRITE = {
    "when": "write",
    "tool_calls": [{"name": "file_write", "arguments": {"path": "a.txt", "content": "hello"}}],
}
AFTER = {"after": "tool", "text": "told"}
FINE = {"when": "never", "text": "fine"}


def tables(folder: Path, timeout_s: float = SHORT_S, *, security: str = "") -> str:
    """Return a config by which a call waits that long, and a model that writes a file."""
    script = folder / "script.json"
    script.write_text(msgspec.json.encode({"replies": [WRITE, AFTER, FINE]}).decode())
    mock = f'script = "{script}"\n'
    return f"{mock}[security]\napproval_timeout_s = {timeout_s}\n{security}"


async def send(inside: Inside, text: str = "write it", conversation_id: str = "") -> TurnFinished:
    """Send a message that nobody watches, and return its end."""
    return await inside.ask(
        SendMessage(text=text, conversation_id=conversation_id, detach=True), OWNER
    )


async def waiting(inside: Inside) -> ApprovalLine:
    """Return the one call that is listed."""
    (line,) = (await inside.ask(ListApprovals(), OWNER)).items
    return line


def answer_to(line: ApprovalLine, word: str = "once") -> AnswerApproval:
    return msgspec.convert(
        {"approval_id": line.id, "digest": line.digest, "answer": word}, AnswerApproval
    )


async def settled(inside: Inside) -> None:
    """Wait until no turn runs."""
    async with asyncio.timeout(LIMIT_S):
        while inside.daemon.inbox.turns != (0, 0):
            await asyncio.sleep(0.005)


async def event_of(client: RawClient, wanted: type[Event]) -> Any:
    """Read until such an event comes."""
    while isinstance(frame := await client.read(), EventFrame):
        event = unpack_event(frame.event)
        if isinstance(event, wanted):
            return event
    raise AssertionError(f"no {wanted.__name__}: {frame}")


async def end_of(client: RawClient) -> TurnFinished:
    while isinstance(frame := await client.read(), EventFrame):
        pass
    assert isinstance(frame, Result), frame
    return unpack(frame.value, TurnFinished)


async def roles(inside: Inside, conversation_id: str) -> list[str]:
    shown = await inside.ask(ShowConversation(conversation_id=conversation_id), OWNER)
    return [message.role for message in shown.messages]


def kept(folder: Path) -> list[tuple[str]]:
    with sqlite3.connect(folder / "home" / "memory.sqlite") as connection:
        return connection.execute("SELECT approval_id FROM lapsed_calls").fetchall()


@contextlib.contextmanager
def connected(home: LentHome) -> Iterator[Client]:
    with connect(Path(home.json("status")["socket"])) as client:
        yield client


def wait_for(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not claim():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


# --- somebody is there


async def test_a_person_who_is_there_is_not_denied_by_the_clock(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables(tmp_path, 120.0)) as inside:
        client = await inside.client(OWNER)
        client.send(request(1, SendMessage(text="write it", interactive=True)))
        asked = await event_of(client, ApprovalRequested)
        assert asked.expires_in_s == 0.0
        pass_time(100_000.0)
        line = await waiting(inside)
        assert (line.id, line.expires_in_s, line.timed_out) == (asked.approval_id, 0.0, False)
        await inside.ask(answer_to(line), OWNER)
        assert (await end_of(client)).text == "told"
        assert (inside.workspace / "a.txt").read_text() == "hello"


async def test_the_clock_runs_while_nobody_is_there_and_stops_when_somebody_comes(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path, tables(tmp_path, 120.0)) as inside:
        client = await inside.client(OWNER)
        client.send(request(1, SendMessage(text="write it", interactive=True, detach=True)))
        asked = await event_of(client, ApprovalRequested)
        pass_time(1_000.0)
        client.close()
        async with asyncio.timeout(LIMIT_S):
            while not (await waiting(inside)).expires_in_s:
                await asyncio.sleep(0.005)
        pass_time(100.0)
        line = await waiting(inside)
        assert 0 < line.expires_in_s <= 20.0
        follower = await inside.client(OWNER)
        follower.send(request(1, FollowConversation(conversation_id=line.conversation_id)))
        shown = await event_of(follower, ApprovalRequested)
        assert (shown.approval_id, shown.expires_in_s) == (asked.approval_id, 0.0)
        pass_time(1_000.0)
        assert not (await waiting(inside)).timed_out
        follower.close()
        async with asyncio.timeout(LIMIT_S):
            while not (await waiting(inside)).expires_in_s:
                await asyncio.sleep(0.005)
        pass_time(121.0)
        await settled(inside)
        assert (await waiting(inside)).timed_out


# --- nobody is


async def test_a_turn_that_nobody_answers_ends_visibly_and_a_late_yes_goes_on_with_it(
    tmp_path: Path,
) -> None:
    given = tables(tmp_path)
    async with daemon_in(tmp_path, given) as inside:
        finished = await send(inside)
        line = await waiting(inside)
        assert finished.waits_for == line.id
        assert f"file_write waits for an approval ({line.id})" in finished.text
        assert (line.timed_out, line.arguments) == (True, '{"content":"hello","path":"a.txt"}')
        assert not (inside.workspace / "a.txt").exists()
    async with daemon_in(tmp_path, given) as inside:
        assert await waiting(inside) == line
        follower = await inside.client(OWNER)
        follower.send(request(1, FollowConversation(conversation_id=line.conversation_id)))
        done = await inside.ask(answer_to(line), OWNER)
        assert done.message == (f"{line.id}: once; the turn goes on in {finished.conversation_id}")
        resolved = await event_of(follower, ApprovalResolved)
        assert (resolved.approval_id, resolved.answer) == (line.id, "once")
        end = await event_of(follower, TurnFinished)
        assert (end.text, end.waits_for) == ("told", "")
        assert (inside.workspace / "a.txt").read_text() == "hello"
        first, second = inside.receipts()
        assert (first.status, first.approval) == ("denied", "none")
        assert first.reason.endswith(f"no answer within 0.2 s; {line.id} can still be answered")
        assert (second.status, second.approval, second.approved_by) == (
            "allowed", "user", f"uid {OWNER.uid}",
        )  # fmt: skip
        assert second.reason.startswith(f"late answer to {line.id} of {first.id}; ")
        assert await roles(inside, finished.conversation_id) == [
            "user", "assistant", "tool", "assistant", "tool", "assistant",
        ]  # fmt: skip
        assert (await inside.ask(ListApprovals(), OWNER)).items == ()
        again = await inside.refused(answer_to(line), OWNER)
        assert (again.code, "was answered by uid" in again.message) == ("not_found", True)
        assert len(inside.receipts()) == 2


async def test_a_late_no_lets_the_turn_go_on_with_the_denial(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables(tmp_path)) as inside:
        finished = await send(inside)
        await inside.ask(answer_to(await waiting(inside), "deny"), OWNER)
        await settled(inside)
        shown = await inside.ask(ShowConversation(conversation_id=finished.conversation_id), OWNER)
        assert [each.content for each in shown.messages[-2:]] == [
            "denied: denied by the user", "told",
        ]  # fmt: skip
        assert [each.status for each in inside.receipts()] == ["denied", "denied"]
        assert not (inside.workspace / "a.txt").exists()
        assert kept(tmp_path) == []


def edit_of(line: ApprovalLine, **arguments: str) -> AnswerApproval:
    text = msgspec.json.encode(arguments).decode()
    return AnswerApproval(approval_id=line.id, digest=line.digest, answer="edit", arguments=text)


async def test_a_call_that_lapsed_can_be_edited_is_judged_anew_and_asks_again(
    tmp_path: Path,
) -> None:
    async with daemon_in(tmp_path, tables(tmp_path)) as inside:
        await send(inside)
        line = await waiting(inside)
        await inside.ask(edit_of(line, path="b.txt", content="mine"), OWNER)
        await settled(inside)
        again = await waiting(inside)
        assert (again.id != line.id, again.timed_out) == (True, True)
        assert again.arguments == '{"content":"mine","path":"b.txt"}'
        assert (await inside.refused(answer_to(line), OWNER)).code == "not_found"
        assert [path.name for path in inside.workspace.glob("*.txt")] == []
        await inside.ask(answer_to(again), OWNER)
        await settled(inside)
        assert [path.name for path in inside.workspace.glob("*.txt")] == ["b.txt"]
        first, second, third = inside.receipts()
        assert [each.status for each in (first, second, third)] == ["denied", "denied", "allowed"]
        edited = f"late answer to {line.id} of {first.id}; arguments edited by uid {OWNER.uid}; "
        assert second.reason.startswith(edited)
        assert third.reason.startswith(f"late answer to {again.id} of {second.id}; ")
        assert kept(tmp_path) == []


async def test_an_edit_that_the_policy_refuses_runs_nothing_and_is_over(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables(tmp_path)) as inside:
        await send(inside)
        line = await waiting(inside)
        for wrong in (
            msgspec.structs.replace(answer_to(line), arguments="{}"),
            msgspec.structs.replace(edit_of(line), arguments=""),
        ):
            assert (await inside.refused(wrong, OWNER)).code == "invalid_request"
        await inside.ask(edit_of(line, path="/etc/passwd", content="mine"), OWNER)
        await settled(inside)
        assert [each.status for each in inside.receipts()] == ["denied", "denied"]
        assert (await inside.ask(ListApprovals(), OWNER)).items == ()
        assert kept(tmp_path) == []


async def test_an_open_question_is_edited_from_elsewhere(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables(tmp_path, 120.0)) as inside:
        client = await inside.client(OWNER)
        client.send(request(1, SendMessage(text="write it", interactive=True)))
        await event_of(client, ApprovalRequested)
        await inside.ask(edit_of(await waiting(inside), path="b.txt", content="mine"), OWNER)
        again = await event_of(client, ApprovalRequested)
        assert again.arguments == '{"content":"mine","path":"b.txt"}'
        await inside.ask(answer_to(await waiting(inside)), OWNER)
        assert (await end_of(client)).text == "told"
        assert (inside.workspace / "b.txt").read_text() == "mine"


async def test_of_two_late_answers_the_first_counts_and_the_call_runs_once(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables(tmp_path)) as inside:
        await send(inside)
        line = await waiting(inside)
        clients = [await inside.client(OWNER) for _ in range(4)]
        for client in clients:
            client.send(request(1, answer_to(line)))
        replies = [await client.read() for client in clients]
        assert sum(isinstance(reply, Result) for reply in replies) == 1
        told = {reply.code for reply in replies if isinstance(reply, Failure)}
        assert told <= {"busy", "not_found"}
        await settled(inside)
        assert [each.status for each in inside.receipts()] == ["denied", "allowed"]


async def test_a_conversation_that_has_gone_on_takes_no_late_answer(tmp_path: Path) -> None:
    given = tables(tmp_path)
    async with daemon_in(tmp_path, given) as inside:
        finished = await send(inside)
        line = await waiting(inside)
        await send(inside, "never mind", finished.conversation_id)
        assert (await inside.ask(ListApprovals(), OWNER)).items == ()
    async with daemon_in(tmp_path, given) as inside:
        refused = await inside.refused(answer_to(line), OWNER)
        assert "has gone on since it was asked" in refused.message
        assert not (inside.workspace / "a.txt").exists()
        assert len(inside.receipts()) == 1


async def test_a_late_answer_while_a_turn_runs_there_is_put_off(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables(tmp_path)) as inside:
        await send(inside)
        line = await waiting(inside)
        live = inside.daemon.inbox.book.live(line.conversation_id)
        assert live is not None
        async with live.lock:
            refused = await inside.refused(answer_to(line), OWNER)
        assert refused.code == "busy"
        await inside.ask(answer_to(line), OWNER)
        await settled(inside)
        assert (inside.workspace / "a.txt").exists()


def changing(statement: str) -> Change:
    """Return what changes the record of a call, as an intruder would."""

    async def change(inside: Inside, _line: ApprovalLine) -> None:
        with sqlite3.connect(inside.daemon.memory.path) as connection:
            connection.execute(statement)

    return change


async def taint(inside: Inside, line: ApprovalLine) -> None:
    inside.daemon.inbox.book.taint(line.conversation_id, ["a page"])


async def make_the_file(inside: Inside, _line: ApprovalLine) -> None:
    (inside.workspace / "a.txt").write_text("of somebody else")


async def make_a_link(inside: Inside, _line: ApprovalLine) -> None:
    (inside.workspace / "b.txt").write_text("of somebody else")
    (inside.workspace / "a.txt").symlink_to("b.txt")


async def delete(inside: Inside, line: ApprovalLine) -> None:
    await inside.ask(ClearMemory(conversation_id=line.conversation_id), OWNER)


async def stop(inside: Inside, _line: ApprovalLine) -> None:
    await inside.ask(SetEstop(reason="a test"), OWNER)


async def forbid(inside: Inside, _line: ApprovalLine) -> None:
    config = inside.daemon.loaded.path
    text = config.read_text().replace("[security]", '[security]\nautonomy = "readonly"')
    config.write_text(text)
    await inside.ask(Reload(), OWNER)


# What is changed, why the answer is refused, or what the receipt says.
CHANGED: list[tuple[str, Change, str, str]] = [
    ("untrusted text", taint, "has come in since it was asked, of a page", ""),
    ("the file is there", make_the_file, "", "it would do something else by now"),
    ("a link is there", make_a_link, "", "it would do something else by now"),
    (
        "other bytes",
        changing("UPDATE lapsed_calls SET call = replace(call, 'hello', 'harm')"),
        "does not agree with its receipt",
        "",
    ),
    (
        "another tool",
        changing("UPDATE lapsed_calls SET call = replace(call, 'file_write', 'file_append')"),
        "does not agree with its receipt",
        "",
    ),
    (
        "another risk",
        changing("UPDATE lapsed_calls SET call = replace(call, '\"medium\"', '\"high\"')"),
        "does not agree with its receipt",
        "",
    ),
    (
        "no record",
        changing("UPDATE lapsed_calls SET call = substr(call, 9)"),
        "is not open any more",
        "",
    ),
    ("the conversation is deleted", delete, "is not open any more", ""),
    ("another policy", forbid, "", "readonly"),
    ("the emergency stop", stop, "emergency stop is set", ""),
]


async def test_a_late_yes_to_what_is_not_as_it_was_shown_is_a_no(tmp_path: Path) -> None:
    given, rows = tables(tmp_path), Rows()
    for number, (name, change, refusal, reason) in enumerate(CHANGED):
        with rows.row(name):
            folder = tmp_path / str(number)
            folder.mkdir()
            async with daemon_in(folder, given) as inside:
                await send(inside)
                line = await waiting(inside)
                await change(inside, line)
                if refusal:
                    refused = await inside.refused(answer_to(line), OWNER)
                    assert refusal in refused.message
                    assert [each.status for each in inside.receipts()] == ["denied"]
                else:
                    await inside.ask(answer_to(line), OWNER)
                    await settled(inside)
                    last = inside.receipts()[-1]
                    assert (last.status, reason in last.reason) == ("denied", True), last.reason
                    assert kept(folder) == []
                found = inside.workspace / "a.txt"
                assert not found.exists() or found.read_text() == "of somebody else"
    rows.check()


async def test_after_the_emergency_stop_is_cleared_the_call_can_be_answered(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables(tmp_path)) as inside:
        await send(inside)
        line = await waiting(inside)
        await inside.ask(SetEstop(reason="a test"), OWNER)
        assert (await inside.refused(answer_to(line), OWNER)).code == "estop"
        await inside.ask(ClearEstop(), OWNER)
        await inside.ask(answer_to(line), OWNER)
        await settled(inside)
        assert (inside.workspace / "a.txt").read_text() == "hello"


async def test_nobody_else_sees_or_answers_a_call_that_timed_out(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables(tmp_path)) as inside:
        await send(inside)
        line = await waiting(inside)
        assert (await inside.ask(ListApprovals(), BOB)).items == ()
        assert (await inside.refused(answer_to(line), BOB)).code == "not_found"
        other = msgspec.structs.replace(answer_to(line), digest="0" * 64)
        assert "for other bytes" in (await inside.refused(other, OWNER)).message
        assert (await waiting(inside)).id == line.id


async def test_a_shutdown_ends_what_waits_at_once_and_it_can_be_answered_after_it(
    tmp_path: Path,
) -> None:
    given = tables(tmp_path, 120.0)
    async with daemon_in(tmp_path, given) as inside:
        client = await inside.client(OWNER)
        client.send(request(1, SendMessage(text="write it", interactive=True)))
        asked = await event_of(client, ApprovalRequested)
        async with asyncio.timeout(LIMIT_S):
            await inside.daemon.drain()
        assert (await end_of(client)).waits_for == asked.approval_id
    async with daemon_in(tmp_path, given) as inside:
        await inside.ask(answer_to(await waiting(inside)), OWNER)
        await settled(inside)
        assert (inside.workspace / "a.txt").read_text() == "hello"


async def test_calls_that_timed_out_are_few_and_not_kept_for_ever(tmp_path: Path) -> None:
    async with daemon_in(tmp_path, tables(tmp_path)) as inside:
        await send(inside)
        lapsed = inside.daemon.memory.lapsed
        (first,) = await lapsed.answerable()
        for number in range(MAX_KEPT):
            record = await inside.daemon.memory.conversations.create(
                Conversation(owner=OWNER.uid, workspace=str(inside.workspace))
            )
            shown = msgspec.structs.replace(first.shown, approval_id=f"approval-{number}")
            await lapsed.add(msgspec.structs.replace(first, shown=shown, conversation_id=record.id))
        assert len(kept(tmp_path)) == MAX_KEPT
        assert (first.id,) not in kept(tmp_path)
        with sqlite3.connect(inside.daemon.memory.path) as connection:
            connection.execute("UPDATE lapsed_calls SET lapsed_at = '2020-01-01T00:00:00+00:00'")
        assert await lapsed.answerable() == []
        assert await lapsed.find("approval-7") is None


@pytest.mark.daemon
def test_a_daemon_that_is_killed_keeps_what_timed_out_and_runs_it_once(lent_home: LentHome) -> None:
    home = lent_home
    home.configure(WRITE, AFTER, tables="[security]\napproval_timeout_s = 0.2")
    home.start()
    with connected(home) as client:
        stream = client.stream(SendMessage(text="write it", detach=True))
        for _event in stream:
            pass
        waits_for = stream.result.waits_for
    home.kill()
    listed = home.ctl("approval", "list").stdout
    assert "timed out, can still be answered until" in listed
    done = home.ctl("approval", "approve", waits_for)
    assert "the turn goes on in conv-" in done.stdout, done.stderr
    with connected(home) as client:
        wait_for(lambda: (home.workspace / "a.txt").exists())
        wait_for(lambda: not client.call(ListTurns()).items)
    home.kill()
    assert home.ctl("approval", "list").stdout == "Nothing waits for an approval.\n"
    assert home.ctl("approval", "approve", waits_for).returncode == 1
    assert [(each["status"], each["approval"]) for each in home.receipt_lines()] == [
        ("denied", "none"),
        ("allowed", "user"),
    ]
    assert home.ctl("receipt", "verify").returncode == 0


@pytest.mark.daemon
def test_a_daemon_that_is_killed_while_it_asks_loses_no_question_and_runs_it_once(
    lent_home: LentHome,
) -> None:
    home = lent_home
    home.configure(WRITE, AFTER)
    home.start()
    with connected(home) as client:
        stream = client.stream(SendMessage(text="write it", interactive=True))
        asked = next(event for event in stream if isinstance(event, ApprovalRequested))
        (open_one,) = home.json("approval", "list")
        assert (open_one["id"], open_one["timed_out"]) == (asked.approval_id, False)
        home.kill()
    (line,) = home.json("approval", "list")
    assert (line["id"], line["timed_out"]) == (asked.approval_id, True)
    assert (line["arguments"], line["digest"]) == (asked.arguments, asked.digest)
    done = home.ctl("approval", "approve", asked.approval_id)
    assert "the turn goes on in conv-" in done.stdout, done.stderr
    with connected(home) as client:
        wait_for(lambda: (home.workspace / "a.txt").exists())
        wait_for(lambda: not client.call(ListTurns()).items)
    home.kill()
    assert home.ctl("approval", "list").stdout == "Nothing waits for an approval.\n"
    assert home.ctl("approval", "approve", asked.approval_id).returncode == 1
    first, second = home.receipt_lines()
    assert (first["status"], first["approval"]) == ("denied", "none")
    assert first["reason"] == f"interrupted; {asked.approval_id} can still be answered"
    assert (second["status"], second["approval"]) == ("allowed", "user")
    assert second["reason"].startswith(f"late answer to {asked.approval_id} of {first['id']}; ")
    assert home.ctl("receipt", "verify").returncode == 0


async def test_a_question_that_was_answered_is_not_held_any_more(tmp_path: Path) -> None:
    for word, is_left in (("once", True), ("deny", False)):
        folder = tmp_path / word
        folder.mkdir()
        async with daemon_in(folder, tables(folder, 120.0)) as inside:
            client = await inside.client(OWNER)
            client.send(request(1, SendMessage(text="write it", interactive=True)))
            asked = await event_of(client, ApprovalRequested)
            (held,) = await inside.daemon.memory.lapsed.held()
            assert held.id == asked.approval_id
            assert await inside.daemon.memory.lapsed.find(held.id) is None, "it is open"
            await inside.ask(answer_to(await waiting(inside), word), OWNER)
            await end_of(client)
            assert kept(folder) == []
            assert (inside.workspace / "a.txt").exists() is is_left


async def test_a_turn_that_goes_on_late_is_narrowed_by_the_skill_that_it_read(
    tmp_path: Path,
) -> None:
    folder = skill(tmp_path / "home" / "skills" / "notes")
    text = (folder / "SKILL.md").read_text().replace("---\n#", "allowed-tools: Read\n---\n#")
    (folder / "SKILL.md").write_text(text)
    calls = [("skill_read", {"name": "notes"}), ("file_write", {"path": "a", "content": "b"})]
    calls += [("file_list", {}), ("check_path", {"path": "a"}), ("evaluate", {"code": "1"})]
    replies = [{"tool_calls": [{"name": name, "arguments": given}]} for name, given in calls]
    script = tmp_path / "script.json"
    script.write_text(msgspec.json.encode({"replies": replies}).decode())
    given = f'script = "{script}"\n[security]\napproval_timeout_s = {SHORT_S}\n'
    async with daemon_in(tmp_path, given) as inside:
        await send(inside)
        await inside.ask(answer_to(await waiting(inside)), OWNER)
        await settled(inside)
        line = await waiting(inside)
        assert (line.tool, line.reason) == (
            "evaluate", "the skill notes allows itself only: Read",
        )  # fmt: skip
        *_, last = inside.receipts()
        assert (last.tool, last.status) == ("evaluate", "denied")
