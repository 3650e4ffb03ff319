"""Approvals end to end: a person, another client, a rule, and a process that may not answer."""

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pexpect
import pytest

from clawd.errors import ReceiptError
from clawd.security.approval_rules import JsonRuleStore, rule_for
from clawd.wire.codec import Answer, EventFrame, unpack_event
from clawd.wire.daemon import Reload, Status
from clawd.wire.events import ApprovalRequested, ApprovalResolved
from clawd.wire.policy import ListRules
from clawd.wire.tools import RunTool
from tests.channels.rpc.rig import request
from tests.receipts.samples import draft, files_no_longer_than
from tests.security.fakes import action
from tests.support.home import Home
from tests.support.inprocess import OWNER, daemon_in
from tests.support.lent_home import LentHome

pytestmark = pytest.mark.daemon

WRITE = {
    "when": "write",
    "tool_calls": [{"name": "file_write", "arguments": {"path": "a.txt", "content": "hello"}}],
}
TOLD = {"after": "tool", "text": "told"}


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def asking(home: Home) -> Any:
    """Start a turn that asks at a terminal, and wait for the question."""
    child = pexpect.spawn(
        sys.executable,
        ["-m", "clawctl", "agent", "-m", "write it"],
        env=dict(home.environ, TERM="xterm"),
        cwd=str(home.workspace),
        encoding="utf-8",
        timeout=60,
    )
    child.expect(r"Approve\? \[y/N\]")
    return child


def ended(child: Any) -> int:
    child.expect(pexpect.EOF)
    child.wait()  # its terminal goes a moment before it does
    child.close()
    assert isinstance(child.exitstatus, int)
    return child.exitstatus


def test_another_client_answers_and_its_rule_is_listed_and_revoked(home: Home) -> None:
    home.configure(WRITE, TOLD)
    home.start()
    child = asking(home)
    (pending,) = home.json("approval", "list")
    assert (pending["tool"], pending["arguments"]) == (
        "file_write",
        '{"content":"hello","path":"a.txt"}',
    )
    home.json("approval", "allow", pending["id"], "--always", "--days", "3")
    child.expect(r"approved \(always\) by uid")
    assert ended(child) == 0
    assert (home.workspace / "a.txt").read_text() == "hello"
    (rule,) = home.json("approval", "rules")
    assert rule["pattern"] == f"file_write a.txt in {home.workspace}"
    assert (home.path / "approval_rules.json").stat().st_mode & 0o777 == 0o600
    (home.workspace / "a.txt").unlink()
    assert home.ctl("agent", "-m", "write it").returncode == 0
    (home.workspace / "a.txt").unlink()
    assert home.ctl("approval", "revoke", rule["id"]).returncode == 0
    assert home.ctl("agent", "-m", "write it").returncode == 4
    assert [(r["tool"], r["status"], r["approval"]) for r in home.receipt_lines()] == [
        ("approval_rule", "allowed", "user"),
        ("file_write", "allowed", "user"),
        ("file_write", "allowed", "rule"),
        ("approval_rule", "allowed", "user"),
        ("file_write", "denied", "none"),
    ]


@pytest.mark.sandbox
def test_a_process_in_a_sandbox_that_sees_the_socket_cannot_answer(home: Home) -> None:
    home.configure(WRITE, TOLD)
    home.start()
    child = asking(home)
    (pending,) = home.json("approval", "list")
    bwrap = shutil.which("bwrap") or "bwrap"
    inside = [bwrap, "--bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-pid"]
    for words in (["approval", "allow", pending["id"]], ["estop", "--clear"]):
        done = home.ctl(*words, before=inside)
        assert done.returncode == 1, done
        assert "PID namespace of its own" in done.stderr
        assert "run clawctl outside of it" in done.stderr
    assert len(home.json("approval", "list")) == 1
    child.sendline("n")
    assert ended(child) == 0
    assert not (home.workspace / "a.txt").exists()


async def test_a_broken_rules_file_is_in_force_nowhere_said_and_kept(tmp_path: Path) -> None:
    rules = tmp_path / "home" / "approval_rules.json"
    rules.parent.mkdir()
    rules.write_text("{}")
    rules.chmod(0o600)
    async with daemon_in(tmp_path) as inside:
        status = await inside.ask(Status(), OWNER)
        assert (status.rules, status.rules_problem.startswith(str(rules))) == (0, True)
        client = await inside.client(OWNER)
        arguments = '{"path":"a.txt","content":"x"}'
        client.send(request(1, RunTool(name="file_write", arguments=arguments, interactive=True)))
        frame = await client.read()
        assert isinstance(frame, EventFrame)
        asked = unpack_event(frame.event)
        assert isinstance(asked, ApprovalRequested)
        client.send(Answer(id=1, question=asked.approval_id, value="always", digest=asked.digest))
        frame = await client.read()
        assert isinstance(frame, EventFrame)
        resolved = unpack_event(frame.event)
        assert isinstance(resolved, ApprovalResolved)
        assert (resolved.answer, rules.read_text()) == ("once", "{}")
        rules.unlink()
        await inside.ask(Reload(), OWNER)
        assert (await inside.ask(Status(), OWNER)).rules_problem == ""


async def test_s12_a_rule_found_while_no_receipt_could_be_written_is_in_force_when_one_can(
    tmp_path: Path,
) -> None:
    rules = tmp_path / "home" / "approval_rules.json"
    async with daemon_in(tmp_path) as inside:
        chain = inside.daemon.chain
        assert chain is not None
        await chain.append(draft())
        with files_no_longer_than(chain.path.stat().st_size + 100), pytest.raises(ReceiptError):
            await chain.append(draft())
        found = action(principal=OWNER, workspace=inside.workspace)
        JsonRuleStore(rules).save((rule_for(found, now=datetime.now(UTC), conversation=False),))
        await inside.ask(Reload(), OWNER)
        (rule,) = (await inside.ask(ListRules(), OWNER)).items
        assert (await inside.ask(Status(), OWNER)).rules_problem == ""
        assert rule.receipt_id == inside.receipts()[-1].id


def test_a_person_edits_a_call_and_approves_what_it_is_then(home: Home, tmp_path: Path) -> None:
    home.configure(WRITE, TOLD)
    home.start()
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/hello/goodbye/ "$1"\n')
    editor.chmod(0o755)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "clawctl", "agent", "-m", "write it"],
        env=dict(home.environ, TERM="xterm", VISUAL=str(editor)),
        cwd=str(home.workspace),
        encoding="utf-8",
        timeout=60,
    )
    child.expect(r"Approve\? \[y/N\]  ")
    child.sendline("e")
    child.expect(r"· .*medium.*: arguments edited by uid \d+; ")
    child.expect(r"1 \+ goodbye")
    child.expect(r"Approve\? \[y/N\]  ")
    assert not (home.workspace / "a.txt").exists()
    child.sendline("y")
    assert ended(child) == 0
    assert (home.workspace / "a.txt").read_text() == "goodbye"
    (receipt,) = home.receipt_lines()
    assert (receipt["status"], receipt["approval"]) == ("allowed", "user")
    assert receipt["reason"].startswith("arguments edited by uid ")
