"""Where and how far: six ways to begin, each says the folder and the mode in which tools act."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawctl.workspace_trust import trust
from tests.clawctl.repl_turns import at_prompt
from tests.support.home import Home
from tests.support.screen import TerminalScreen, clawctl_screen

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox]


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One way to begin: what is typed, where, and what has to be said then."""

    words: tuple[str, ...]
    cwd: Path
    folder: Path
    mode: str = "supervised"
    answers: str = ""
    banner: bool = True
    before: str = ""  # a slash command in the shell stands behind this


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    made.configure({"text": "an answer"})
    made.environ |= {"SHELL": "/bin/bash", "PS1": "$ "}
    made.start()
    try:
        yield made
    finally:
        made.close()


def _folder(home: Home, name: str) -> Path:
    folder = home.path.parent / name
    folder.mkdir()
    return folder


def _talk(home: Home, folder: Path, *words: str) -> str:
    done = home.ctl("agent", "-m", "hello", "--json", "-C", str(folder), *words)
    assert done.returncode == 0, done.stderr
    return str(msgspec.json.decode(done.stdout)["conversation_id"])


def _ways(home: Home) -> dict[str, Way]:
    top = home.path.parent
    plain, strange, named, talked, other, shell = (
        _folder(home, name) for name in ("plain", "strange", "named", "talked", "other", "shell")
    )
    link = top / "link"
    link.symlink_to(named)
    for each in (plain, talked):
        trust(home.path, each)
    _talk(home, talked, "--mode", "edits")
    known = _talk(home, other, "--mode", "readonly")
    _talk(home, top / "project")  # newer, and of another folder
    return {
        "trusted": Way(words=("agent",), cwd=plain, folder=plain),
        "untrusted": Way(
            words=("agent",), cwd=strange, folder=strange, mode="readonly", answers="n\r"
        ),
        "-C": Way(words=("agent", "-C", str(link)), cwd=top, folder=named),
        "--home-workspace": Way(
            words=("agent", "--home-workspace"), cwd=plain, folder=home.workspace
        ),
        "--continue": Way(words=("agent", "--continue"), cwd=talked, folder=talked, mode="edits"),
        "--conversation": Way(
            words=("agent", "--conversation", known), cwd=plain, folder=other, mode="readonly"
        ),
        "shell": Way(
            words=("shell",), cwd=shell, folder=shell, banner=False, before="> ", answers="y\r"
        ),
    }  # fmt: skip


def _ask(screen: TerminalScreen, way: Way, line: str, ready: Any, shown: str) -> str:
    """Enter a line, wait for what it shows and the next prompt; return what came."""
    screen.wait_for(ready)
    before = len(screen.raw)
    screen.type(f"{way.before}{line}\r")
    screen.wait_for(lambda seen: bool(re.search(shown, _since(seen, before))) and ready(seen))
    return _since(screen, before)


def _since(screen: TerminalScreen, before: int) -> str:
    return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", bytes(screen.raw[before:])).decode(
        errors="replace"
    )


def _bar(screen: TerminalScreen) -> str:
    return next((text for text in reversed(screen.lines) if text.strip()), "")


def _at_shell(screen: TerminalScreen) -> bool:
    return screen.line.endswith(("$", "#"))


def _wrong(screen: TerminalScreen, way: Way) -> list[str]:
    """Return what a session says of folder and mode that is not so; a tool says what is."""
    ready = at_prompt if way.banner else _at_shell
    acts = _ask(screen, way, '/tool shell {"command": "pwd -P"}', ready, r"\n/\S+")
    status = _ask(screen, way, "/status", ready, r"\nsocket ")
    mode = _ask(screen, way, "/mode", ready, r"\nmode \w+")
    found = {
        "the tool acts in": re.findall(r"\n(/\S+)\r?\n", acts)[:1] == [str(way.folder)],
        "/status names": re.findall(r"folder +(\S+)", status)[:1] == [str(way.folder)],
        "/status says": re.findall(r"\nmode +(\w+)", status)[:1] == [way.mode],
        "/mode says": re.findall(r"\nmode (\w+)", mode)[:1] == [way.mode],
    }
    if way.banner:  # the daemon is asked for what stands below the prompt every other second
        screen.wait_for(lambda seen: f"~/{way.folder.name} · {way.mode}" in _bar(seen))
    return [f"{what}: {screen.text}" for what, is_so in found.items() if not is_so]


def test_p4_however_a_session_begins_all_that_it_says_of_folder_and_mode_is_so(
    home: Home,
) -> None:
    wrong: dict[str, list[str]] = {}
    with contextlib.ExitStack() as stack:
        screens: dict[str, tuple[TerminalScreen, Way]] = {}
        for name, way in _ways(home).items():
            screen = stack.enter_context(
                clawctl_screen(home.environ, *way.words, cwd=way.cwd, columns=110, lines=60)
            )
            screens[name] = screen, way
        for name, (screen, way) in screens.items():
            if way.answers and way.banner:
                screen.wait_for("[y/N]")
                screen.type(way.answers)
            if way.banner:
                screen.wait_for(at_prompt)
                head = screen.text
                said = f"workspace {way.folder} " in head and f" · {way.mode}\n" in head
            else:
                told = f"tools act in {way.folder} · {way.mode}"
                screen.wait_for(_at_shell)
                screen.type(f"{way.before}hello\r")
                screen.wait_for("[y/N]")
                screen.type(way.answers)
                screen.wait_for(lambda seen: "an answer" in seen.text and _at_shell(seen))
                said = told in screen.text.replace("\n", "")
            wrong[name] = [] if said else [f"it begins with: {screen.text}"]
            wrong[name] += _wrong(screen, way)
        home.close()
        home.start()
        for name, (screen, way) in screens.items():
            wrong[name] += [f"after a restart {each}" for each in _wrong(screen, way)]
    assert {name: each for name, each in wrong.items() if each} == {}
    assert list((home.path.parent / "strange").iterdir()) == []
