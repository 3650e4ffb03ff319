"""What happens when something dies, or somebody stops it, in the middle."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from clawctl.client import Client, Stream, connect
from clawd.wire.daemon import SetEstop, Status
from clawd.wire.events import (
    ApprovalRequested,
    Event,
    TextDelta,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from clawd.wire.models import ListLoadedModels
from clawd.wire.policy import ListApprovals
from clawd.wire.turns import SendMessage
from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = pytest.mark.daemon

LIMIT_S = 60.0
# No other test, which may run beside these, sleeps for as long.
A_WHILE = f"600.{os.getpid()}{secrets.randbelow(1_000_000):06}"
SLEEP = {
    "when": "sleep",
    "tool_calls": [{"name": "shell", "arguments": {"command": f"sleep {A_WHILE}"}}],
}
TOLD = {"after": "tool", "text": "told: {{last_tool_result}}"}
FULL = '[security]\nautonomy = "full"\n[limits]\nshell_timeout_s = 600'


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


@contextlib.contextmanager
def connected(home: Home) -> Iterator[Client]:
    socket = home.json("status")["socket"]
    with connect(Path(socket)) as client:
        yield client


def until(stream: Stream[TurnFinished], wanted: type[Event]) -> Event:
    for event in stream:
        if isinstance(event, wanted):
            return event
    raise AssertionError(f"no {wanted.__name__}")


def wait_for(claim: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not claim():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.01)


def sleepers() -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if process.info["cmdline"] == ["sleep", A_WHILE]:
            found.append(process.pid)
    return found


@pytest.mark.sandbox
def test_estop_kills_a_running_command_at_once_and_text_still_answers(home: Home) -> None:
    home.configure(SLEEP, TOLD, {"text": "only text"}, tables=FULL)
    home.start()
    with connected(home) as client:
        stream = client.stream(SendMessage(text="sleep"))
        until(stream, ToolStarted)
        wait_for(lambda: sleepers() != [])
        (home.path / "ESTOP").touch()
        wait_for(lambda: sleepers() == [])  # long before it would have ended by itself
        for _event in stream:
            pass
        assert "emergency stop is set" in stream.result.text
    (receipt,) = home.receipt_lines()
    assert receipt["status"] == "failed"
    assert "emergency stop" in receipt["reason"]
    answered = home.ctl("agent", "-m", "hello")
    assert (answered.returncode, answered.stdout.strip()) == (0, "only text")
    refused = home.ctl("agent", "-m", "sleep")
    assert "emergency stop is set" in refused.stdout
    assert [r["status"] for r in home.receipt_lines()] == ["failed", "denied"]
    assert sleepers() == []


def test_estop_denies_what_waits_for_an_approval(home: Home) -> None:
    write = {"tool_calls": [{"name": "file_write", "arguments": {"path": "a", "content": "b"}}]}
    home.configure(write, TOLD)
    home.start()
    with connected(home) as client, connected(home) as other:
        stream = client.stream(SendMessage(text="write", interactive=True))
        thread = threading.Thread(target=lambda: [None for _ in stream])
        thread.start()
        wait_for(lambda: len(other.call(ListApprovals()).items) == 1)
        other.call(SetEstop(reason="a test"))
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert home.receipt_lines()[0]["status"] == "denied"
    assert not (home.workspace / "a").exists()


@pytest.mark.sandbox
def test_a_daemon_killed_in_a_call_leaves_an_interrupted_receipt(home: Home) -> None:
    home.configure(SLEEP, TOLD, {"text": "here again"}, tables=FULL)
    home.start()
    with connected(home) as client:
        stream = client.stream(SendMessage(text="sleep"))
        until(stream, ToolStarted)
        wait_for(lambda: sleepers() != [])
        home.kill()
    wait_for(lambda: sleepers() == [])
    assert home.receipt_lines() == []
    assert home.ctl("status").returncode == 0
    (receipt,) = home.receipt_lines()
    assert (receipt["status"], receipt["reason"], receipt["tool"]) == (
        "failed",
        "interrupted",
        "shell",
    )
    assert home.ctl("receipt", "verify").returncode == 0
    (conversation,) = home.json("memory", "list")
    shown = home.json("memory", "show", conversation["id"])
    assert [m["role"] for m in shown["messages"]] == ["user", "assistant"]
    again = home.ctl("agent", "--continue", "-m", "hello")
    assert again.returncode == 0, again.stderr


def test_a_daemon_killed_while_an_approval_waits_leaves_a_denied_receipt(home: Home) -> None:
    write = {"tool_calls": [{"name": "file_write", "arguments": {"path": "a", "content": "b"}}]}
    home.configure(write, TOLD)
    home.start()
    with connected(home) as client:
        # Whoever is asked is asked about what is kept; it is listed a moment before that.
        until(client.stream(SendMessage(text="write", interactive=True)), ApprovalRequested)
        home.kill()
    (conversation,) = home.json("memory", "list")
    shown = home.json("memory", "show", conversation["id"])
    assert [m["role"] for m in shown["messages"]] == ["user", "assistant"]
    (receipt,) = home.receipt_lines()
    (asked,) = home.json("approval", "list")
    reason = f"interrupted; {asked['id']} can still be answered"
    assert (receipt["status"], receipt["reason"]) == ("denied", reason)
    assert not (home.workspace / "a").exists()
    assert home.ctl("receipt", "verify").returncode == 0


@pytest.mark.real_model
def test_a_worker_killed_in_mid_answer_fails_the_turn_and_the_next_one_works(home: Home) -> None:
    home.configure(provider="local", tables="[engine]\nmax_tokens = 100000")
    home.start()
    with connected(home) as client:
        first = client.stream(SendMessage(text="what time is it?"))
        for _event in first:
            pass
        wait_for(lambda: of_the_model(client) == 0)
        (worker,) = client.call(Status()).workers
        os.kill(worker.pid, signal.SIGSTOP)
        # Of a conversation that the model knows nothing has to be counted before it is asked.
        known = first.result.conversation_id
        stream = client.stream(SendMessage(text="tell me a joke", conversation_id=known))
        failed: list[Event] = []
        thread = threading.Thread(target=lambda: failed.extend(_all_events(stream)))
        thread.start()
        with connected(home) as other:
            # With the worker's death ends what was asked of it, not what is asked after it.
            wait_for(lambda: of_the_model(other) == 1)
        os.kill(worker.pid, signal.SIGKILL)
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        (end,) = [event for event in failed if isinstance(event, TurnFailed)]
        assert end.code == "worker_died"
        assert "SIGKILL" in end.message
    again = home.ctl("agent", "-m", "what time is it?")
    assert again.returncode == 0, again.stderr
    assert again.stdout.strip()


def of_the_model(client: Client) -> int:
    """Return how many answers the one model that is loaded works on."""
    (model,) = client.call(ListLoadedModels()).items
    return model.running


def _all_events(stream: Stream[TurnFinished]) -> list[Event]:
    events: list[Event] = []
    with contextlib.suppress(Exception):
        events.extend(stream)
    return events


def test_sigterm_drains_and_ends_with_0(home: Home) -> None:
    home.configure({"text": "slow", "delay_s": 1.0})
    home.start()
    daemon = home.daemon
    assert daemon is not None
    with connected(home) as client:
        stream = client.stream(SendMessage(text="hello"))
        until(stream, TurnStarted)
        daemon.send_signal(signal.SIGTERM)
        text = "".join(event.text for event in stream if isinstance(event, TextDelta))
    assert text == "slow"
    assert daemon.wait(LIMIT_S) == 0
    assert not home.pid()


def test_sighup_takes_a_good_config_and_refuses_a_bad_one(home: Home) -> None:
    home.configure()
    home.start()
    daemon = home.daemon
    assert daemon is not None
    text = home.config.read_text()
    home.config.write_text(text + '[security]\nautonomy = "readonly"\n')
    daemon.send_signal(signal.SIGHUP)
    wait_for(lambda: bool(home.json("status")["autonomy"] == "readonly"))
    home.config.write_text(text + '[security]\nautonomy = "godmode"\n')
    daemon.send_signal(signal.SIGHUP)
    wait_for(lambda: "godmode" in home.log())
    assert home.json("status")["autonomy"] == "readonly"


def test_a_second_daemon_of_the_home_is_refused(home: Home) -> None:
    home.configure()
    home.start()
    second = subprocess.run(
        [sys.executable, "-m", "clawd"],
        env=home.environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert second.returncode == 1
    assert str(home.pid()) in second.stderr
    assert home.ctl("status").returncode == 0


def test_a_stale_socket_does_not_hinder_the_next_start(home: Home) -> None:
    home.configure()
    home.start()
    home.kill()
    assert home.ctl("status").returncode == 0
