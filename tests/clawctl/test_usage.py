"""What a command line is refused for before any daemon is asked, and the schemas of its JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clawctl.contract.rows import ROWS, USAGE
from tests.support.command_tree import every_command, printed_types
from tests.support.here import Ended, environment, run_here
from tests.support.rows import each_row
from tests.support.schema_check import is_valid

COMMANDS = every_command()
TYPES = printed_types()
PATHS = sorted(ROWS)
WITH_JSON = [path for path in PATHS if ROWS[path].json_words]
# What their bad words name is in a daemon's world only, or the daemon refuses them.
WITHOUT_A_DAEMON = {"{folder}", "{new}", "{table}"}
NEEDING_THE_WORLD = [
    path
    for path in PATHS
    if ROWS[path].bad_code != USAGE
    or {word for word in ROWS[path].bad if word.startswith("{")} - WITHOUT_A_DAEMON
]
JUST_WORDS = [path for path in PATHS if path not in NEEDING_THE_WORLD]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The names that rows have for places, in an empty home where no daemon runs or starts."""
    folder = tmp_path_factory.mktemp("usage")
    (folder / "home").mkdir(mode=0o700)
    (folder / "policy.toml").touch()
    home = {"CLAWD_HOME": str(folder / "home"), "HOME": str(folder), "PATH": "/usr/bin:/bin"}
    named = {"folder": folder, "new": folder / "new", "table": folder / "policy.toml"}
    with environment(home):
        yield {name: str(path) for name, path in named.items()}
    assert not (folder / "home" / "clawd.lock").exists()


def assert_usage(path: str, done: Ended) -> None:
    assert done.code == USAGE
    assert done.out == ""
    assert f"Usage: clawctl {path.split()[0]}" in done.err
    assert "--help" in done.err


def schema(path: str) -> dict[str, Any]:
    done = run_here([*path.split(), "--json-schema"])
    assert done.code == 0, done.err
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_every_command_has_a_row_and_no_row_is_left_over() -> None:
    assert set(ROWS) == set(COMMANDS)


def test_every_command_that_prints_json_has_a_schema() -> None:
    assert set(WITH_JSON) == set(TYPES)


@each_row("path", [path for path in PATHS if COMMANDS[path].params])
def test_an_unknown_option_is_wrong_usage(places: dict[str, str], path: str) -> None:
    assert Path(places["folder"]).is_dir()
    done = run_here(["--no-start", *path.split(), "--no-such-option"])
    assert "No such option" in done.err
    assert_usage(path, done)


@each_row("path", JUST_WORDS)
def test_bad_words_end_with_their_code_and_what_to_do(places: dict[str, str], path: str) -> None:
    row = ROWS[path]
    words = [word.format_map(places) for word in row.bad]
    done = run_here(["--no-start", *path.split(), *words])
    assert row.why in done.err
    assert_usage(path, done)


@each_row("path", sorted(TYPES))
def test_a_schema_is_one_and_takes_no_other_document(places: dict[str, str], path: str) -> None:
    assert places
    found = schema(path)
    assert found["$schema"].startswith("https://json-schema.org/")
    assert not is_valid("no document of ours", found)
