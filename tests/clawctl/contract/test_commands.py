"""Every command through the real client and a real daemon: good words, bad ones, JSON."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.clawctl.contract.rows import ROWS, USAGE
from tests.clawctl.contract.world import World
from tests.clawctl.test_usage import (
    NEEDING_THE_WORLD,
    PATHS,
    TYPES,
    WITH_JSON,
    assert_usage,
    schema,
)
from tests.support.here import Ended, clawd_here, environment
from tests.support.home import Home
from tests.support.rows import each_row
from tests.support.schema_check import is_valid

# Each runs every command.
pytestmark = [pytest.mark.daemon, pytest.mark.sandbox, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("contract")
    home = Home(folder)
    made = World(home, folder)
    editor = str(folder / "editor")
    with (
        environment({**home.environ, "EDITOR": editor, "VISUAL": editor}),
        clawd_here(),
        pytest.MonkeyPatch.context() as patch,
    ):
        # No unit here refuses to be reloaded, and what has not refused by then never does.
        patch.setattr("clawctl.commands.service.RELOAD_PATIENCE_S", 0.05)
        made.fill()
        try:
            yield made
        finally:
            made.close()
            home.close()


def run(world: World, path: str, *words: str, stdin: str = "") -> Ended:
    return world.run([*path.split(), *words], stdin=stdin)


@each_row("path", PATHS)
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


@each_row("path", WITH_JSON)
def test_its_json_is_what_its_schema_says(world: World, path: str) -> None:
    row = ROWS[path]
    done = run(world, path, *row.words, *row.json_words, stdin=row.stdin)
    assert done.code == row.code, done.err
    document = json.loads(done.out)
    assert is_valid(document, schema(path))
    assert not unknown_fields(document, TYPES[path])


@each_row("path", NEEDING_THE_WORLD)
def test_bad_words_end_with_their_code_and_what_to_do(world: World, path: str) -> None:
    row = ROWS[path]
    done = run(world, path, *row.bad)
    assert done.code == row.bad_code, done.out + done.err
    assert row.why in done.out + done.err
    if row.bad_code == USAGE:
        assert_usage(path, done)


@each_row("path", [p for p in WITH_JSON if ROWS[p].bad_code == 1])
def test_a_failure_is_json_as_well(world: World, path: str) -> None:
    row = ROWS[path]
    done = run(world, path, *row.bad, *row.json_words)
    assert done.code == 1
    document = json.loads(done.out)
    if path in {"config show", "config validate"}:  # clawd's own words, by design
        assert document["ok"] is False
        assert document["message"]
    elif "error" in document:
        assert set(document["error"]) == {"code", "message", "hint", "data"}
        assert document["error"]["message"]
    else:  # the outcome of a call that a tool refused
        assert document["call"]["status"] in {"failed", "denied"}


# The two that are left out run outside of this process, in the world's own home.
@each_row("path", [path for path in PATHS if path not in {"mcp serve", "shell"}])
def test_where_no_daemon_may_be_started_only_what_needs_one_is_refused(
    world: World, path: str, tmp_path: Path
) -> None:
    row = ROWS[path]
    # Made before in the world's own home; `run` reads braces once more.
    words = [re.sub(r"[{}]", r"\g<0>\g<0>", word.format_map(world)) for word in row.words]
    elsewhere = tmp_path / "empty"
    elsewhere.mkdir(mode=0o700)
    with environment({**world.home.environ, "CLAWD_HOME": str(elsewhere), "EDITOR": "true"}):
        if path in {"config edit", "logs", "mcp add", "mcp import"}:
            assert run_at(world, "init").code == 0
            (elsewhere / "clawd.log").write_text("a line of clawd\n")
        done = run_at(world, *path.split(), *words, stdin=row.stdin)
    wanted = 6 if row.needs_daemon else row.code
    if path in {"receipt verify", "receipt head", "doctor", "backup create"}:  # nothing is there
        assert done.code in {0, 1}
    elif path in {"model accept", "model rm", "mcp remove"}:  # the folder, or the config, has none
        assert done.code == 1
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
    assert is_valid(document, schema("service install"))
    assert [Path(each["path"]).name for each in document["files"]] == [
        "clawd.service",
        "clawd.socket",
        "clawd-wake.service",
        "clawd-wake.timer",
    ]


def run_at(world: World, *words: str, stdin: str = "") -> Ended:
    return world.run(["--no-start", *words], stdin=stdin)


def unknown_fields(document: object, kind: Any) -> bool:
    """Return whether a document has something that its type does not name."""
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
