"""A small model's slips: names that are put right, and never others; edits that are doubted."""

import json
from pathlib import Path
from typing import Any

from clawd.providers.base import ToolCall
from clawd.runtime.slips import UNNAMED, doubt, put_right
from tests.support.rows import each_row

SAID = (
    "Wer putzt am Mittwoch? Es steht in putzplan.txt.",
    "rooms/hall.txt\nrooms/cellar.txt\nreport-2031.txt\nübergabe.md",
)


def call(**arguments: Any) -> ToolCall:
    return ToolCall(id="c1", name="file_read", arguments=json.dumps(arguments, ensure_ascii=False))


def meant(said: Any = SAID, workspace: Any = Path("/nowhere"), **arguments: Any) -> Any:
    return json.loads(put_right(call(**arguments), said, workspace).arguments)


@each_row(
    ("written", "wanted"),
    [
        ("puttplan.txt", "putzplan.txt"),  # another letter
        ("putplan.txt", "putzplan.txt"),  # one lost
        ("puttzplan.txt", "putzplan.txt"),  # one more
        ("putzpaln.txt", "putzplan.txt"),  # two in each other's place
        ("pputzplann.txt", "putzplan.txt"),  # two slips in a long name
        ("rooms/celar.txt", "rooms/cellar.txt"),
        ("roms/cellar.txt", "rooms/cellar.txt"),
        ("old/putplan.txt", "old/putzplan.txt"),
        ("reprt-2031.txt", "report-2031.txt"),
        ("ubergabe.md", "übergabe.md"),
    ],
)
def test_a_slip_is_the_one_name_next_to_it(written: str, wanted: str) -> None:
    assert meant(path=written) == {"path": wanted}


@each_row(
    ("written", "why"),
    [
        ("putzplan.txt", "it was said"),
        ("hall.txt", "four letters of another folder's name are a name"),
        ("report-2032.txt", "a digit is never a slip"),
        ("report-203.txt", "nor is one that is missing"),
        ("putzplan.md", "nor another ending"),
        ("hal.txt", "too short to tell"),
        ("pputtzpllan.txt", "too many slips"),
        ("rooms", "no file's name"),
        ("summary.txt", "like none"),
        ("", "nothing"),
    ],
)
def test_what_may_be_meant_is_left_alone(written: str, why: str) -> None:
    assert meant(path=written) == {"path": written}, why


def test_of_two_names_next_to_it_none_is_taken() -> None:
    assert meant(("see notes_a.txt and notes_b.txt",), path="notes_.txt") == {"path": "notes_.txt"}


def test_a_file_that_is_there_keeps_its_name(tmp_path: Path) -> None:
    (tmp_path / "putplan.txt").touch()
    assert meant(workspace=tmp_path, path="putplan.txt") == {"path": "putplan.txt"}
    assert meant(workspace=tmp_path, path="puttplan.txt") == {"path": "putzplan.txt"}


def test_names_in_a_command_are_put_right_and_nothing_else_of_it() -> None:
    given = meant(command="mv 'putplan.txt' plans/putzplan.txt && cat hal.txt")
    assert given == {"command": "mv 'putzplan.txt' plans/putzplan.txt && cat hal.txt"}


def test_a_host_is_never_another_one() -> None:
    said = ("see https://exanple.org/list.txt and exanple.org/list.txt",)
    for given in (
        {"command": "curl -O https://example.org/list.txt"},
        {"source": "https://example.org/list.txt"},
    ):
        assert meant(said, **given) == given


def test_texts_are_kept_to_the_letter() -> None:
    given: dict[str, Any] = {
        "path": "putplan.txt",
        "content": "see putplan.txt",
        "old_text": "putp",
    }
    assert meant(**given) == given | {"path": "putzplan.txt"}
    for arguments in ("{", "[1]", "null", '{"path": 3}', '{"path": ["putplan.txt"]}'):
        odd = ToolCall(id="c1", name="file_read", arguments=arguments)
        assert put_right(odd, SAID, Path()) is odd


def test_a_call_without_a_slip_stays_the_same_object() -> None:
    right = call(path="putzplan.txt", max_lines=3)
    assert put_right(right, SAID, Path()) is right


def test_only_the_end_of_a_long_conversation_is_read() -> None:
    said = ("it is in putzplan.txt", "x" * 300_000)
    assert meant(said, path="putplan.txt") == {"path": "putplan.txt"}
    assert meant(said[::-1], path="putplan.txt") == {"path": "putzplan.txt"}


@each_row(
    ("written", "wanted"),
    [
        ("trellus", "trellis"),
        ("old trellus", "old trellis"),
        ("Trellis", "Trellis"),
        ("trelli", "trelli"),  # finds more
        ("trellises", "trellises"),
        ("trell.s", "trell.s"),  # no words
        ("prices", "prices"),  # one of two
        ("hadge", "hadge"),  # too short to tell
        ("projection", "projection"),
        ("", ""),
    ],
)
def test_a_word_to_search_for_is_the_one_that_was_said(written: str, wanted: str) -> None:
    said = ("find the file with the trellis and the hedge", "the projector, prizes, priced")
    assert meant(said, pattern=written) == {"pattern": wanted}


def edit(old: str, new: str) -> ToolCall:
    given = {"path": "list.txt", "old_text": old, "new_text": new}
    return ToolCall(id="c1", name="file_edit", arguments=json.dumps(given))


@each_row(
    ("asked", "old", "new"),
    [
        ("replace tea with coffee in list.txt", "bread", "coffee"),
        ("Ersetze in list.txt Tee durch Kaffee", "Brot\nButter", "Kaffee"),
        ("delete tea from list.txt", "bread", ""),
    ],
)
def test_an_edit_is_doubted_that_takes_out_what_nobody_named(
    asked: str, old: str, new: str
) -> None:
    assert doubt(edit(old, new), [asked]) == UNNAMED
    assert doubt(edit(old, new), ["and the bread, die Brote?", asked]) == ""


@each_row(
    ("asked", "old", "new"),
    [
        ("replace tea with coffee in list.txt", "- tea", "- coffee"),
        ("set the port to off", "listen: on", "listen: off"),  # it keeps a word
        ("fix the typo in list.txt", "Kafee", "Kaffee"),
        ("replace line two", "bread", "coffee"),
        ("the third one is coffee, 3 of them", "bread", "coffee"),
        ("the heading shall be Coffee", "# Bread", "# Coffee"),
        ("Die letzte Zeile soll Kaffee heißen", "Brot", "Kaffee"),
        ("insert coffee", "", "coffee"),
        ("replace tea with coffee", "-", "coffee"),
        ("tidy it", "bread " * 400, "coffee"),
    ],
)
def test_an_edit_that_may_be_meant_is_not_doubted(asked: str, old: str, new: str) -> None:
    assert doubt(edit(old, new), [asked]) == ""


def test_only_edits_are_doubted() -> None:
    for arguments in ("{", "[]", '{"old_text": "bread"}', '{"old_text": 1, "new_text": "tea"}'):
        call = ToolCall(id="c1", name="file_edit", arguments=arguments)
        assert doubt(call, ["replace tea with coffee"]) == ""
