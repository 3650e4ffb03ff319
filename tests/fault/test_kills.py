"""kill -9 of the daemon and of the engine's workers at random points, under load.

Kills 4 times, and 100 times where tests are to be thorough; CLAWD_FAULT_KILLS=500 kills 500 times
(about 20 minutes). CLAWD_FAULT_SEED repeats the choices of a run.
"""

import os
import random

import pytest

from tests.fault.storm import MEASURES, Storm
from tests.support.home import Home
from tests.support.rows import thorough

KILLS = 100 if thorough() else 4
A_HOME = 50  # so many kills each home sees: each check reads all that its home recorded
SECONDS_EACH = 15

pytestmark = [
    pytest.mark.fault,
    pytest.mark.daemon,
    pytest.mark.sandbox,
    pytest.mark.real_model,
]


def _wanted() -> int:
    return int(os.environ.get("CLAWD_FAULT_KILLS", "") or KILLS)


def _parts() -> list[int]:
    return [min(A_HOME, _wanted() - at) for at in range(0, _wanted(), A_HOME)]


@pytest.mark.timeout(120 + SECONDS_EACH * A_HOME)
@pytest.mark.parametrize(("number", "kills"), list(enumerate(_parts())))
def test_nothing_that_was_told_is_lost_however_often_it_is_killed(
    number: int, kills: int, home: Home
) -> None:
    first = os.environ.get("CLAWD_FAULT_SEED", "")
    seed = int(first) + number if first else random.SystemRandom().randrange(1 << 32)
    print(f"CLAWD_FAULT_SEED={seed} (of home {number})")
    storm = Storm(home, seed, has_model=True)
    storm.blow(kills)
    told = storm.told
    print(
        f"{storm.kills} daemons and {storm.worker_kills} workers killed; {storm.torn} torn lines; "
        f"{len(told.receipts)} receipts told, {storm.oracle.interrupted} interrupted; "
        + ", ".join(f"{count} {what}" for what, count in sorted(told.counts.items()))
    )
    # A storm in which nothing was done would prove nothing.
    assert min(map(told.done, MEASURES)) > kills
