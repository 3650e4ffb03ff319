"""Draws a turn on a terminal: the answer as Markdown while it comes, and below it what goes on.

What is complete goes into the scrollback once. What may still change (the block under way, running
tools, the plan, the spinner) stands below and is redrawn in place; see `canvas`.
"""

import atexit
import contextlib
import termios
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, TextIO

import msgspec

from clawctl import call_text, turn
from clawctl.call_text import parts_of
from clawctl.repl.canvas import Canvas
from clawctl.repl.markdown import Painter, Piece, Splitter
from clawctl.repl.theme import (
    Look,
    Row,
    Span,
    Thoughts,
    fitted,
    rendered,
    safe,
    shortened_row,
    width_of,
    wrapped,
)
from clawctl.views import compressed_line
from clawd.wire import events
from clawd.wire.safe_text import terminal_safe, visible_line

_PROGRESS_LINES = 3
_OUTPUT_LINES = 6
_LEAST_SUBJECT = 12

_LOCAL_FLAGS = 3

FRAMES_PER_S = 10
PAINT_EVERY_S = 0.04
# Drawing takes at most one part in so many of the time; one that was held up says little of that.
PAINT_SHARE = 8
PAINT_PAUSE_S = 0.5
STALL_S = 1.5
PROGRESS_KEPT = 4_000
CALLS_SHOWN = 4
MARGIN = "  "  # of all that is not the answer

Kind = Literal["", "text", "row"]


class _CallRow(msgspec.Struct, kw_only=True):
    """One call while it goes on.

    Attributes:
        started_at: on the monotonic clock, when it began to run; 0 while it waits.
        progress: the end of what it printed.
        was_asked: a person was shown what it does.
    """

    call_id: str
    tool: str
    arguments: str
    started_at: float = 0.0
    progress: str = ""
    diffs: tuple[events.FileDiff, ...] = ()
    was_asked: bool = False


class _Echo:
    """Turns the echo of one terminal off and on again."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._before: list[Any] | None = None

    def off(self) -> None:
        """Show no keys until `on`; the end of the process turns it on as well."""
        if self._before is not None:
            return
        # No terminal, or one that is gone, or that another job has: nothing to keep quiet.
        with contextlib.suppress(OSError, ValueError, termios.error):
            before = termios.tcgetattr(self._out.fileno())
            if not before[_LOCAL_FLAGS] & termios.ECHO:
                return
            now = [*before]
            now[_LOCAL_FLAGS] &= ~termios.ECHO
            termios.tcsetattr(self._out.fileno(), termios.TCSANOW, now)
            self._before = before
            atexit.register(self.on)

    def on(self) -> None:
        """Show keys again, if `off` ended that."""
        if self._before is None:
            return
        before, self._before = self._before, None
        atexit.unregister(self.on)
        with contextlib.suppress(OSError, ValueError, termios.error):
            termios.tcsetattr(self._out.fileno(), termios.TCSANOW, before)


class DrawnView:
    """Shows a turn's events; see `following.View`.

    Args:
        out: the terminal's stream, for its descriptor.
        options: what is shown.
        look: colours and marks.
        canvas: draws on the terminal.
        clock: returns seconds that never go back.
    """

    def __init__(
        self,
        out: TextIO,
        options: turn.ViewOptions,
        look: Look,
        canvas: Canvas,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._look = look
        self._canvas = canvas
        self._clock = clock
        self._echo = _Echo(out)
        self._painter = Painter(look)
        self._splitter = Splitter()
        self._kept: list[str] = []
        self._last: Kind | Literal["start"] = "start" if options.spaced else ""
        self._calls: dict[str, _CallRow] = {}
        self._thoughts: Thoughts | None = None
        self._draft: turn.DraftedCall | None = None
        self._plan = ""
        self._status = ""
        self._hop_text = ""
        self._last_text = ""
        self._hop_is_kept = False
        self._workspace = ""
        self._shows_results = False
        self._painted_at = -1.0
        self._paint_cost_s = 0.0
        self._heard_at = clock()
        self._silence = (turn.SILENCE_S, "waiting")  # how long it may last, and what is shown then
        self.conversation_id = ""
        self.context_size = 0

    @property
    def animates(self) -> bool:
        """Whether `tick` should be called while nothing happens."""
        return True

    def show(self, event: events.Event) -> None:
        """Show one event."""
        self._heard_at, self._silence = self._clock(), (STALL_S, "working")
        self.conversation_id = turn.conversation_after(event, self.conversation_id)
        match event:
            case events.TurnStarted():
                self._workspace = event.workspace
                self._shows_results = event.shows_results
                self._status = "thinking"
            case events.ModelLoading():
                self._status = turn.loading_line(event)
            case events.PromptProgress():
                self._status = turn.progress_line(event, self.context_size)
            case events.ReasoningDelta():
                self._think(event.text)
            case events.TextDelta():
                self._end_thoughts()
                self._text(event.text)
            case events.HopReset():
                self._hop_reset(event.reason)
            case events.ToolDraft():
                self._end_thoughts()
                self._draft = turn.drafted(self._draft, event)
            case (
                events.ToolRequested()
                | events.ToolStarted()
                | events.ToolProgress()
                | events.ToolFinished()
            ):
                self._show_tool(event)
            case _:
                self._show_remark(event)
        if isinstance(event, events.ToolRequested | events.HopFinished | events.HopReset):
            self._draft = None
        is_text = isinstance(
            event, events.TextDelta | events.ReasoningDelta | events.ToolDraft | events.ToolProgress
        )
        self._paint(is_urgent=not is_text)

    def tick(self) -> None:
        """Let the spinner turn and what waited be seen."""
        self._paint(is_urgent=True)

    def pause(self) -> None:
        """Leave the terminal to somebody else, who asks a question."""
        self._end_thoughts()
        self._end_hop()
        self._kept += self._gap("row")
        self._last = "row"
        self._leave()

    def finish(self, text: str | None, finished: events.TurnFinished | None = None) -> None:
        """End the turn's lines; `text` is the whole answer, of which some may be shown already."""
        self._end_thoughts()
        self._draft = None
        shown = {self._hop_text or self._last_text, self._last_text + self._hop_text}
        if text is not None and text not in shown:
            if not text.startswith(self._hop_text):
                self._end_hop()
            self._text(text.removeprefix(self._hop_text))
        self._end_hop()
        for call in self._calls.values():
            how = "did not finish" if call.started_at else "did not run"
            columns, look = self._canvas.columns, self._look
            self._add_rows(_finished_call(call, is_good=False, how=how, columns=columns, look=look))
        self._calls.clear()
        if self._plan and self._options.rows:
            self._add_rows(self._plan_rows(self._canvas.columns))
        if finished is not None and self._options.metrics:
            if self._options.details and finished.ledger.parts:
                self._remark(turn.ledger_line(finished.ledger))
            self._foot(turn.footer(finished.usage))
        self._leave()

    def _foot(self, summary: str) -> None:
        """Put what the turn cost below its last line, at the right."""
        if summary:
            row = [Span(summary.rjust(self._canvas.columns), self._look.theme.dim)]
            self._kept += map(rendered, fitted(row, self._canvas.columns))

    # --- what happened

    def _show_remark(self, event: events.Event) -> None:
        match event:
            case events.PromptEvaluated():
                self.context_size = event.context_size or self.context_size
                self._status = "thinking"
                if self._options.metrics and self._options.details:
                    self._remark(turn.evaluation_line(event))
            case events.HopFinished():
                self._end_thoughts()
                self._status = "working"
            case events.Notice() | events.MessageJoined():
                self._notice(event)
            case events.PlanChanged():
                self._plan = event.markdown
            case events.ApprovalRequested():
                self._asked(event)
            case events.ContextCompressed() if self._options.rows:
                self._remark(compressed_line(event))
            case events.ApprovalResolved() if self._options.rows and not turn.is_own(event):
                self._remark(turn.resolved_line(event).strip())
            case _:
                # TurnFinished and TurnFailed come again as the request's end; Unknown is newer.
                pass

    def _notice(self, event: events.Notice | events.MessageJoined) -> None:
        if isinstance(event, events.MessageJoined):
            self._remark(f"> {event.text}", "strong")
            return
        is_warning = event.level == "warning"
        if self._options.rows or is_warning:
            mark = self._look.marks.remark
            self._remark(f"{mark} {event.text}", "warning" if is_warning else "dim")

    def _show_tool(
        self,
        event: events.ToolRequested
        | events.ToolStarted
        | events.ToolProgress
        | events.ToolFinished,
    ) -> None:
        self._end_thoughts()
        if isinstance(event, events.ToolRequested):
            self._end_hop()
        if not (self._options.calls and self._options.rows):
            return
        match event:
            case events.ToolRequested():
                self._calls[event.call_id] = _CallRow(
                    call_id=event.call_id, tool=event.tool, arguments=event.arguments
                )
            case events.ToolStarted() if event.call_id in self._calls:
                call = self._calls[event.call_id]
                call.started_at = self._clock()
                call.diffs = event.changes or call.diffs
            case events.ToolProgress() if event.call_id in self._calls:
                call = self._calls[event.call_id]
                call.progress = (call.progress + event.text)[-PROGRESS_KEPT:]
            case events.ToolFinished():
                self._tool_finished(event)
            case _:
                pass

    def _asked(self, event: events.ApprovalRequested) -> None:
        """Take the call as it is asked for: a person may have edited it."""
        call = self._calls.get(event.call_id)
        if call is not None:
            call.tool, call.arguments, call.diffs = event.tool, event.arguments, event.changes
            call.was_asked = True

    def _tool_finished(self, event: events.ToolFinished) -> None:
        call = self._calls.pop(event.call_id, None) or _CallRow(
            call_id=event.call_id, tool=event.tool, arguments=""
        )
        call.tool = event.tool  # what it was read as
        columns, is_good = self._canvas.columns, event.status == "allowed"
        has_waited = call.was_asked and call.started_at > 0
        alone_ms = int(1_000 * (self._clock() - call.started_at)) if has_waited else None
        how = call_text.ending(event, alone_ms)
        if self._options.details:
            how = f"{how} {self._look.marks.dot} {visible_line(event.receipt_id)}"
        rows = _finished_call(call, is_good=is_good, how=how, columns=columns, look=self._look)
        lines = call_text.reasons(event)
        for line in lines:
            rows += self._indented(line, self._look.theme.dim, indent="    ")
        if is_good and call.diffs and not call.was_asked:
            rows += _diff_rows(call.diffs, columns, self._look)
        elif (
            (self._options.details or (self._shows_results and not lines))
            and event.output
            and not (self._plan and call.tool == "plan")
        ):
            rows += _output_rows(event.output, columns, self._look)
        self._add_rows(rows)
        self._status = "working"

    def _think(self, text: str) -> None:
        if self._thoughts is None:
            self._thoughts = Thoughts(self._clock(), is_whole=self._options.reasoning)
        self._thoughts.add(text)
        self._add_rows(self._thoughts.rows(self._canvas.columns, self._look))

    def _end_thoughts(self) -> None:
        if self._thoughts is None:
            return
        thoughts, self._thoughts = self._thoughts, None
        self._add_rows(thoughts.rows(self._canvas.columns, self._look, is_over=True))
        if self._options.rows:
            self._remark(thoughts.summary(self._clock(), self._look))

    def _text(self, text: str) -> None:
        self._hop_text += text
        if self._options.text and text:
            self._status = ""
            self._keep(self._splitter.feed(text))

    def _keep(self, pieces: list[Piece]) -> None:
        self._hop_is_kept = self._hop_is_kept or bool(pieces)
        rows = self._painter.rows(pieces, self._canvas.columns)
        if rows:
            self._kept += self._gap("text") + rows
            self._last = "text"

    def _add_rows(self, rows: Sequence[str]) -> None:
        if rows:
            self._kept += [*self._gap("row"), *rows]
            self._last = "row"

    def _gap(self, kind: Kind) -> list[str]:
        """Return the empty row between the answer and all else, none inside of either."""
        return [] if self._last in {"", kind} else [""]

    def _hop_reset(self, reason: str) -> None:
        self._end_thoughts()
        # What was not complete goes; what stands in the scrollback already cannot.
        self._splitter, self._painter = Splitter(), Painter(self._look)
        if self._hop_is_kept:
            self._remark("the text above is void; it is asked again", "warning")
        self._hop_text, self._hop_is_kept = "", False
        self._status = "thinking"
        if self._options.rows:
            self._remark(f"{self._look.marks.remark} again: {visible_line(reason)}")

    def _end_hop(self) -> None:
        self._keep(self._splitter.end())
        self._splitter, self._painter = Splitter(), Painter(self._look)
        self._last_text = self._hop_text or self._last_text
        self._hop_text, self._hop_is_kept = "", False

    def _remark(self, text: str, style: str = "dim") -> None:
        sgr = getattr(self._look.theme, style)
        for line in terminal_safe(text).split("\n"):
            self._add_rows(self._indented(line, sgr))

    def _indented(self, line: str, sgr: str, indent: str = MARGIN) -> list[str]:
        row = [Span(indent), Span(line, sgr)]
        return [rendered(each) for each in wrapped(row, self._canvas.columns, indent=indent)]

    # --- what is shown

    def _paint(self, *, is_urgent: bool) -> None:
        now = self._clock()
        pause = min(max(PAINT_EVERY_S, PAINT_SHARE * self._paint_cost_s), PAINT_PAUSE_S)
        if not is_urgent and now - self._painted_at < pause:
            return
        live = self._live(now)
        if live:
            self._echo.off()
        self._draw(live)
        self._painted_at = self._clock()
        self._paint_cost_s = self._painted_at - now

    def _leave(self) -> None:
        self._draw([])
        self._echo.on()

    def _draw(self, live: list[str]) -> None:
        kept, self._kept = self._kept, []
        self._canvas.paint([*map(self._look.drawn, kept)], [*map(self._look.drawn, live)])

    def _live(self, now: float) -> list[str]:
        columns, lines = self._canvas.columns, self._canvas.lines
        below: list[str] = []
        if self._draft is not None and self._options.calls and self._options.rows:
            text = f"{MARGIN}{self._frame(now)} {safe(self._draft.line())}"
            row = [Span(text, self._look.theme.dim)]
            below.append(rendered(shortened_row(row, columns, self._look.marks.ellipsis)))
        for call in list(self._calls.values())[-CALLS_SHOWN:]:
            below += _live_call(call, now, self._frame(now), columns, self._look)
        if self._plan and self._options.rows:
            below += self._plan_rows(columns, max(lines // 3, 2))
        status = self._status_row(now, columns)
        below += [status] if status else []
        answer = self._painter.live_rows(self._splitter.pending(), columns)
        above = self._gap("text") if answer else self._gap("row") if below else []
        between = [""] if answer and below else []
        room = lines - len(below) - len(above) - len(between)
        if room < 1:
            above, between, room = [], [], max(lines - len(below), 1)
        return above + answer[-room:] + between + below

    def _status_row(self, now: float, columns: int) -> str:
        if not self._options.metrics:
            return ""
        text = self._status
        if self._thoughts is not None:
            text = self._thoughts.tail(columns)
        elif self._calls or self._draft is not None:
            return ""
        elif not text and now - self._heard_at > self._silence[0]:
            text = self._silence[1]
        if not text:
            return ""
        row = [Span(f"{MARGIN}{self._frame(now)} {safe(text)}", self._look.theme.dim)]
        return rendered(shortened_row(row, columns, self._look.marks.ellipsis))

    def _plan_rows(self, columns: int, limit: int = 0) -> list[str]:
        lines = terminal_safe(self._plan).rstrip("\n").split("\n")
        rows = [
            rendered(row)
            for line in lines
            for row in wrapped(_plan_row(line, self._look), columns, indent="      ")
        ]
        if not limit or len(rows) <= limit:
            return rows
        more = [Span(f"{MARGIN}{self._look.marks.ellipsis} {len(rows) - limit + 1} more lines")]
        return [*rows[: limit - 1], rendered(more)]

    def _frame(self, now: float) -> str:
        frames = self._look.marks.frames
        return frames[int(now * FRAMES_PER_S) % len(frames)]


def _plan_row(line: str, look: Look) -> list[Span]:
    item = parts_of(line)
    if item is None:
        return [Span(f"{MARGIN}{line}", look.theme.strong)]
    mark, number, text = item
    styles = {
        "~": look.theme.warning,
        "x": look.theme.dim,
        "!": look.theme.bad,
        "-": look.theme.dim,
    }
    style = styles.get(mark[1], "")
    mark_style = look.theme.good if mark[1] == "x" else style
    return [Span(f"{MARGIN}{mark}", mark_style), Span(f" {number}. {visible_line(text)}", style)]


# Rows for tool calls: what runs, how it ended, what it changed. Pure but for the clock's value.


def _live_call(call: _CallRow, now: float, frame: str, columns: int, look: Look) -> list[str]:
    """Return the rows of a call that goes on."""
    theme = look.theme
    elapsed = f" {look.marks.dot} {now - call.started_at:.1f} s" if call.started_at else ""
    head = [Span(f"  {frame} ", theme.accent), Span(call_text.call_name(call.tool), theme.dim)]
    subject = call_text.subject_of(call.arguments, call.diffs)
    room = max(columns - _width([*head, Span(elapsed)]), _LEAST_SUBJECT)
    head += shortened_row([Span(f" {subject}", theme.dim)], room, look.marks.ellipsis)
    rows = [shortened_row([*head, Span(elapsed, theme.dim)], columns, look.marks.ellipsis)]
    for line in _last_lines(call.progress):
        row = [Span(f"    {look.marks.bar} {safe(line)}", theme.dim)]
        rows.append(shortened_row(row, columns, look.marks.ellipsis))
    return [rendered(row) for row in rows]


def _finished_call(
    call: _CallRow, *, is_good: bool, how: str, columns: int, look: Look
) -> list[str]:
    """Return the row of a call that has its receipt; `how` says how it ended."""
    theme, marks = look.theme, look.marks
    head = [
        Span(f"  {marks.done if is_good else marks.failed} ", theme.good if is_good else theme.bad),
        Span(call_text.call_name(call.tool), theme.dim),
    ]
    tail = [Span(f" {marks.dot} {how}", theme.dim if is_good else theme.bad)]
    if call.diffs and is_good:
        added, removed = call_text.counts_of(call.diffs)
        tail = [Span(f" {added}", theme.added), Span(f" {removed}", theme.removed), *tail]
    subject = call_text.subject_of(call.arguments, call.diffs)
    if subject:
        room = max(columns - _width([*head, *tail]), _LEAST_SUBJECT)
        head += shortened_row([Span(f" {subject}", theme.dim)], room, marks.ellipsis)
    return [rendered(row) for row in fitted([*head, *tail], columns)]


def _output_rows(output: str, columns: int, look: Look) -> list[str]:
    """Return the first lines of what a tool gave, and how many more there are."""
    lines = terminal_safe(output).rstrip("\n").split("\n")
    rows = [
        shortened_row(
            [Span(f"    {look.marks.bar} {safe(line)}", look.theme.dim)],
            columns,
            look.marks.ellipsis,
        )
        for line in lines[:_OUTPUT_LINES]
    ]
    if len(lines) > _OUTPUT_LINES:
        rows.append([Span(_more(len(lines) - _OUTPUT_LINES, look), look.theme.dim)])
    return [rendered(row) for row in rows]


def _diff_rows(diffs: Sequence[events.FileDiff], columns: int, look: Look) -> list[str]:
    """Return the changes of files, with line numbers where they are known.

    The row of the call names a file that is alone, and counts its lines.
    """
    rows: list[list[Span]] = []
    hidden = 0
    for diff in diffs:
        rows += _diff_title(diff, look, columns, is_alone=len(diffs) == 1)
        room = max(call_text.DIFF_LINES - len(rows), 0)
        digits = len(str(max((line.number for line in diff.lines), default=0)))
        returns = call_text.has_returns(diff)
        for line in diff.lines[:room]:
            row = _diff_line(line, call_text.text_of(line, returns=returns), digits, look)
            rows.append(shortened_row(row, columns, look.marks.ellipsis))
        hidden += max(len(diff.lines) - room, 0)
    if hidden:
        rows.append([Span(_more(hidden, look), look.theme.dim)])
    return [rendered(row) for row in rows]


def _diff_title(
    diff: events.FileDiff, look: Look, columns: int, *, is_alone: bool
) -> list[list[Span]]:
    """Return what stands above a diff, nothing where the row of its call says it all."""
    about = ["new file"] if diff.is_new else ["removed"] if diff.is_removed else []
    about += [remarks] if (remarks := call_text.remarks_on(diff)) else []
    if is_alone:
        return fitted([Span(f"    {', '.join(about)}", look.theme.dim)], columns) if about else []
    added, removed = call_text.counts_of([diff])
    title = [
        Span(f"    {visible_line(diff.path)}", look.theme.dim),
        Span(f" {', '.join(about)}" if about else "", look.theme.dim),
        Span(f" {added}", look.theme.added),
        Span(f" {removed}", look.theme.removed),
    ]
    return fitted(title, columns)


def _diff_line(line: events.DiffLine, text: str, digits: int, look: Look) -> list[Span]:
    if line.mark == "@":
        return [Span(f"    {' ' * digits} {look.marks.ellipsis}", look.theme.dim)]
    number = f"    {line.number or '':>{digits}} "
    style = {"+": look.theme.added, "-": look.theme.removed}.get(line.mark, look.theme.dim)
    return [Span(number, look.theme.dim), Span(f"{call_text.mark_of(line)} {safe(text)}", style)]


def _more(count: int, look: Look) -> str:
    return f"    {look.marks.ellipsis} {count} more line{'s' if count > 1 else ''}"


def _last_lines(text: str) -> list[str]:
    lines = text.rstrip("\n").split("\n") if text.strip() else []
    return lines[-_PROGRESS_LINES:]


def _width(row: Row) -> int:
    return sum(width_of(span.text) for span in row)
