"""The thread of a session: interrupts, its own loop, callers that may not wait."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import ClawError
from clawd.sdk import Session
from clawd.sdk.blocking import LoopThread
from tests.sdk.rig import calling, error_of, receipt_lines, scripted

LIMIT_S = 60.0
INTERRUPTED = """
import os, pathlib, signal, sys, threading, time
from clawd.sdk import Session

never = threading.Event()
told = threading.Event()
main = threading.main_thread().ident

def note(event) -> None:
    if type(event).__name__ == "ToolStarted":
        told.set()

def wait() -> str:
    '''Wait until somebody interrupts.'''
    told.wait()
    while sys._current_frames()[main].f_code.co_name != "wait":
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
    never.wait()
    return ""

script = pathlib.Path(sys.argv[1]) / "script.json"
settings = {"default_provider": "mock", "providers.models.mock.kind": "mock",
            "providers.models.mock.script": str(script)}
with Session.local(home=pathlib.Path(sys.argv[1]) / "home", settings=settings) as session:
    session.add_tool(wait).on_event(note)
    try:
        session.chat("go")
    except KeyboardInterrupt:
        print("interrupted")
    print(session.chat("again").text)
"""


def test_an_interrupt_cancels_the_turn_and_the_session_goes_on(tmp_path: Path) -> None:
    scripted(tmp_path, *calling("wait", {}, "there"))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", INTERRUPTED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\nthere\n", "")
    (receipt,) = receipt_lines(tmp_path)
    assert (receipt["tool"], receipt["status"]) == ("wait", "failed")


def test_no_thread_begins_before_the_first_use_and_none_is_left() -> None:
    before = set(threading.enumerate())
    ended: list[str] = []

    async def end() -> None:
        ended.append(threading.current_thread().name)

    thread = LoopThread(end)
    # Threads that other tests have left may end meanwhile.
    assert set(threading.enumerate()) <= before
    assert thread.run(asyncio.sleep(0, "done")) == "done"
    begun = set(threading.enumerate()) - before
    assert [each.name for each in begun if "pool" not in each.name] == ["clawd-sdk"]
    thread.close()
    thread.close()
    assert set(threading.enumerate()) <= before
    assert ended == ["clawd-sdk"]
    assert "closed" in error_of(lambda: thread.run(asyncio.sleep(0))).message


def test_what_comes_while_it_is_closed_is_run_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def end() -> None:
        return

    thread = LoopThread(end)
    thread.run(asyncio.sleep(0))
    reached, closed = threading.Event(), threading.Event()
    submit = asyncio.run_coroutine_threadsafe

    def held(work: Any, loop: asyncio.AbstractEventLoop) -> Any:
        if threading.current_thread() is late:
            reached.set()
            closed.wait(1.0)
        return submit(work, loop)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", held)
    answers: list[object] = []
    late = threading.Thread(target=lambda: answers.append(thread.run(asyncio.sleep(0, "done"))))
    late.start()
    assert reached.wait(LIMIT_S)
    thread.close()
    closed.set()
    late.join(LIMIT_S)
    assert answers == ["done"]


def test_a_wait_that_nothing_ends_ends_with_the_session() -> None:
    async def end() -> None:
        return

    thread, begun = LoopThread(end), threading.Event()
    errors: list[ClawError] = []

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    waiting = threading.Thread(
        target=lambda: errors.append(error_of(lambda: thread.run(wait()))), daemon=True
    )
    waiting.start()
    assert begun.wait(LIMIT_S)
    thread.close()
    waiting.join(LIMIT_S)
    assert ["closed meanwhile" in error.message for error in errors] == [True]


def test_a_session_that_was_never_used_ends_without_a_thread() -> None:
    before = set(threading.enumerate())
    with Session.local() as session:
        pass
    assert set(threading.enumerate()) <= before
    assert "closed" in error_of(session.init).message


def test_what_fails_on_the_loop_fails_where_it_was_waited_for(tmp_path: Path) -> None:
    async def fail() -> None:
        raise LookupError("mine")

    with Session.local(**scripted(tmp_path)) as session, pytest.raises(LookupError, match="mine"):
        session.run(fail())


def test_it_cannot_be_closed_or_waited_for_on_its_own_loop(tmp_path: Path) -> None:
    with Session.local(**scripted(tmp_path)) as session:

        async def close() -> None:
            session.close()

        async def chat() -> None:
            session.chat("hello")

        for act in (close, chat):
            with pytest.raises(ClawError, match="event loop"):
                session.run(act())
        assert session.chat("still here").text == "still here"


def test_a_message_is_sent_once(tmp_path: Path) -> None:
    with Session.local(**scripted(tmp_path)) as session:
        reply = session.stream("hello")
        assert "".join(reply) == "hello"
        assert "sent already" in error_of(lambda: list(reply)).message
        assert len(session.history()) == 2


def test_closing_while_another_thread_waits_ends_its_wait(tmp_path: Path) -> None:
    started = threading.Event()
    errors: list[ClawError] = []

    async def wait() -> None:
        """Wait for ever."""
        started.set()
        await asyncio.Event().wait()

    session = Session.local(**scripted(tmp_path, *calling("wait", {}))).add_tool(wait)
    thread = threading.Thread(
        target=lambda: errors.append(error_of(lambda: session.chat("go"))), daemon=True
    )
    thread.start()
    assert started.wait(LIMIT_S)
    session.close()
    thread.join(LIMIT_S)
    assert len(errors) == 1
    assert [line["status"] for line in receipt_lines(tmp_path)] == ["failed"]
