"""Attempts to get out of the sandbox, and deletions outside it, run for real: none may succeed."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.escape_attempts import ESCAPES
from tests.support.escape_deletions import SPELLINGS
from tests.support.escape_planted import PLANTED
from tests.support.escape_resources import RESOURCES
from tests.support.escape_run import attempts
from tests.support.rows import thorough

pytestmark = [pytest.mark.escape, pytest.mark.sandbox, pytest.mark.timeout(540)]

_ROOT = Path(__file__).resolve().parents[2]
_PYTHON = Path("/usr/bin/python3")
_ENOUGH = 0.6
_FEWEST_CONTROLS = {"": 50, "deletion": 50, "planted": 25}

Results = dict[str, dict[str, Any]]


def _run() -> Results:
    """Run every attempt in the sandbox and, where that is safe, without it."""
    if not _PYTHON.exists():
        reason = f"the attempts need {_PYTHON}"
        if "sandbox" in os.environ.get("CLAWD_TEST_REQUIRE", "").split(","):
            pytest.fail(f"sandbox is required here: {reason}")
        pytest.skip(reason)
    few = [] if thorough() else ["few"]
    base = tempfile.mkdtemp(prefix="clawd-escape-", dir="/tmp")
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "tests.support.escape_run", base, *few],
            cwd=_ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(_ROOT), "LANG": "C.UTF-8"},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert ran.returncode == 0, ran.stderr[-3000:]
        results: Results = json.loads(ran.stdout)
        return results
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", base], check=False)
        # What an attempt without the sandbox has started may still be removing files here.
        shutil.rmtree(base, ignore_errors=True)


# One test for all: each worker that had some of them would run all of them anew.
def test_no_attempt_to_get_out_succeeds_and_most_do_without_the_sandbox() -> None:
    results = _run()
    assert set(results["sandbox"]) == set(attempts())
    escaped = {name: each for name, each in results["sandbox"].items() if each[0]}
    assert escaped == {}
    for kind, fewest in _FEWEST_CONTROLS.items():
        ran = {
            name: found
            for name, (found, _output) in results["control"].items()
            if kind == next((k for k in ("deletion", "planted") if name.startswith(f"{k}-")), "")
        }
        harmless = sorted(name for name, found in ran.items() if not found)
        assert len(ran) >= (fewest if thorough() else fewest // 4), kind
        assert len(harmless) <= (1 - _ENOUGH) * len(ran), harmless


def test_there_are_fifty_escapes_and_fifty_deletions() -> None:
    assert len(ESCAPES) >= 50
    assert len(set(SPELLINGS)) >= 50
    rest = len(PLANTED) + len(RESOURCES)
    assert len(attempts()) == len(ESCAPES) + len(set(SPELLINGS)) + rest
