"""The emergency stop on a daemon at work: everything dies, everything leaves its receipt."""

from collections import Counter

import pytest

from tests.support.estop_load import EXPECTED, PROCESSES, STOPPED, TOOLS, Load
from tests.support.home import Home
from tests.support.rows import thorough

ROUNDS = 3 if thorough() else 2

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox]


def test_one_touch_ends_everything_that_runs_or_waits_each_with_a_receipt(home: Home) -> None:
    load = Load(home)
    home.start()
    told = ("stopped", "failed", f"denied: {STOPPED}")
    for _ in range(ROUNDS):
        stopped = load.round()
        assert stopped.survivors == ()
        assert stopped.processes >= PROCESSES + TOOLS
        assert stopped.receipts == EXPECTED
        assert stopped.answer == "estop"
        assert stopped.told == (told, told)
    receipts = home.receipt_lines()
    assert len({receipt["id"] for receipt in receipts}) == len(receipts)
    assert not (home.workspace / "never").exists()
    assert home.ctl("receipt", "verify").returncode == 0


def test_while_it_is_set_text_is_answered_and_calls_are_refused(home: Home) -> None:
    Load(home)
    home.start()
    (home.path / "ESTOP").touch()
    text = home.ctl("agent", "-m", "hello")
    assert (text.returncode, text.stdout.strip()) == (0, "only text")
    refused = home.ctl("agent", "-m", "write")
    assert (refused.returncode, refused.stdout.strip()) == (0, f"told: denied: {STOPPED}")
    assert home.ctl("tool", "run", "time", "--json", "{}").returncode == 7
    home.kill()
    assert home.ctl("tool", "run", "time", "--json", "{}").returncode == 7
    made = [r for r in home.receipt_lines() if r["tool"] != "approval_rule"]
    found = Counter((r["tool"], r["status"], r["reason"]) for r in made)
    assert found == {("file_write", "denied", STOPPED): 1, ("time", "denied", STOPPED): 2}
    assert home.ctl("estop", "--clear").returncode == 0
    assert home.ctl("tool", "run", "time", "--json", "{}").returncode == 0
