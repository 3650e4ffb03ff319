"""A daemon killed at random points: whatever ran has its receipt, and the chain holds.

Kills twice, and 10 times where tests are to be thorough; CLAWD_KILLS=200 kills 200 times (some
minutes). CLAWD_KILL_SEED repeats a run.
"""

import os
import random

import pytest

from tests.support.home import Home
from tests.support.kill_rounds import KillRounds, kills_wanted
from tests.support.rows import thorough
from tests.support.second_verifier import verify as verify_again

KILLS = 10 if thorough() else 2
SECONDS_EACH = 15

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox]


@pytest.mark.timeout(120 + SECONDS_EACH * kills_wanted(KILLS))
def test_nothing_that_ran_lacks_its_receipt_however_often_the_daemon_is_killed(home: Home) -> None:
    seed = int(os.environ.get("CLAWD_KILL_SEED", "") or random.SystemRandom().randrange(1 << 32))
    print(f"CLAWD_KILL_SEED={seed}")
    rounds = KillRounds(home, seed)
    for number in range(kills_wanted(KILLS)):
        rounds.restart()
        rounds.kill_at_work()
        if number % 4 == 1:
            rounds.kill_at_start()
    rounds.restart()
    home.close()
    again = verify_again(home.receipts)
    assert (again[0], again[-1]) == (len(rounds.receipts()), None)
    print(
        f"{rounds.kills} kills, {again[0]} receipts, {len(rounds.told)} told of, "
        f"{rounds.interrupted} interrupted"
    )
