"""Shows a turn while it happens: text to one stream, everything about it to another."""

import json
import os
import re
import time
from typing import TextIO

import msgspec

from clawctl.call_text import call_name, counts_of, ending, plan_text, reasons, subject_of
from clawctl.render import Palette, percent, size, without_status
from clawctl.views import compressed_line
from clawd.wire import events
from clawd.wire.safe_text import NAME_LIMIT, terminal_safe, visible_line

ARGUMENTS_SHOWN = 160
OUTPUT_LINES_SHOWN = 6
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SILENCE_S = 0.2
CLEAR_LINE = "\r\x1b[2K"
DRAFT_HEAD = 2_000
_FAST = 10  # tokens a second
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SUBJECT = re.compile(r'"(?:command|path|url|query|pattern)"\s*:\s*"((?:[^"\\]|\\.)*)', re.DOTALL)


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
        metrics: progress, speed and size.
        details: what a terminal is spared else: reasoning and the first lines of what tools gave,
            ids of receipts, what the prompt cost and what fills the context.
        reasoning: show reasoning whole where it would be folded.
        spaced: an empty line stands before the first line, where they are drawn.
    """

    text: bool = True
    rows: bool = True
    calls: bool = True
    metrics: bool = True
    details: bool = False
    reasoning: bool = False
    spaced: bool = False


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
        # A person has one line for a call; who keeps a log, all of it.
        self._is_brief = err.isatty() and not options.details
        self._changes: dict[str, tuple[events.FileDiff, ...]] = {}
        self._shows_results = options.details
        self._is_silent = True  # nothing was shown yet
        self._due_at = time.monotonic() + SILENCE_S
        self._status = ""
        self._frame = 0
        self._draft: DraftedCall | None = None
        self._hop_text = ""
        self._last_text = ""
        self._is_mid_line = False
        self._is_reasoning = False
        self._progressed: set[str] = set()
        self.conversation_id = ""
        self.calls: dict[str, CallRecord] = {}
        self.notices: list[str] = []
        self.hops: list[events.HopUsage] = []
        self.context_size = 0

    @property
    def animates(self) -> bool:
        """Whether `tick` should be called while nothing happens."""
        return self._draws or (self._is_silent and self._options.metrics)

    @property
    def _draws(self) -> bool:
        return self._has_status and self._options.metrics

    def show(self, event: events.Event) -> None:
        """Show one event."""
        self.conversation_id = conversation_after(event, self.conversation_id)
        match event:
            case events.TurnStarted():
                self._shows_results = self._shows_results or event.shows_results
                self._progress("thinking")
            case events.ModelLoading():
                self._progress(loading_line(event))
            case events.PromptProgress():
                self._progress(progress_line(event, self.context_size))
            case events.PromptEvaluated():
                self._evaluated(event)
            case events.ReasoningDelta():
                self._reasoning(event.text)
            case events.TextDelta():
                self._text(event.text)
            case events.HopReset():
                self._draft = None
                self._hop_reset(event.reason)
            case events.HopFinished():
                self._draft = None
                self.hops.append(event.usage)
            case (
                events.ToolDraft()
                | events.ToolRequested()
                | events.ToolStarted()
                | events.ToolProgress()
                | events.ToolFinished()
            ):
                self._show_tool(event)
            case _:
                self._show_remark(event)

    def tick(self) -> None:
        """Turn the spinner while nothing happens; a pipe is told once that the model is at it."""
        is_due = self._is_silent and time.monotonic() >= self._due_at
        if is_due and self._draws:
            self._status = self._status or "waiting"
        elif is_due and self._options.metrics:
            self._row(self._palette.dim("● reading the prompt"))
        if self._status and self._draws:
            self._frame += 1
            self._draw_status()

    def pause(self) -> None:
        """Leave the line to somebody else, who asks a question."""
        self._close_line()

    def finish(self, text: str | None, finished: events.TurnFinished | None = None) -> None:
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
        summary = footer(finished.usage) if self._is_brief else usage_line(finished.usage)
        if summary:
            self._row(self._palette.dim(summary))

    def _show_remark(self, event: events.Event) -> None:
        match event:
            case events.Notice():
                self._notice(event)
            case events.MessageJoined():
                self._row(f"> {visible_line(event.text)}")
            case events.PlanChanged():
                self._row(plan_text(event.markdown, self._palette))
            case events.ContextCompressed():
                self._row(compressed_line(event))
            case events.ApprovalRequested():
                self._changes[event.call_id] = event.changes
            case events.ApprovalResolved() if not (self._is_brief and is_own(event)):
                self._row(self._palette.dim(resolved_line(event)))
            case _:
                # TurnFinished and TurnFailed come again as the request's end; Unknown is newer.
                pass

    def _show_tool(
        self,
        event: events.ToolDraft
        | events.ToolRequested
        | events.ToolStarted
        | events.ToolProgress
        | events.ToolFinished,
    ) -> None:
        if not self._options.calls:
            return
        match event:
            case events.ToolDraft():
                self._draft = drafted(self._draft, event)
                self._drafting(self._draft)
            case events.ToolRequested():
                self._draft = None
                self.calls[event.call_id] = CallRecord(
                    call_id=event.call_id, tool=event.tool, arguments=event.arguments
                )
                self._end_hop()
                shown = visible_line(one_line(event.arguments), ARGUMENTS_SHOWN)
                if not self._is_brief:
                    self._row(f"{self._palette.cyan('→')} {visible_line(event.tool)} {shown}")
            case events.ToolStarted():
                self._changes[event.call_id] = event.changes or self._changes.get(event.call_id, ())
                self._progress(f"running {visible_line(event.tool, NAME_LIMIT)}")
            case events.ToolProgress():
                self._tool_output(event)
            case events.ToolFinished():
                self._tool_finished(event)

    def _text(self, text: str) -> None:
        self._is_silent = False
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

    def _notice(self, event: events.Notice) -> None:
        self.notices.append(event.text)
        paint = self._palette.yellow if event.level == "warning" else self._palette.dim
        self._row(paint(f"● {visible_line(event.text)}"), is_warning=event.level == "warning")

    def _evaluated(self, event: events.PromptEvaluated) -> None:
        self.context_size = event.context_size or self.context_size
        if self._options.metrics and not self._is_brief:
            self._row(self._palette.dim(evaluation_line(event)))

    def _tool_output(self, event: events.ToolProgress) -> None:
        if not self._options.details:
            return
        self._progressed.add(event.call_id)
        for line in terminal_safe(event.text).rstrip("\n").split("\n"):
            self._row(self._palette.dim(f"  │ {line}"))

    def _tool_finished(self, event: events.ToolFinished) -> None:
        call = self.calls.setdefault(
            event.call_id, CallRecord(call_id=event.call_id, tool=event.tool, arguments="")
        )
        call.status, call.output, call.ran = event.status, event.output, event.tool
        call.receipt_id, call.duration_ms = event.receipt_id, event.duration_ms
        if self._is_brief:
            self._brief_call(call, event)
            return
        first = terminal_safe(event.output).split("\n", 1)[0]
        mark = self._palette.green("✓") if event.status == "allowed" else self._palette.red("✗")
        about = f"{event.duration_ms} ms  {self._palette.dim(visible_line(event.receipt_id))}"
        self._row(f"{mark} {visible_line(event.tool)} {event.status}  {about}")
        if event.status != "allowed":
            self._row(f"  {visible_line(without_status(first))}")
        elif event.call_id not in self._progressed:
            self._result(event.output)

    def _result(self, output: str) -> None:
        """Show the first lines of what a tool gave."""
        if not self._shows_results:
            return
        lines = terminal_safe(output).rstrip("\n").split("\n")
        shown = lines[:OUTPUT_LINES_SHOWN]
        hidden = len(lines) - len(shown)
        more = [f"… {hidden} more line{'s' if hidden > 1 else ''}"] if hidden else []
        self._row(self._palette.dim("\n".join(f"  │ {line}" for line in [*shown, *more])))

    def _brief_call(self, call: CallRecord, event: events.ToolFinished) -> None:
        palette, diffs = self._palette, self._changes.pop(event.call_id, ())
        is_good = event.status == "allowed"
        mark = palette.green("✓") if is_good else palette.red("✗")
        counts = counts_of(diffs) if diffs and is_good else ()
        words = (call_name(event.tool), subject_of(call.arguments, diffs), *counts)
        how = f"{' '.join(filter(None, words))} · {ending(event)}"
        self._row(f"  {mark} {palette.dim(how) if is_good else how}")
        lines = reasons(event)
        for line in lines:
            self._row(f"    {palette.dim(line)}")
        if not lines:
            self._result(event.output)

    def _row(self, text: str, *, is_warning: bool = False) -> None:
        if not self._options.rows and not is_warning:
            return
        self._is_silent = False
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

    def _drafting(self, draft: "DraftedCall") -> None:
        """Show the call that is being written, below the text there is."""
        if not self._draws:
            return
        if self._is_mid_line:
            if not self._out.isatty():
                return  # what reads the text gets no more line breaks than it has
            self._close_line()
        self._status = draft.line()
        self._draw_status()

    def _progress(self, text: str) -> None:
        if self._draws and not self._hop_text:
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


class DraftedCall:
    """A call that the model is writing: what it is about, and how much of it there is."""

    def __init__(self, tool: str, index: int) -> None:
        self.tool = tool
        self.index = index
        self._head = ""
        self._half = ""  # a backslash whose other half has not come
        self._breaks = 0
        self._size = 0

    def add(self, text: str) -> None:
        """Take more of the arguments' JSON text."""
        self._head += text[: DRAFT_HEAD - len(self._head)]
        self._size += len(text)
        text = self._half + text
        end = 0
        for found in _ESCAPE.finditer(text):
            self._breaks += found[1] == "n"
            end = found.end()
        self._half = "\\" if text.endswith("\\") and end < len(text) else ""

    def line(self) -> str:
        """Return it on one line, as `writing file_write src/app.py · 12 lines`."""
        words = ["writing", visible_line(self.tool, NAME_LIMIT)]
        if subject := _SUBJECT.search(self._head):
            words.append(visible_line(_unescaped(subject[1]), NAME_LIMIT))
        if self._breaks:
            words.append(f"· {self._breaks + 1} lines")
        elif self._size:
            words.append(f"· {self._size} characters")
        return " ".join(filter(None, words))


def drafted(draft: DraftedCall | None, event: events.ToolDraft) -> DraftedCall:
    """Return the call that is being written, with one more piece; a new one for another call."""
    if draft is None or (draft.tool, draft.index) != (event.tool, event.index):
        draft = DraftedCall(event.tool, event.index)
    draft.add(event.text)
    return draft


def one_line(arguments: str) -> str:
    """Return the JSON text of a call without the line breaks that a model laid it out with."""
    if "\n" not in arguments:
        return arguments
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments


def _unescaped(text: str) -> str:
    """Return what the beginning of a JSON string says, as far as it can be read."""
    whole = re.sub(r"\\(u[0-9a-fA-F]{0,3})?$", "", text)
    try:
        return str(json.loads(f'"{whole}"', strict=False))
    except ValueError:
        return whole


def conversation_after(event: events.Event, before: str) -> str:
    """Return the conversation that a turn is in; one that failed may have none any more."""
    return (
        event.conversation_id
        if isinstance(event, events.TurnStarted | events.TurnFailed)
        else before
    )


def ledger_line(ledger: events.TokenLedger) -> str:
    """Return what fills the context, by part."""
    parts = [f"{visible_line(part.name)} {part.tokens}" for part in ledger.parts]
    if ledger.context_size:
        parts.append(f"free {ledger.free}")
        left_out = sum(part.tokens for part in ledger.parts) + ledger.free - ledger.context_size
        if left_out > 0:
            parts.append(f"{left_out} of these left out by the chat template")
    about = "about " if ledger.is_estimate else ""
    return f"● context: {about}{' · '.join(parts)}"


def loading_line(event: events.ModelLoading) -> str:
    """Return how far the load of a model is, on one line."""
    share = 100 * event.loaded_bytes // max(event.total_bytes, 1)
    amount = f"{size(event.loaded_bytes)} of {size(event.total_bytes)}"
    return f"loading {visible_line(event.model, NAME_LIMIT)} {share}% · {amount}"


def progress_line(event: events.PromptProgress, context_size: int) -> str:
    """Return how far the prompt is evaluated, and how full the context will be."""
    share = 100 * event.processed // max(event.total, 1)
    if not context_size:
        return f"thinking {share}%"
    return f"thinking {share}% · ctx {percent(event.total, context_size)}%"


def evaluation_line(event: events.PromptEvaluated) -> str:
    """Return what the evaluation of a prompt cost."""
    fresh = event.tokens - event.cached
    line = f"● prompt eval: {fresh} tok"
    if event.elapsed_ms > 0:  # else its server measured nothing
        line += f" · {event.elapsed_ms:.0f} ms · {1_000 * fresh / event.elapsed_ms:.1f} tok/s"
    if event.cached:
        line += f" · {event.cached} cached"
    if event.reevaluated > 1:
        line += f" · {event.reevaluated} known ones again"
    if event.context_size:
        line += f" · ctx {percent(event.context_used, event.context_size)}%"
    return line


def resolved_line(event: events.ApprovalResolved) -> str:
    """Return how an approval was answered, and by whom."""
    answer = visible_line(event.answer, NAME_LIMIT)
    word = {"deny": "denied", "edit": "edited"}.get(answer, f"approved ({answer})")
    by = f" by {visible_line(event.by)}" if event.by else ""
    return f"  {word}{by}{why_of(event)}"


def is_own(event: events.ApprovalResolved) -> bool:
    """Return whether the person here gave that answer, and no more is to be said of it."""
    return not event.by and not why_of(event)


def why_of(event: events.ApprovalResolved) -> str:
    """Return why, behind a colon; "" where nobody said more than yes or no."""
    says_more = event.reason and not event.reason.startswith("denied by")
    return f": {visible_line(event.reason)}" if says_more else ""


def usage_line(usage: events.TurnUsage) -> str:
    """Return the summary of a turn: fill of the context, tokens, speed; "" when none is known.

    Many a server away from here tells no size of its context, or no tokens at all.
    """
    used = usage.context_used or usage.prompt_tokens + usage.completion_tokens
    if not used:
        return ""
    share = f"{percent(used, usage.context_size)}% / " if usage.context_size else ""
    speed = f"  last: {usage.tokens_per_s:.1f} tok/s" if usage.tokens_per_s else ""
    return f"● {share}{used} tokens{speed}"


def footer(usage: events.TurnUsage) -> str:
    """Return the same for a terminal: `1.2k tok · 38 tok/s · 12 %`."""
    used = usage.context_used or usage.prompt_tokens + usage.completion_tokens
    if not used:
        return ""
    parts = [f"{_thousands(used)} tok"]
    if usage.tokens_per_s:
        parts.append(f"{usage.tokens_per_s:.{0 if usage.tokens_per_s >= _FAST else 1}f} tok/s")
    if usage.context_size:
        parts.append(f"{percent(used, usage.context_size)} %")
    return " · ".join(parts)


def _thousands(count: int) -> str:
    return f"{count / 1_000:.1f}k" if count >= 1_000 else str(count)
