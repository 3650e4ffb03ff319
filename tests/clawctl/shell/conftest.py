"""A person at `clawctl shell`: a terminal, a shell of theirs, a fake daemon, a folder."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clawd.wire.turns import SendMessage
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.screen import TerminalScreen, clawctl_screen
from tests.support.terminal import STARTED, finished

SHELLS = ("bash", "zsh", "fish")
IS_ROOT = os.geteuid() == 0


class Person:
    """Types at the shell, and waits for its prompt."""

    def __init__(self, kind: str, screen: TerminalScreen) -> None:
        self.kind = kind
        self.screen = screen
        self.folder = "~/project"

    @property
    def prompt(self) -> str:
        return f"{self.folder} {'#' if IS_ROOT and self.kind != 'fish' else '$'}"

    def at_prompt(self) -> None:
        self.screen.wait_for(lambda screen: screen.line == self.prompt)

    def enter(self, text: str) -> None:
        """Type a line, see it, and press Enter."""
        self.screen.type(text)
        self.screen.wait_for(lambda screen: text.rstrip() in screen.line)
        self.screen.press("Enter")

    def run(self, text: str) -> None:
        """Enter a line and wait for the next prompt, empty."""
        self.enter(text)
        self.screen.wait_for(lambda screen: screen.line == self.prompt)

    def exit_code(self) -> int:
        return self.screen.exit_code()


Shells = Callable[..., Person]


def answering(text: str) -> Callable[[Call], object]:
    def answer(call: Call) -> object:
        call.emit(STARTED)
        return finished(text)

    return answer


def sent(daemon: FakeDaemon) -> list[SendMessage]:
    return daemon.calls_of(SendMessage)


@pytest.fixture(params=SHELLS)
def kind(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    config = tmp_path / ".config" / "fish"
    config.mkdir(parents=True)
    (config / "config.fish").write_text("set -g fish_greeting\n")
    (tmp_path / ".local" / "share").mkdir(parents=True)
    return folder


@pytest.fixture
def shell_environ(environ: dict[str, str], tmp_path: Path) -> dict[str, str]:
    wanted = {"PATH", "HOME", "CLAWD_HOME", "PYTHONPATH", "TERM", "LANG"}
    kept = {name: value for name, value in environ.items() if name in wanted}
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    return {**kept, "LANG": "C.UTF-8", "XDG_RUNTIME_DIR": str(runtime)}


@pytest.fixture
def shells(
    project: Path, shell_environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Shells]:
    """Start the shell of a kind for a person who stands in `project`."""
    screens: list[TerminalScreen] = []
    monkeypatch.chdir(project)

    def start(
        kind: str, *options: str, lines: int = 24, columns: int = 160, waits: bool = True
    ) -> Person:
        path = shutil.which(kind)
        assert path is not None
        env = {**shell_environ, "SHELL": path}
        screens.append(clawctl_screen(env, "shell", *options, lines=lines, columns=columns))
        person = Person(kind, screens[-1])
        if waits:
            person.at_prompt()
        return person

    yield start
    for screen in screens:
        screen.close()
