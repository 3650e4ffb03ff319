"""A wall clock that jumps: a day back, ten years ahead, while a daemon runs and between two."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.home import Home
from tests.support.second_verifier import verify as verify_again

pytestmark = [pytest.mark.fault, pytest.mark.daemon]

DAY_S = 86_400
SOURCE = Path(__file__).with_name("clock.c")
APPEND = {"name": "file_append", "arguments": {"path": "a.txt", "content": "x\n"}}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that is loaded before libc's clock."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed, and the clock is set by a library made with it")
    made = tmp_path_factory.mktemp("clock") / "clock.so"
    words = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(made), str(SOURCE), "-ldl"]
    subprocess.run(words, check=True)
    return made


class Clock:
    """The clock of one home's daemon."""

    def __init__(self, home: Home, library: Path) -> None:
        self._path = home.path.parent / "clock"
        self.add(0)
        home.environ |= {"LD_PRELOAD": str(library), "CLAWD_TEST_CLOCK": str(self._path)}

    def add(self, seconds: int) -> None:
        """Let it be so many seconds from now."""
        part = self._path.with_name("clock.part")
        part.write_text(str(seconds))
        part.replace(self._path)


def test_turns_receipts_and_conversations_survive_jumps_of_the_clock(
    home: Home, library: Path
) -> None:
    home.configure(
        {"when": "write", "tool_calls": [APPEND]},
        {"when": "write", "after": "tool", "text": "wrote"},
        {"text": "answered"},
        tables='[security]\nautonomy = "full"\n[memory]\nretention_days = 30\n',
    )
    clock = Clock(home, library)
    home.start()

    def works(number: int) -> None:
        done = home.ctl("--no-start", "agent", "--continue", "-m", f"write {number}")
        assert (done.returncode, done.stdout) == (0, "wrote\n"), (done.stderr, home.log()[-3000:])

    first = home.ctl("--no-start", "agent", "-m", "write 0")
    assert first.returncode == 0, first.stderr
    for number, jump in enumerate((-DAY_S, 3650 * DAY_S, -3650 * DAY_S, 0), start=1):
        clock.add(jump)
        works(number)
    clock.add(-DAY_S)
    home.kill()
    home.start()
    works(5)
    home.close()
    clock.add(0)
    home.start()
    works(6)
    years = {receipt["timestamp"][:4] for receipt in home.receipt_lines()}
    assert len(years) >= 3, "the clock did not jump"
    assert len(home.receipt_lines()) == 7
    assert home.ctl("receipt", "verify").returncode == 0
    status = json.loads(home.ctl("--no-start", "status", "--json").stdout)
    assert 0 <= status["uptime_s"] < 600
    (conversation,) = home.json("memory", "list")
    shown = home.json("memory", "show", conversation["id"])
    said = [each["content"] for each in shown["messages"] if each["role"] == "user"]
    # They stand in the order in which they were said, whatever their times are.
    assert [text.rpartition("write ")[2][0] for text in said] == list("0123456")
    home.close()
    assert verify_again(home.receipts)[-1] is None


def test_a_start_in_the_far_future_deletes_nothing_of_today_by_itself(
    home: Home, library: Path
) -> None:
    """A clock that is wrong at boot must not let the housekeeping delete what is young."""
    home.configure({"text": "answered"}, tables="[memory]\nretention_days = 30\n")
    clock = Clock(home, library)
    home.start()
    assert home.ctl("--no-start", "agent", "-m", "hello").returncode == 0
    home.close()
    clock.add(3650 * DAY_S)
    home.start()
    assert len(home.json("memory", "list")) == 1, home.log()[-2000:]
