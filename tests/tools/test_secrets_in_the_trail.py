"""No secret is in what is kept of a call: receipts, intents, contents, log lines."""

import asyncio
import contextlib
import json
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from clawd.mcp.connection_end import KEPT_BYTES, StderrLog
from clawd.memory.rows import Conversation
from clawd.plugins.files import PluginFile, PluginTree
from clawd.plugins.loader import secrets_in
from clawd.security.redact import RedactingFilter
from clawd.service.receipts import close_interrupted
from clawd.tools.base import Arguments, ToolContext, ToolResult, failed, succeeded
from clawd.tools.dispatch import REASON_LIMIT
from clawd.tools.journal import NAME_IN_RECEIPT
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, SECRET, Bench, Held, Probe, request
from tests.support.rows import each_row
from tests.support.secret_forms import FORMS, filled, secrets_of

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


def leaked(text: str) -> list[str]:
    return [form for form in FORMS if any(secret in text for secret in secrets_of(form))]


async def test_s4_no_form_of_a_secret_is_kept_of_arguments_results_or_long_output(
    bench: Bench, logged: pytest.LogCaptureFixture
) -> None:
    conversation = Conversation(id="conv-1", owner=ADA.uid, workspace="/w")
    await bench.memory.conversations.create(conversation)

    async def say(arguments: Arguments, _context: ToolContext) -> ToolResult:
        text = f"so:\n{arguments['text']}"
        return failed(text, output=text) if arguments.get("number") else succeeded(text)

    dispatcher = bench.dispatcher([Probe(act=say)], limit_bytes=500)
    number = 0
    for form in FORMS:
        for front, is_failure in (("", 0), ("", 1), ("so\n" * 300, 0)):
            number += 1
            arguments = json.dumps({"text": front + filled(form), "number": is_failure})
            await dispatcher.call(request("probe", arguments, f"call-{number}"), bench.scope())
        logging.getLogger("clawd.test").warning("told\n%s", filled(form))
    files = bench.memory.session_files
    outputs = await files.list("conv-1", owner=ADA.uid)
    assert len(outputs) > 10
    texts = [(await files.load("conv-1", each.name, owner=ADA.uid))[1].decode() for each in outputs]
    assert leaked("\n".join([kept(bench), logged.text, *texts])) == []


def test_s4_no_form_of_a_secret_is_kept_in_a_tree(bench: Bench) -> None:
    for form in FORMS:
        tree = {"files": [{"content": filled(form), filled(form): 1}]}
        kept_tree = bench.redactor.json(json.dumps(tree).encode()).decode()
        assert not any(secret in kept_tree for secret in secrets_of(form)), kept_tree
    named = {"env": [{"name": "DB_PASSWORD", "value": "swordfish"}], "api_keys": ["swordfish"]}
    assert "swordfish" not in bench.redactor.json(json.dumps(named).encode()).decode()


def test_s4_the_scan_of_a_plugin_sees_every_form() -> None:
    wrong = []
    for form in FORMS:
        data = f"# settings\n{filled(form)}\n".encode()
        tree = PluginTree(files=(PluginFile(path="a/settings.txt", mode=0o600, data=data),))
        found = secrets_in(tree)
        told = "".join(found)
        if not found or any(secret in told for secret in secrets_of(form)):
            wrong.append(form)
    assert wrong == []


@pytest.mark.parametrize("size", [7, 64, KEPT_BYTES])
def test_s4_a_secret_that_came_in_pieces_is_not_kept_in_a_log_of_a_server(
    bench: Bench, tmp_path: Path, size: int
) -> None:
    token = filled("GITHUB_TOKEN=ghp_{K}{K}")
    data = f"start\n{token}\n".encode() * (KEPT_BYTES // len(token) + 40)
    log = StderrLog(tmp_path / "a.log", bench.redactor.text)
    for at in range(0, len(data), size):
        log.add(data[at : at + size])
    shown = log._text()
    assert "start" in shown
    assert "ghp_" not in shown
    assert token[-12:] not in shown
