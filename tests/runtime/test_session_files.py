"""Session files in conversations: long messages by reference, the list of files, append-only."""

import asyncio
from pathlib import Path

import pytest

from clawd.config.schema import LimitsSection
from clawd.config.sections import CompressionSection, SessionFilesSection
from clawd.errors import ContextFullError
from clawd.providers.base import ChatRequest
from clawd.runtime.context_facts import FactScope
from clawd.runtime.session_files import LISTED, SessionFilesFact, cut_message
from clawd.security.policy import PolicySettings
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import Tool, succeeded
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.files import FileReadTool, FileWriteTool
from clawd.tools.session_files import SessionAccess
from clawd.wire.events import ContextCompressed, Notice, SessionFileChanged, SessionFileDeleted
from tests.runtime.counting_model import CountingModel
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import Pause, calls, fails, says
from tests.runtime.test_append_only import broken
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench, Probe
from tests.support.rows import each_row

CONTEXT = 50_000
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
    house.change(compression=CompressionSection(context_tokens=CONTEXT))
    house.sources.append(SessionFilesFact(bench.memory.session_files))
    house.restart()
    return house


def last_user(request: ChatRequest) -> str:
    found = [m.content or "" for m in request.messages if m.role == "user"]
    return found[-1]


async def test_r9_a_message_that_does_not_fit_is_shown_by_both_ends_and_says_so(
    bench: Bench,
) -> None:
    house = house_with(bench, says("read"))
    ticket = await house.send(WORDS)
    events = await events_of(ticket)
    told = last_user(house.model.requests[0]).rpartition("</context>\n\n")[2]
    head, _, rest = told.partition("\n[… ")
    mark, _, tail = rest.partition(" …]\n")
    size = len(WORDS.encode())
    left_out = size - len(head.encode()) - len(tail.encode())
    assert WORDS.startswith(head)
    assert WORDS.endswith(tail)
    assert min(len(head), len(tail)) > 10_000
    assert mark == (
        f"{left_out} of {size} bytes of this message are left out here. The whole is "
        f"file+session://message-1.txt: read it with file_read, from offset={len(head.encode())} "
        "on, before you answer"
    )
    (notice,) = [event for event in events if isinstance(event, Notice)]
    assert notice.level == "warning"
    assert f"{size} bytes" in notice.text
    assert f"{left_out} bytes are left out; the whole is file+session://message-1" in notice.text
    assert "files: of this conversation, each read as file+session://NAME" in last_user(
        house.model.requests[0]
    )
    files = bench.memory.session_files
    _, content = await files.load(ticket.conversation_id, "message-1.txt", owner=ADA.uid)
    assert content == WORDS.encode()


@each_row("context_tokens", [0, 80_000], fresh=["bench"])
async def test_r9_a_message_that_fits_is_whole_however_long(
    bench: Bench, context_tokens: int
) -> None:
    house = house_with(bench, says("read"))
    house.change(compression=CompressionSection(context_tokens=context_tokens))
    ticket = await house.send(WORDS)
    assert not [event for event in await events_of(ticket) if isinstance(event, Notice)]
    assert last_user(house.model.requests[0]).endswith(WORDS)
    assert not await bench.memory.session_files.list(ticket.conversation_id, owner=ADA.uid)


async def test_r9_over_http_nothing_is_cut_and_the_model_decides(bench: Bench) -> None:
    full = ContextFullError("too long", data={"n_prompt_tokens": 60_000, "n_ctx": CONTEXT})
    house = house_with(bench, fails(full))
    with pytest.raises(ContextFullError, match="too long"):
        await house.say(WORDS, door="http")
    assert last_user(house.model.requests[0]).endswith(WORDS)


async def test_r9_a_message_is_kept_once_though_older_ones_give_way_for_it(bench: Bench) -> None:
    house = house_with(bench, says(""))
    answers = iter([says("word " * 15_000), says("read")])
    summary = says("They wrote many words.")
    house.model = CountingModel(30_000, lambda _: next(answers), summary)
    first = await house.say("write many words")
    ticket = await house.send(WORDS, conversation_id=first.conversation_id)
    events = await events_of(ticket)
    assert [event for event in events if isinstance(event, ContextCompressed)]
    cuts = [e for e in events if isinstance(e, Notice) and "left out; the whole" in e.text]
    assert len(cuts) == 1
    found = await bench.memory.session_files.list(first.conversation_id, owner=ADA.uid)
    assert [file.name for file in found] == ["message-1.txt"]


@each_row("text", ["é" * 9_000, "€" * 9_000, "x" * 9_000, "𝄞" * 9_000])
def test_r9_what_is_told_of_a_cut_adds_up_to_the_byte(text: str) -> None:
    for shown_bytes in (100, 101, 102, 103):
        cut = cut_message(text, shown_bytes=shown_bytes, file="message-1.txt", is_readable=False)
        head, _, rest = cut.text.partition("\n[")
        tail = rest.partition("]\n")[2]
        assert cut.left_out == cut.size - len(head.encode()) - len(tail.encode())
        assert head
        assert tail
        assert "which you cannot read" in cut.text


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


async def test_r9_a_model_that_cannot_read_is_told_so(bench: Bench) -> None:
    house = House(bench, says("read"))  # no file_read among its tools
    house.change(compression=CompressionSection(context_tokens=CONTEXT))
    await house.say(WORDS)
    assert "message-1.txt, which you cannot read" in last_user(house.model.requests[0])


@each_row(("length", "is_cut"), [(4_096 * 4, False), (CONTEXT * 4, True)], fresh=["bench"])
async def test_what_is_shown_of_a_cut_message_is_the_configured_length(
    bench: Bench, length: int, is_cut: bool
) -> None:
    house = house_with(bench, says("read"))
    house.change(limits=LimitsSection(max_inline_message_bytes=4_096))
    done = await house.say("x" * length)
    found = await bench.memory.session_files.list(done.conversation_id, owner=ADA.uid)
    assert len(found) == is_cut
    shown = last_user(house.model.requests[0]).rpartition("</context>")[2].count("x")
    assert shown in range(4_000, 4_130) if is_cut else shown >= length


async def test_a_message_that_cannot_be_kept_is_not_lost(bench: Bench) -> None:
    bench.memory.session_files.limits = SessionFilesSection.model_construct(max_file_bytes=10)
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
    fact = (await SessionFilesFact(files).facts(scope))["files"]
    lines = fact.text.split("\n")
    assert len(lines) == LISTED + 2
    assert lines[1] == "f24.txt (text/plain, 16 bytes): 2 lines: <context> [31m x"
    assert lines[-1] == "and 5 more: file_list with path file+session://"


# --- events, and summaries by a model


async def _settled(house: House) -> None:
    async with asyncio.timeout(LIMIT_S):
        while house.summaries.is_busy:
            await asyncio.sleep(0)


async def _summary(house: House, conversation_id: str) -> str:
    (file,) = await house.bench.memory.session_files.list(conversation_id, owner=None)
    return file.summary


async def test_m6_a_model_sums_a_file_up_once_it_is_idle_and_that_is_an_event(
    bench: Bench,
) -> None:
    house = house_with(
        bench, calls(("probe", '{"text":"a"}')), says("done"), says("Five letters, very often.")
    )
    house.sums_up_files = True
    everything = house.book.hub.subscribe(ADA)
    ticket = await house.send("go")
    changed = [e for e in await events_of(ticket) if isinstance(e, SessionFileChanged)]
    assert [(e.name, e.is_by_model) for e in changed] == [("probe-1.txt", False)]
    assert changed[0].summary.startswith("30000 lines: long long")
    await _settled(house)
    assert await _summary(house, ticket.conversation_id) == "Five letters, very often."
    asked = house.model.requests[2]
    assert "file" in (asked.system or "")
    assert "probe-1.txt" in (asked.messages[0].content or "")
    assert len(asked.messages[0].content or "") < 8_000
    house.book.hub.unsubscribe(everything)
    told = [e.event async for e in everything if isinstance(e.event, SessionFileChanged)]
    assert [e.is_by_model for e in told] == [False, True]
    # It is not asked again, and deleting the file is an event as well.
    await house.say("more", ticket.conversation_id)
    await _settled(house)
    assert len(house.model.requests) == 4
    everything = house.book.hub.subscribe(ADA)
    await bench.memory.session_files.delete(ticket.conversation_id, "probe-1.txt", owner=None)
    house.book.hub.unsubscribe(everything)
    assert [e.event async for e in everything] == [SessionFileDeleted(name="probe-1.txt")]


async def test_m6_first_words_stay_where_no_model_is_asked_or_it_says_nothing(
    bench: Bench,
) -> None:
    wrong = []
    for sums_up, answer in ((False, "Never asked for."), (True, "ok"), (True, "la la la la")):
        house = house_with(
            bench, calls(("probe", '{"text":"a"}')), says("done"), says(answer), says("more")
        )
        house.sums_up_files = sums_up
        ticket = await house.send("go")
        await events_of(ticket)
        await _settled(house)
        found = await _summary(house, ticket.conversation_id)
        if not found.startswith("30000 lines") or len(house.model.requests) != 2 + sums_up:
            wrong.append((sums_up, answer, found, len(house.model.requests)))
    assert not wrong


async def test_m6_a_summary_gives_way_to_the_next_turn_and_is_made_after_it(bench: Bench) -> None:
    pause = Pause()
    house = house_with(
        bench,
        calls(("probe", '{"text":"a"}')),
        says("done"),
        [pause, *says("Never said.")],
        says("second answer"),
        says("Five letters, very often."),
    )
    house.sums_up_files = True
    first = await house.say("go")
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
    second = await house.say("more", first.conversation_id)
    assert second.text == "second answer"
    await _settled(house)
    assert await _summary(house, first.conversation_id) == "Five letters, very often."
