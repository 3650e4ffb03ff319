"""The handlers over a real socket, with real memory, receipts, approvals and a planned model."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from clawd.channels.rpc.connection import RpcServer
from clawd.memory.blobs import Blobs
from clawd.memory.changes import ChangeLimits, Changes
from clawd.runtime.calls import Calls
from clawd.runtime.late_answers import LateAnswers
from clawd.runtime.replay import Judge, PolicyChange
from clawd.security.estop import EmergencyStop
from clawd.security.file_content import FileChange, FileState
from clawd.security.policy import PolicySettings
from clawd.security.taint import TaintBook
from clawd.service.control_socket import listen
from clawd.service.handlers import policy
from clawd.service.handlers.table import handlers_of
from clawd.tools.changes import CallFacts
from clawd.tools.external import ManifestProblem
from clawd.tools.preview import NOT_HELD
from clawd.wire.codec import Answer, Cancel, EventFrame, Result, unpack, unpack_event
from clawd.wire.conversations import ConversationDetail, ListConversations, ShowConversation
from clawd.wire.daemon import SetEstop
from clawd.wire.events import (
    ApprovalRequested,
    Event,
    QuestionAsked,
    TextDelta,
    ToolFinished,
    ToolStarted,
    TurnFailed,
    TurnFinished,
)
from clawd.wire.memory import ClearMemory, SearchMemory
from clawd.wire.method import result_type
from clawd.wire.policy import (
    AnswerApproval,
    CheckPolicy,
    ExplainPolicy,
    ListApprovals,
    ListRules,
    RevokeRule,
)
from clawd.wire.receipts import HeadOfReceipts, ListReceipts, ShowReceipt, VerifyReceipts
from clawd.wire.tools import ChangeLine, ListChanges, ListTools, RunTool, ShowChanges
from clawd.wire.turns import CancelTurn, FollowConversation, SamplingWishes, SendMessage
from tests.channels.rpc.rig import IDENTITY, LIMIT_S, Door, RawClient, request
from tests.runtime.inboxes import House
from tests.runtime.models import Pause, calls, says
from tests.security.fakes import ADA, BOB, ROOT
from tests.service.handlers.daemons import daemon_of
from tests.support.dispatching import Bench, Probe, bench_in

CALL = calls(("probe", '{"text":"a"}'))


PROBLEMS = (ManifestProblem(file="/m/CLAWD-a.tools", line=3, reason="it is broken"),)


def judge_of(house: House, change: PolicyChange) -> Judge:
    """Return who judges the house's tools under the bench's policy in another autonomy."""
    bench, taint = house.bench, TaintBook()
    policy = bench.policy
    if change.autonomy is not None:
        policy = msgspec.structs.replace(policy, autonomy=change.autonomy)
    return Judge(bench.dispatcher(house.tools, policy=policy, taint=taint), taint, policy)


async def _no_receipt(_receipt_id: str) -> None:
    return None


class Front(Door):
    """A house with a door: clients of any principal."""

    def __init__(self, house: House, path: Path) -> None:
        super().__init__(path)
        self.house = house
        self.changes: Changes

    def daemon(self) -> Any:
        """Return a daemon of the components that these handlers need."""
        house, bench = self.house, self.house.bench
        dispatcher = bench.dispatcher(house.tools)
        late = LateAnswers(
            bench.memory,
            house.inbox,
            estop=bench.stop,
            redactor=bench.redactor,
            receipt_of=_no_receipt,
            is_key_in_force=lambda _key: True,
        )
        return daemon_of(
            bench,
            inbox=house.inbox,
            calls=Calls(dispatcher, house.person, lambda: house.settings),
            changes=self.changes,
            redactor=bench.redactor,
            registry=dispatcher.registry,
            approvals=bench.approvals,
            late=late,
            rules=bench.rules,
            person=house.person,
            housekeeping=house.housekeeping,
            estop=EmergencyStop(bench.workspace),
            keeper=SimpleNamespace(erase_soon=lambda: None),
            toolset=SimpleNamespace(problems=PROBLEMS),
            state=SimpleNamespace(
                provider_at=lambda url: url, policy=PolicySettings(), runtime=house.settings
            ),
        )


@pytest.fixture
async def front(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Front]:
    async with bench_in(tmp_path) as bench:
        house = House(bench, says("hello"))
        monkeypatch.setattr(policy, "judge_of", lambda _daemon, change: judge_of(house, change))
        made = Front(house, tmp_path / "run" / "clawd.sock")
        blobs = Blobs(tmp_path / "blobs", lambda: 1 << 20)
        made.changes = await bench.memory.changes(tmp_path / "undo", ChangeLimits, blobs)
        server = RpcServer(
            handlers_of(made.daemon()), identify=lambda _peer: made.principal, identity=IDENTITY
        )
        await server.start(listen(made.path))
        yield made
        made.close()
        await server.close()
        await house.inbox.close(grace_s=LIMIT_S)


def bench_of(front: Front) -> Bench:
    return front.house.bench


def plan(front: Front, *hops: Any) -> None:
    front.house.model._hops = hops


async def next_event(client: RawClient) -> Event:
    frame = await client.read()
    assert isinstance(frame, EventFrame), frame
    return unpack_event(frame.event)


async def until(client: RawClient, kind: type[Any]) -> Any:
    while not isinstance(event := await next_event(client), kind):
        pass
    return event


async def reached(pause: Pause) -> None:
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()


async def test_a_message_streams_its_turn_and_is_stored(front: Front) -> None:
    client = await front.client()
    client.send(request(1, SendMessage(text="hi")))
    assert await until(client, TextDelta) == TextDelta(text="hello")
    finished = await until(client, TurnFinished)
    frame = await client.read()
    assert isinstance(frame, Result)
    assert unpack(frame.value, TurnFinished) == finished
    shown = await front.ask(ShowConversation(conversation_id=finished.conversation_id))
    assert [message.content for message in shown.messages] == ["hi", "hello"]
    (line,) = (await front.ask(ListConversations())).items
    assert (line.title, line.messages, line.owner) == ("hi", 2, ADA.uid)


async def test_pages_lead_on(front: Front) -> None:
    conversation_id = (await front.ask(SendMessage(text="0"))).conversation_id
    for number in range(1, 4):
        await front.ask(SendMessage(text=str(number), conversation_id=conversation_id))
    texts, cursor = [], ""
    while True:
        page = await front.ask(
            ShowConversation(conversation_id=conversation_id, cursor=cursor, limit=3)
        )
        texts += [message.content for message in page.messages if message.role == "user"]
        cursor = page.cursor
        if not cursor:
            break
    assert texts == ["0", "1", "2", "3"]
    for cursor in ("x", "-1", "9" * 5000):
        wrong = ShowConversation(conversation_id=conversation_id, cursor=cursor)
        assert (await front.refused(wrong)).code == "invalid_request"
        assert (await front.refused(ListReceipts(cursor=cursor))).code == "invalid_request"
    for limit in (0, -1, 1001):
        assert (await front.refused(ListReceipts(limit=limit))).code == "invalid_request"


async def test_pages_lead_back_from_the_newest_end(front: Front) -> None:
    conversation_id = (await front.ask(SendMessage(text="0"))).conversation_id
    for number in range(1, 4):
        await front.ask(SendMessage(text=str(number), conversation_id=conversation_id))

    async def page(before: int, limit: int = 3) -> ConversationDetail:
        return await front.ask(
            ShowConversation(conversation_id=conversation_id, before=before, limit=limit)
        )

    pages, before = [await page(0)], 0
    while before := pages[-1].before:
        pages.append(await page(before))
    ids = [[message.id for message in each.messages] for each in reversed(pages)]
    whole = await front.ask(ShowConversation(conversation_id=conversation_id))
    assert [len(each) for each in ids] == [2, 3, 3]
    assert [each for page_ids in ids for each in page_ids] == [
        message.id for message in whole.messages
    ]
    assert whole.before == 0 and {each.cursor for each in pages} == {""}
    assert (await page(0, 8)).before == 0  # just all of them
    assert (await page(ids[0][0])).messages == ()
    for wrong in (
        ShowConversation(conversation_id=conversation_id, before=-1),
        ShowConversation(conversation_id=conversation_id, before=2**63),
        ShowConversation(conversation_id=conversation_id, before=0, cursor="1"),
    ):
        assert (await front.refused(wrong)).code == "invalid_request"


async def test_closing_the_connection_cancels_the_turn(front: Front) -> None:
    pause = Pause()
    plan(front, [pause, *says("never")])
    client = await front.client()
    client.send(request(1, SendMessage(text="hi")))
    await reached(pause)
    (ticket,) = [entry.ticket for entry in front.house.inbox._running.values()]
    client.close()
    with pytest.raises(Exception, match="cancelled"):
        await ticket.finished()


async def test_a_detached_turn_goes_on_without_its_client(front: Front) -> None:
    pause = Pause()
    plan(front, [pause, *says("at last")])
    client = await front.client()
    client.send(request(1, SendMessage(text="hi", detach=True)))
    await reached(pause)
    (ticket,) = [entry.ticket for entry in front.house.inbox._running.values()]
    client.close()
    assert await client.rest() is not None
    pause.let_go.set()
    assert (await ticket.finished()).text == "at last"


async def test_others_of_the_owner_follow_and_may_cancel(front: Front) -> None:
    conversation_id = (await front.ask(SendMessage(text="a"))).conversation_id
    pause = Pause()
    plan(front, [pause, *says("never")])
    follower, owner = await front.client(), await front.client()
    follower.send(request(1, FollowConversation(conversation_id=conversation_id)))
    while not (await front.house.book.load(conversation_id, ADA)).broadcast.followers:
        await asyncio.sleep(0)
    owner.send(request(1, SendMessage(text="b", conversation_id=conversation_id)))
    await reached(pause)
    stranger = CancelTurn(conversation_id=conversation_id)
    assert (await front.refused(stranger, BOB)).code == "not_found"
    assert (
        await front.ask(CancelTurn(conversation_id=conversation_id))
    ).message == "cancelled 1 turn"
    failed = await until(follower, TurnFailed)
    assert failed.code == "cancelled"
    follower.send(Cancel(id=1))
    assert (await follower.failure()).code == "cancelled"


async def test_an_approval_is_answered_on_the_same_connection(front: Front) -> None:
    tool = cast("Probe", front.house.tools[0])
    tool.assessment = Probe(risk="medium").assessment
    plan(front, CALL, says("done"))
    client = await front.client()
    client.send(request(1, SendMessage(text="do it", interactive=True)))
    asked = await until(client, ApprovalRequested)
    client.send(Answer(id=1, question=asked.approval_id, value="once", digest="forged"))
    client.send(Answer(id=1, question=asked.approval_id, value="once", digest=asked.digest))
    assert (await until(client, ToolFinished)).status == "allowed"
    assert tool.calls == 1


async def test_an_answer_that_is_no_word_denies(front: Front) -> None:
    tool = Probe(risk="medium")
    cast("Probe", front.house.tools[0]).assessment = tool.assessment
    client = await front.client()
    client.send(request(1, RunTool(name="probe", arguments='{"text":"a"}', interactive=True)))
    asked = await until(client, ApprovalRequested)
    client.send(Answer(id=1, question=asked.approval_id, value="sure", digest=asked.digest))
    assert (await until(client, ToolFinished)).status == "denied"


async def test_another_client_of_the_owner_may_answer_an_approval(front: Front) -> None:
    cast("Probe", front.house.tools[0]).assessment = Probe(risk="medium").assessment
    client = await front.client()
    client.send(request(1, RunTool(name="probe", arguments='{"text":"a"}', interactive=True)))
    await until(client, ApprovalRequested)
    assert (await front.ask(ListApprovals(), BOB)).items == ()
    (line,) = (await front.ask(ListApprovals())).items
    assert (line.tool, line.arguments, line.owner) == ("probe", '{"text":"a"}', ADA.uid)
    answer = AnswerApproval(approval_id=line.id, digest=line.digest, answer="always")
    assert (await front.refused(answer, BOB)).code == "forbidden"
    await front.ask(answer)
    assert (await until(client, ToolFinished)).status == "allowed"
    (rule,) = (await front.ask(ListRules())).items
    assert (await front.ask(ListRules(), BOB)).items == ()
    await front.ask(RevokeRule(rule_id=rule.id))
    assert (await front.ask(ListRules())).items == ()


async def test_a_tool_is_run_and_streams_its_events(front: Front) -> None:
    client = await front.client()
    client.send(request(1, RunTool(name="probe", arguments='{"text":"a"}')))
    assert isinstance(await next_event(client), ToolStarted)
    assert isinstance(await next_event(client), ToolFinished)
    frame = await client.read()
    assert isinstance(frame, Result)
    (receipt,) = bench_of(front).receipts()
    assert receipt.id in repr(unpack(frame.value, result_type(RunTool)))
    unanswered = await front.ask(RunTool(name="nope"))
    assert (unanswered.status, unanswered.kind) == ("failed", "unknown_tool")


async def test_a_tool_in_a_folder_that_is_not_allowed_is_refused_as_such(front: Front) -> None:
    for params in (
        RunTool(name="probe", arguments='{"text":"a"}', workspace="/"),
        ExplainPolicy(tool="probe", arguments='{"text":"a"}', workspace="/"),
    ):
        assert (await front.refused(params)).code == "forbidden"
    assert (await front.refused(ExplainPolicy(tool="nope"))).code == "not_found"
    assert bench_of(front).receipts() == []


async def test_a_client_that_leaves_ends_its_tool(front: Front) -> None:
    from tests.support.dispatching import Held

    held = Held()
    cast("Probe", front.house.tools[0]).act = held
    client = await front.client()
    client.send(request(1, RunTool(name="probe", arguments='{"text":"a"}')))
    await held.has_begun()
    client.close()
    async with asyncio.timeout(LIMIT_S):
        while not bench_of(front).receipts():
            await asyncio.sleep(0.005)
    (receipt,) = bench_of(front).receipts()
    assert (receipt.status, receipt.reason, held.is_cancelled) == ("failed", "cancelled", True)


async def test_a_question_of_a_tool_is_answered(front: Front) -> None:
    from clawd.tools.base import Arguments, ToolContext, ToolResult, succeeded

    async def act(_arguments: Arguments, context: ToolContext) -> ToolResult:
        assert context.ask is not None
        return succeeded(str(await context.ask("Which?", ())))

    cast("Probe", front.house.tools[0]).act = act
    client = await front.client()
    client.send(request(1, RunTool(name="probe", arguments='{"text":"a"}', interactive=True)))
    asked = await until(client, QuestionAsked)
    client.send(Answer(id=1, question=asked.question_id, value="that one"))
    assert (await until(client, ToolFinished)).output == "that one"


async def test_the_policy_is_explained(front: Front) -> None:
    tool = cast("Probe", front.house.tools[0])
    verdicts = []
    for risk in ("low", "medium", "high"):
        tool.assessment = Probe(risk=risk).assessment
        explained = await front.ask(ExplainPolicy(tool="probe", arguments='{"text":"a"}'))
        verdicts.append((explained.verdict, explained.risk))
    assert verdicts == [("allow", "low"), ("ask", "medium"), ("deny", "high")]
    assert bench_of(front).receipts() == []


async def test_a_table_of_cases_is_judged_and_no_call_is_made(front: Front) -> None:
    table = """
        [[case]]
        name = "right"
        tool = "probe"
        arguments = { text = "a" }
        expect = "allow"

        [[case]]
        name = "wrong"
        tool = "probe"
        arguments = { text = "a" }
        expect = "deny"

        [[case]]
        name = "nobody can make it"
        tool = "prbe"
        expect = "deny"
    """
    cases = (await front.ask(CheckPolicy(table=table))).items
    assert [(case.name, case.verdict) for case in cases] == [
        ("right", "allow"),
        ("wrong", "allow"),
        ("nobody can make it", "deny"),
    ]
    assert [bool(case.problem) for case in cases] == [False, True, True]
    assert "prbe" in cases[2].problem
    assert bench_of(front).receipts() == []


async def test_a_table_that_is_none_is_refused(front: Front) -> None:
    for table in ("[[case]", '[[case]]\nname = "x"', "[[case]]\nverdict = 1"):
        assert (await front.refused(CheckPolicy(table=table))).code == "invalid_request"
    assert (await front.ask(CheckPolicy(table=""))).items == ()
    refused = await front.refused(CheckPolicy(table="", workspace="/"))
    assert refused.code == "forbidden"


async def test_receipts_are_listed_shown_and_verified_by_owner(front: Front) -> None:
    for text in "abc":
        await front.ask(RunTool(name="probe", arguments=f'{{"text":"{text}"}}'))
    page = await front.ask(ListReceipts(limit=2))
    assert [line.seq for line in page.items] == [3, 2]
    rest = await front.ask(ListReceipts(limit=2, cursor=page.cursor))
    assert ([line.seq for line in rest.items], rest.cursor) == ([1], "")
    for key in (page.items[0].id, "3", page.items[0].id[-8:].lower()):
        shown = await front.ask(ShowReceipt(receipt_id=key))
        assert (shown.receipt["seq"], shown.arguments, shown.result) == (3, '{"text":"c"}', "ok c")
    for key in ("99", "nope", "", "receipt-"):
        assert (await front.refused(ShowReceipt(receipt_id=key))).code == "not_found"
    assert (await front.ask(ListReceipts(), BOB)).items == ()
    assert (await front.refused(ShowReceipt(receipt_id="3"), BOB)).code == "not_found"
    assert len((await front.ask(ListReceipts(), ROOT)).items) == 3
    verdict = await front.ask(VerifyReceipts())
    assert (verdict.ok, verdict.receipts, verdict.level) == (True, 3, "anchored")
    assert (verdict.signed, verdict.signatures) == (0, "no checkpoint signs them yet")
    head = await front.ask(HeadOfReceipts())
    assert (head.seq, head.receipt_hash, head.signed) == (3, verdict.head_hash, 0)
    assert len(head.first_public_key) == 64
    known = f"{head.seq}:{head.receipt_hash}"
    wanted = VerifyReceipts(public_key=head.first_public_key, anchor=known)
    assert (await front.ask(wanted)).ok
    verdict = await front.ask(VerifyReceipts(anchor=f"2:{head.receipt_hash}"))
    assert (verdict.ok, verdict.first_bad, verdict.kind) == (False, 2, "edited")
    for wrong in (VerifyReceipts(anchor="2"), VerifyReceipts(public_key="ab")):
        assert (await front.refused(wrong)).code == "invalid_request"
    bench_of(front).log.write_bytes(
        bench_of(front).log.read_bytes().replace(b'"seq":2', b'"seq":4')
    )
    verdict = await front.ask(VerifyReceipts())
    assert (verdict.ok, verdict.first_bad) == (False, 2)


async def test_memory_is_searched_and_cleared_by_owner(front: Front) -> None:
    conversation_id = (await front.ask(SendMessage(text="a purple elephant"))).conversation_id
    hits = await front.ask(SearchMemory(query="elephant"))
    assert [hit.conversation_id for hit in hits.items] == [conversation_id]
    assert (await front.ask(SearchMemory(query="elephant"), BOB)).items == ()
    one = ClearMemory(conversation_id=conversation_id)
    assert (await front.refused(one, BOB)).code == "not_found"
    await front.ask(ClearMemory(), BOB)
    assert len((await front.ask(ListConversations())).items) == 1
    assert (await front.ask(one)).message == f"deleted {conversation_id}"
    assert (await front.ask(ListConversations())).items == ()
    late = SendMessage(text="still there?", conversation_id=conversation_id)
    assert (await front.refused(late)).code == "not_found"


async def test_tools_are_listed_with_their_schemas(front: Front) -> None:
    lines = (await front.ask(ListTools())).items
    assert [(line.name, line.short) for line in lines] == [
        ("other", "Probes."),
        ("probe", "Probes."),
    ]
    assert lines[0].parameters["required"] == ["text"]
    assert (lines[0].offered_as, lines[0].aliases) == ("other", ())
    assert lines[0].example == {"text": "text"}
    assert (await front.ask(ListTools())).mode == "split"


async def test_what_could_not_be_loaded_is_told_to_admins_only(front: Front) -> None:
    (told,) = (await front.ask(ListTools(), ROOT)).problems
    assert (told.file, told.line, told.severity) == ("/m/CLAWD-a.tools", 3, "refused")
    assert (await front.ask(ListTools(), BOB)).problems == ()


async def test_anybody_who_may_talk_may_stop(front: Front) -> None:
    report = await front.ask(SetEstop(reason="smoke"), BOB)
    assert report.is_set
    assert report.reason.startswith("smoke (by uid 1001")
    silent = await front.ask(SetEstop(), BOB)
    assert silent.reason.startswith("no reason given (by uid 1001")


async def test_a_call_can_belong_to_a_conversation_of_ones_own_only(front: Front) -> None:
    mine = (await front.ask(SendMessage(text="hi"))).conversation_id
    call = RunTool(name="probe", arguments='{"text":"a"}', conversation_id=mine)
    assert (await front.refused(call, BOB)).code == "not_found"
    assert (await front.refused(ListChanges(conversation_id=mine), BOB)).code == "not_found"
    assert bench_of(front).receipts() == []
    await front.ask(call)
    (receipt,) = bench_of(front).receipts()
    assert (receipt.conversation_id, receipt.uid) == (mine, ADA.uid)


async def test_changes_are_listed_to_their_owner_newest_first(front: Front) -> None:
    facts = CallFacts(
        owner=ADA.uid,
        conversation_id="c1",
        workspace=str(front.house.settings.workspace),
        call_id="receipt-1",
        tool="file_write",
    )
    for path in ("a", "b"):
        change = FileChange(path=path, before=None, after=FileState.of(b"new"))
        await asyncio.to_thread(front.changes.keep, facts, change, -1)
    newest, _older = (await front.ask(ListChanges())).items
    assert newest == ChangeLine(
        receipt_id="receipt-1",
        at=newest.at,
        tool="file_write",
        path="b",
        action="created",
        size_before=0,
        size_after=3,
        conversation_id="c1",
        workspace=facts.workspace,
    )
    assert (await front.ask(ListChanges(), BOB)).items == ()
    assert (await front.ask(ListChanges(redo=True))).items == ()
    assert (await front.refused(ListChanges(limit=0))).code == "invalid_request"
    assert (await front.refused(ListChanges(workspace="/"))).code == "forbidden"


async def test_what_a_call_changed_is_compared_while_both_contents_are_there(
    front: Front,
) -> None:
    folder = front.house.settings.workspace
    texts = {number: f"line {number}\nsame\n".encode() for number in (1, 2, 3)}

    async def write(call_id: str, path: str, new: bytes | None) -> None:
        file = folder / path
        data = file.read_bytes() if file.is_file() else None
        facts = CallFacts(
            owner=ADA.uid, conversation_id="", workspace=str(folder), call_id=call_id, tool="x"
        )
        before, after = (each if each is None else FileState.of(each) for each in (data, new))
        old = -1 if data is None else os.open(file, os.O_RDONLY)
        change = FileChange(path=path, before=before, after=after)
        await asyncio.to_thread(front.changes.keep, facts, change, old)
        if old >= 0:
            os.close(old)
        file.unlink(missing_ok=True)
        if new is not None:
            file.write_bytes(new)

    async def shown(call_id: str) -> list[tuple[str, str, str]]:
        found = await front.ask(ShowChanges(receipt_id=call_id))
        return [
            (each.path, "".join(line.mark + line.text for line in each.lines), each.note)
            for each in found.items
        ]

    await write("one", "a", texts[1])
    await write("one", "b", b"other")
    await write("one", "a", texts[2])  # of one call the first content and the last count
    await write("two", "a", texts[3])
    await write("three", "b", None)
    changed = "-line 2+line 3 same"
    assert await shown("one") == [("a", "+line 2+same", ""), ("b", "+other", "")]
    assert await shown("two") == [("a", changed, "")]
    assert await shown("three") == [("b", "-other", "")]
    (folder / "a").write_bytes(b"of somebody else")
    assert await shown("one") == [("a", "+line 2+same", ""), ("b", "+other", "")]
    assert await shown("two") == [("a", "", NOT_HELD)]
    (folder / "a").unlink()
    (folder.parent / "outside").write_bytes(texts[3])
    (folder / "a").symlink_to(folder.parent / "outside")  # not where the call wrote
    assert await shown("two") == [("a", "", NOT_HELD)]
    assert (await front.refused(ShowChanges(receipt_id="two"), BOB)).code == "not_found"
    assert (await front.refused(ShowChanges(receipt_id="four"))).code == "not_found"


async def test_m1_only_an_admin_names_an_address_to_ask(front: Front) -> None:
    refusal = await front.refused(SendMessage(text="hi", url="http://127.0.0.1:9/v1"))
    assert (refusal.code, refusal.message) == ("forbidden", "an address to ask is for admins")
    admin = msgspec.structs.replace(ADA, role="admin")
    asked = SendMessage(text="hi", url="mock", sampling=SamplingWishes(temperature=0.5))
    await front.ask(asked, admin)
    (sent,) = front.house.model.requests
    assert sent.sampling is not None
    assert sent.sampling.temperature == 0.5
