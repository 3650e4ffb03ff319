"""Shows a turn while it happens: text to one stream, everything about it to another."""

import os
from typing import TextIO

import msgspec

from clawctl.plan import plan_text
from clawctl.render import Palette, size, without_status
from clawctl.views import compressed_line
from clawd.wire.events import (
    ApprovalResolved,
    ContextCompressed,
    Event,
    HopFinished,
    HopReset,
    HopUsage,
    ModelLoading,
    Notice,
    PlanChanged,
    PromptEvaluated,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    TokenLedger,
    ToolFinished,
    ToolProgress,
    ToolRequested,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    TurnUsage,
)
from clawd.wire.safe_text import NAME_LIMIT, terminal_safe, visible_line

ARGUMENTS_SHOWN = 160
OUTPUT_LINES_SHOWN = 6
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
CLEAR_LINE = "\r\x1b[2K"


class CallRecord(msgspec.Struct, kw_only=True):
    """One tool call of the turn, for --json.

    Attributes:
        tool: the name that the model called.
        ran: the tool that it was read as, once the call has ended.
    """

    call_id: str
    tool: str
    arguments: str
    status: str = "unfinished"
    output: str = ""
    receipt_id: str = ""
    duration_ms: int = 0
    ran: str = ""


class ViewOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a view shows beside the text.

    Attributes:
        text: stream the answer's text.
        rows: notices, approvals and the like.
        calls: tool calls and what came of them; with `rows` only.
        metrics: progress, prompt evaluation and speed.
        details: reasoning, and the first lines of what tools gave.
        reasoning: show reasoning whole where it would be folded.
    """

    text: bool = True
    rows: bool = True
    calls: bool = True
    metrics: bool = True
    details: bool = False
    reasoning: bool = False


class TurnView:
    """Takes a turn's events in order and shows them; keeps what a summary needs.

    Attributes:
        conversation_id: of the turn, once it began.
        calls: its tool calls, in order.
        notices: texts of its notices.
        hops: what each of its requests to the model cost, in order.
        context_size: the last one heard of, 0 for unknown.
    """

    def __init__(self, out: TextIO, err: TextIO, options: ViewOptions) -> None:
        self._out = out
        self._err = err
        self._options = options
        self._palette = Palette.of(err)
        self._has_status = err.isatty() and os.environ.get("TERM", "") != "dumb"
        self._status = ""
        self._frame = 0
        self._hop_text = ""
        self._last_text = ""
        self._is_mid_line = False
        self._is_reasoning = False
        self._progressed: set[str] = set()
        self.conversation_id = ""
        self.calls: dict[str, CallRecord] = {}
        self.notices: list[str] = []
        self.hops: list[HopUsage] = []
        self.context_size = 0

    @property
    def animates(self) -> bool:
        """Whether `tick` should be called while nothing happens."""
        return self._has_status and self._options.metrics

    def show(self, event: Event) -> None:
        """Show one event."""
        self.conversation_id = conversation_after(event, self.conversation_id)
        match event:
            case TurnStarted():
                self._progress("thinking")
            case ModelLoading():
                self._progress(loading_line(event))
            case PromptProgress():
                self._progress(progress_line(event, self.context_size))
            case PromptEvaluated():
                self._evaluated(event)
            case ReasoningDelta():
                self._reasoning(event.text)
            case TextDelta():
                self._text(event.text)
            case HopReset():
                self._hop_reset(event.reason)
            case HopFinished():
                self.hops.append(event.usage)
            case ToolRequested() | ToolStarted() | ToolProgress() | ToolFinished():
                self._show_tool(event)
            case _:
                self._show_remark(event)

    def tick(self) -> None:
        """Turn the spinner while nothing happens."""
        if self._status and self.animates:
            self._frame += 1
            self._draw_status()

    def pause(self) -> None:
        """Leave the line to somebody else, who asks a question."""
        self._close_line()

    def finish(self, text: str | None, finished: TurnFinished | None = None) -> None:
        """End the turn's lines; `text` is the whole answer, of which some may be shown already."""
        # A turn that is stopped says why below the last text there was.
        shown = {self._hop_text or self._last_text, self._last_text + self._hop_text}
        if text is not None and text not in shown:
            if not text.startswith(self._hop_text):
                self._close_line()
                self._hop_text = ""
            self._text(text.removeprefix(self._hop_text))
        self._close_line()
        if finished is None or not self._options.metrics:
            return
        if self._options.details and finished.ledger.parts:
            self._row(self._palette.dim(ledger_line(finished.ledger)))
        summary = usage_line(finished.usage)
        if summary:
            self._row(self._palette.dim(summary))

    def _show_remark(self, event: Event) -> None:
        match event:
            case Notice():
                self._notice(event)
            case PlanChanged():
                self._row(plan_text(event.markdown, self._palette))
            case ContextCompressed():
                self._row(compressed_line(event))
            case ApprovalResolved():
                self._row(self._palette.dim(resolved_line(event)))
            case _:
                # TurnFinished and TurnFailed come again as the request's end; Unknown is newer.
                pass

    def _show_tool(self, event: ToolRequested | ToolStarted | ToolProgress | ToolFinished) -> None:
        if not self._options.calls:
            return
        match event:
            case ToolRequested():
                self.calls[event.call_id] = CallRecord(
                    call_id=event.call_id, tool=event.tool, arguments=event.arguments
                )
                self._end_hop()
                shown = visible_line(event.arguments, ARGUMENTS_SHOWN)
                self._row(f"{self._palette.cyan('→')} {visible_line(event.tool)} {shown}")
            case ToolStarted():
                self._progress(f"running {visible_line(event.tool, NAME_LIMIT)}")
            case ToolProgress():
                self._tool_output(event)
            case ToolFinished():
                self._tool_finished(event)

    def _text(self, text: str) -> None:
        if self._is_reasoning:
            self._close_line()
        self._hop_text += text
        if self._options.text and text:
            self._hide_status()
            self._is_mid_line = not text.endswith("\n")
            self._out.write(terminal_safe(text))
            self._out.flush()

    def _reasoning(self, text: str) -> None:
        if not self._options.details:
            self._progress("thinking")
            return
        if not self._is_reasoning:
            self._close_line()
            self._is_reasoning = True
        self._hide_status()
        self._err.write(self._palette.dim(terminal_safe(text)))
        self._err.flush()

    def _hop_reset(self, reason: str) -> None:
        if self._hop_text and self._options.text:
            self._close_line()
            self._row(self._palette.yellow("the text above is void; it is asked again"))
        self._hop_text = ""
        self._row(self._palette.dim(f"● again: {visible_line(reason)}"))

    def _notice(self, event: Notice) -> None:
        self.notices.append(event.text)
        paint = self._palette.yellow if event.level == "warning" else self._palette.dim
        self._row(paint(f"● {visible_line(event.text)}"), is_warning=event.level == "warning")

    def _evaluated(self, event: PromptEvaluated) -> None:
        self.context_size = event.context_size or self.context_size
        if self._options.metrics:
            self._row(self._palette.dim(evaluation_line(event)))

    def _tool_output(self, event: ToolProgress) -> None:
        if not self._options.details:
            return
        self._progressed.add(event.call_id)
        for line in terminal_safe(event.text).rstrip("\n").split("\n"):
            self._row(self._palette.dim(f"  │ {line}"))

    def _tool_finished(self, event: ToolFinished) -> None:
        call = self.calls.setdefault(
            event.call_id, CallRecord(call_id=event.call_id, tool=event.tool, arguments="")
        )
        call.status, call.output, call.ran = event.status, event.output, event.tool
        call.receipt_id, call.duration_ms = event.receipt_id, event.duration_ms
        first, *rest = terminal_safe(event.output).rstrip("\n").split("\n")
        mark = self._palette.green("✓") if event.status == "allowed" else self._palette.red("✗")
        about = f"{event.duration_ms} ms  {self._palette.dim(visible_line(event.receipt_id))}"
        self._row(f"{mark} {visible_line(event.tool)} {event.status}  {about}")
        if event.status != "allowed":
            self._row(f"  {visible_line(without_status(first))}")
        elif self._options.details and event.call_id not in self._progressed:
            shown = [first, *rest][:OUTPUT_LINES_SHOWN]
            hidden = 1 + len(rest) - len(shown)
            lines = [*shown, f"… {hidden} more lines"] if hidden else shown
            self._row(self._palette.dim("\n".join(f"  │ {line}" for line in lines)))

    def _row(self, text: str, *, is_warning: bool = False) -> None:
        if not self._options.rows and not is_warning:
            return
        self._close_line()
        self._err.write(f"{text}\n")
        self._err.flush()

    def _close_line(self) -> None:
        self._hide_status()
        if self._is_reasoning:
            self._err.write("\n")
            self._err.flush()
            self._is_reasoning = False
        if self._is_mid_line:
            self._out.write("\n")
            self._out.flush()
            self._is_mid_line = False

    def _end_hop(self) -> None:
        self._close_line()
        self._last_text = self._hop_text or self._last_text
        self._hop_text = ""

    def _progress(self, text: str) -> None:
        if self.animates and not self._hop_text:
            self._status = text
            self._draw_status()

    def _draw_status(self) -> None:
        frame = FRAMES[self._frame % len(FRAMES)]
        self._err.write(f"{CLEAR_LINE}{self._palette.dim(f'{frame} {self._status}')}")
        self._err.flush()

    def _hide_status(self) -> None:
        if self._status:
            self._status = ""
            self._err.write(CLEAR_LINE)
            self._err.flush()


def conversation_after(event: Event, before: str) -> str:
    """Return the conversation that a turn is in; one that failed may have none any more."""
    return event.conversation_id if isinstance(event, TurnStarted | TurnFailed) else before


def ledger_line(ledger: TokenLedger) -> str:
    """Return what fills the context, by part."""
    parts = [f"{visible_line(part.name)} {part.tokens}" for part in ledger.parts]
    if ledger.context_size:
        parts.append(f"free {ledger.free}")
        left_out = sum(part.tokens for part in ledger.parts) + ledger.free - ledger.context_size
        if left_out > 0:
            parts.append(f"{left_out} of these left out by the chat template")
    about = "about " if ledger.is_estimate else ""
    return f"● context: {about}{' · '.join(parts)}"


def loading_line(event: ModelLoading) -> str:
    """Return how far the load of a model is, on one line."""
    share = 100 * event.loaded_bytes // max(event.total_bytes, 1)
    amount = f"{size(event.loaded_bytes)} of {size(event.total_bytes)}"
    return f"loading {visible_line(event.model, NAME_LIMIT)} {share}% · {amount}"


def progress_line(event: PromptProgress, context_size: int) -> str:
    """Return how far the prompt is evaluated, and how full the context will be."""
    share = 100 * event.processed // max(event.total, 1)
    if not context_size:
        return f"thinking {share}%"
    return f"thinking {share}% · ctx {100 * event.total // context_size}%"


def evaluation_line(event: PromptEvaluated) -> str:
    """Return what the evaluation of a prompt cost."""
    fresh = event.tokens - event.cached
    speed = 1_000 * fresh / event.elapsed_ms if event.elapsed_ms > 0 else 0.0
    line = f"● prompt eval: {fresh} tok · {event.elapsed_ms:.0f} ms · {speed:.1f} t/s"
    if event.cached:
        line += f" · {event.cached} cached"
    if event.reevaluated > 1:
        line += f" · {event.reevaluated} known ones again"
    if event.context_size:
        line += f" · ctx {100 * event.context_used // event.context_size}%"
    return line


def resolved_line(event: ApprovalResolved) -> str:
    """Return how an approval was answered, and by whom."""
    answer = visible_line(event.answer, NAME_LIMIT)
    word = {"deny": "denied", "edit": "edited"}.get(answer, f"approved ({answer})")
    by = f" by {visible_line(event.by)}" if event.by else ""
    why = f": {visible_line(event.reason)}" if event.reason else ""
    return f"  {word}{by}{why}"


def usage_line(usage: TurnUsage) -> str:
    """Return the summary of a turn: fill of the context, tokens, speed; "" when none is known.

    Many a server away from here tells no size of its context, or no tokens at all.
    """
    used = usage.context_used or usage.prompt_tokens + usage.completion_tokens
    if not used:
        return ""
    share = f"{100 * used / usage.context_size:.0f}% / " if usage.context_size else ""
    speed = f"  last: {usage.tokens_per_s:04.1f}tk/s" if usage.tokens_per_s else ""
    return f"● {share}{used} tokens{speed}"
