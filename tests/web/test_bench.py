"""The page's benchmark: what it reads out of a trace, and that it runs."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.bench.report import Report
from tests.bench.web import AIMS, tasks_of

ROOT = Path(__file__).resolve().parents[2]


def test_tasks_are_those_of_threads_that_lay_pages_out() -> None:
    main, other = {"pid": 1, "tid": 2}, {"pid": 1, "tid": 3}
    events = [
        {"name": "RunTask", "dur": 9000, "tdur": 4000, **main},
        {"name": "RunTask", "dur": 99_000, "tdur": 1000, **other},
        {"name": "UpdateLayoutTree", "dur": 10, **main},
        {"name": "RunTask", "dur": 2000, **main},
        {"name": "RunTask", **main},
    ]
    assert tasks_of(events) == [(9.0, 4.0), (2.0, 2.0)]


@pytest.mark.daemon
@pytest.mark.page
def test_every_row_is_measured(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.bench.web", "--quick", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = msgspec.json.decode(file.read_bytes(), type=Report).rows
    assert [row.name for row in rows] == list(AIMS)
    assert all(row.ours > 0 for row in rows)
    assert done.stdout.count("reached") == len(AIMS)
