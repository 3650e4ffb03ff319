"""Asks the person at the terminal: approvals of tool calls, and questions of the model.

The answer is read from the controlling terminal, never from standard input. What was typed before
the question could be read is thrown away: all until `SETTLE_S` after the call is shown. Several
lines at once are a paste and no answer, and high risk or untrusted text take a whole word. While it
waits it also listens to the daemon: somebody else may answer, time may run out, the turn may end.
Arguments that are edited go back to the daemon, which judges them and asks about them anew.
"""

import contextlib
import errno
import json
import os
import select
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO, cast

import msgspec

from clawctl import call_text
from clawctl.client import Stream
from clawctl.render import Palette
from clawctl.safe_stream import Screen, columns
from clawd.wire import events
from clawd.wire.safe_text import ascii_json, lookalikes, visible, visible_line

_OPENER = "xdg-open"
_OPENER_PATIENCE_S = 3.0

WORDS = {
    "yes": "once",
    "once": "once",
    "conversation": "conversation",
    "project": "project",
    "always": "always",
}
ANSWERS = WORDS | {
    "y": "once",
    "Y": "once",
    "c": "conversation",
    "a": "conversation",
    "p": "project",
    "A": "always",
}
# No key of habit: what is on no list is let through by one that is meant.
UNLISTED = {"o": "once", "O": "once", "once": "once"}
UNLISTED_RULES = {"p": "project", "P": "project", "project": "project"}
SETTLE_S = 0.4
MAX_LINE_BYTES = 4_096
WRITTEN_OUT = "‹U+"
# What the changes of a file show of these, to the byte.
SHOWN_BY_CHANGES = {
    "file_append": {"path", "content"},
    "file_edit": {"path", "old_text", "new_text", "start_line", "end_line"},
    "file_write": {"path", "content"},
}
UNFOLDED = 5_000  # lines of a file; the daemon cuts before
# For terminals that show no more than ASCII.
_ASCII_OF = str.maketrans("╭│╰·−…", "+|+--.")
# From so many lines on, what was asked has left the eye by the time the answer is typed.
LONG_LINES = 12
SUBJECT_LIMIT = 200
EDITORS = ("editor", "nano", "vi")
MAX_EDITED_BYTES = 4 << 20
SUBJECTS = ("path", "command", "url", "source", "query")


class Terminal:
    """The controlling terminal, open for questions."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        raw = os.fdopen(os.dup(descriptor), "w", encoding="utf-8", errors="backslashreplace")
        self._screen = Screen(raw, lambda: columns(raw))
        self.out = cast("TextIO", self._screen)
        self._is_ascii = "utf" not in (getattr(sys.stdout, "encoding", "") or "utf").lower()
        self.palette = Palette.of(self.out)

    @classmethod
    def open(cls) -> "Terminal | None":
        """Open it; None when there is none, or when another job has it."""
        try:
            descriptor = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError:
            return None
        try:
            in_foreground = os.tcgetpgrp(descriptor) == os.getpgrp()
        except OSError:
            in_foreground = False
        if not in_foreground:
            os.close(descriptor)
            return None
        return cls(descriptor)

    def close(self) -> None:
        """Close it."""
        self.out.close()
        os.close(self._descriptor)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, *, wanted: bool = True) -> Iterator["Terminal | None"]:
        """Open it for a while; None where it is not wanted, or there is none."""
        terminal = cls.open() if wanted else None
        try:
            yield terminal
        finally:
            if terminal is not None:
                terminal.close()

    @property
    def descriptor(self) -> int:
        """The terminal's own, for a program that shall have it for a while."""
        return self._descriptor

    def show(self, text: str) -> None:
        """Print a line; the caller made the text safe."""
        self._write(f"{text}\n")

    def signal(self, codes: str) -> None:
        """Send codes of ours as they are, for the terminal and its window."""
        with contextlib.suppress(OSError):
            self._screen.plain.write(codes)
            self._screen.plain.flush()

    def settle(self, stream: Stream[Any], is_over: Callable[[], bool]) -> None:
        """Give the person a moment to see what is shown; what is typed in it will not count."""
        deadline = time.monotonic() + SETTLE_S
        while not is_over() and (left := deadline - time.monotonic()) > 0:
            stream.read(left)

    def ask(
        self,
        question: str,
        stream: Stream[Any],
        is_over: Callable[[], bool],
        *,
        one_line: bool = False,
    ) -> str | None:
        """Return the line that is typed; None at end of input or when the question is over.

        With `one_line` several lines at once are no answer, and the question is put again.
        """
        if not self._forget_typed():
            return None
        self._write(question)
        while not is_over():
            readable, _, _ = select.select([self._descriptor, stream.fileno()], [], [])
            if self._descriptor not in readable:
                stream.read(0)
                continue
            line = self._answered()
            if line is None or not one_line or not self._has_more():
                return line
            if not self._forget_typed():
                return None
            self._write(f"Several lines at once are not an answer.\n{question}")
        self._write("\n")
        return None

    def ask_alone(self, question: str) -> str | None:
        """Return the line that is typed to a question that nothing else ends; None at the end."""
        self._write(question)
        select.select([self._descriptor], [], [])
        return self._answered()

    def _answered(self) -> str | None:
        line = self._line()
        self._screen.begin_line()  # the terminal ended the line of the answer by itself
        return line

    def _write(self, text: str) -> None:
        self.out.write(text.translate(_ASCII_OF) if self._is_ascii else text)
        self.out.flush()

    def _forget_typed(self) -> bool:
        """Throw away what was typed and not read; False when the terminal is gone."""
        try:
            termios.tcflush(self._descriptor, termios.TCIFLUSH)
        except termios.error:
            return False
        return True

    def _has_more(self) -> bool:
        return bool(select.select([self._descriptor], [], [], 0)[0])

    def _line(self) -> str | None:
        try:
            data = os.read(self._descriptor, MAX_LINE_BYTES)
        except OSError as error:
            if error.errno == errno.EIO:
                return None
            raise
        return data.decode(errors="replace").strip() if data else None


def approve(terminal: Terminal, request: events.ApprovalRequested, stream: Stream[Any]) -> None:
    """Show the call, ask, and send the answer; anything but a clear yes denies."""
    _show_all(terminal, request)

    def is_over() -> bool:
        return is_resolved(stream, request.approval_id)

    # No rule is offered where untrusted text made it ask.
    takes_words = request.risk == "high" or not request.rule
    question, answers = _question(terminal.palette, request, takes_words=takes_words)
    terminal.settle(stream, is_over)
    while True:
        line = terminal.ask(question, stream, is_over, one_line=True)
        if line is None and is_over():
            return
        if line in {"d", "D", "details"}:
            _show_details(terminal, request)
            continue
        if line in {"e", "E", "edit"}:
            if _edits(terminal, request, stream, is_over):
                return
            continue
        if takes_words and line in ANSWERS and line not in answers:
            # A key of habit: no yes, and not meant as a no either.
            wanted = "one of the keys below" if request.unlisted else "the whole word"
            terminal.show(f"  │ {line} is not an answer here: {wanted}, or Enter for no")
            continue
        answer = answers.get(line or "", "deny")
        if answer == "always" and not _confirms_rule(terminal, request, stream):
            answer = "deny"
        if not is_resolved(stream, request.approval_id):
            stream.answer(request.approval_id, answer, request.digest)
        return


def _show_all(terminal: Terminal, request: events.ApprovalRequested) -> None:
    """Show the call, and after a long one what it is once more, beside the question."""
    lines = request_lines(terminal.palette, request)
    if len(lines) > LONG_LINES:
        lines.append(f"  │ {terminal.palette.bold(in_short(request))}")
    for line in lines:
        terminal.show(line)


def _question(
    palette: Palette, request: events.ApprovalRequested, *, takes_words: bool
) -> tuple[str, dict[str, str]]:
    """Return what asks, the last line of the box, and the answers that are a yes to it."""
    always = bool(request.rule)
    if request.unlisted:
        has_rule = always and bool(request.patterns)
        keys = "[o]nce / [p]roject / [n]o" if has_rule else "[o]nce / [n]o"
        choices = [f"p project{_covered(request)}"] if has_rule else []
        return (
            f"  │ {palette.dim(_keys(*choices))}\n  ╰ {visible_line(_listed(request))}: {keys}   ",
            UNLISTED | (UNLISTED_RULES if has_rule else {}),
        )
    if takes_words:
        words = "yes, conversation" + (", project, always" if always else "")
        choices = [f"a whole word: {words}"]
        return f"  ╰ Approve? [yes/N]   {palette.dim(_keys(*choices))}   ", WORDS
    choices = ["c conversation", *([f"p project{_covered(request)}"] if always else [])]
    return f"  ╰ Approve? [y/N]   {palette.dim(_keys(*choices))}   ", ANSWERS


def _covered(request: events.ApprovalRequested) -> str:
    """Return what a rule would cover, files that are written as they lie in the workspace."""
    here = f"> {request.workspace}/"
    covered = [f"> {each.removeprefix(here)}" if each.startswith(here) else each
            for each in request.patterns]  # fmt: skip
    return f" ({', '.join(covered)})" if covered else ""


def _listed(request: events.ApprovalRequested) -> str:
    what = ", ".join(f"`{kind}`" for kind in request.unlisted)
    return f"{what} {'are' if len(request.unlisted) > 1 else 'is'} not on the list of this project"


def _keys(*choices: str) -> str:
    return visible_line("   ".join([*choices, "e edit", "d details"]))


def answer_page(terminal: Terminal, question: events.QuestionAsked, stream: Stream[Any]) -> None:
    """Show the whole address, and open it in the person's browser where they say yes."""
    palette = terminal.palette
    terminal.show(f"{palette.cyan('?')} The model wants to open a page in your browser:")
    terminal.show(f"  {visible(question.url)}")
    line = terminal.ask("Open it? [y/N] ", stream, lambda: is_past(stream))
    if line is None and is_past(stream):
        return
    if (line or "").strip().lower() not in {"y", "yes"}:
        stream.answer(question.question_id, "")
        return
    problem = open_page(question.url)
    if problem:
        terminal.show(palette.red(f"  {visible(problem)}"))
    stream.answer(question.question_id, problem or events.PAGE_OPENED)


def answer_question(
    terminal: Terminal, question: events.QuestionAsked, stream: Stream[Any]
) -> None:
    """Show a question of the model and send what the person types."""
    if question.url:
        answer_page(terminal, question, stream)
        return
    if question.default:
        _answer_default(terminal, question, stream)
        return
    palette = terminal.palette
    terminal.show(f"{palette.cyan('?')} {visible(question.text)}")
    for number, option in enumerate(question.options, 1):
        terminal.show(f"  {number}  {visible_line(option)}")
    line = terminal.ask("> ", stream, lambda: is_past(stream))
    if line is None and is_past(stream):
        return
    text = line or ""
    if text.isascii() and text.isdigit() and 0 < int(text) <= len(question.options):
        text = question.options[int(text) - 1]
    stream.answer(question.question_id, text)


def _answer_default(
    terminal: Terminal, question: events.QuestionAsked, stream: Stream[Any]
) -> None:
    """Put a question that Enter alone answers; the end of input is no answer."""
    terminal.settle(stream, lambda: is_past(stream))
    known = {option[:1].lower(): option for option in question.options}
    keys = "/".join(
        key.upper() if option == question.default else key for key, option in known.items()
    )
    asked = f"{terminal.palette.cyan('?')} {visible_line(question.text)} [{visible_line(keys)}] "
    line = terminal.ask(asked, stream, lambda: is_past(stream), one_line=True)
    if line is None and is_past(stream):
        return
    answer = question.default if line == "" else known.get(line or "", line or "")
    stream.answer(question.question_id, answer)


def request_lines(palette: Palette, request: events.ApprovalRequested) -> list[str]:
    """Return what is asked for as an open box: tool, risk, reason, and what it does, whole.

    What files become says it better than the arguments that make it so; these are displayed where
    it does not say all. The line that asks closes the box.
    """
    inside = (f"  │ {line}" for line in _inside(palette, request))
    return [f"  ╭ {_heading(palette, request)}", *inside]


def _heading(palette: Palette, request: events.ApprovalRequested) -> str:
    paint = palette.red if request.risk == "high" else palette.yellow
    about = paint(visible_line(request.risk))
    if not (request.unlisted and request.reason == _listed(request)):  # the question says it
        about += f": {visible_line(request.reason)}"
    changes = request.changes
    if not changes:
        return f"{palette.bold(visible_line(request.tool))} · {about}"
    words = [
        palette.bold(call_text.call_name(request.tool)),
        call_text.subject_of(request.arguments, changes),
    ]
    if len(changes) == 1 and (changes[0].is_new or changes[0].is_removed):
        words.append(call_text.kind_of(changes[0]))
    added, removed = call_text.counts_of(changes)
    return f"{' '.join(words)}  {palette.green(added)} {palette.red(removed)} · {about}"


def _inside(palette: Palette, request: events.ApprovalRequested) -> list[str]:
    lines = [f"in {visible_line(request.workspace)}"] if _is_elsewhere(request.workspace) else []
    for name, value in sorted(request.environment.items()):
        lines.append(f"with {visible_line(f'{name}={value}')}")
    arguments = argument_lines(request.arguments)
    if not _says_all(request):
        lines += arguments
    lines += _changed(palette, request.changes)
    if any(WRITTEN_OUT in line for line in arguments):
        lines.append(
            palette.red("the arguments hold characters that cannot be seen, written ‹U+…›")
        )
    return lines + lookalike_lines(palette, arguments)


def _is_elsewhere(workspace: str) -> bool:
    """Return whether it is another folder than that in which the person is."""
    try:
        return os.path.realpath(workspace) != str(Path.cwd())
    except (OSError, ValueError):
        return True


def _says_all(request: events.ApprovalRequested) -> bool:
    """Return whether the changes show all that the arguments say."""
    if not request.changes or any(each.is_cut or each.is_binary for each in request.changes):
        return False
    values = call_text.values_of(request.arguments)
    return values is not None and SHOWN_BY_CHANGES.get(request.tool, set()) >= set(values)


def _changed(palette: Palette, changes: tuple[events.FileDiff, ...]) -> list[str]:
    """Return the lines of a diff, folded; the heading names a file that is alone."""
    lines: list[str] = []
    left = call_text.DIFF_LINES
    for diff in changes:
        if len(changes) > 1:
            lines.append(_title(diff))
        elif remarks := call_text.remarks_on(diff):
            lines.append(palette.dim(remarks))
        lines += _diff_lines(palette, diff, left)
        left = max(left - len(diff.lines), 0)
    hidden = sum(len(diff.lines) for diff in changes) - call_text.DIFF_LINES
    if hidden > 0:
        more = f"… {hidden} more line{'s' if hidden > 1 else ''}: d shows them"
        lines.append(palette.dim(more))
    return lines


def _diff_lines(palette: Palette, diff: events.FileDiff, limit: int) -> list[str]:
    paint = {"+": palette.green, "-": palette.red}
    digits = len(str(max((line.number for line in diff.lines), default=0)))
    returns = call_text.has_returns(diff)
    lines = []
    for line in diff.lines[:limit]:
        said = visible_line(call_text.text_of(line, returns=returns))
        text = f"{line.number or '':>{digits}} {call_text.mark_of(line)} {said}"
        lines.append(paint.get(line.mark, palette.dim)(text if line.mark != "@" else "…"))
    return lines


def in_short(request: events.ApprovalRequested) -> str:
    """Return tool, subject and size of a call on one line."""
    if request.changes:
        return visible_line(f"{request.tool}  {call_text.summary_of(request.changes)}")
    given = call_text.values_of(request.arguments) or {}
    subject = next((str(given[name]) for name in SUBJECTS if name in given), "")
    size = f"{len(request.arguments.encode())} B of arguments"
    return f"{visible_line(request.tool)}  {visible_line(subject, SUBJECT_LIMIT)}  {size}"


def lookalike_lines(palette: Palette, lines: list[str]) -> list[str]:
    """Return a warning for each word whose letters pass for those of another script."""
    words = map(visible_line, lookalikes("\n".join(lines)))
    return [palette.red(f"  this looks like other letters than it holds: {each}") for each in words]


def change_lines(palette: Palette, changes: tuple[events.FileDiff, ...]) -> list[str]:
    """Return what files become, as the daemon computed it: it writes just that, or nothing."""
    lines: list[str] = []
    for diff in changes:
        lines.append(f"  {_title(diff)}")
        lines += [f"    {line}" for line in _diff_lines(palette, diff, UNFOLDED)]
    return lines


def _title(diff: events.FileDiff) -> str:
    remarks = call_text.remarks_on(diff)
    added, removed = call_text.counts_of([diff])
    about = f"  ({remarks})" if remarks else ""
    return f"{call_text.kind_of(diff)}  {visible_line(diff.path)}  {added} {removed}{about}"


def argument_lines(arguments: str) -> list[str]:
    """Return arguments for a person: each on a line of its own, texts of several lines as a block.

    Every line of a block begins with `|`, so that no argument can look like something of ours.
    """
    values = call_text.values_of(arguments)
    if values is None:
        return [f"| {line}" for line in visible(arguments).split("\n")]
    lines: list[str] = []
    for name, value in values.items():
        label = visible_line(str(name))
        if isinstance(value, str) and "\n" in value:
            lines.append(f"{label}:")
            lines += [f"  | {line}" for line in visible(value).split("\n")]
        else:
            lines.append(f"{label}: {visible_line(json.dumps(value, ensure_ascii=False))}")
    return lines or ["(none)"]


def _show_details(terminal: Terminal, request: events.ApprovalRequested) -> None:
    show = terminal.show
    show(f"  tool       {visible_line(request.tool)}")
    show(f"  workspace  {visible_line(request.workspace)}")
    show(f"  approval   {visible_line(request.approval_id)}")
    show(f"  digest     {visible_line(request.digest)}")
    exactly = "exactly this call; it cannot be allowed always"
    show(f"  c, p, A    conversation, project, always: {visible_line(request.rule) or exactly}")
    for line in change_lines(terminal.palette, request.changes):
        show(line)
    silence = f"{request.expires_in_s:.0f} s of silence"
    show(f"  denied after {silence}" if request.expires_in_s else "  waits until it is answered")
    show("  exact arguments")
    for line in visible(request.arguments).split("\n"):
        show(f"  | {line}")


def _edits(
    terminal: Terminal,
    request: events.ApprovalRequested,
    stream: Stream[Any],
    is_over: Callable[[], bool],
) -> bool:
    """Let the person edit the arguments; True when that is sent or nobody asks any more."""
    outcome = edited_arguments(request.arguments, terminal.descriptor)
    # While the editor was open, somebody else may have answered, or time may have run out.
    known = -1
    while len(stream.waiting) > known and not stream.has_ended:
        known = len(stream.waiting)
        stream.read(0)
    if is_over():
        terminal.show("The question was closed while the editor was open; nothing was sent.")
        return True
    if outcome.problem:
        terminal.show(f"{terminal.palette.yellow('not edited')}: {visible_line(outcome.problem)}")
        return False
    stream.answer(request.approval_id, "edit", request.digest, arguments=outcome.arguments)
    return True


class EditedArguments(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it: new arguments, or why there are none."""

    arguments: str = ""
    problem: str = ""


def edited_arguments(arguments: str, terminal: int) -> EditedArguments:
    """Open the arguments in an editor on the terminal, and return what they are then.

    The text is JSON, laid out for reading; what cannot be seen is written as an escape.
    """
    import tempfile

    before = _laid_out(arguments)
    if before is None:
        return EditedArguments(problem="the arguments are not a JSON object")
    with tempfile.TemporaryDirectory(prefix="clawctl-") as folder:
        path = Path(folder) / "arguments.json"
        path.touch(mode=0o600)
        path.write_text(before, encoding="utf-8")
        problem = _run_editor(path, terminal)
        return EditedArguments(problem=problem) if problem else _read_edited(path, before)


def _read_edited(path: Path, before: str) -> EditedArguments:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_EDITED_BYTES + 1)
    except OSError as error:
        return EditedArguments(problem=f"the file cannot be read: {error.strerror}")
    if len(data) > MAX_EDITED_BYTES:
        return EditedArguments(problem=f"the text has over {MAX_EDITED_BYTES} bytes")
    after = _laid_out(data.decode(errors="replace"))
    if after is None:
        return EditedArguments(problem="what was written is not a JSON object")
    if after == before:
        return EditedArguments(problem="nothing was changed")
    return EditedArguments(arguments=data.decode(errors="replace"))


def _laid_out(text: str) -> str | None:
    """Return a JSON object for a person to read; None when it is none."""
    try:
        values = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        shown = msgspec.json.format(msgspec.json.encode(values), indent=2)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return ascii_json(shown.decode(errors="replace")) + "\n"


def _run_editor(path: Path, terminal: int) -> str:
    """Run the editor; return why it came to nothing, "" when it did not."""
    import shlex
    import signal
    import subprocess

    wanted = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        commands = [shlex.split(wanted)] if wanted.strip() else [[name] for name in EDITORS]
    except ValueError:
        return f"VISUAL or EDITOR cannot be understood: {wanted}"
    # Ctrl-C is the editor's now. A handler is reset in the child, an ignored signal would not be.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        for command in commands:
            with contextlib.suppress(FileNotFoundError):
                done = subprocess.run(  # noqa: S603 - the person's own editor
                    [*command, str(path)],
                    stdin=terminal,
                    stdout=terminal,
                    stderr=terminal,
                    check=False,
                )
                return f"the editor ended with {done.returncode}" if done.returncode else ""
    except OSError as error:
        return f"the editor cannot be started: {error.strerror}"
    finally:
        signal.signal(signal.SIGINT, before)
    return f"there is no editor: {', '.join(command[0] for command in commands)}; set EDITOR"


def _confirms_rule(
    terminal: Terminal, request: events.ApprovalRequested, stream: Stream[Any]
) -> bool:
    if not request.rule:
        terminal.show("This call cannot be allowed always; it is denied.")
        return False
    patterns = ", ".join(request.patterns)
    is_bound = request.tool != "shell" or any(each.startswith(">") for each in request.patterns)
    rule = request.rule if is_bound else f"{request.tool} {patterns} in every project"
    terminal.show(f"  the rule   {visible_line(rule)}")
    line = terminal.ask(
        "Allow what this rule matches from now on? [y/N] ",
        stream,
        lambda: is_resolved(stream, request.approval_id),
        one_line=True,
    )
    return line in {"y", "Y", "yes"}


def is_past(stream: Stream[Any]) -> bool:
    """Return whether nobody waits any more for the answer to a question."""
    # Calls run one at a time: when one has finished, the question of this one ran out.
    return stream.has_ended or any(
        isinstance(event, events.ToolFinished) for event in stream.waiting
    )


def is_resolved(stream: Stream[Any], approval_id: str) -> bool:
    """Return whether an approval is answered, or nobody waits for it any more."""
    return stream.has_ended or any(
        isinstance(event, events.ApprovalResolved) and event.approval_id == approval_id
        for event in stream.waiting
    )


def open_page(url: str) -> str:
    """Open a page by xdg-open, without a shell; return why it could not be, "" when it was."""
    import shutil
    import subprocess
    from urllib.parse import urlsplit

    if urlsplit(url).scheme not in {"http", "https"}:
        return "only http:// and https:// addresses are opened"
    opener = shutil.which(_OPENER)
    if opener is None:
        return f"{_OPENER} is not on this machine"
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return "there is no desktop here"
    try:
        started = subprocess.Popen(  # noqa: S603 a program of the machine, a list, no shell
            [opener, url],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            close_fds=True,
        )
    except OSError as error:
        return f"{_OPENER} cannot be started: {error.strerror}"
    try:
        status = started.wait(_OPENER_PATIENCE_S)
    except subprocess.TimeoutExpired:
        # A browser that it became goes on after us; Popen must not warn that nobody waited.
        started.returncode = 0
        return ""
    return f"{_OPENER} ended with status {status}" if status else ""
