"""Draws a turn on a terminal: the answer as Markdown while it comes, and below it what goes on.

What is complete goes into the scrollback once. What may still change (the block under way, running
tools, the plan, the spinner) stands below and is redrawn in place; see `canvas`.
"""

import time
from collections.abc import Callable
from typing import TextIO

from clawctl.plan import parts_of
from clawctl.render import without_status
from clawctl.repl.blocks import Piece, Splitter
from clawctl.repl.canvas import Canvas
from clawctl.repl.cells import Span, rendered, safe, shortened_row, wrapped
from clawctl.repl.echo import Echo
from clawctl.repl.markdown import Painter
from clawctl.repl.rows import CallRow, diff_rows, finished_call, live_call, output_rows
from clawctl.repl.theme import Look
from clawctl.repl.thoughts import Thoughts
from clawctl.turn import (
    ViewOptions,
    conversation_after,
    evaluation_line,
    ledger_line,
    loading_line,
    progress_line,
    resolved_line,
    usage_line,
)
from clawctl.views import compressed_line
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    ContextCompressed,
    Event,
    HopFinished,
    HopReset,
    ModelLoading,
    Notice,
    PlanChanged,
    PromptEvaluated,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolProgress,
    ToolRequested,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from clawd.wire.safe_text import terminal_safe, visible_line

FRAMES_PER_S = 10
PAINT_EVERY_S = 0.04
# Drawing takes at most one part in so many of the time; one that was held up says little of that.
PAINT_SHARE = 8
PAINT_PAUSE_S = 0.5
STALL_S = 1.5
PROGRESS_KEPT = 4_000
CALLS_SHOWN = 4


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
        options: ViewOptions,
        look: Look,
        canvas: Canvas,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._look = look
        self._canvas = canvas
        self._clock = clock
        self._echo = Echo(out)
        self._painter = Painter(look)
        self._splitter = Splitter()
        self._kept: list[str] = []
        self._calls: dict[str, CallRow] = {}
        self._thoughts: Thoughts | None = None
        self._plan = ""
        self._status = ""
        self._hop_text = ""
        self._last_text = ""
        self._hop_is_kept = False
        self._workspace = ""
        self._painted_at = -1.0
        self._paint_cost_s = 0.0
        self._heard_at = clock()
        self.conversation_id = ""
        self.context_size = 0

    @property
    def animates(self) -> bool:
        """Whether `tick` should be called while nothing happens."""
        return True

    def show(self, event: Event) -> None:
        """Show one event."""
        self._heard_at = self._clock()
        self.conversation_id = conversation_after(event, self.conversation_id)
        match event:
            case TurnStarted():
                self._workspace = event.workspace
                self._status = "thinking"
            case ModelLoading():
                self._status = loading_line(event)
            case PromptProgress():
                self._status = progress_line(event, self.context_size)
            case ReasoningDelta():
                self._think(event.text)
            case TextDelta():
                self._end_thoughts()
                self._text(event.text)
            case HopReset():
                self._hop_reset(event.reason)
            case ToolRequested() | ToolStarted() | ToolProgress() | ToolFinished():
                self._show_tool(event)
            case _:
                self._show_remark(event)
        is_text = isinstance(event, TextDelta | ReasoningDelta | ToolProgress)
        self._paint(is_urgent=not is_text)

    def tick(self) -> None:
        """Let the spinner turn and what waited be seen."""
        self._paint(is_urgent=True)

    def pause(self) -> None:
        """Leave the terminal to somebody else, who asks a question."""
        self._end_thoughts()
        self._end_hop()
        self._leave()

    def finish(self, text: str | None, finished: TurnFinished | None = None) -> None:
        """End the turn's lines; `text` is the whole answer, of which some may be shown already."""
        self._end_thoughts()
        shown = {self._hop_text or self._last_text, self._last_text + self._hop_text}
        if text is not None and text not in shown:
            if not text.startswith(self._hop_text):
                self._end_hop()
            self._text(text.removeprefix(self._hop_text))
        self._end_hop()
        for call in self._calls.values():
            self._remark(f"{self._look.marks.failed} {call.tool} did not finish", "bad")
        self._calls.clear()
        if self._plan and self._options.rows:
            self._kept += self._plan_rows(self._canvas.columns)
        if finished is not None and self._options.metrics:
            if self._options.details and finished.ledger.parts:
                self._remark(ledger_line(finished.ledger))
            summary = usage_line(finished.usage)
            if summary:
                self._remark(summary)
        self._leave()

    # --- what happened

    def _show_remark(self, event: Event) -> None:
        match event:
            case PromptEvaluated():
                self.context_size = event.context_size or self.context_size
                self._status = "thinking"
                if self._options.metrics:
                    self._remark(evaluation_line(event))
            case HopFinished():
                self._end_thoughts()
                self._status = "working"
            case Notice():
                is_warning = event.level == "warning"
                if self._options.rows or is_warning:
                    mark = self._look.marks.remark
                    self._remark(f"{mark} {event.text}", "warning" if is_warning else "dim")
            case PlanChanged():
                self._plan = event.markdown
            case ApprovalRequested():
                self._asked(event)
            case ContextCompressed() if self._options.rows:
                self._remark(compressed_line(event))
            case ApprovalResolved() if self._options.rows:
                self._remark(resolved_line(event))
            case _:
                # TurnFinished and TurnFailed come again as the request's end; Unknown is newer.
                pass

    def _show_tool(self, event: ToolRequested | ToolStarted | ToolProgress | ToolFinished) -> None:
        self._end_thoughts()
        if isinstance(event, ToolRequested):
            self._end_hop()
        if not (self._options.calls and self._options.rows):
            return
        match event:
            case ToolRequested():
                self._calls[event.call_id] = CallRow(
                    call_id=event.call_id,
                    tool=event.tool,
                    arguments=event.arguments,
                )
            case ToolStarted() if event.call_id in self._calls:
                call = self._calls[event.call_id]
                call.started_at = self._clock()
                call.diffs = event.changes or call.diffs
            case ToolProgress() if event.call_id in self._calls:
                call = self._calls[event.call_id]
                call.progress = (call.progress + event.text)[-PROGRESS_KEPT:]
            case ToolFinished():
                self._tool_finished(event)
            case _:
                pass

    def _asked(self, event: ApprovalRequested) -> None:
        """Take the call as it is asked for: a person may have edited it."""
        call = self._calls.get(event.call_id)
        if call is not None:
            call.tool, call.arguments, call.diffs = event.tool, event.arguments, event.changes

    def _tool_finished(self, event: ToolFinished) -> None:
        call = self._calls.pop(event.call_id, None) or CallRow(
            call_id=event.call_id, tool=event.tool, arguments=""
        )
        columns = self._canvas.columns
        self._kept += finished_call(
            call,
            status=event.status,
            duration_ms=event.duration_ms,
            receipt_id=event.receipt_id,
            columns=columns,
            look=self._look,
        )
        if event.status != "allowed":
            why = without_status(event.output)
            self._kept += output_rows(why, columns, self._look, is_bad=True)
        elif call.diffs:
            self._kept += diff_rows(call.diffs, columns, self._look)
        elif self._options.details and event.output and not (self._plan and call.tool == "plan"):
            self._kept += output_rows(event.output, columns, self._look)
        self._status = "working"

    def _think(self, text: str) -> None:
        if self._thoughts is None:
            self._thoughts = Thoughts(self._clock(), is_whole=self._options.reasoning)
        self._thoughts.add(text)
        self._kept += self._thoughts.rows(self._canvas.columns, self._look)

    def _end_thoughts(self) -> None:
        if self._thoughts is None:
            return
        thoughts, self._thoughts = self._thoughts, None
        self._kept += thoughts.rows(self._canvas.columns, self._look, is_over=True)
        if self._options.rows:
            self._remark(thoughts.summary(self._clock(), self._look))

    def _text(self, text: str) -> None:
        self._hop_text += text
        if self._options.text and text:
            self._status = ""
            self._keep(self._splitter.feed(text))

    def _keep(self, pieces: list[Piece]) -> None:
        self._hop_is_kept = self._hop_is_kept or bool(pieces)
        self._kept += self._painter.rows(pieces, self._canvas.columns)

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
            self._kept += map(rendered, wrapped([Span(line, sgr)], self._canvas.columns))

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
        for call in list(self._calls.values())[-CALLS_SHOWN:]:
            below += live_call(call, now, self._frame(now), columns, self._look)
        if self._plan and self._options.rows:
            below += self._plan_rows(columns, max(lines // 3, 2))
        status = self._status_row(now, columns)
        below += [status] if status else []
        text = self._painter.live_rows(self._splitter.pending(), columns)
        return text[-max(lines - len(below), 1) :] + below

    def _status_row(self, now: float, columns: int) -> str:
        if not self._options.metrics:
            return ""
        text = self._status
        if self._thoughts is not None:
            text = self._thoughts.tail(columns)
        elif self._calls:
            return ""
        elif not text and now - self._heard_at > STALL_S:
            text = "working"
        if not text:
            return ""
        row = [Span(f"{self._frame(now)} {safe(text)}", self._look.theme.dim)]
        return rendered(shortened_row(row, columns, self._look.marks.ellipsis))

    def _plan_rows(self, columns: int, limit: int = 0) -> list[str]:
        lines = terminal_safe(self._plan).rstrip("\n").split("\n")
        rows = [
            rendered(row)
            for line in lines
            for row in wrapped(_plan_row(line, self._look), columns, indent="    ")
        ]
        if not limit or len(rows) <= limit:
            return rows
        more = [Span(f"{self._look.marks.ellipsis} {len(rows) - limit + 1} more lines")]
        return [*rows[: limit - 1], rendered(more)]

    def _frame(self, now: float) -> str:
        frames = self._look.marks.frames
        return frames[int(now * FRAMES_PER_S) % len(frames)]


def _plan_row(line: str, look: Look) -> list[Span]:
    item = parts_of(line)
    if item is None:
        return [Span(line, look.theme.strong)]
    mark, number, text = item
    styles = {
        "~": look.theme.warning,
        "x": look.theme.dim,
        "!": look.theme.bad,
        "-": look.theme.dim,
    }
    style = styles.get(mark[1], "")
    mark_style = look.theme.good if mark[1] == "x" else style
    return [Span(mark, mark_style), Span(f" {number}. {visible_line(text)}", style)]
