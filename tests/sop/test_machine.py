"""What follows a step, in all forms of on_failure; pure."""

from typing import Any

import msgspec

from clawd.sop.load import Procedure, load
from clawd.sop.machine import (
    Do,
    Finish,
    SopRun,
    StepOutcome,
    begun,
    bounds_below,
    failed_for_good,
    marked,
    next_move,
    output_of,
    over_budget,
    scope_of,
    settled,
    undone,
)
from tests.security.fakes import ADA
from tests.sop.procedures import HEAD, SCHEMAS, shell

RUN = SopRun(
    id="run-1",
    name="check",
    digest="",
    source="",
    workspace="/w",
    principal=ADA,
    conversation_id="conv-1",
    created_at="2026-11-21T08:00:00.000000Z",
)


def procedure(*steps: str) -> Procedure:
    found, problems = load((HEAD.format(name="check") + "".join(steps)).encode(), "", SCHEMAS.get)
    assert problems == ()
    return found


def played(wanted: Procedure, *script: bool, run: SopRun = RUN, items: Any = None) -> list[str]:
    """Return the ids of the steps as they are done, and the end; `script` says what succeeds."""
    told, outcomes = [], iter(script)
    while isinstance(move := next_move(wanted, run), Do):
        told.append(move.step.id)
        ok = next(outcomes)
        run = begun(run, move.step.id, "mark", items if move.step.foreach else None)
        outcome = StepOutcome(ok=ok, output=f"{move.step.id} said", error="" if ok else "broke")
        run = settled(wanted, run, move.step, outcome)
    assert isinstance(move, Finish)
    assert list(outcomes) == []
    return [*told, move.status, move.reason]


def test_steps_are_done_in_their_order_and_a_failure_aborts() -> None:
    wanted = procedure(shell("one", "a"), shell("two", "b"))
    assert played(wanted, True, True) == ["one", "two", "succeeded", ""]
    assert played(wanted, False) == ["one", "failed", "one: broke"]


def test_a_failure_that_is_let_pass_goes_on() -> None:
    wanted = procedure(shell("one", "a", 'on_failure = "continue"'), shell("two", "b"))
    assert played(wanted, False, True) == ["one", "two", "succeeded", ""]


def test_a_retry_is_made_so_often_and_no_more() -> None:
    wanted = procedure(shell("one", "a", 'on_failure = "retry(2)"'), shell("two", "b"))
    assert played(wanted, False, False, True, True) == ["one"] * 3 + ["two", "succeeded", ""]
    assert played(wanted, False, False, False) == ["one"] * 3 + ["failed", "one: broke"]


def test_after_the_retries_it_goes_on_or_elsewhere() -> None:
    on = procedure(shell("one", "a", 'on_failure = "retry(1) then continue"'), shell("two", "b"))
    assert played(on, False, False, True) == ["one", "one", "two", "succeeded", ""]
    past = procedure(
        shell("one", "a", 'on_failure = "retry(1) then goto(three)"'),
        shell("two", "b"),
        shell("three", "c"),
    )
    assert played(past, False, False, True) == ["one", "one", "three", "succeeded", ""]
    assert played(past, True, True, True) == ["one", "two", "three", "succeeded", ""]


UNDO = '[[compensations]]\nid = "{0}"\nkind = "shell"\ncommand = "{0}"\n'


def test_what_was_done_is_taken_back_last_first_and_nothing_else_is() -> None:
    wanted = procedure(
        shell("one", "a", 'compensation = "undo-one"'),
        shell("two", "b", 'compensation = "undo-two"'),
        shell("three", "c", 'compensation = "undo-three"'),
        *(UNDO.format(f"undo-{each}") for each in ("one", "two", "three")),
    )
    done = ["one", "two", "three", "undo-two", "undo-one", "failed", "three: broke"]
    assert played(wanted, True, True, False, True, True) == done
    told = played(wanted, True, True, False, False, True)
    assert told[:5] == done[:5]  # what cannot be taken back keeps nothing else from it
    assert told[6] == "three: broke; undo-two could not take back: broke"


def test_a_list_is_gone_through_item_by_item_with_retries_for_each() -> None:
    wanted = procedure(
        shell("one", "a"), shell("two", "b", 'foreach = "one"\non_failure = "retry(1)"')
    )
    ends = played(wanted, True, True, False, True, True, items=["x", "y", "z"])
    assert ends == ["one", *["two"] * 4, "succeeded", ""]


def test_items_that_are_done_are_kept_and_one_that_failed_is_empty() -> None:
    wanted = procedure(
        shell("one", "a"), shell("two", "b", 'foreach = "one"\non_failure = "continue"')
    )
    step = wanted.step("two")
    run = begun(RUN, "two", "mark", ["x", "y"])
    assert scope_of(wanted, run, step)["item"] == "x"
    run = settled(wanted, run, step, StepOutcome(ok=True, output="X"))
    assert scope_of(wanted, run, step)["index"] == 1
    run = settled(wanted, begun(run, "two", "m"), step, StepOutcome(ok=False, error="no"))
    assert (run.state("two").outputs, run.state("two").status) == (("X", ""), "failed")


def test_a_budget_ends_the_run_but_not_what_takes_back() -> None:
    wanted = procedure("[budget]\nsteps = 1\ntokens = 10\n", shell("one", "a"), shell("two", "b"))
    assert over_budget(wanted, RUN) == ""
    run = begun(RUN, "one", "mark")
    assert "1 steps" in over_budget(wanted, run)
    assert over_budget(wanted, failed_for_good(run, "why")) == ""
    spent = settled(wanted, RUN, wanted.step("one"), StepOutcome(ok=True, tokens=10))
    assert "10 tokens" in over_budget(wanted, spent)


def test_what_a_run_below_uses_counts_and_it_gets_no_more_than_is_left() -> None:
    wanted = procedure("[budget]\nsteps = 9\ntokens = 50\n", shell("one", "a"), shell("two", "b"))
    run = begun(RUN, "one", "mark")
    below = bounds_below(wanted, run)
    assert (below.steps, below.tokens) == (8, 50)
    run = settled(wanted, run, wanted.step("one"), StepOutcome(ok=True, steps=8, tokens=20))
    assert "9 steps" in over_budget(wanted, run)
    inside = msgspec.structs.replace(RUN, bounds=below)
    free = procedure(shell("one", "a"))
    assert over_budget(free, msgspec.structs.replace(inside, steps_used=7)) == ""
    assert "8 steps" in over_budget(free, msgspec.structs.replace(inside, steps_used=8))
    assert "50 tokens" in over_budget(free, msgspec.structs.replace(inside, tokens_used=50))
    assert bounds_below(free, RUN).tokens is None


def test_an_attempt_that_never_began_takes_no_retry_and_no_budget() -> None:
    wanted = procedure("[budget]\nsteps = 2\n", shell("one", "a", 'on_failure = "retry(1)"'))
    run = RUN
    for _ in range(9):  # clawd was killed before the call
        run = undone(begun(run, "one", "mark"), "one")
    assert over_budget(wanted, run) == ""
    assert played(wanted, False, True, run=run) == ["one", "one", "succeeded", ""]


def test_the_output_is_that_of_the_last_step_that_was_done() -> None:
    wanted = procedure(shell("one", "a"), shell("two", "b"))
    run = settled(wanted, RUN, wanted.step("one"), StepOutcome(ok=True, output="1"))
    assert output_of(wanted, marked(run, "two", "skipped")) == "1"
    assert output_of(wanted, RUN) == ""
