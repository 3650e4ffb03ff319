"""No secret is in what is kept of a call: receipts, intents, contents, log lines."""

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import Callable

import pytest

from clawd.security.redact import RedactingFilter
from clawd.service.recovery import close_interrupted
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.tools.dispatch import REASON_LIMIT
from clawd.tools.journal import NAME_IN_RECEIPT
from tests.support.dispatching import LIMIT_S, SECRET, Bench, Held, Probe, request
from tests.support.rows import each_row

SHAPED = "ghp_" + "a1B2" * 9
PART = SECRET[: len(SECRET) // 2]
ARGUMENTS = json.dumps({"text": f"say {SECRET} and {SHAPED}"})


@pytest.fixture
def logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    caplog.handler.addFilter(RedactingFilter(bench.redactor))
    return caplog


def kept(bench: Bench) -> str:
    """Return everything that is on disk of the calls."""
    texts = [bench.log.read_text()]
    with contextlib.closing(sqlite3.connect(bench.memory.path)) as memory:
        rows = memory.execute("SELECT content FROM contents").fetchall()
        rows += memory.execute("SELECT intent FROM intents").fetchall()
        texts += [str(row[0]) for row in rows]
    return "\n".join(texts)


def is_clean(text: str) -> bool:
    return "[secret:" in text and not any(each in text for each in (PART, SHAPED))


async def echo(arguments: Arguments, _context: ToolContext) -> ToolResult:
    return succeeded(f"echo {arguments['text']}")


async def fail(arguments: Arguments, _context: ToolContext) -> ToolResult:
    return failed(f"failed at {arguments['text']}", output=f"but {arguments['text']}")


async def crash(arguments: Arguments, _context: ToolContext) -> ToolResult:
    raise RuntimeError(f"crashed at {arguments['text']}")


@each_row("act", [echo, fail, crash], fresh=["bench", "logged"])
async def test_arguments_results_and_reasons(
    bench: Bench, logged: pytest.LogCaptureFixture, act: object
) -> None:
    await bench.called(Probe(act=act), ARGUMENTS)  # type: ignore[arg-type]
    assert is_clean(kept(bench))
    assert not any(each in logged.text for each in (PART, SHAPED))


@each_row(
    ("tool", "arguments"),
    [
        (f"no_tool_{SECRET}", "{}"),
        ("no_tool", ARGUMENTS),
        ("probe", f"no json {SECRET} {SHAPED}"),
        ("probe", json.dumps({SECRET: SHAPED})),
    ],
    fresh=["bench", "logged"],
)
async def test_calls_that_cannot_be_made(
    bench: Bench, logged: pytest.LogCaptureFixture, tool: str, arguments: str
) -> None:
    await bench.dispatcher([Probe()]).call(request(tool, arguments), bench.scope())
    assert is_clean(kept(bench))
    assert not any(each in logged.text for each in (PART, SHAPED))


async def test_a_call_that_runs_and_the_one_that_a_crash_cut_off(bench: Bench) -> None:
    held = Held()
    calling = asyncio.create_task(bench.called(Probe(act=held), ARGUMENTS))
    await held.has_begun()
    intents = await bench.memory.ledger.open_intents()
    assert len(intents) == 1
    assert is_clean(kept(bench))
    await close_interrupted(bench.chain, bench.memory.ledger, bench.log)
    assert is_clean(kept(bench))
    calling.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await calling


async def test_a_question_that_waits_for_an_answer(
    bench: Bench, logged: pytest.LogCaptureFixture
) -> None:
    calling = asyncio.create_task(bench.called(Probe(risk="medium", act=echo), ARGUMENTS))
    async with asyncio.timeout(LIMIT_S):
        pending = await bench.asked.get()
    assert SECRET.encode() in pending.question.action.arguments, "a person sees the exact bytes"
    assert is_clean(kept(bench))
    bench.approvals.answer(pending.id, "once", bench.scope().principal, digest=pending.digest)
    assert (await calling).status == "allowed"
    assert is_clean(kept(bench))
    assert not any(each in logged.text for each in (PART, SHAPED))


@each_row("shift", range(5, len(SECRET), 4))
@each_row("limit", [REASON_LIMIT, 4096])
@each_row("answer", [failed, succeeded], fresh=["bench"])
async def test_a_secret_at_the_place_where_a_text_is_cut_leaves_no_half(
    bench: Bench, shift: int, limit: int, answer: Callable[[str], ToolResult]
) -> None:
    text = "x" * (limit - shift) + SECRET

    async def say(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        return answer(text)

    await bench.called(Probe(act=say), limit_bytes=limit)
    assert "xco" not in kept(bench)


async def test_a_secret_at_the_end_of_a_long_tool_name_leaves_no_half(bench: Bench) -> None:
    name = "n" * (NAME_IN_RECEIPT - 9) + SECRET
    await bench.dispatcher([]).call(request(name), bench.scope())
    assert SECRET[:8] not in bench.log.read_text()


async def test_a_workspace_named_like_a_secret(bench: Bench) -> None:
    bench.workspace = bench.log.parent / SECRET
    await bench.called(Probe())
    assert is_clean(kept(bench))
