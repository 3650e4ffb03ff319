"""What the security rows are made of; nothing here is measured."""

from argparse import ArgumentTypeError
from pathlib import Path

import pytest

from clawd.security.sandbox.plan import ChildCommand, DescriptorSlot, HostFacts, bubblewrap_plan
from tests.bench.report import Row, some_of
from tests.bench.security import ROWS, _longest, _row, _verdicts
from tests.bench.security_peer import _without_handshake


def test_the_peer_has_every_option_but_the_handshake(tmp_path: Path) -> None:
    command = ChildCommand(argv=("true",), workspace=tmp_path)
    plan = bubblewrap_plan(command, HostFacts(bwrap="bwrap", prlimit="prlimit", seccomp=b"x"))
    words = _without_handshake(plan)
    taken = {
        "--json-status-fd",
        "--block-fd",
        DescriptorSlot(name="status"),
        DescriptorSlot(name="gate"),
    }
    assert [word for word in plan.options if word not in taken] == words
    assert len(plan.options) - len(words) == len(taken)
    assert DescriptorSlot(name="seccomp") in words


def test_the_longest_times_have_one_ratio() -> None:
    row = _longest("estop_max_ms", [(10.0, 8.0), (12.0, 4.0), (3.0, 6.0)])
    assert row == Row(
        name="estop_max_ms", ours=12.0, peer=8.0, ratio=1.5, spread=(1.5, 1.5), unit="ms"
    )


def test_the_aim_of_a_call_is_told_as_reached_or_not() -> None:
    reached = _row("call_overhead", "ms", [(12.0, 10.0)] * 9)
    missed = _row("call_overhead", "ms", [(16.0, 10.0)] * 9)
    told = "call_overhead: {0:.2f} times bare bubblewrap ({0:.2f} to {0:.2f}), aim ≤ 1.5: {1}"
    assert _verdicts([reached])[1:] == [told.format(1.2, "reached")]
    assert _verdicts([missed])[1:] == [told.format(1.6, "NOT reached")]


def test_rows_are_chosen_by_name() -> None:
    assert some_of(ROWS)(",".join(ROWS)) == ROWS
    assert some_of(("real_1_all", "real_4_all", "really"))("real_4,real") == (
        "real_4_all",
        "real_1_all",
    )
    with pytest.raises(ArgumentTypeError, match="'speed' is none of"):
        some_of(ROWS)("speed")
