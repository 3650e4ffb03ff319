r"""`agent --output-format stream-json`: a turn as lines of JSON, and answers read from stdin.

One event stands on each line; the first is `begin`, the last is `end`, whatever happened:

    {"type":"begin","conversation_id":"conv-01J…","mode":"supervised","workspace":"/home/ada/src",…}
    {"type":"text","text":"I run the tests."}
    {"type":"tool_call","call_id":"call-1","tool":"shell","arguments":"{\"command\":\"make\"}"}
    {"type":"approval","id":"approval-01J…","call_id":"call-1","tool":"shell","risk":"medium",…}
    {"type":"tool_result","call_id":"call-1","status":"allowed","receipt_id":"receipt-01J…",…}
    {"type":"end","reason":"stop","exit_code":0,"usage":{…},"text":"…",…}

A program answers on its standard input, a line each:

    {"type":"approval","id":"approval-01J…","answer":"once"}
    {"type":"question","id":"question-01J…","answer":"blue"}

Where stdin has ended nobody can be asked: what needs an approval is denied. Types and fields may be
added; none is renamed, taken away or given another meaning within a major version.
"""

import inspect
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

from clawctl.approve import is_past, is_resolved
from clawctl.client import Stream
from clawctl.safe_stream import plain
from clawd.errors import ClawError
from clawd.wire import events
from clawd.wire.codec import mirror
from clawd.wire.safe_text import ascii_json, visible_line

SCHEMA = Path(__file__).with_name("stream-json.schema.json")
MAX_LINE_BYTES = 64 * 1024
READ_BYTES = 4_096
SHOWN_BYTES = 200


class StreamLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """A line that is written or read."""


class Begin(StreamLine, frozen=True, kw_only=True, tag="begin"):
    """The turn begins; `mode` is how far the model may go, `workspace` where its tools act."""

    conversation_id: str
    turn_id: str
    provider: str
    model: str
    mode: str
    workspace: str


class StreamedText(StreamLine, frozen=True, kw_only=True, tag="text"):
    """Text of the answer, to append."""

    text: str


class StreamedReasoning(StreamLine, frozen=True, kw_only=True, tag="reasoning"):
    """What the model thinks, to append; no part of the answer."""

    text: str


class Reset(StreamLine, frozen=True, kw_only=True, tag="reset"):
    """The text since the last tool result, or since the beginning, is void; it is asked again."""

    reason: str


class Joined(StreamLine, frozen=True, kw_only=True, tag="joined"):
    """What a person said while the turn ran; the model reads it from here on."""

    text: str


class StreamedCall(StreamLine, frozen=True, kw_only=True, tag="tool_call"):
    """The model asks for a call; `arguments` is JSON text, and may be none where it is broken."""

    call_id: str
    tool: str
    arguments: str


class Approval(StreamLine, frozen=True, kw_only=True, tag="approval"):
    """Somebody must say yes before a call runs: here, or by `clawctl approval approve ID`.

    Attributes:
        id: what an answer names.
        arguments: JSON text, as it would run.
        rule: what `project` and `always` would allow from now on; "" where they cannot.
        patterns: what such a rule covers where it is one by patterns.
        unlisted: what of a command is on no list.
        changes: what becomes of files.
        answers: the words that are an answer.
    """

    id: str
    call_id: str
    tool: str
    arguments: str
    risk: str
    reason: str
    workspace: str
    rule: str
    patterns: tuple[str, ...]
    unlisted: tuple[str, ...]
    changes: tuple[events.FileDiff, ...]
    answers: tuple[str, ...]


class ApprovalAnswered(StreamLine, frozen=True, kw_only=True, tag="approval_answered"):
    """An approval was answered, here or elsewhere, or ran out."""

    id: str
    answer: str
    by: str
    reason: str


class StreamedQuestion(StreamLine, frozen=True, kw_only=True, tag="question"):
    """The model or clawd asks something; any text answers it, an option where there are some.

    `default` is what a person says by Enter alone; "" is no answer. With `url` it asks whether that
    page is opened where the person is: `opened` says that it was, "" says no, and any other text
    why not.
    """

    id: str
    text: str
    options: tuple[str, ...]
    default: str
    url: str


class ToolStart(StreamLine, frozen=True, kw_only=True, tag="tool_start"):
    """A call was let through and runs; `changes` is what it makes of files."""

    call_id: str
    tool: str
    changes: tuple[events.FileDiff, ...]


class ToolOutput(StreamLine, frozen=True, kw_only=True, tag="tool_output"):
    """Output of a call that runs, to append."""

    call_id: str
    text: str


class StreamedResult(StreamLine, frozen=True, kw_only=True, tag="tool_result"):
    """A call has ended and has its receipt; `output` is what the model is told."""

    call_id: str
    tool: str
    status: Literal["allowed", "denied", "failed"]
    output: str
    receipt_id: str
    duration_ms: int
    exit_code: int | None


class StreamedPlan(StreamLine, frozen=True, kw_only=True, tag="plan"):
    """The plan is now this Markdown list."""

    markdown: str


class StreamedCompression(StreamLine, frozen=True, kw_only=True, tag="compressed"):
    """Older messages were replaced by a summary."""

    messages_replaced: int
    tokens_before: int
    tokens_after: int


class Remark(StreamLine, frozen=True, kw_only=True, tag="notice"):
    """Something that a person should know; the turn goes on."""

    level: Literal["info", "warning"]
    text: str


class TurnProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a turn ended without an answer."""

    code: str
    message: str
    hint: str


class End(StreamLine, frozen=True, kw_only=True, tag="end"):
    """The last line.

    Attributes:
        reason: stop, length, cap (of rounds or of time), loop (no progress), cancelled, failed.
        exit_code: of the program.
        text: the whole answer.
        denied: calls that were denied.
        unanswered_approvals: of these, because nobody could be asked.
        waits_for: the approval that nobody answered and that the turn ended at; a late answer lets
            it go on. "" for none.
        claims: what the answer plainly says was done, checked against the receipts: `contradicted`
            where no call did it, `failed` where one was to and did not.
        error: what went wrong, null where the turn has an answer.
    """

    reason: Literal["stop", "length", "cap", "loop", "cancelled", "failed"]
    exit_code: int
    conversation_id: str
    turn_id: str = ""
    text: str = ""
    usage: events.TurnUsage = events.TurnUsage()
    denied: int = 0
    unanswered_approvals: int = 0
    waits_for: str = ""
    claims: tuple[events.Claim, ...] = ()
    error: TurnProblem | None = None


Written = (
    Begin
    | StreamedText
    | StreamedReasoning
    | Reset
    | Joined
    | StreamedCall
    | Approval
    | ApprovalAnswered
    | StreamedQuestion
    | ToolStart
    | ToolOutput
    | StreamedResult
    | StreamedPlan
    | StreamedCompression
    | Remark
    | End
)


class ApprovalAnswer(
    StreamLine, frozen=True, kw_only=True, tag="approval", forbid_unknown_fields=True
):
    """The answer to an approval: only this call, what its rule matches, or no."""

    id: str
    answer: Literal["once", "conversation", "project", "always", "deny"]


class QuestionAnswer(
    StreamLine, frozen=True, kw_only=True, tag="question", forbid_unknown_fields=True
):
    """The answer to a question."""

    id: str
    answer: str


Answer = ApprovalAnswer | QuestionAnswer


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a line that is written; `$defs` has that of one that is read."""
    (line, answer), parts = msgspec.json.schema_components(
        (Written, Answer), ref_template="#/$defs/{name}"
    )
    for part in parts.values():  # Python 3.13 takes the margin away by itself
        part["description"] = inspect.cleandoc(part["description"])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "a line of clawctl agent --output-format stream-json",
        **line,
        "$defs": {**parts, "Answer": answer},
    }


class JsonLines:
    """Writes what happens in a turn as lines of JSON; see `following.View`.

    Attributes:
        conversation_id: of the turn, once it began.
        mode: how far the model may go where a conversation does not say.
    """

    animates = False

    def __init__(self) -> None:
        self.mode = ""
        self.conversation_id = ""
        self.turn_id = ""
        self.context_size = 0

    def show(self, event: events.Event) -> None:
        """Write an event, where it is one of those that are written."""
        if isinstance(event, events.TurnStarted):
            self.conversation_id, self.turn_id = event.conversation_id, event.turn_id
        line = line_of(event, self.mode)
        if line is not None:
            write(line)

    def tick(self) -> None:
        """Do nothing: time alone is no event."""

    def pause(self) -> None:
        """Do nothing: no terminal is shared."""

    def finish(self, text: str | None, finished: events.TurnFinished | None = None) -> None:
        """Do nothing: `end` or `fail` writes the last line."""

    def end(self, finished: events.TurnFinished, exit_code: int) -> None:
        """Write the last line of a turn that has an answer."""
        reason = finished.stop_reason
        write(mirror(End, finished, reason=reason, exit_code=exit_code, error=None))

    def fail(self, error: ClawError, exit_code: int) -> None:
        """Write the last line of a turn that has none."""
        write(
            End(
                reason="cancelled" if error.code == "cancelled" else "failed",
                exit_code=exit_code,
                conversation_id=self.conversation_id,
                turn_id=self.turn_id,
                error=TurnProblem(code=error.code, message=error.message, hint=error.hint),
            )
        )


_SAME: dict[type[events.Event], type[Written]] = {
    events.TextDelta: StreamedText,
    events.ReasoningDelta: StreamedReasoning,
    events.HopReset: Reset,
    events.MessageJoined: Joined,
    events.PlanChanged: StreamedPlan,
    events.Notice: Remark,
    events.ContextCompressed: StreamedCompression,
    events.ToolRequested: StreamedCall,
    events.ToolStarted: ToolStart,
    events.ToolProgress: ToolOutput,
    events.ToolFinished: StreamedResult,
}
"""Events whose lines have their fields by the same names."""


def line_of(event: events.Event, mode: str) -> Written | None:
    """Return the line of an event; None for one that is about speed, or of no turn."""
    match event:
        case events.TurnStarted():
            return mirror(Begin, event, mode=event.mode or mode)
        case events.ApprovalRequested():
            rules = ("project", "always") if event.rule else ()
            answers = ("once", "conversation", *rules, "deny")
            return mirror(Approval, event, id=event.approval_id, answers=answers)
        case events.ApprovalResolved():
            return mirror(ApprovalAnswered, event, id=event.approval_id)
        case events.QuestionAsked():
            return mirror(StreamedQuestion, event, id=event.question_id)
        case _:
            kind = _SAME.get(type(event))
            return mirror(kind, event) if kind is not None else None


def write(line: Written) -> None:
    """Write a line to stdout, at once; what a terminal would act on is escaped in it."""
    out = plain(sys.stdout)
    out.write(ascii_json(msgspec.json.encode(line).decode()) + "\n")
    out.flush()


class Program:
    """The program at the other end of stdin and stdout, which answers what is asked.

    It may say of a question what it likes as long as that is open; what it says of another one is
    kept until that one is asked.

    Attributes:
        unanswered: approvals that nobody could give, because stdin had ended.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._decoder = msgspec.json.Decoder(Answer)
        self._partial = b""
        self._answers: dict[str, str] = {}
        self._has_ended = False
        self.unanswered = 0

    def approve(self, request: events.ApprovalRequested, stream: Stream[Any]) -> None:
        """Wait for the answer and send it; where nobody can say any, it is no."""

        def is_over() -> bool:
            return is_resolved(stream, request.approval_id)

        answer = self._answer_to(request.approval_id, stream, is_over)
        if not is_over():
            self.unanswered += answer is None
            stream.answer(request.approval_id, answer or "deny", request.digest)

    def answer(self, question: events.QuestionAsked, stream: Stream[Any]) -> None:
        """Wait for the answer and send it; where nobody can say any, it is empty."""
        answer = self._answer_to(question.question_id, stream, lambda: is_past(stream))
        if not is_past(stream):
            stream.answer(question.question_id, answer or "")

    def _answer_to(
        self, asked: str, stream: Stream[Any], is_over: Callable[[], bool]
    ) -> str | None:
        while not is_over():
            if asked in self._answers:
                return self._answers.pop(asked)
            if self._has_ended:
                return None
            readable, _, _ = select.select([self._descriptor, stream.fileno()], [], [])
            if self._descriptor in readable:
                self._read()
            else:
                stream.read(0)
        return None

    def _read(self) -> None:
        data = os.read(self._descriptor, READ_BYTES)
        self._has_ended = not data
        *lines, self._partial = (self._partial + (data or b"\n")).split(b"\n")
        if len(self._partial) > MAX_LINE_BYTES:
            lines, self._partial = [*lines, self._partial], b""
        for line in lines:
            if line.strip():
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            answer = self._decoder.decode(line)
        except msgspec.DecodeError as error:
            shown = visible_line(line[:SHOWN_BYTES].decode(errors="replace"))
            write(Remark(level="warning", text=f"stdin: {shown!r} is not an answer: {error}"))
            return
        self._answers[answer.id] = answer.answer
