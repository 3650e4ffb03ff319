"""`clawctl logs`: what the daemon wrote down, of the one that runs or of the one that ended."""

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from clawctl.app import App, json_command
from clawctl.client import LOST, Client, is_nobody, reason_of
from clawctl.render import Palette, emit_json, note
from clawd.errors import ClawError, NotFoundError, UnreachableError
from clawd.paths import layout
from clawd.wire.daemon import LogLine, TailLog
from clawd.wire.safe_text import ascii_json, terminal_safe, visible_line

POLL_S = 0.5
PAGE = 1_000
LEVELS = ("debug", "info", "warning", "error", "critical")
SOURCES = ("auto", "daemon", "file", "journal")


@click.command()
@click.option("-n", "--lines", type=click.IntRange(1, 100_000), default=50, show_default=True)
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@click.option("--level", type=click.Choice(LEVELS), help="This level and worse (from the daemon).")
@click.option(
    "--from",
    "source",
    type=click.Choice(SOURCES),
    default="auto",
    show_default=True,
    help="Whom to ask: the daemon, its log file, the journal.",
)
@json_command(list[LogLine])
def command(
    app: App, lines: int, *, follow: bool, level: str | None, source: str, as_json: bool
) -> None:
    """Show the newest lines of the daemon's log; administrators only.

    A daemon that runs is asked; it keeps its last 2,000 lines. When none runs, the log file of the
    home is read, or the journal where clawd is a service of the system. With --follow, --json
    prints one object a line.
    """
    wanted = source
    if wanted == "auto":
        wanted = _source(app)
    if wanted == "daemon":
        found = _from_daemon(app, lines, follow=follow)
    elif wanted == "journal":
        found = _from_journal(lines, follow=follow)
    else:
        found = _from_file(layout().log, lines, follow=follow)
    least = LEVELS.index(level) if level is not None else 0
    shown = (line for line in found if line.level not in LEVELS[:least])
    if as_json and not follow:
        emit_json(list(shown))
        return
    for line in shown:
        _show(line, as_json=as_json)


def _source(app: App) -> str:
    try:
        app.running_client().close()
    except ClawError as error:
        if not is_nobody(error):
            raise
        return "journal" if layout().is_system else "file"
    return "daemon"


def _from_daemon(app: App, count: int, *, follow: bool) -> Iterator[LogLine]:
    cursor, client = "", app.running_client()
    while True:
        try:
            with client:
                for line, at in _pages(client, cursor, count):
                    cursor = at
                    if line is not None:
                        yield line
                    elif not follow:
                        return
                    else:
                        time.sleep(POLL_S)
        except UnreachableError as error:
            if not follow or reason_of(error) != LOST:
                raise
            note("● the daemon went away; waiting for it")
            client, cursor = _again(app), ""


def _pages(client: Client, cursor: str, count: int) -> Iterator[tuple[LogLine | None, str]]:
    """Yield lines with the cursor after them; None where there are no more for now."""
    while True:
        limit = PAGE if cursor else min(count, PAGE)
        page = client.call(TailLog(cursor=cursor, limit=limit))
        if page.missed:
            note(f"● {page.missed} lines came faster than they were read, and are lost here")
        cursor = page.cursor
        for line in page.items:
            yield line, cursor
        if len(page.items) < limit or limit < PAGE:
            yield None, cursor


def _again(app: App) -> Client:
    while True:
        try:
            return app.running_client()
        except UnreachableError:
            time.sleep(POLL_S)


def _from_file(log: Path, count: int, *, follow: bool) -> Iterator[LogLine]:
    try:
        with log.open("rb") as file:
            for data in deque(file, maxlen=count):
                yield _plain(data)
            while follow:
                if file.tell() > log.stat().st_size:  # it was cut
                    file.seek(0)
                data = file.readline()
                if data:
                    yield _plain(data)
                else:
                    time.sleep(POLL_S)
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no daemon runs, and there is no log {log}",
            hint="Start a daemon, as every command does that needs one: clawctl status",
        ) from error
    except OSError as error:
        raise ClawError(
            f"{log} cannot be read: {error.strerror or error}",
            hint="Read it as the user whose home it is, or as root.",
        ) from error


def _from_journal(count: int, *, follow: bool) -> Iterator[LogLine]:
    from clawctl.systemctl import Manager

    manager = Manager("system" if layout().is_system else "user", os.environ)
    arguments = ["--unit", "clawd.service", "--no-pager", f"--lines={count}"]
    for text in manager.journal_lines([*arguments, *(["--follow"] if follow else [])]):
        yield LogLine(at="", level="", logger="", text=text)


def _plain(data: bytes) -> LogLine:
    text = data.decode(errors="replace").rstrip("\n")
    return LogLine(at="", level="", logger="", text=text)


def _show(line: LogLine, *, as_json: bool) -> None:
    if as_json:
        print(ascii_json(msgspec.json.encode(line).decode()), flush=True)
        return
    palette = Palette.of(sys.stdout)
    # A line of the log that has breaks goes on indented, so that no text in it begins a line.
    text = terminal_safe(line.text).replace("\n", "\n  ")
    if line.at:
        level = visible_line(line.level.upper()[:8])
        paint = {"WARNING": palette.yellow, "ERROR": palette.red, "CRITICAL": palette.red}
        mark = paint.get(level, palette.dim)(f"{level:<8}")
        text = f"{palette.dim(visible_line(line.at[:19]))} {mark}{text}"
    print(text, flush=True)
