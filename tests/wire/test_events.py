"""Events on the wire: every kind there and back, and those that this side does not know."""

import typing

import msgspec
import pytest

from clawd.errors import ProtocolError
from clawd.wire.codec import pack, to_builtins, unpack_event
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    ContextCompressed,
    Event,
    HopFinished,
    HopReset,
    HopUsage,
    McpLine,
    MessageJoined,
    ModelLoading,
    Notice,
    PlanChanged,
    PromptEvaluated,
    PromptProgress,
    QuestionAsked,
    ReasoningDelta,
    SessionFileChanged,
    SessionFileDeleted,
    TextDelta,
    ToolDraft,
    ToolFinished,
    ToolProgress,
    ToolRequested,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    TurnUsage,
    Unknown,
)
from tests.support.rows import each_row

SAMPLES: list[Event] = [
    TurnStarted(conversation_id="c", turn_id="t", provider="p", model="m", workspace="/w"),
    ModelLoading(model="m", loaded_bytes=5, total_bytes=9),
    PromptProgress(processed=5, cached=2, total=9),
    PromptEvaluated(tokens=9, cached=2, elapsed_ms=1.5, context_used=9, context_size=4096),
    ReasoningDelta(text="hm"),
    TextDelta(text="a\x1b[31m‮b"),
    ToolDraft(tool="shell", text='{"comm'),
    ToolRequested(call_id="1", tool="shell", arguments='{"command":"ls"}'),
    ApprovalRequested(
        approval_id="a", digest="d", call_id="1", tool="shell", arguments="{}", risk="medium",
        reason="why", workspace="/w", rule="r", expires_in_s=3.5,
    ),
    ApprovalResolved(approval_id="a", answer="once", by="uid 1", reason=""),
    QuestionAsked(question_id="q", text="which?", options=("a", "b"), expires_in_s=1.0),
    ToolStarted(call_id="1", tool="shell", sandbox="bwrap"),
    ToolProgress(call_id="1", text="line\n"),
    ToolFinished(
        call_id="1", tool="shell", status="allowed", output="o", receipt_id="r", duration_ms=4
    ),
    PlanChanged(markdown="- [ ] x"),
    HopReset(reason="again"),
    HopFinished(usage=HopUsage(prompt_tokens=9, cached_tokens=7, new_tokens=2)),
    ContextCompressed(messages_replaced=3, tokens_before=10, tokens_after=4),
    SessionFileChanged(name="a.txt", mime="text/plain", summary="s", size=9, is_by_model=True),
    SessionFileDeleted(name="a.txt"),
    Notice(level="warning", text="careful"),
    MessageJoined(turn_id="t", text="and the tests", steer_id="1"),
    TurnFinished(
        conversation_id="c", turn_id="t", text="done", stop_reason="cap",
        usage=TurnUsage(prompt_tokens=3, rounds=1), denied=1, unanswered_approvals=1,
    ),
    TurnFailed(conversation_id="c", turn_id="t", code="busy", message="m", hint="h"),
    McpLine(text="{}"),
    Unknown(name="future"),
]  # fmt: skip


def test_there_is_a_sample_of_every_event() -> None:
    assert {type(sample) for sample in SAMPLES} == set(typing.get_args(Event))


@each_row("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_an_event_arrives_as_it_was(event: Event) -> None:
    assert unpack_event(pack(event)) == event


def test_every_tag_is_its_own() -> None:
    tags = [to_builtins(sample)["type"] for sample in SAMPLES]
    assert len(set(tags)) == len(tags)


def test_an_event_of_a_newer_daemon_becomes_unknown() -> None:
    newer = pack({"type": "hologram_shown", "depth": [[[1]]], "text": "x"})
    assert unpack_event(newer) == Unknown(name="hologram_shown")


def test_a_known_event_with_more_fields_is_still_known() -> None:
    assert unpack_event(pack({"type": "text", "text": "x", "colour": 3})) == TextDelta(text="x")


def test_a_known_event_of_another_shape_is_skipped_by_name() -> None:
    assert unpack_event(pack({"type": "text", "text": ["x"]})) == Unknown(name="text")


@each_row("value", [None, 3, "text", [], ["text"], {}, {"type": 3}, {"text": "x"}])
def test_what_is_no_event_at_all_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError, match="not an event"):
        unpack_event(pack(value))


@each_row("body", [b"", b"\x81", b"\xff", b"\x91" * 100_000, b"\xc1"])
def test_broken_bytes_are_no_event(body: bytes) -> None:
    with pytest.raises(ProtocolError, match="not an event"):
        unpack_event(msgspec.Raw(body))
