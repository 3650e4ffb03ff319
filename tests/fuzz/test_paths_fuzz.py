"""Whatever a path says, file tools stay in the workspace; what they cannot do is a clear error."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clawd.errors import ClawError
from clawd.security.paths import PathRules, classify
from clawd.security.policy import PolicySettings
from clawd.security.shell_paths import places, problem_of_word
from clawd.security.shell_words import Word
from clawd.security.workspace import Workspace

EXAMPLES = int(os.environ.get("CLAWD_FUZZ_EXAMPLES", "150"))

NAMES = (
    "", ".", "..", "a.txt", "sub", "b.txt", "out", "leaf", "loop", "abs", "deep", "up", "pipe",
    "keys",
    "x", "A.TXT", "~", "~root", "$HOME", "*", "\0", "\n", "\ud800", "\udcff", "．．", "%2e%2e", "é",
    "e\u0301", "a" * 255, "a" * 256, "root", "proc", "self", "fd", "0", "cwd", "home", "secret.txt",
    " ", "\\", "a.txt\0", "\u202e", "con", "-", "--", ".git", "COM1:", "...", ". .", "..\u200b",
)  # fmt: skip
PATHS = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "/", "//", "./", "../", "~/", "/proc/self/root/", "/proc/self/cwd/",
    "BASE/",
                     "BASE/ws/", "BASE/ws/../", "file://BASE/", "/dev/fd/",
                     "/proc/thread-self/fd/", " "]),
    st.lists(st.sampled_from(NAMES) | st.text(max_size=4), max_size=8),
    st.sampled_from(["", "/", "/.", "/..", "\0", " ", "\n"]),
)  # fmt: skip


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make a workspace with every kind of link, and a folder outside."""
    base = tmp_path_factory.mktemp("paths").resolve()
    workspace, outside = base / "ws", base / "outside"
    for folder in (workspace / "sub/deep", workspace / "keys", outside):
        folder.mkdir(parents=True)
    for path in (workspace / "a.txt", workspace / "sub/b.txt"):
        path.write_text("inside")
    for path in (outside / "secret.txt", base / "secret.txt", workspace / "keys/secret.txt"):
        path.write_text("outside")
    for link, target in {
        "out": "../outside", "leaf": "../outside/secret.txt", "loop": "loop", "abs": str(outside),
        "sub/up": "..", "root": "/", "proc": "/proc/self/root", "x": "sub/../../outside",
        "fd": "/proc/self/fd", "cwd": "/proc/self/cwd", "self": ".", "-": "keys/secret.txt",
    }.items():  # fmt: skip
        (workspace / link).symlink_to(target)
    os.mkfifo(workspace / "pipe")
    before = _outside(base)
    yield base
    assert _outside(base) == before
    assert not [name for name in Path("/").iterdir() if name.name.endswith("-fuzzed")]


def _outside(base: Path) -> dict[str, bytes]:
    folders = (base / "outside", base / "ws/keys")
    files = [path for folder in folders for path in folder.rglob("*")]
    return {str(path): path.read_bytes() for path in (*files, base / "secret.txt")}


def rules(base: Path) -> PathRules:
    return PathRules(workspace=base / "ws", forbidden=(base / "ws/keys",), home=base / "home")


@example("leaf")
@example("/proc/self/root/BASE/outside/secret.txt")
@example("sub/up/sub/up/out/secret.txt")
@example("a/" * 3000)
@example("../" * 1000 + "etc/passwd")
@settings(deadline=None, max_examples=EXAMPLES)
@given(PATHS)
def test_no_path_leads_out(base: Path, path: str) -> None:
    path = path.replace("BASE", str(base))
    with Workspace(rules(base)) as workspace:
        for act in (_read, _stat, _entries, _walk, _write, _append):
            try:
                act(workspace, path)
            except ClawError as error:
                assert error.message


def _read(workspace: Workspace, path: str) -> None:
    with workspace.open_read(path) as file:
        assert b"outside" not in file.read(1000), path


def _stat(workspace: Workspace, path: str) -> None:
    workspace.stat(path)


def _entries(workspace: Workspace, path: str) -> None:
    files = [entry.name for entry in workspace.entries(path) if entry.kind == "file"]
    assert "secret.txt" not in files


def _walk(workspace: Workspace, path: str) -> None:
    files = [name for name, entry in workspace.walk(path) if entry.kind == "file"]
    assert not [name for name in files if name.endswith("secret.txt")]


def _write(workspace: Workspace, path: str) -> None:
    workspace.write(_not_ours(path), b"inside")


def _append(workspace: Workspace, path: str) -> None:
    workspace.append(_not_ours(path), b"inside")


def _not_ours(path: str) -> str:
    """Write beside what the other examples need."""
    return path + "-fuzzed"


@settings(deadline=None, max_examples=EXAMPLES)
@given(PATHS)
def test_every_path_has_a_place(path: str) -> None:
    base = Path("/nonexistent/base")
    try:
        location = classify(path.replace("BASE", str(base)), rules(base))
    except ClawError:
        return
    assert location.path.is_absolute()
    assert ".." not in location.path.parts
    real = location.path
    inside = real.is_relative_to(base / "ws") and not real.is_relative_to(base / "ws/keys")
    assert (location.place == "inside") == inside


@settings(deadline=None, max_examples=EXAMPLES)
@given(PATHS, st.booleans(), st.booleans())
def test_a_word_that_is_let_through_names_something_inside(
    path: str, is_static: bool, has_glob: bool
) -> None:
    allowed = places(Path("/w/ws"), Path("/home/ada"), PolicySettings().forbidden_paths)
    word = Word(text=path.replace("BASE", "/w"), is_static=is_static, has_glob=has_glob)
    problem = problem_of_word(word, "/w/ws", allowed)
    if problem is None and is_static and not path.startswith(("/dev/", "/proc/")):
        joined = os.path.normpath(Path("/w/ws") / word.text)
        assert not word.text or Path(joined).is_relative_to("/w/ws")
