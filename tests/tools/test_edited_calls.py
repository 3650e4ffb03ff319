"""A call that a person edits: judged and asked about anew, run with those bytes, one receipt."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clawd.errors import InvalidRequestError
from clawd.receipts.record import sha256_hex
from clawd.security.approvals import Answer, PendingApproval
from clawd.security.risk import Action, Assessment
from clawd.tools.base import Arguments, ToolContext, ToolResult, succeeded
from clawd.tools.outcome import CallOutcome
from clawd.wire.events import ApprovalResolved
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, SECRET, Bench, Probe, bench_in
from tests.support.rows import each_row


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench_in(tmp_path) as made:
        yield made


class Edited(Probe):
    """Keeps what it was called with; text `bad` is blocked."""

    def __init__(self) -> None:
        super().__init__(act=self._act, risk="medium")
        self.got: list[Arguments] = []

    async def _act(self, arguments: Arguments, _context: ToolContext) -> ToolResult:
        self.got.append(arguments)
        return succeeded("done")

    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        if arguments["text"] == "bad":
            return Assessment(risk="high", blocked="bad text")
        low = arguments["text"] == "harmless"
        return Assessment(risk="low" if low else "medium", reason="does something")


async def asked(bench: Bench) -> PendingApproval:
    async with asyncio.timeout(LIMIT_S):
        return await bench.asked.get()


def edit(bench: Bench, pending: PendingApproval, arguments: str) -> None:
    bench.approvals.edit(pending.id, arguments, ADA, digest=pending.digest)


async def with_edit(
    bench: Bench, tool: Edited, arguments: str, then: Answer = "once"
) -> tuple[CallOutcome, Action]:
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(bench.called(tool))
        edit(bench, await asked(bench), arguments)
        second = await asked(bench)
        bench.approvals.answer(second.id, then, ADA, digest=second.digest)
    return call.result(), second.question.action


@each_row("text", ["b", "harmless"], fresh=["bench"])
async def test_an_edited_call_is_asked_about_anew_and_runs_as_edited(
    bench: Bench, text: str
) -> None:
    tool = Edited()
    outcome, action = await with_edit(bench, tool, f'{{"text": "{text}"}}')
    canonical = f'{{"text":"{text}"}}'.encode()
    assert (action.arguments, tool.got) == (canonical, [{"text": text}])
    receipt = await bench.only_receipt()
    assert (receipt.status, receipt.approved_by) == ("allowed", "uid 1000")
    assert receipt.args_hash == sha256_hex(canonical)
    assert receipt.reason.startswith("arguments edited by uid 1000; ")
    assert outcome.text.startswith("[the user edited this call; it ran with the arguments {")
    resolved = [e.answer for e in bench.events if isinstance(e, ApprovalResolved)]
    assert resolved == ["edit", "once"]


async def test_an_edited_call_that_is_not_approved_does_not_run(bench: Bench) -> None:
    tool = Edited()
    outcome, _ = await with_edit(bench, tool, '{"text":"b"}', then="deny")
    assert (outcome.kind, tool.got) == ("denied", [])
    assert (await bench.only_receipt()).reason.startswith("arguments edited by uid 1000; ")


async def test_a_secret_that_a_person_wrote_is_not_told_to_the_model(bench: Bench) -> None:
    tool = Edited()
    outcome, _ = await with_edit(bench, tool, f'{{"text":"use {SECRET} here"}}')
    assert tool.got == [{"text": f"use {SECRET} here"}]
    assert SECRET not in outcome.text
    assert outcome.text.startswith("[the user edited this call; ")


async def test_what_policy_denies_is_denied_also_when_a_person_wrote_it(bench: Bench) -> None:
    tool = Edited()
    async with asyncio.TaskGroup() as tasks:
        call = tasks.create_task(bench.called(tool))
        edit(bench, await asked(bench), '{"text":"bad"}')
    assert (call.result().kind, tool.got) == ("denied", [])
    assert "bad text" in (await bench.only_receipt()).reason
    assert bench.asked.empty()


@each_row("arguments", ["[1]", "{", '{"number":1}'], fresh=["bench"])
async def test_an_edit_that_cannot_be_meant_leaves_the_call_as_it_was(
    bench: Bench, arguments: str
) -> None:
    tool = Edited()
    outcome, action = await with_edit(bench, tool, arguments)
    assert (action.arguments, tool.got) == (b'{"text":"a"}', [{"text": "a"}])
    assert (await bench.only_receipt()).reason.startswith("it is as before, because the edit")
    assert outcome.text == "done"


async def test_the_bytes_before_the_edit_are_not_approved_by_a_late_answer(bench: Bench) -> None:
    tool = Edited()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bench.called(tool))
        first = await asked(bench)
        edit(bench, first, '{"text":"b"}')
        second = await asked(bench)
        with pytest.raises(InvalidRequestError):
            bench.approvals.answer(second.id, "once", ADA, digest=first.digest)
        bench.approvals.answer(second.id, "deny", ADA, digest=second.digest)
    assert tool.got == []


async def test_an_edit_of_bytes_that_were_not_shown_is_refused(bench: Bench) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(bench.called(Edited()))
        pending = await asked(bench)
        with pytest.raises(InvalidRequestError):
            bench.approvals.edit(pending.id, '{"text":"b"}', ADA, digest="0" * 64)
        bench.approvals.answer(pending.id, "deny", ADA, digest=pending.digest)
