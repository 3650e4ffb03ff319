"""Session files in conversations: long messages by reference, the list of files, append-only."""

from pathlib import Path

import pytest

from clawd.memory.session_files import SessionLimits
from clawd.providers.base import Capabilities, ChatRequest
from clawd.runtime.facts import FactScope
from clawd.runtime.session_files import LISTED, MESSAGE_HEAD_BYTES, SessionFileList
from clawd.security.policy import PolicySettings
from clawd.security.sandbox import Sandbox, SandboxSettings
from clawd.tools.base import Tool, succeeded
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.file_write import FileWriteTool
from clawd.tools.builtin.files import FileReadTool
from clawd.tools.session_files import SessionAccess
from tests.runtime.inboxes import House
from tests.runtime.models import PlannedModel, calls, says
from tests.runtime.test_append_only import broken
from tests.security.fakes import ADA
from tests.support.dispatching import Bench, Probe

WORDS = "".join(f"word{number} é " for number in range(20_000)) + "zanzibar"


def tools(bench: Bench) -> list[Tool]:
    deps = BuiltinDeps(
        policy=PolicySettings(),
        home=None,
        sandbox=Sandbox(SandboxSettings(home=Path("/nowhere"))),
        sessions=SessionAccess(store=bench.memory.session_files, room_bytes=1 << 16),
    )

    async def act(*_: object) -> object:
        return succeeded("long\n" * 30_000)

    return [FileReadTool(deps), FileWriteTool(deps), Probe(act=act)]


def house_with(bench: Bench, *hops: object) -> House:
    house = House(bench, *hops, tools=tools(bench))  # type: ignore[arg-type]
    house.sources.append(SessionFileList(bench.memory.session_files))
    house.restart()
    return house


def last_user(request: ChatRequest) -> str:
    found = [m.content or "" for m in request.messages if m.role == "user"]
    return found[-1]


async def test_a_long_message_is_shown_by_its_head_and_kept_whole(bench: Bench) -> None:
    house = house_with(bench, says("read"))
    done = await house.say(WORDS)
    told = last_user(house.model.requests[0])
    size = len(WORDS.encode())
    assert len(told) < 2 * MESSAGE_HEAD_BYTES
    assert WORDS[:1_000] in told
    assert f"[cut: the whole message, {size} bytes, is file+session://message-1.txt; " in told
    assert "files: of this conversation, each read as file+session://NAME" in told
    files = bench.memory.session_files
    _, content = await files.load(done.conversation_id, "message-1.txt", owner=ADA.uid)
    assert content == WORDS.encode()


async def test_the_users_own_words_stay_whole_in_memory_and_are_found(bench: Bench) -> None:
    house = house_with(bench, says("read"))
    done = await house.say(WORDS)
    history = await bench.memory.messages.history(done.conversation_id, owner=ADA.uid)
    assert history[0].message.content == WORDS
    (hit,) = await bench.memory.search.find("zanzibar", owner=ADA.uid)
    assert (hit.conversation_id, hit.role) == (done.conversation_id, "user")
    await bench.memory.session_files.delete(done.conversation_id, "message-1.txt", owner=ADA.uid)
    assert len(await bench.memory.search.find("zanzibar", owner=ADA.uid)) == 1


async def test_each_request_extends_the_one_before_whatever_becomes_of_the_files(
    bench: Bench,
) -> None:
    write = calls(("file_write", '{"path":"file+session://n.txt","content":"v1"}'))
    again = calls(("file_write", '{"path":"file+session://n.txt","content":"v2"}'))
    read = calls(
        ("file_read", '{"path":"file+session://probe-2.txt","start_line":3,"max_lines":2}')
    )
    house = house_with(
        bench,
        *(write, calls(("probe", '{"text":"a"}')), read, says("one")),
        *(again, says("two")),
        says("three"),
        says("four"),
    )
    first = await house.say(WORDS)
    files, conversation = bench.memory.session_files, first.conversation_id
    await house.say("go on", conversation)
    for name in ("message-1.txt", "probe-2.txt", "n.txt"):
        await files.delete(conversation, name, owner=ADA.uid)
    house.restart()
    await house.say("and now?", conversation)
    await house.say("once more", conversation)
    requests = house.model.requests
    assert broken(requests) == []
    last = requests[-1].messages
    results = [m.content or "" for m in last if m.role == "tool"]
    assert results[1].endswith(
        "[cut: the whole, 150000 bytes, is file+session://probe-2.txt; "
        "file_read with offset=65536 shows more of it]"
    )
    assert results[2].startswith("3|long\n4|long\n(lines 3 to 4 of 30000")
    told = [m.content or "" for m in last if m.role == "user"]
    assert "n.txt (text/plain, 2 bytes): 1 line: v1" in told[1]
    assert "files: none" in told[2]
    assert "files:" not in told[3]


async def test_a_model_that_cannot_read_gets_the_whole(bench: Bench) -> None:
    house = House(bench, says("read"))  # no file_read among its tools
    await house.say(WORDS)
    assert last_user(house.model.requests[0]).endswith(WORDS)


class Toolless(PlannedModel):
    """A model that calls no tools."""

    def capabilities(self) -> Capabilities:
        return Capabilities(tools=False)


async def test_a_model_that_calls_no_tools_gets_the_whole(bench: Bench) -> None:
    house = house_with(bench, says("read"))
    house.model = Toolless(says("read"), name="mock")
    await house.say(WORDS)
    assert last_user(house.model.requests[0]).endswith(WORDS)


@pytest.mark.parametrize("length", [4_095, 4_096, 4_097])
async def test_the_limit_is_the_configured_one(bench: Bench, length: int) -> None:
    house = house_with(bench, says("read"))
    house.change(max_inline_message_bytes=4_096)
    done = await house.say("x" * length)
    found = await bench.memory.session_files.list(done.conversation_id, owner=ADA.uid)
    assert len(found) == (1 if length > 4_096 else 0)


async def test_a_message_that_cannot_be_kept_is_not_lost(bench: Bench) -> None:
    bench.memory.session_files.limits = SessionLimits(max_file_bytes=10)
    house = house_with(bench, says("read"))
    await house.say(WORDS)
    assert last_user(house.model.requests[0]).endswith(WORDS)


async def test_a_fork_reads_what_the_old_conversation_kept(bench: Bench) -> None:
    read = calls(("file_read", '{"path":"file+session://message-1.txt","max_bytes":5}'))
    house = house_with(bench, says("one"), read, says("two"))
    first = await house.say(WORDS)
    fork = await bench.memory.forks.fork(first.conversation_id, owner=ADA.uid)
    await bench.memory.conversations.delete(first.conversation_id, owner=ADA.uid)
    await house.say("read it", fork.id)
    assert broken(house.model.requests) == []
    assert (house.model.requests[-1].messages[-1].content or "").startswith(
        "1|word0\n(bytes 0 to 5"
    )


async def test_the_list_is_capped_and_the_owners_alone(bench: Bench) -> None:
    house = house_with(bench, says("one"))
    conversation = (await house.say("hello")).conversation_id
    files = bench.memory.session_files
    for number in range(LISTED + 5):
        await files.save(conversation, f"f{number}.txt", b"<context>\x1b[31m\nx", owner=ADA.uid)
    scope = FactScope(
        principal=ADA,
        owner=ADA.uid,
        conversation_id=conversation,
        workspace=bench.workspace,
        offered=frozenset({"file_read"}),
    )
    fact = (await SessionFileList(files).facts(scope))["files"]
    lines = fact.text.split("\n")
    assert len(lines) == LISTED + 2
    assert lines[1] == "f24.txt (text/plain, 16 bytes): 2 lines: <context> [31m x"
    assert lines[-1] == "and 5 more: file_list with path file+session://"
