"""Every command through the real client and a real daemon: good words, bad ones, JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from clawctl import schemas
from tests.clawctl.contract.rows import ROWS, USAGE, Row
from tests.clawctl.contract.world import Ended, World, environment
from tests.support.command_tree import every_command
from tests.support.home import Home
from tests.support.schema_check import is_valid

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox]

COMMANDS = every_command()
PATHS = sorted(ROWS)
WITH_JSON = [path for path in PATHS if ROWS[path].json_words]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("contract")
    home = Home(folder)
    made = World(home, folder)
    editor = str(folder / "editor")
    with environment({**home.environ, "EDITOR": editor, "VISUAL": editor}):
        made.fill()
        try:
            yield made
        finally:
            made.close()
            home.close()


def run(world: World, path: str, *words: str, stdin: str = "") -> Ended:
    return world.run([*path.split(), *words], stdin=stdin)


def test_every_command_has_a_row_and_no_row_is_left_over() -> None:
    assert set(ROWS) == set(COMMANDS)


def test_every_command_that_prints_json_has_a_schema() -> None:
    assert set(WITH_JSON) == set(schemas.TYPES)
    offering = {path for path, command in COMMANDS.items() if "json_schema" in names_of(command)}
    assert offering == set(schemas.TYPES)


@pytest.mark.parametrize("path", PATHS)
def test_it_works_and_says_so(world: World, path: str) -> None:
    row = ROWS[path]
    if row.typed:
        at_terminal = world.run_at_terminal([*path.split(), *row.words], row.typed)
        assert at_terminal.code == row.code, at_terminal.out
        return
    done = run(world, path, *row.words, stdin=row.stdin)
    assert done.code == row.code, done.err
    assert row.says in done.out + done.err
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize("path", WITH_JSON)
def test_its_json_is_what_its_schema_says(world: World, path: str) -> None:
    row = ROWS[path]
    done = run(world, path, *row.words, *row.json_words, stdin=row.stdin)
    assert done.code == row.code, done.err
    document = json.loads(done.out)
    assert is_valid(document, schema(world, path))
    assert not unknown_fields(document, schemas.TYPES[path])


@pytest.mark.parametrize("path", PATHS)
def test_bad_words_end_with_their_code_and_what_to_do(world: World, path: str) -> None:
    row = ROWS[path]
    done = run(world, path, *row.bad)
    assert done.code == row.bad_code, done.out + done.err
    assert row.why in done.out + done.err
    if row.bad_code == USAGE:
        assert done.out == ""
        assert f"Usage: clawctl {path.split()[0]}" in done.err
        assert "--help" in done.err


@pytest.mark.parametrize("path", [p for p in WITH_JSON if ROWS[p].bad_code == 1])
def test_a_failure_is_json_as_well(world: World, path: str) -> None:
    row = ROWS[path]
    done = run(world, path, *row.bad, *row.json_words)
    assert done.code == 1
    document = json.loads(done.out)
    if path.startswith("config ") and path != "config edit":  # clawd's own words, by design
        assert document["ok"] is False
        assert document["message"]
    elif "error" in document:
        assert set(document["error"]) == {"code", "message", "hint", "data"}
        assert document["error"]["message"]
    else:  # the outcome of a call that a tool refused
        assert document["call"]["status"] in {"failed", "denied"}


@pytest.mark.parametrize("path", [p for p in PATHS if COMMANDS[p].params])
def test_an_unknown_option_is_wrong_usage(world: World, path: str) -> None:
    done = run(world, path, "--no-such-option")
    assert done.code == USAGE
    assert "No such option" in done.err


@pytest.mark.parametrize("path", PATHS)
def test_where_no_daemon_may_be_started_only_what_needs_one_is_refused(
    world: World, path: str, tmp_path: Path
) -> None:
    row = ROWS[path]
    if path in {"mcp serve", "shell"}:
        pytest.skip("it runs outside of this process, in the world's own home")
    words = [word.format_map(world) for word in row.words]
    elsewhere = tmp_path / "empty"
    elsewhere.mkdir(mode=0o700)
    with environment({**world.home.environ, "CLAWD_HOME": str(elsewhere), "EDITOR": "true"}):
        if path in {"config edit", "logs"}:
            assert run_at(world, "init").code == 0
            (elsewhere / "clawd.log").write_text("a line of clawd\n")
        done = run_at(world, *path.split(), *words, stdin=row.stdin)
    wanted = 6 if row.needs_daemon else row.code
    if path in {"receipt verify", "receipt head", "doctor", "backup create"}:  # nothing is there
        assert done.code in {0, 1}
    elif path == "model add":  # it has a folder to put the file into
        assert done.code == 0
    else:
        assert done.code == wanted, done.out + done.err
    if done.code == 6:
        assert "hint: " in done.err
    assert not (elsewhere / "clawd.lock").exists()


def test_units_that_are_printed_are_in_the_schema_of_installing(world: World) -> None:
    done = run(world, "service install", "--user", "--print", "--json")
    document = json.loads(done.out)
    assert is_valid(document, schema(world, "service install"))
    assert [Path(each["path"]).name for each in document["files"]] == [
        "clawd.service",
        "clawd.socket",
    ]


def run_at(world: World, *words: str, stdin: str = "") -> Ended:
    return world.run(["--no-start", *words], stdin=stdin)


def schema(world: World, path: str) -> dict[str, Any]:
    done = run(world, path, "--json-schema")
    assert done.code == 0
    found: dict[str, Any] = json.loads(done.out)
    return found


def names_of(command: click.Command) -> set[str]:
    return {param.name for param in command.params if param.name}


def unknown_fields(document: object, kind: Any) -> bool:
    """Tell whether a document has something that its type does not name."""
    for each in getattr(kind, "__args__", (kind,)) if _is_union(kind) else (kind,):
        try:
            back = json.loads(msgspec.json.encode(msgspec.convert(document, each)))
        except msgspec.ValidationError:
            continue
        if back == document:
            return False
    return True


def _is_union(kind: Any) -> bool:
    return not hasattr(kind, "__origin__") and hasattr(kind, "__args__")


def test_rows_say_something() -> None:
    assert all(isinstance(row, Row) for row in ROWS.values())
