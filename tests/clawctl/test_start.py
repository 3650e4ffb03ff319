"""Starting the user's daemon: one of them, detached, its log kept, its death explained."""

import contextlib
import os
import signal
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from clawctl.client import Client
from clawctl.daemon import LOG_BYTES, _last_lines, _rotate, run_clawd, start
from clawctl.daemon_finder import reach
from clawctl.main import main
from clawd.errors import ClawError, UnreachableError
from clawd.paths import Layout, layout
from clawd.wire.daemon import Ping
from tests.support.fake_daemon import FakeDaemon

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "support" / "fake_daemon_program.py"


@pytest.fixture
def where(home: Path, environ: dict[str, str]) -> Iterator[Layout]:
    yield layout(environ)
    starts = home / "starts"
    for pid in starts.read_text().split() if starts.exists() else []:
        # The number of one that was waited for may be somebody else's by now.
        with contextlib.suppress(ChildProcessError):
            if os.waitpid(int(pid), os.WNOHANG) == (0, 0):
                os.kill(int(pid), signal.SIGTERM)
                os.waitpid(int(pid), 0)


def command(mode: str, where: Layout) -> list[str]:
    return [sys.executable, str(PROGRAM), mode, str(where.socket), str(where.home)]


def test_a_started_daemon_answers_and_is_detached(where: Layout, environ: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        with start(where, environ, command("record", where)) as client:
            assert client.call(Ping()).message == "pong"
    finally:
        os.close(reader)
        os.close(writer)
    seen = (where.home / "inherited").read_text().splitlines()
    assert "session True" in seen
    assert "stdin /dev/null" in seen
    assert [line for line in seen if "pipe:" in line or "socket:" in line] == []
    targets = {line.split(" ", 2)[2] for line in seen if line.startswith("fd ")}
    assert targets <= {"/dev/null", str(where.log), *(t for t in targets if t.startswith("/proc"))}
    assert stat.S_IMODE(where.log.stat().st_mode) == 0o600


def test_clients_that_start_at_once_get_one_daemon(where: Layout, environ: dict[str, str]) -> None:
    clients: list[Client] = []

    def come() -> None:
        clients.append(start(where, environ, command("serve", where)))

    threads = [threading.Thread(target=come) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(clients) == 4
    assert len({client.welcome.pid for client in clients}) == 1
    assert len((where.home / "starts").read_text().split()) == 1
    for client in clients:
        client.close()


def test_a_daemon_that_dies_is_explained_by_its_last_lines(
    where: Layout, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    where.log.write_text("an old line\n")
    with pytest.raises(UnreachableError, match="ended with status 3") as caught:
        start(where, environ, command("fail", where))
    assert "godmode" in caught.value.message
    assert "an old line" not in caught.value.message
    assert str(where.log) in caught.value.hint


def test_a_program_that_is_not_there_is_an_error_with_a_hint(
    where: Layout, environ: dict[str, str]
) -> None:
    with pytest.raises(UnreachableError, match="cannot start a daemon"):
        start(where, environ, ["/does/not/exist"])


def test_a_home_that_cannot_be_made_is_an_error_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {"CLAWD_HOME": str(tmp_path / "file" / "home"), "HOME": str(tmp_path)}
    with pytest.raises(UnreachableError, match="cannot start a daemon") as caught:
        start(layout(environ), environ, ["/does/not/exist"])
    assert "CLAWD_HOME" in caught.value.hint


class TestReach:
    def test_takes_the_daemon_that_runs(self, daemon: FakeDaemon, environ: dict[str, str]) -> None:
        with reach(None, may_start=True, environ=environ) as client:
            assert client.path == daemon.path

    def test_starts_none_for_a_socket_that_was_named(
        self, where: Layout, environ: dict[str, str], tmp_path: Path
    ) -> None:
        with pytest.raises(UnreachableError, match=r"other\.sock"):
            reach(str(tmp_path / "other.sock"), may_start=True, environ=environ)
        assert not where.log.exists()

    def test_starts_none_when_it_may_not(self, where: Layout, environ: dict[str, str]) -> None:
        with pytest.raises(UnreachableError):
            reach(None, may_start=False, environ=environ)
        assert list(where.home.iterdir()) == []

    def test_starts_none_for_the_system(self, tmp_path: Path) -> None:
        environ = {"CLAWD_HOME": "/var/lib/clawd", "CLAWD_SOCKET": str(tmp_path / "s.sock")}
        with pytest.raises(ClawError):
            reach(None, may_start=True, environ=environ)


class TestRotate:
    def test_sets_a_long_log_aside_under_its_writer(self, where: Layout) -> None:
        with where.log.open("ab") as writer:
            writer.write(b"x" * (LOG_BYTES + 1))
            writer.flush()
            _rotate(where.log)
            writer.write(b"after\n")
        assert where.log.read_bytes() == b"after\n"
        aside = where.log.with_name("clawd.log.1")
        assert aside.stat().st_size == LOG_BYTES + 1
        assert stat.S_IMODE(aside.stat().st_mode) == 0o600

    def test_leaves_a_short_or_missing_one_alone(self, where: Layout) -> None:
        _rotate(where.log)
        where.log.write_text("short")
        _rotate(where.log)
        assert where.log.read_text() == "short"
        assert not where.log.with_name("clawd.log.1").exists()


def test_offline_commands_run_clawd_and_pass_its_verdict_on(
    where: Layout, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HOME", "CLAWD_HOME"):
        monkeypatch.setenv(name, environ[name])
    assert "clawd" in run_clawd(["--version"], capture=True).stdout
    assert main(["init"]) == 0
    assert where.config.exists()
    assert main(["config", "validate"]) == 0
    assert main(["config", "show", "--json"]) == 0
    where.config.write_text('[security]\nautonomy = "godmode"\n')
    assert main(["config", "validate"]) == 1
    assert _last_lines(where.log, 0) == []
