"""Output that is too long for the model: cut, kept whole, and never lost."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.config.sections import SessionFilesSection
from clawd.memory.rows import Conversation
from clawd.memory.session_files import SessionFiles
from clawd.receipts.record import sha256_hex
from clawd.security.policy import PolicySettings
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.files import FileReadTool
from clawd.tools.session_files import SessionAccess, SessionFile
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, SECRET, Bench, Probe, request

LIMIT = 1_000
LONG = "".join(f"line {number} é\n" for number in range(1_000))
SIZE = len(LONG.encode())


def saying(result: ToolResult) -> Probe:
    async def act(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        return result

    return Probe(act=act)


@pytest.fixture
async def bench(bench: Bench) -> Bench:
    conversation = Conversation(id="conv-1", owner=ADA.uid, workspace="/w")
    await bench.memory.conversations.create(conversation)
    return bench


async def kept(bench: Bench) -> dict[str, bytes]:
    files = bench.memory.session_files
    found = await files.list("conv-1", owner=ADA.uid)
    return {f.name: (await files.load("conv-1", f.name, owner=ADA.uid))[1] for f in found}


def reader(bench: Bench, tmp_path: Path, limit: int = LIMIT) -> FileReadTool:
    deps = BuiltinDeps(
        policy=PolicySettings(),
        home=None,
        sandbox=Sandbox(SandboxSettings(home=tmp_path)),
        sessions=SessionAccess(store=bench.memory.session_files, room_bytes=limit),
    )
    return FileReadTool(deps)


async def test_the_whole_is_kept_and_the_cut_says_where(bench: Bench) -> None:
    outcome = await bench.called(saying(succeeded(LONG)), limit_bytes=LIMIT)
    head, _, note = outcome.text.rpartition("\n")
    assert note == f"[cut: the whole, {SIZE} bytes, is file+session://probe-1.txt]"
    assert LONG.startswith(head)
    assert LIMIT - 2 <= len(head.encode()) <= LIMIT
    assert await kept(bench) == {"probe-1.txt": LONG.encode()}


async def test_the_receipt_hashes_what_the_model_was_told(bench: Bench) -> None:
    outcome = await bench.called(saying(succeeded(LONG)), limit_bytes=LIMIT)
    receipt = await bench.only_receipt()
    assert receipt.result_hash == sha256_hex(outcome.text.encode())
    assert (await bench.stored(receipt))[1] == outcome.text.encode()


async def test_a_reader_goes_on_where_the_cut_was(bench: Bench, tmp_path: Path) -> None:
    tools = [saying(succeeded(LONG)), reader(bench, tmp_path)]
    dispatcher = bench.dispatcher(tools, limit_bytes=LIMIT)
    text = (await dispatcher.call(request("probe"), bench.scope())).text
    head, _, note = text.rpartition("\n")
    offset = len(head.encode())
    assert note == (
        f"[cut: the whole, {SIZE} bytes, is file+session://probe-1.txt; "
        f"file_read with offset={offset} shows more of it]"
    )
    seen = head
    for number in range(1_000):
        arguments = f'{{"path":"file+session://probe-1.txt","offset":{offset},"max_bytes":700}}'
        asked = request("file_read", arguments, f"call-{number + 2}")
        told = (await dispatcher.call(asked, bench.scope())).text
        assert len(told.encode()) <= LIMIT
        assert "[cut:" not in told
        lines, _, tail = told.rpartition("\n")
        _, is_more, following = tail.rstrip(")").partition("go on with offset=")
        end = int(following) if is_more else SIZE
        seen += LONG.encode()[offset:end].decode()
        assert lines.split("\n")[0].partition("|")[2] in LONG
        offset = end
        if not is_more:
            break
    assert seen == LONG
    assert list(await kept(bench)) == ["probe-1.txt"]


async def test_a_reader_that_is_not_offered_is_not_named(bench: Bench, tmp_path: Path) -> None:
    tools = [saying(succeeded(LONG)), reader(bench, tmp_path)]
    dispatcher = bench.dispatcher(tools, limit_bytes=LIMIT)
    for mode, offered, told in (
        ("split", ["probe"], "probe-1.txt]"),
        ("unified", ["probe", "file_read"], 'probe-2.txt; fs(action="read") with offset='),
    ):
        scope: Any = msgspec.structs.replace(bench.scope(offered=offered), mode=mode)
        text = (await dispatcher.call(request("probe", call_id=mode), scope)).text
        assert told in text


async def test_what_fits_is_told_whole_and_not_kept(bench: Bench) -> None:
    for text in ("x" * LIMIT, "é" * (LIMIT // 2)):
        assert (await bench.called(saying(succeeded(text)), limit_bytes=LIMIT)).text == text
    assert await kept(bench) == {}


async def test_a_failure_is_kept_with_its_output(bench: Bench) -> None:
    outcome = await bench.called(saying(failed("exit 1", output=LONG)), limit_bytes=LIMIT)
    assert outcome.status == "failed"
    assert outcome.text.startswith("error: exit 1\nline 0")
    assert await kept(bench) == {"probe-1.txt": f"error: exit 1\n{LONG}".encode()}


async def test_a_secret_is_in_no_receipt_not_even_in_halves(bench: Bench) -> None:
    text = "x" * (LIMIT - 10) + SECRET + LONG
    outcome = await bench.called(saying(succeeded(text)), limit_bytes=LIMIT)
    stored = (await bench.stored(await bench.only_receipt()))[1]
    assert stored is not None
    assert SECRET[:8].encode() not in stored
    assert stored.endswith(b"is file+session://probe-1.txt]")
    (whole,) = (await kept(bench)).values()
    assert whole == bench.redactor.text(text).encode()
    assert SECRET[:8].encode() not in whole
    assert outcome.text.startswith("x" * (LIMIT - 10))


@pytest.mark.parametrize("why", ["no room", "too large", "no conversation", "outside of one"])
async def test_what_cannot_be_kept_is_cut_and_told_all_the_same(bench: Bench, why: str) -> None:
    files, scope = bench.memory.session_files, bench.scope()
    match why:
        case "no room":
            files.limits = SessionFilesSection.model_construct(max_files=1)
            await files.save("conv-1", "named.txt", b"", owner=ADA.uid)
        case "too large":
            files.limits = SessionFilesSection.model_construct(max_file_bytes=SIZE - 1)
        case "no conversation":
            await bench.memory.conversations.delete("conv-1", owner=ADA.uid)
        case _:
            scope = msgspec.structs.replace(scope, conversation_id="")
    dispatcher = bench.dispatcher([saying(succeeded(LONG))], limit_bytes=LIMIT)
    outcome = await dispatcher.call(request("probe"), scope)
    assert outcome.status == "allowed"
    assert outcome.text.endswith(f"\n[cut: {SIZE - LIMIT} of {SIZE} bytes left out]")
    assert (await bench.only_receipt()).status == "allowed"


class SlowFiles(SessionFiles):
    """Session files that are kept when the test says so."""

    def __init__(self, files: SessionFiles) -> None:
        super().__init__(files._database)
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()

    async def keep(self, *arguments: Any, **options: Any) -> SessionFile:
        self.begun.set()
        await self.let_go.wait()
        return await super().keep(*arguments, **options)


async def test_a_call_cancelled_while_it_is_kept_has_its_receipt(bench: Bench) -> None:
    slow = SlowFiles(bench.memory.session_files)
    bench.memory.session_files = slow
    dispatcher = bench.dispatcher([saying(succeeded(LONG))], limit_bytes=LIMIT)
    call = asyncio.create_task(dispatcher.call(request("probe"), bench.scope()))
    async with asyncio.timeout(LIMIT_S):
        await slow.begun.wait()
        call.cancel()
        await asyncio.sleep(0)
        slow.let_go.set()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert (await bench.only_receipt()).status == "allowed"


async def test_many_at_once_have_names_of_their_own(bench: Bench) -> None:
    dispatcher = bench.dispatcher([saying(succeeded(LONG))], limit_bytes=LIMIT)
    asked = [request("probe", call_id=f"call-{n}") for n in range(12)]
    async with asyncio.TaskGroup() as group:
        for each in asked:
            group.create_task(dispatcher.call(each, bench.scope()))
    assert set(await kept(bench)) == {f"probe-{n}.txt" for n in range(1, 13)}


async def test_a_strangers_call_keeps_nothing_in_the_conversation(bench: Bench) -> None:
    stranger = msgspec.structs.replace(ADA, uid=ADA.uid + 1)
    dispatcher = bench.dispatcher([saying(succeeded(LONG))], limit_bytes=LIMIT)
    outcome = await dispatcher.call(request("probe"), bench.scope(principal=stranger))
    assert "file+session" not in outcome.text
    assert await kept(bench) == {}
