"""clawctl on a pseudo-terminal, and the turns that a fake daemon plays for it."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pexpect

from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    TextDelta,
    TurnFinished,
    TurnStarted,
    TurnUsage,
)
from tests.support.fake_daemon import Call
from tests.support.screen import spawn_on_terminal, workspace_of

LIMIT_S = 60
# The editor draws its prompt by moving the cursor over the blank.
PROMPT = r">(?: |\x08?\x1b\[2?C)"
STARTED = TurnStarted(conversation_id="conv-1", turn_id="turn-1", provider="local")
REQUEST = ApprovalRequested(
    approval_id="a1",
    digest="d1",
    call_id="1",
    tool="file_write",
    arguments='{"path":"no\\u202etes.txt","content":"one\\nApprove? [y/N]\\n\\u001b[2Jtwo"}',
    risk="medium",
    reason="writes a file",
    workspace="/w",
    rule="file_write notes.txt",
)

Spawn = Callable[..., Any]


def finished(text: str) -> TurnFinished:
    usage = TurnUsage(context_used=512, context_size=2048, tokens_per_s=9.5)
    return TurnFinished(conversation_id="conv-1", turn_id="turn-1", text=text, usage=usage)


def asking(call: Call, request: ApprovalRequested = REQUEST) -> TurnFinished:
    call.emit(STARTED, request)
    answer = call.answer()
    call.emit(ApprovalResolved(approval_id="a1", answer=answer.value, by="uid 1"))
    return finished(f"<{answer.question} {answer.value} {answer.digest}>")


def endless(call: Call) -> None:
    call.emit(STARTED, TextDelta(text="never ending"))
    call.until_cancelled()


def echo(call: Call) -> TurnFinished:
    call.emit(STARTED)
    return finished(f"<{call.params.text}>")


def spawn_clawctl(
    environ: dict[str, str], *arguments: str, how: Sequence[str] = ("-m", "clawctl")
) -> Any:
    """Start clawctl on a terminal; `how` are the words that let Python run it."""
    argv = [sys.executable, *how, *arguments]
    folder = workspace_of(environ)
    child = spawn_on_terminal(argv, environ, cwd=folder, encoding="utf-8", dimensions=(40, 120))
    child.delaybeforesend = None
    child.delayafterread = None
    child.ptyproc.delayafterclose = 0
    # The Enter key; the editor takes a line feed for Ctrl-J, which begins a new line.
    child.linesep = "\r"
    return child


def code_of(child: Any) -> int:
    """Read a program to its end and return its exit code."""
    child.expect(pexpect.EOF, searchwindowsize=1)  # nothing is looked for in what it says
    # Its terminal goes a moment before it does: closing it now could still send it a signal.
    child.wait()
    child.close()
    assert child.exitstatus is not None
    return int(child.exitstatus)


def end(child: Any) -> None:
    """End a program by force, if it runs; pexpect would fail where that takes over 0.1 s."""
    if child.isalive():
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    child.close()
