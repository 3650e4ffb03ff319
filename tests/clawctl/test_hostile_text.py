"""A hostile daemon, model or tool cannot drive the terminal, whatever clawctl shows of it.

Every command is found by itself, and every field of every report is filled by reflection: what is
added later is tested by what stands here.
"""

import importlib
import io
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pexpect
import pytest

from clawctl.main import COMMANDS
from clawctl.repl.slash import COMMANDS as SLASH
from clawctl.safe_stream import LINE_LIMIT, Screen
from clawctl.turn import CLEAR_LINE, ViewOptions
from clawd.wire.daemon import StatusReport
from clawd.wire.events import Event, TextDelta, TurnFailed, TurnFinished
from clawd.wire.safe_text import MARKS_LIMIT
from tests.support import hostile_run
from tests.support.drawing import Drawing, Nowhere
from tests.support.fake_daemon import Call, FakeDaemon
from tests.support.hostile import HOSTILE, LONG, hostile_daemon, hostile_events, instance
from tests.support.rows import each_row, thorough
from tests.support.terminal import PROMPT, REQUEST, STARTED, Spawn, code_of, finished

COLUMNS = 120
# The editor says so at each prompt, and no text of others can.
EDITOR_STARTS = re.escape("\x1b[?2004h")
COLOURS = re.compile(r"\x1b\[(?:0|1|2|31|32|33|36)m")
# What never stands in what is shown, by category and by name: controls but line end and tab,
# format characters, line and paragraph separators; and letters that show as nothing.
ALLOWED_FORMAT = {"\u200c", "\u200d"}
BLANKS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00\U000e0100"
# These work on files of this machine or on the person at it, and show no text of the daemon's.
OWN_TEXT = {
    "completion",
    "config edit",
    "config schema",
    "config set",
    "config show",
    "config unset",
    "config validate",
    "init",
    "mcp add",
    "mcp import",
    "mcp remove",
    "model accept",
    "model add",
    "model import",
    "model merge",
    "model pull",
    "model recommend",
    "model rm",
    "model use",
    "onboard",
}
# These work on systemd, on archives, on processes or on a shell, which their own tests fake; here
# they are real.
OWN_WORLD = {"backup", "restart", "service", "shell", "stop"}


def commands(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        if command.invoke_without_command:
            yield name, command
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from commands(f"{name} {below}", found)
    else:
        yield name, command


def every_command() -> list[tuple[str, click.Command]]:
    return [
        found
        for name in COMMANDS
        if name not in OWN_WORLD
        for found in commands(name, importlib.import_module(f"clawctl.commands.{name}").command)
        if found[0] not in OWN_TEXT
    ]


def words(name: str, command: click.Command, file: Path, *options: str) -> list[str]:
    """Return a command line: what must be given is given, hostile where it may be any text."""
    given = name.split()
    if name == "agent":
        given += ["-m", "x", "--home-workspace"]
    if name in {"policy allow", "policy explain"}:
        given.append(HOSTILE)  # or a host
    given += [
        option for option in ("--yes", "--accept-secrets", "--once") if takes(command, option)
    ]
    given += options
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.required:
            given.append(_place(parameter.type, file))
        elif isinstance(parameter, click.Option) and parameter.required:
            is_number = isinstance(parameter.type, click.IntRange)
            given += [parameter.opts[0], "7" if is_number else HOSTILE]
    return given


def _place(kind: object, file: Path) -> str:
    if isinstance(kind, click.Path):
        return str(file if kind.file_okay else file.parent)
    return HOSTILE


def takes(command: click.Command, option: str) -> bool:
    return any(
        option in parameter.opts and isinstance(parameter, click.Option) and parameter.is_flag
        for parameter in command.params
    )


def lists(command: click.Command) -> list[str]:
    """Return the options that only look, so that both ways of a command are seen."""
    return [option for option in ("--list", "--status") if takes(command, option)]


def lines_of(found: list[tuple[str, click.Command]], file: Path) -> list[list[str]]:
    made = []
    for name, command in found:
        made.append(words(name, command, file))
        made += [words(name, command, file, option) for option in lists(command)]
    return made


def columns_of(line: str) -> int:
    """Return how many columns a line without tabs takes."""
    if line.isascii():
        return len(line)
    shown = [c for c in line if not unicodedata.combining(c)]
    return len(shown) + sum(unicodedata.east_asian_width(c) in "WF" for c in shown)


def problems(text: str, *, limit: int = 0) -> list[str]:
    """Return what is wrong with text that a terminal was given."""
    rest = COLOURS.sub("", text).replace(CLEAR_LINE, "\n").replace("\r\n", "\n")
    found = []
    for character in set(rest):
        kind = unicodedata.category(character)
        if character in "\n\t" or character in ALLOWED_FORMAT:
            continue
        if kind in {"Cc", "Cf", "Cs", "Zl", "Zp"} or character in BLANKS:
            at = rest.index(character)
            found.append(f"U+{ord(character):04X} in {rest[max(at - 40, 0) : at + 40]!r}")
    if limit:
        lengths = [columns_of(line) for line in rest.split("\n")]
        found += [f"a line of {length}" for length in lengths if length > limit]
        many = re.search(f"[\u0300-\u036f\u0483-\u0489]{{{MARKS_LIMIT + 1}}}", rest)
        found += ["a flood of marks"] if many else []
    return found


def parts_of(text: str) -> list[str]:
    """Return what each command gave."""
    mark = re.escape(hostile_run.MARK).replace(r"\{\}", r"\d+")
    return re.split(rf"{mark}\r?\n", text)[1:]


def judged(text: str, lines: list[list[str]], *, limit: int = 0) -> dict[str, list[str]]:
    parts = parts_of(text)
    assert len(parts) == len(lines)
    found = {
        # A message of MCP is one line, however long: what reads it is a program.
        " ".join(line)[:40]: problems(part, limit=0 if line == ["mcp", "serve"] else limit)
        for line, part in zip(lines, parts, strict=True)
    }
    assert not [part[-2000:] for part in parts if "Traceback" in part]
    return {name: wrong for name, wrong in found.items() if wrong}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "table"
    file.write_text("table")
    return file


def environ_of(environ: dict[str, str], lines: list[list[str]]) -> dict[str, str]:
    editor = {"EDITOR": "true", "VISUAL": "true"}  # of `knowledge edit`: changes nothing
    commands = Path(environ["HOME"]) / "commands.json"  # the environment has no room for them
    commands.write_text(json.dumps(lines))
    return environ | editor | {"HOSTILE_COMMANDS": str(commands)}


def piped(environ: dict[str, str], lines: list[list[str]]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tests.support.hostile_run"],
        env=environ_of(environ, lines),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=100,
        start_new_session=True,
        check=True,
    )


@pytest.mark.parametrize("fails", [False, True])
def test_no_command_lets_text_drive_a_terminal(
    daemon: FakeDaemon, environ: dict[str, str], table: Path, fails: bool
) -> None:
    hostile_daemon(daemon, fails=fails)
    lines = lines_of(every_command(), table)
    child = pexpect.spawn(
        sys.executable,
        ["-m", "tests.support.hostile_run"],
        # A turn moves the cursor where it is drawn; that is looked at below.
        env=environ_of(environ, lines) | {"CLAWD_PLAIN": "1"},
        encoding="utf-8",
        timeout=100,
        maxread=65_536,
        dimensions=(40, COLUMNS),
    )
    child.delayafterread = None
    assert code_of(child) == 0
    # On a terminal both streams come as one: the marker stands twice before each command.
    text = re.sub(r"(=== command \d+ ===\r\n)\r\n\1", r"\1", child.before)
    assert judged(text, lines, limit=LINE_LIMIT) == {}


@pytest.mark.parametrize("fails", [False, True])
def test_no_command_gives_a_pipe_what_would_drive_a_terminal(
    daemon: FakeDaemon, environ: dict[str, str], table: Path, fails: bool
) -> None:
    hostile_daemon(daemon, fails=fails)
    lines = lines_of(every_command(), table)
    done = piped(environ, lines)
    assert judged(done.stdout, lines) == {}
    assert judged(done.stderr, lines) == {}


@pytest.mark.parametrize("fails", [False, True])
def test_json_is_exact_and_cannot_drive_a_terminal_either(
    daemon: FakeDaemon, environ: dict[str, str], table: Path, fails: bool
) -> None:
    hostile_daemon(daemon, fails=fails)
    found = [(n, c) for n, c in every_command() if takes(c, "--json") and n != "version"]
    assert len(found) > 15
    lines = [words(name, command, table, "--json") for name, command in found]
    lines += [
        words(name, command, table, "--json", option)
        for name, command in found
        for option in lists(command)
    ]
    lines.append(["tool", "run", "x", "--output", "json"])
    done = piped(environ, lines)
    assert judged(done.stdout, lines) == {}
    for line, part in zip(lines, parts_of(done.stdout), strict=True):
        text = part.rpartition("\nended with")[0]
        # Without a daemon that answers, the emergency stop is a file of this machine.
        if not (fails and line[0] == "estop") and str(table) not in line:
            assert any(HOSTILE in each for each in strings(json.loads(text))), line[:2]


def strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, below in value.items():
                yield name
                yield from strings(below)
        case list():
            for below in value:
                yield from strings(below)
        case _:
            pass  # numbers and the like


@pytest.mark.parametrize("fails", [False, True])
def test_the_repl_lets_no_text_drive_the_terminal(
    daemon: FakeDaemon, spawn: Spawn, fails: bool
) -> None:
    hostile_daemon(daemon, fails=False)
    child = spawn("agent", "--home-workspace")
    child.expect(EDITOR_STARTS)
    shown = child.before
    child.expect(PROMPT)
    hostile_daemon(daemon, fails=fails)
    lines = [name for name in SLASH if name not in {"/exit", "/quit"}]
    for line in [
        *lines,
        "/memory x",
        "/knowledge x",
        "/policy x {}",
        "/estop status",
        "talk",
        "/files",
    ]:
        child.sendline(line)
        child.expect(re.escape(line))
        if line == "/resume" and not fails:  # a list to choose from
            child.expect("Ctrl-C leaves")
            shown += child.before
            child.sendcontrol("c")
        child.expect(EDITOR_STARTS)
        shown += child.before
        child.expect(PROMPT)
    child.sendline("/exit")
    assert code_of(child) == 0
    # The editor draws with cursor movements of its own; what it never sends is looked for.
    assert not re.search(r"\x1b[]P_^X]|\x1b\[2J|\x1b\[8m|[\x80-\x9f\x05\x0b\x0c\x00]", shown)
    for character in set(shown):
        assert unicodedata.category(character) not in {"Cf", "Cs", "Zl", "Zp"}, hex(ord(character))
        assert character not in BLANKS
    assert not re.search("L" * (LINE_LIMIT + 1), shown)


# All that a drawing may send beside text: see `safe_stream`.
DRAWING = re.compile(
    r"\x1b\[(?:[0-479]|3[0-7]|9[0-7])(?:;(?:[0-479]|3[0-7]|9[0-7]))*m|\x1b\[\d{1,4}[AC]|\x1b\[[JK]"
    r"|\x1b\[1A|\r"
)


def drawn_by(columns: int, *shown: Event, text: str | None = None) -> str:
    turn = Drawing(Nowhere(columns, 12), options=ViewOptions(details=True, reasoning=True))
    for event in shown:
        turn.show(event)
        turn.tick()
    turn.pause()
    turn.finish(text)
    return turn.raw


def test_no_event_drives_the_terminal_that_is_drawn_on() -> None:
    for event in [*hostile_events(), instance(TurnFinished), instance(TurnFailed)]:
        raw = drawn_by(60, event)
        assert problems(DRAWING.sub("", raw)) == [], type(event)
    everything = drawn_by(60, *hostile_events(), text=HOSTILE)
    assert problems(DRAWING.sub("", everything)) == []


@each_row("fence", ["", "```python\n", "- ", "|a|\n|-|\n|"])
def test_no_text_drives_the_terminal_that_is_drawn_on_however_it_is_split(fence: str) -> None:
    attack = fence + HOSTILE.replace(LONG, "")
    for at in range(0, len(attack), 7 if thorough() else 23):
        turn = Drawing(Nowhere(40, 12))
        turn.show(TextDelta(text=attack[:at]), TextDelta(text=attack[at:]))
        assert problems(DRAWING.sub("", turn.raw)) == [], at
    turn = Drawing(Nowhere(40, 12))
    turn.show(*(TextDelta(text=character) for character in attack), every_s=0.005)
    turn.finish(attack)
    assert problems(DRAWING.sub("", turn.raw)) == []


@each_row("code", ["\x1b[5A", "\x1b[J", "\x1b[?2026h", "\x1b[3C"])
def test_what_a_drawing_may_send_no_other_text_may(code: str) -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.write(f"a{code}b")
    assert "\x1b" not in stream.getvalue()
    screen.draw(f"{code}\x1b[8m\x1b[2J\x1b]0;t\x07\x1b[?25l\x1b[5B")
    assert stream.getvalue().count("\x1b") == 1


def test_an_approval_shows_all_of_its_arguments_and_no_row_begins_like_ours(
    daemon: FakeDaemon, spawn: Spawn, environ: dict[str, str]
) -> None:
    environ["CLAWD_PLAIN"] = "1"  # nothing is drawn around it
    fake = "Approve? [y/N] y"
    arguments = {"content": "x" * 300 + " " * 200 + fake, HOSTILE: "\ud800" + HOSTILE}
    request = msgspec.structs.replace(
        REQUEST, arguments=json.dumps(arguments), rule=HOSTILE, reason=HOSTILE, tool=HOSTILE
    )

    def send_message(call: Call) -> Any:
        call.emit(STARTED, request)
        answer = call.answer()
        return finished(f"<{answer.value}>")

    daemon.handlers["send_message"] = send_message
    child = spawn("agent", "-m", "x", "--home-workspace")
    question = r"\r\n  ╰ Approve\? \[y/N\]  "
    child.expect(question)
    shown = child.before
    child.sendline("d")
    child.expect(question)
    shown += f"\r\n{child.before}"
    child.sendline("A")
    child.expect(r"Allow what this rule matches from now on\? \[y/N\] ")
    shown += f"\r\n{child.before}"
    child.sendline("")
    child.expect("<deny>")
    assert problems(shown, limit=COLUMNS) == []
    rows = COLOURS.sub("", shown).split("\r\n")
    assert not [row for row in rows if row.startswith(("Approve?", "  ╰", "✓", "●"))]
    whole = "".join(row.removeprefix("↳ ") for row in rows)
    assert "x" * 300 + " " * 200 + fake in whole
    assert "L" * 5_000 in whole
    assert "‹U+D800›" in whole


def test_reflection_reaches_every_field() -> None:
    report = instance(StatusReport)
    assert report.home == HOSTILE
    assert report.workers[0].alias == HOSTILE
