"""What the agent rows are made of; nothing here is measured."""

from pathlib import Path

import pytest

from tests.bench.agent import done, search_rows, tasks_row, verdicts
from tests.bench.agent_memory import percentiles, queries, search_pairs
from tests.bench.agent_tasks import TASKS, all_of, calls, holds, no_calls, only
from tests.bench.agent_world import Act, Pages, World


class _Left(World):
    """What was left of a task, without a daemon."""

    def __init__(self, workspace: Path, server: Pages, acts: list[Act]) -> None:
        self.workspace = workspace
        self.server = server
        self._acts = acts

    def acts(self) -> list[Act]:
        return self._acts

    def knowledge(self) -> list[str]:
        return []


def test_there_are_twenty_tasks_and_more_each_with_a_name_of_its_own() -> None:
    assert len({task.name for task in TASKS}) == len(TASKS) >= 20


def test_no_task_but_those_without_calls_is_done_by_doing_nothing(tmp_path: Path) -> None:
    with Pages() as server:
        nothing = _Left(tmp_path, server, [])
        passed = [task.name for task in TASKS if not task.grade(nothing)]
    assert passed == ["a greeting", "small talk"]


def test_grades_look_at_files_and_calls(tmp_path: Path) -> None:
    act = Act(tool="time", status="allowed", approval="auto", arguments={}, result="noon")
    (tmp_path / "a.txt").write_text("one\n")
    with Pages() as server:
        left = _Left(tmp_path, server, [act])
        assert all_of(holds("a.txt", "one"), only("a.txt"), calls(1))(left) == ""
        assert "expected 'two'" in holds("a.txt", "two")(left)
        assert "1 calls" in calls(2)(left)
        assert "called time" in no_calls(left)


def test_the_aims_are_told_as_reached_or_not() -> None:
    rows = [tasks_row([True] * 27 + [False] * 3), *search_rows([(2.0, 1.0), (2.4, 1.0)])]
    assert verdicts(rows)[1:] == [
        "embedded_tasks_pass: 27 of 30 tasks, 90%, aim ≥ 90%: reached",
        "memory_search_p50: 2.20 times the bare query, aim ≤ 2: NOT reached",
        "memory_search_p95: 2.38 times the bare query, aim ≤ 2: NOT reached",
    ]
    assert "NOT reached" in verdicts([tasks_row([True] * 8 + [False])])[1]


async def test_searches_are_timed_on_both_sides(tmp_path: Path) -> None:
    samples = await search_pairs(tmp_path, 200, 5)
    assert len(samples) == 5
    assert all(ours > 0 and bare > 0 for ours, bare in samples)
    assert percentiles([1.0, 2.0, 3.0])[0] == 2.0
    assert list(queries(5)) == list(queries(9))[:5]


@pytest.mark.daemon
@pytest.mark.real_model
def test_a_task_runs_through_the_real_daemon_and_is_graded(tmp_path: Path) -> None:
    (task,) = [task for task in TASKS if task.name == "write a file"]
    assert done(tmp_path, [task]) == [True]
