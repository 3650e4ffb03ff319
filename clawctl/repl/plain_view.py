"""Says a turn line by line, in words, where nothing may be redrawn; chooses how a turn is drawn."""

import os
import time
from collections.abc import Callable
from typing import TextIO

from clawctl.call_text import short_arguments
from clawctl.render import percent, without_status
from clawctl.repl.canvas import Canvas, reflows, syncs
from clawctl.repl.drawn_view import DrawnView
from clawctl.repl.markdown import preload
from clawctl.repl.theme import ASCII, Look, Thoughts, chosen_look
from clawctl.request_follower import View
from clawctl.turn import TurnView, ViewOptions, conversation_after, why_of
from clawctl.views import compressed_line
from clawd.wire import events
from clawd.wire.safe_text import NAME_LIMIT, terminal_safe, visible_line

_UNKNOWN_SIZE = (80, 24)


def new_view(out: TextIO, err: TextIO, options: ViewOptions) -> View:
    """Return what draws one turn: the answer on `out`, everything about it on `err`.

    On a terminal both are one drawing; words line by line where that is asked for (`CLAWD_PLAIN`)
    or the terminal cannot be redrawn.
    """
    if not (out.isatty() and err.isatty()):
        return TurnView(out, err, options)
    look = chosen_look(out)
    if look.plain:
        return PlainView(out, options)
    if os.environ.get("TERM", "") in {"", "dumb"}:
        return TurnView(out, err, options)
    canvas = Canvas(out, lambda: _size(out), sync=syncs(os.environ), reflows=reflows(os.environ))
    return DrawnView(out, options, look, canvas)


def prepare() -> None:
    """Import what the first block will need; it takes a moment, so call it in the background."""
    preload()


def _size(out: TextIO) -> tuple[int, int]:
    try:
        size = os.get_terminal_size(out.fileno())
    except (OSError, ValueError):
        return _UNKNOWN_SIZE
    return size.columns or _UNKNOWN_SIZE[0], size.lines or _UNKNOWN_SIZE[1]


LINE_LIMIT = 4_000
RESULT_LINES = 6
_PLAIN = Look(marks=ASCII, plain=True)


class PlainView:
    """Shows a turn's events; see `following.View`. Nothing that it writes moves the cursor."""

    def __init__(
        self, out: TextIO, options: ViewOptions, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = out
        self._options = options
        self._clock = clock
        self._partial = ""
        self._hop_text = ""
        self._last_text = ""
        self._thoughts: Thoughts | None = None
        self._workspace = ""
        self._shows_results = False
        self._loaded_quarter = -1
        self._diffs: dict[str, tuple[events.FileDiff, ...]] = {}
        self.conversation_id = ""
        self.context_size = 0

    @property
    def animates(self) -> bool:
        """Whether `tick` should be called while nothing happens."""
        return False

    def show(self, event: events.Event) -> None:
        """Show one event."""
        if not isinstance(event, events.ReasoningDelta):
            self._end_thoughts()
        self.conversation_id = conversation_after(event, self.conversation_id)
        match event:
            case events.TurnStarted():
                self._workspace = event.workspace
                self._shows_results = event.shows_results
            case events.ModelLoading():
                self._loading(event)
            case events.TextDelta():
                self._text(event.text)
            case events.ReasoningDelta():
                if self._thoughts is None:
                    self._thoughts = Thoughts(self._clock(), is_whole=False)
                    self._row("Thinking.")
                self._thoughts.add(event.text)
            case events.HopReset():
                self._partial = ""
                if self._hop_text:
                    self._row("The text above is void; it is asked again.")
                self._hop_text = ""
                self._row(f"Again: {visible_line(event.reason)}")
            case (
                events.ToolRequested()
                | events.ToolStarted()
                | events.ToolProgress()
                | events.ToolFinished()
            ):
                self._show_tool(event)
            case _:
                self._show_remark(event)

    def tick(self) -> None:
        """Do nothing: time alone is no event."""

    def pause(self) -> None:
        """Leave the terminal to somebody else, who asks a question."""
        self._end_thoughts()
        self._end_hop()

    def finish(self, text: str | None, finished: events.TurnFinished | None = None) -> None:
        """End the turn's lines; `text` is the whole answer, of which some may be shown already."""
        self._end_thoughts()
        shown = {self._hop_text or self._last_text, self._last_text + self._hop_text}
        if text is not None and text not in shown:
            if not text.startswith(self._hop_text):
                self._end_hop()
            self._text(text.removeprefix(self._hop_text))
        self._end_hop()
        if finished is not None and self._options.metrics:
            cost = _cost_in_words(finished.usage)
            if cost:
                self._row(cost)

    def _show_remark(self, event: events.Event) -> None:
        match event:
            case events.PromptEvaluated():
                self.context_size = event.context_size or self.context_size
            case events.Notice():
                word = "Warning" if event.level == "warning" else "Notice"
                self._row(f"{word}: {visible_line(event.text)}", always=event.level == "warning")
            case events.MessageJoined():
                self._row(f"You said meanwhile: {visible_line(event.text)}", always=True)
            case events.PlanChanged():
                for line in terminal_safe(event.markdown).rstrip("\n").split("\n"):
                    self._row(f"Plan: {_in_words(line)}")
            case events.ContextCompressed():
                self._row(compressed_line(event).removeprefix("● "))
            case events.ApprovalRequested():
                self._diffs[event.call_id] = event.changes
            case events.ApprovalResolved():
                words = {"deny": "Denied", "edit": "Edited"}
                by = f" by {visible_line(event.by)}" if event.by else ""
                self._row(f"{words.get(event.answer, 'Approved')}{by}{why_of(event)}.")
            case _:
                pass

    def _show_tool(
        self,
        event: events.ToolRequested
        | events.ToolStarted
        | events.ToolProgress
        | events.ToolFinished,
    ) -> None:
        name = visible_line(getattr(event, "tool", ""), NAME_LIMIT)
        match event:
            case events.ToolRequested():
                self._end_hop()
                self._row(f"Tool {name} is asked for: {short_arguments(event.arguments)}")
            case events.ToolStarted():
                if event.changes:
                    self._diffs[event.call_id] = event.changes
                self._row(f"Tool {name} runs.")
            case events.ToolFinished():
                how = "is done" if event.status == "allowed" else event.status
                about = f"{event.duration_ms} ms"
                if self._options.details:
                    about += f", receipt {visible_line(event.receipt_id)}"
                self._row(f"Tool {name} {how} after {about}.")
                diffs = self._diffs.pop(event.call_id, ())
                if event.status != "allowed":
                    self._row(visible_line(without_status(event.output.split("\n", 1)[0])))
                elif self._shows_results and not diffs:
                    for line in terminal_safe(event.output).rstrip("\n").split("\n")[:RESULT_LINES]:
                        self._row(f"Result: {visible_line(line)}")
                for diff in diffs if event.status == "allowed" else ():
                    path = visible_line(diff.path)
                    self._row(f"Changed {path}: {diff.added} lines added, {diff.removed} removed.")
            case _:
                pass  # output comes whole with the end

    def _loading(self, event: events.ModelLoading) -> None:
        """Tell the load of a model by quarters."""
        quarter = 4 * event.loaded_bytes // max(event.total_bytes, 1)
        if quarter != self._loaded_quarter:
            self._loaded_quarter = quarter
            self._row(f"Loading {visible_line(event.model, NAME_LIMIT)}: {25 * quarter} percent.")

    def _text(self, text: str) -> None:
        self._hop_text += text
        *lines, self._partial = (self._partial + text).split("\n")
        if len(self._partial) > LINE_LIMIT:
            lines, self._partial = [*lines, self._partial], ""
        for line in lines if self._options.text else []:
            self._write(terminal_safe(line.removesuffix("\r")))

    def _end_hop(self) -> None:
        if self._partial and self._options.text:
            self._write(terminal_safe(self._partial))
        self._partial = ""
        self._last_text = self._hop_text or self._last_text
        self._hop_text = ""

    def _end_thoughts(self) -> None:
        if self._thoughts is not None:
            summary = self._thoughts.summary(self._clock(), _PLAIN).removeprefix("> t")
            self._thoughts = None
            self._row(f"T{summary}.")

    def _row(self, text: str, *, always: bool = False) -> None:
        if self._options.rows or always:
            self._write(text)

    def _write(self, line: str) -> None:
        self._out.write(f"{line}\n")
        self._out.flush()


_STATES = {" ": "to do", "~": "under way", "x": "done", "!": "blocked", "-": "dropped"}


def _in_words(line: str) -> str:
    from clawctl.call_text import parts_of

    item = parts_of(line)
    if item is None:
        return visible_line(line)
    mark, number, text = item
    return f"{number}. {visible_line(text)}, {_STATES.get(mark[1], 'unknown')}"


def _cost_in_words(usage: events.TurnUsage) -> str:
    """Return what is known of a turn's cost, "" for nothing."""
    used = usage.context_used or usage.prompt_tokens + usage.completion_tokens
    share = f"Context {percent(used, usage.context_size)} percent" if usage.context_size else ""
    speed = f"{usage.tokens_per_s:.1f} tokens per second" if usage.tokens_per_s else ""
    parts = [share, f"{used} tokens" if used else "", speed]
    cost = ", ".join(part for part in parts if part)
    return f"{cost}." if cost else ""
