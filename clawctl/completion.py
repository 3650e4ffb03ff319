"""What a shell offers at TAB: commands and options from the command tree, names from the daemon.

`clawctl completion _words bash|zsh|fish -- WORD …` prints a line for each proposal, `value TAB
help`, for the last word; or one word, `:file` or `:dir`, where the shell knows better. It starts no
daemon, asks no person, leaves no receipt, is silent, and waits for a daemon for LIMIT_S at most;
commands and options, which it knows by itself, wait for nobody.
"""

import os
import signal
import sys
import types
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import NoReturn

import click
from click.shell_completion import CompletionItem, ShellComplete

from clawctl.daemon_finder import reach
from clawctl.live_names import names_in, request_of
from clawd.errors import ClawError
from clawd.paths import layout

LIMIT_S = 0.25
MAX_PROPOSALS = 500
MAX_VALUE = 200
MAX_HELP = 80
_MAX_NOTES = 2_000
_limit: ContextVar[float] = ContextVar("limit", default=LIMIT_S)


class _TooLateError(BaseException):
    """The time is up; a BaseException, so that no handler on the way takes it for a failure."""


def offered(kind: str, context: click.Context) -> list[CompletionItem]:
    """Return the names of a kind; what is found before the time is up."""
    found = _in_time(_names(kind, context), _limit.get())
    # A name that looks like an option would be one once it stands in the line.
    return [CompletionItem(value, help=about) for value, about in found if value[:1] != "-"]


def complete(
    root: click.Command, shell: str, words: list[str], app: object, *, limit_s: float = LIMIT_S
) -> list[str]:
    """Return the lines for a shell; `words` are those after `clawctl`, the last is being typed."""
    _limit.set(limit_s)
    try:
        return list(_proposals(root, shell, words, app))
    except Exception:  # noqa: BLE001 - no place for a message, nor the very end
        return []


def _proposals(root: click.Command, shell: str, words: list[str], app: object) -> Iterator[str]:
    glued, cut = _glued(words) if shell == "bash" else (words, 0)
    *before, incomplete = glued or [""]
    finder = ShellComplete(root, {"obj": app}, "clawctl", "_CLAWCTL_COMPLETE")
    yield from _lines(finder.get_completions(before, incomplete), incomplete, cut)


def _time_is_up(_number: int, _frame: types.FrameType | None) -> NoReturn:
    raise _TooLateError


def _in_time(names: Iterable[tuple[str, str]], limit_s: float) -> list[tuple[str, str]]:
    """Return what is found before the time is up: only the daemon is waited for, and no longer."""
    found: list[tuple[str, str]] = []
    try:
        signal.signal(signal.SIGALRM, _time_is_up)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            for each in names:
                found.append(each)
                if len(found) >= MAX_PROPOSALS:
                    break
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except (_TooLateError, Exception):  # noqa: BLE001 - as above
        return found
    return found


def _glued(words: list[str]) -> tuple[list[str], int]:
    """Join what bash parts at `=` and `:` and return how much of the last word it has kept.

    `--tool=ti` comes as three words, and what is proposed replaces the last of them only.
    """
    glued: list[str] = []
    joins = False
    for word in words:
        is_mark = word in {"=", ":"}
        if glued and (joins or is_mark) and glued[-1]:
            glued[-1] += word
        else:
            glued.append(word)
        joins = is_mark
    last = words[-1] if words else ""
    kept = "" if last in {"=", ":"} else last
    return glued, len(glued[-1]) - len(kept) if glued else 0


def _lines(found: list[CompletionItem], incomplete: str, cut: int) -> Iterator[str]:
    seen: set[str] = set()
    option, mark, _ = incomplete.partition("=")
    front = f"{option}{mark}" if mark and option.startswith("--") else ""
    for item in found:
        if item.type in {"file", "dir"}:
            yield f":{item.type}"
            continue
        value = f"{front}{item.value}"
        if value in seen or not value.startswith(incomplete) or not _is_harmless(value):
            continue
        seen.add(value)
        about = " ".join(str(item.help or "").split())[:MAX_HELP]
        yield f"{value[cut:]}\t{about if about.isprintable() else ''}"


def _is_harmless(value: str) -> bool:
    """Return whether a name may be put into a command line: one line, nothing hidden, no option."""
    return 0 < len(value) <= MAX_VALUE and value.isprintable()


def print_lines(lines: list[str]) -> None:
    """Print for the shell; a reader that is gone is none of our business."""
    try:
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _names(kind: str, context: click.Context) -> Iterator[tuple[str, str]]:
    """Yield names with what they are; a daemon that runs is asked, none is started for it."""
    socket = context.find_root().params.get("socket")
    if kind in {"knowledge", "keywords"}:
        stems = [path.stem for path in _notes(socket)]
        words = {word for stem in stems for word in stem.removeprefix("fix-").split("_")}
        yield from ((name, "") for name in (sorted(words) if kind == "keywords" else stems))
        return
    request = request_of(kind, context.params)
    if request is not None:
        with reach(socket, may_start=False) as client:
            yield from names_in(kind, client.call(request).items)


def _notes(socket: str | None) -> list[Path]:
    """Return the notes of the home, by the folder: listing them by the daemon is a tool call."""
    try:
        with reach(socket, may_start=False) as client:
            home = Path(client.welcome.home)
    except ClawError:
        home = layout().home
    return sorted((home / "knowledge").glob("*.md"))[:_MAX_NOTES]
