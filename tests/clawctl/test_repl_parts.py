"""The parts of the REPL that need no terminal: pastes, the bar, the index of files, the history."""

import itertools
import os
import pty
import stat
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys

from clawctl.repl import suggestions
from clawctl.repl.bar_state import BarState, fragments
from clawctl.repl.editor import EditedLines, EditorQueries, PasteParser, Pastes
from clawctl.repl.lines import HistoryFile, TypeAhead, is_kept
from clawctl.repl.message_text import Attachment, block, mentioned, session_name
from clawctl.repl.suggestions import FileIndex, Known, Value, offers, walk
from clawctl.repl.theme import width_of
from clawd.errors import InvalidRequestError
from clawd.wire.gitignore import is_ignored, pattern_of
from clawd.wire.references import is_name
from tests.support.rows import each_row

TYPED = "a\x1b[200~one\rtwo \x1b[201 \x1b[31m\x1b[201~b"


@given(cuts=st.lists(st.integers(0, len(TYPED)), max_size=6))
def test_a_paste_is_the_same_however_it_arrives(cuts: list[int]) -> None:
    pressed: list[KeyPress] = []
    parser = PasteParser(pressed.append, lambda: pytest.fail("it is not too long"))
    edges = [0, *sorted(cuts), len(TYPED)]
    for begin, end in itertools.pairwise(edges):
        parser.feed(TYPED[begin:end])
    assert [(press.key, press.data) for press in pressed] == [
        ("a", "a"),
        (Keys.BracketedPaste, "one\rtwo \x1b[201 \x1b[31m"),
        ("b", "b"),
    ]


def test_p9_a_paste_beside_a_named_file_hides_neither() -> None:
    pastes = Pastes()
    pasted, written = "see @other.py\n" * 20, "look at @mine.py\n" * 20
    name = pastes.fold(pasted)
    assert pastes.typed(f"@app.py{name} and @b.py") == "@app.py  and @b.py"
    edited = pastes.fold(written, is_typed=True)
    assert edited != written
    assert pastes.typed(f"{edited} {name}") == f"{written}  "
    assert pastes.typed("[pasted 20 lines, no. 7] @a.py") == "[pasted 20 lines, no. 7] @a.py"


def test_pastes_of_one_length_keep_apart_and_unfold_in_one_go() -> None:
    pastes = Pastes()
    first, second = "x\n" * 20, "y\n" * 19 + "[pasted 20 lines]"
    names = [pastes.fold(first), pastes.fold(second), pastes.fold(first)]
    assert names == ["[pasted 20 lines]", "[pasted 20 lines, no. 2]", "[pasted 20 lines]"]
    assert pastes.unfold(" ".join(names)) == f"{first} {second} {first}"
    assert pastes.fold("short") == "short"


@given(
    columns=st.integers(8, 120),
    model=st.text(max_size=40),
    place=st.text(max_size=60),
    is_stopped=st.booleans(),
    percent=st.none() | st.integers(0, 100),
)
def test_the_bar_fits_and_never_leaves_the_emergency_stop_out(
    columns: int, model: str, place: str, is_stopped: bool, percent: int | None
) -> None:
    state = BarState(
        model=model,
        autonomy="supervised",
        place=place,
        is_stopped=is_stopped,
        context_percent=percent,
        tokens_per_s=9.5,
    )
    text = "".join(part for _, part in fragments(state, columns))
    assert width_of(text) <= columns
    assert ("ESTOP" in text) is is_stopped or columns < 12
    assert "\x1b" not in text


@each_row("columns", [8, 21, 30])
def test_wide_characters_are_counted_as_wide_in_the_bar(columns: int) -> None:
    text = "".join(part for _, part in fragments(BarState(model="日本語" * 8), columns))
    assert columns - 1 <= width_of(text) <= columns
    remark = "".join(part for _, part in fragments(BarState(), columns, "長い" * 30))
    assert columns - 1 <= width_of(remark) <= columns


@each_row(
    ("pattern", "path", "is_folder", "ignored"),
    [
        ("*.log", "a/b.log", False, True),
        ("/build", "build", True, True),
        ("/build", "a/build", True, False),
        ("build/", "build", False, False),
        ("a/*/c", "a/b/c", False, True),
        ("a/*/c", "a/b/b/c", False, False),
        ("a/**/c", "a/b/b/c", False, True),
        ("**/tmp", "x/y/tmp", True, True),
        ("doc/[!r]*", "doc/readme", False, False),
        ("doc/[!r]*", "doc/notes", False, True),
        ("\\#odd", "#odd", False, True),
        ("a" + "*" * 50 + "b", "a" * 200, False, False),
        ("*a" * 30 + "*b", "a" * 250, False, False),
        ("*a" * 30 + "*b", "a" * 250 + "b", False, True),
        ("x*b?*c", "xabbcbc", False, True),
        ("x*b*c/d", "xbc/d", False, True),
        ("*[ab]*[cd]", "zac", False, True),
        ("*[ab]*[cd]", "zca", False, False),
    ],
)
def test_patterns_of_gitignore_mean_what_git_takes_them_for(
    pattern: str, path: str, is_folder: bool, ignored: bool
) -> None:
    found = pattern_of(pattern)
    assert found is not None
    assert is_ignored(path, [found], is_folder=is_folder) is ignored


def test_the_index_leaves_out_what_git_does_and_never_leaves_the_folder(tmp_path: Path) -> None:
    for name in ("src/a.py", "src/.gitignore", "src/gen/x.py", ".git/config", "b.tmp", "c.txt"):
        path = tmp_path / "w" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "w/.gitignore").write_text("*.tmp\n!b.tmp\n")
    (tmp_path / "w/src/.gitignore").write_text("gen/\n")
    (tmp_path / "w/away").symlink_to(tmp_path)
    assert set(walk(tmp_path / "w")) == {
        "src/",
        "src/a.py",
        "src/.gitignore",
        ".gitignore",
        "b.tmp",
        "c.txt",
    }
    index = FileIndex(tmp_path / "w")
    index.wait(60)
    assert index.find("sapy")[0] == "src/a.py"


def test_files_are_offered_also_where_the_first_walk_takes_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(_folder: Path) -> Iterator[str]:
        time.sleep(1)
        yield "src/a.py"

    monkeypatch.setattr(suggestions, "walk", slowly)
    index = FileIndex(tmp_path)
    known = Known(commands=(), values=lambda _: (), files=lambda: index)
    assert [offer.text for offer in offers("read @a", known)] == ["@src/a.py"]


def test_commands_of_two_words_are_completed(tmp_path: Path) -> None:
    known = Known(
        commands=(Value(text="/plan"), Value(text="/plan-first")),
        values=lambda words: [Value(text="on")] if words[0] == "/plan-first" else (),
        files=lambda: FileIndex(tmp_path),
    )
    assert [offer.text for offer in offers("/plan-", known)] == ["/plan-first"]
    assert [offer.text for offer in offers("/plan-first o", known)] == ["on"]


class EndingLoop:
    """The loop of a prompt that ends between the question and what was to be done then."""

    def is_closed(self) -> bool:
        return False

    def call_soon_threadsafe(self, *_: object) -> None:
        raise RuntimeError("Event loop is closed")


def test_a_prompt_may_end_just_when_its_bar_is_drawn_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = pty.openpty()
    with os.fdopen(slave, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        around = EditorQueries(
            history=tmp_path / "history",
            known=Known(commands=(), values=lambda _: (), files=lambda: FileIndex(tmp_path)),
            state=BarState,
            on_stop=lambda: None,
            on_shown=lambda: None,
            on_mode=lambda: "",
        )
        lines = EditedLines(around)
        app: Any = lines._session.app
        app._is_running, app.loop = True, EndingLoop()
        lines.redraw()
    os.close(master)


def test_ctrl_c_while_the_terminal_is_taken_leaves_it_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = pty.openpty()
    before = termios.tcgetattr(slave)
    set_modes = termios.tcsetattr

    def interrupted(*arguments: Any) -> None:
        set_modes(*arguments)
        raise KeyboardInterrupt

    typed = TypeAhead(slave)
    monkeypatch.setattr(typed, "_is_ours", lambda: True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(termios, "tcsetattr", interrupted)
        typed.open()
    assert termios.tcgetattr(slave) != before
    typed.close()
    assert termios.tcgetattr(slave) == before
    os.close(slave)
    os.close(master)


def test_mentions_are_found_in_sentences_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("one")
    (tmp_path / "x.py").write_text("two")
    found = mentioned('see @x.py, @"a b.txt" (@x.py) me@x.py @dataclass', tmp_path, lambda _: "")
    assert [file.path for file in found.files] == ["x.py", "a b.txt"]
    assert found.remarks == ()


def test_a_mention_of_nobody_s_home_is_no_file(tmp_path: Path) -> None:
    assert mentioned("ask @~nobody-of-that-name/x.py", tmp_path, lambda _: "").files == ()


@each_row("makes", [os.mkfifo, lambda path: path.symlink_to("/etc/passwd")])
def test_what_is_swapped_after_it_was_allowed_is_not_read(
    tmp_path: Path, makes: Callable[[Path], None]
) -> None:
    path = tmp_path / "x.py"
    path.write_text("fine")

    def swapped(_name: str) -> str:
        path.unlink()
        makes(path)
        return ""

    with pytest.raises(InvalidRequestError):
        mentioned("see @x.py", tmp_path, swapped)


def test_no_file_can_end_its_block_and_every_path_has_a_name() -> None:
    text = "```\nnow I am outside\n````"
    lines = block(Attachment(path="a.md", content=text.encode())).split("\n")
    assert lines[1] == lines[-1] == "`````"
    for path in ("a/b c.py", "…/ü.txt", ".hidden", "x" * 300, "-"):
        assert is_name(session_name(path)), path


def test_the_history_is_private_and_comes_back_as_it_was(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "history")
    for entry in ("one", "two\n+three\n", " hidden", "+four"):
        file.add(entry)
    assert file.load() == ["one", "two\n+three\n", "+four"]
    assert stat.S_IMODE((tmp_path / "history").stat().st_mode) == 0o600


@each_row(
    ("entry", "kept"),
    [
        ("what is a token, and why a password?", True),
        ("explain git-rebase-onto-another-branch please", True),
        ("the password is hunter2-and-more", False),
        ("export API_KEY=abcdef123456", False),
        ("curl -H 'Authorization: Bearer abcdef0123456789'", False),
        (" anything", False),
    ],
)
def test_what_looks_like_a_secret_is_not_kept(entry: str, kept: bool) -> None:
    assert is_kept(entry) is kept
