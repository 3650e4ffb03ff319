"""Where a session lives: a home of its own, one writer, and nothing left of it at its end."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from clawd.sdk import Session
from tests.sdk.rig import calling, error_of, receipt_lines, scripted
from tests.support.home import Home

LIMIT_S = 60.0


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary homes are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def descriptors() -> set[str]:
    """Return what this process has open: files and sockets."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except OSError:
            continue
    return found


def children() -> set[psutil.Process]:
    """Return the processes below this one."""
    return set(psutil.Process().children(recursive=True))


def until(claim: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + LIMIT_S
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def run_program(code: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; a warning is an error."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environ},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def without_home(folder: Path) -> dict[str, Any]:
    return {"settings": scripted(folder)["settings"]}


def test_a_temporary_home_goes_with_its_session(tmp_path: Path, temporary: Path) -> None:
    with Session.local(**without_home(tmp_path)) as session:
        assert list(temporary.iterdir()) == []  # nothing is made before the first use
        session.chat("hello")
        (home,) = temporary.iterdir()
        assert home.stat().st_mode & 0o777 == 0o700
        assert (home / "memory.sqlite").exists()
    assert list(temporary.iterdir()) == []


def test_a_temporary_home_goes_when_the_beginning_fails(tmp_path: Path, temporary: Path) -> None:
    settings = {**without_home(tmp_path)["settings"], "security.autonomy": "godmode"}
    with Session.local(settings=settings) as session:
        error_of(session.init)
    assert list(temporary.iterdir()) == []


def test_a_home_that_is_given_keeps_its_memory_and_goes_on_with_its_chain(tmp_path: Path) -> None:
    where = scripted(tmp_path, *calling("time", {}))
    for _ in range(2):
        with Session.local(**where) as session:
            session.chat("what time is it?")
            assert session.verify_receipts().ok
    assert [line["seq"] for line in receipt_lines(tmp_path)] == [1, 2]


def test_a_config_of_the_home_and_one_that_is_named_are_read(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    text = 'default_provider = "mock"\n[agent]\nsystem_prompt = "You are {}."\n'
    (home / "config.toml").write_text(text.format("Ada"))
    (tmp_path / "other.toml").write_text(text.format("Bob"))
    with Session.local(home=home) as session:
        assert session.render_system().startswith("You are Ada.")
    with Session.local(home=home, config=tmp_path / "other.toml") as session:
        assert session.render_system().startswith("You are Bob.")


def test_the_workspace_that_is_given_is_the_one_tools_work_in(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "plan.txt").write_text("x")
    where = scripted(tmp_path, *calling("file_list", {}))
    where["workspace"] = folder
    with Session.local(**where) as session:
        assert session.chat("list").text == "plan.txt"


def test_the_socket_and_the_home_of_the_environment_are_not_touched(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWD_HOME", str(tmp_path / "users"))
    monkeypatch.setenv("CLAWD_SOCKET", str(tmp_path / "users.sock"))
    with Session.local(**without_home(tmp_path)) as session:
        session.chat("hello")
    assert not (tmp_path / "users").exists()
    assert not (tmp_path / "users.sock").exists()


def test_a_second_session_in_one_home_is_refused_until_the_first_ends(tmp_path: Path) -> None:
    where = scripted(tmp_path)
    with Session.local(**where) as first, Session.local(**where) as second:
        first.chat("hello")
        error = error_of(second.init)
        assert error.code == "already_running"
        assert str(tmp_path / "home") in error.message
        assert f"Session.daemon(home='{tmp_path / 'home'}')" in error.hint
        first.close()
        assert second.chat("now").text == "now"


def test_a_chain_outside_of_the_home_has_one_writer_all_the_same(tmp_path: Path) -> None:
    chain = tmp_path / "chain.log"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (
        Session.local(**scripted(tmp_path / name, receipts__path=str(chain)))
        for name in ("one", "two")
    )
    with one, two:
        one.init()
        assert error_of(two.init).code == "receipts"


@pytest.mark.daemon
def test_the_home_of_a_running_daemon_is_refused_and_joined(home: Home) -> None:
    home.configure()
    home.start()
    with Session.local(home=home.path) as local:
        error = error_of(local.init)
    assert (error.code, "Session.daemon" in error.hint) == ("already_running", True)
    with Session.daemon(home=home.path) as joined:
        assert joined.chat("hello").text == "hello"


@pytest.mark.daemon
def test_a_daemon_is_refused_in_the_home_of_a_session(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Session.local(**scripted(tmp_path)) as session:
        session.chat("hello")
        # It waits for as long as a daemon that ends may take: the session has no socket either.
        impatient = (
            "from clawd.service import control_socket, main; control_socket.LOCK_PATIENCE_S = 0.1"
        )
        done = run_program(f"{impatient}; main.main([])", CLAWD_HOME=str(home))
        assert "a clawd runs already" in done.stderr
        assert list(home.glob("run/*")) == []
        assert session.chat("still here").text == "still here"


def test_the_end_leaves_no_thread_process_or_open_file_behind(tmp_path: Path) -> None:
    where = scripted(tmp_path, *calling("shell", {"command": "echo hi"}))
    with Session.local(**where) as session:  # what the libraries open once and keep
        session.on_approval(lambda _question: True).chat("run it")
    threads, before, processes = set(threading.enumerate()), descriptors(), children()
    with Session.local(**where) as session:
        session.on_approval(lambda _question: True).chat("run it")
        assert descriptors() != before
    # What other tests have left may end meanwhile; what has let go of its work may end later.
    until(lambda: descriptors() <= before)
    until(lambda: set(threading.enumerate()) <= threads)
    until(lambda: children() <= processes)


@pytest.mark.real_model
def test_the_worker_of_a_model_ends_with_its_session(tmp_path: Path) -> None:
    before = children()
    with Session.local("embedded", home=tmp_path / "home") as session:
        session.chat("hello")
        (worker,) = children() - before
    assert not worker.is_running()


@pytest.mark.real_model
def test_a_model_is_found_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clawd.engine.embedded import embedded_model_path

    (tmp_path / "tiny.gguf").symlink_to(embedded_model_path())
    monkeypatch.chdir(tmp_path)
    with Session.local("tiny.gguf", home=tmp_path / "home") as session:
        result = session.chat("what time is it?")
        assert result.text
        assert result.model == str(tmp_path / "tiny.gguf")


FORGOTTEN = """
from clawd.sdk import Session
session = Session.local(settings={"default_provider": "mock"})
print(session.chat("hello").text)
"""


def test_a_program_that_closes_nothing_ends_without_a_word_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    done = run_program(FORGOTTEN, TMPDIR=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_program_that_fails_ends_all_the_same(tmp_path: Path) -> None:
    done = run_program(FORGOTTEN + "raise SystemExit(3)", TMPDIR=str(tmp_path))
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (3, "", [])


def test_an_async_program_that_closes_nothing_leaves_no_home(tmp_path: Path) -> None:
    code = """
import asyncio
from clawd.sdk import AsyncSession
async def main():
    session = AsyncSession.local(settings={"default_provider": "mock"})
    print((await session.chat("hello")).text)
asyncio.run(main())
"""
    done = run_program(code, TMPDIR=str(tmp_path))
    assert done.stdout == "hello\n"
    assert list(tmp_path.iterdir()) == []
