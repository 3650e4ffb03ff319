"""A home, a fake daemon in it, and clawctl run as people run it."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from clawctl.main import main
from tests.support.fake_daemon import FakeDaemon
from tests.support.here import clawd_here, environment, run_here
from tests.support.home import run_clawctl
from tests.support.screen import TerminalScreen, clawctl_screen
from tests.support.terminal import Spawn, end, spawn_clawctl

ROOT = Path(__file__).parents[2]
LIMIT_S = 60.0

Look = Callable[..., TerminalScreen]
Run = Callable[..., "subprocess.CompletedProcess[str]"]
Capture = pytest.CaptureFixture[str]


def json_of(capsys: Capture, *arguments: str, code: int = 0) -> object:
    """Return what clawctl prints here."""
    assert main(arguments) == code
    document: object = json.loads(capsys.readouterr().out)
    return document


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def environ(home: Path, tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("CLAWD_")}
    for name in ("NO_COLOR", "XDG_RUNTIME_DIR", "COLUMNS"):
        kept.pop(name, None)
    return {
        **kept,
        "HOME": str(tmp_path),
        "CLAWD_HOME": str(home),
        "PYTHONPATH": str(ROOT),
        "TERM": "xterm",
        "CLAWD_NOTIFY": "off",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "EDITOR": "true",
        "VISUAL": "true",
    }


@pytest.fixture
def own_home(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """Let clawctl, called in this process, see the throwaway home and nothing of the caller's."""
    for name in ("CLAWD_SOCKET", "XDG_RUNTIME_DIR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "CLAWD_HOME"):
        monkeypatch.setenv(name, environ[name])


@pytest.fixture
def daemon(home: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(home / "run" / "clawd.sock", home) as fake:
        yield fake


@pytest.fixture
def clawctl(environ: dict[str, str]) -> Run:
    """Run clawctl in a session of its own, so that no terminal can be asked."""

    def run(*arguments: str, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        return run_clawctl(arguments, stdin, environ, Path.cwd())

    return run


@pytest.fixture
def clawd_inside() -> Iterator[None]:
    """Let clawctl, called in this process, run its offline `clawd` in it as well."""
    with clawd_here():
        yield


@pytest.fixture
def here(environ: dict[str, str], clawd_inside: None) -> Run:
    """Run clawctl as `clawctl` does, in this process."""

    def run(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        with environment(environ):
            done = run_here(list(arguments), stdin=stdin)
        return subprocess.CompletedProcess(arguments, done.code, done.out, done.err)

    return run


@pytest.fixture
def spawn(environ: dict[str, str]) -> Iterator[Spawn]:
    """Run clawctl on a terminal of its own."""
    children: list[Any] = []

    def start(*arguments: str, **options: Any) -> Any:
        children.append(spawn_clawctl(environ, *arguments, **options))
        return children[-1]

    yield start
    for child in children:
        end(child)


@pytest.fixture
def look(environ: dict[str, str]) -> Iterator[Look]:
    """Run clawctl on a terminal whose screen can be read; `env` adds to the environment.

    All else is taken as `clawctl_screen` takes it.
    """
    screens: list[TerminalScreen] = []

    def start(*arguments: str, env: dict[str, str] | None = None, **options: Any) -> TerminalScreen:
        whole = {**environ, "LANG": "C.UTF-8", **(env or {})}
        screens.append(clawctl_screen(whole, *arguments, **options))
        return screens[-1]

    yield start
    for screen in screens:
        screen.close()
