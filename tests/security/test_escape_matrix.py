"""Attempts to get out of the sandbox, and deletions outside it, run for real: none may succeed."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.escape_attempts import ESCAPES
from tests.support.escape_deletions import SPELLINGS
from tests.support.escape_planted import PLANTED
from tests.support.escape_resources import RESOURCES
from tests.support.escape_run import attempts

# The first of them waits for all of the runs.
pytestmark = [pytest.mark.escape, pytest.mark.sandbox, pytest.mark.timeout(540)]

_ROOT = Path(__file__).resolve().parents[2]
_PYTHON = Path("/usr/bin/python3")
_ENOUGH = 0.6

Results = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def results() -> Iterator[Results]:
    if not _PYTHON.exists():
        reason = f"the attempts need {_PYTHON}"
        if "sandbox" in os.environ.get("CLAWD_TEST_REQUIRE", "").split(","):
            pytest.fail(f"sandbox is required here: {reason}")
        pytest.skip(reason)
    base = tempfile.mkdtemp(prefix="clawd-escape-", dir="/tmp")
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.support.escape_run", base],
            cwd=_ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        yield json.loads(ran.stdout)
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", base], check=False)
        shutil.rmtree(base)


@pytest.mark.parametrize("name", attempts())
def test_an_attempt_to_get_out_fails(results: Results, name: str) -> None:
    found, output = results["sandbox"][name]
    assert found == [], output


def test_there_are_fifty_escapes_and_fifty_deletions() -> None:
    assert len(ESCAPES) >= 50
    assert len(set(SPELLINGS)) >= 50
    rest = len(PLANTED) + len(RESOURCES)
    assert len(attempts()) == len(ESCAPES) + len(set(SPELLINGS)) + rest


@pytest.mark.parametrize(("kind", "fewest"), [("", 50), ("deletion", 50), ("planted", 25)])
def test_most_of_the_same_attempts_succeed_without_the_sandbox(
    results: Results, kind: str, fewest: int
) -> None:
    ran = {
        name: found
        for name, (found, _output) in results["control"].items()
        if kind == next((k for k in ("deletion", "planted") if name.startswith(f"{k}-")), "")
    }
    harmless = sorted(name for name, found in ran.items() if not found)
    assert len(ran) >= fewest
    assert len(harmless) <= (1 - _ENOUGH) * len(ran), harmless
