"""How many files and functions one message goes through stays what one can follow."""

import re
import tempfile
import threading
from pathlib import Path

import pytest

from clawd.errors import ConfigError
from tests.support.inprocess import Aside
from tests.walk import ROOT, Walk, walked

MOST_FILES = 60
MOST_FUNCTIONS = 352  # one more than on an idle machine: on a loaded one a timer may fall into it

BESIDE = {
    "clawd/memory/knowledge/entries.py",
    "clawd/memory/knowledge/files.py",
    "clawd/security/estop.py",
    "clawd/security/paths.py",
}
"""Entered by threads of their own, so before or after their neighbours."""


@pytest.fixture(scope="module")
def found() -> Walk:
    """The files and functions of one message."""
    return walked()


@pytest.mark.daemon
def test_a_message_with_one_call_goes_through_no_more_than_it_did(found: Walk) -> None:
    for path, functions in found.items():
        print(path, *functions)  # shown where it fails
    assert "clawd/tools/dispatch.py" in found
    assert len(found) <= MOST_FILES
    assert sum(map(len, found.values())) <= MOST_FUNCTIONS


@pytest.mark.daemon
def test_the_page_names_the_files_of_the_walk_in_their_order(found: Walk) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.split("## The path of one message")[1].split("Cancelling takes")[0]
    named = [f"clawd/{path}" for path in re.findall(r"`((?:\w+/)*\w+\.py)`", section)]
    told = list(dict.fromkeys(path for path in named if (ROOT / path).exists()))
    assert set(told) == set(found)
    assert [each for each in told if each not in BESIDE] == [
        each for each in found if each not in BESIDE
    ]


def test_a_daemon_that_does_not_start_leaves_no_thread_that_would_hold_up_the_end(
    tmp_path: Path,
) -> None:
    before = set(threading.enumerate())
    with pytest.raises(ConfigError):
        Aside(tmp_path, "no_such_key = 1")
    assert set(threading.enumerate()) <= before


def test_a_walk_that_cannot_begin_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / 'no"where'))
    (tmp_path / 'no"where').mkdir()
    with pytest.raises(ConfigError):  # the name of the folder is none that the config can hold
        walked()
    assert list((tmp_path / 'no"where').iterdir()) == []
