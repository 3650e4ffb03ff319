"""What is counted of turns, requests and calls."""

import pytest

from clawd.errors import ProviderError, WorkerDiedError
from clawd.providers.base import Delta, Failed, Finished
from clawd.receipts.record import Status
from clawd.runtime.activity import Activity, DeltaMeter, ModelCounts
from clawd.runtime.hub import Broadcast, DaemonEvent, Hub
from clawd.security.principal import Principal
from clawd.tools.outcome import CallOutcome, OutcomeKind
from clawd.wire.events import (
    ApprovalRequested,
    ApprovalResolved,
    Event,
    HopFinished,
    HopReset,
    HopUsage,
    ModelLoading,
    PromptEvaluated,
    PromptProgress,
    QuestionAsked,
    ReasoningDelta,
    TextDelta,
    ToolFinished,
    ToolRequested,
    ToolStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from clawd.wire.turns import TurnLine
from tests.support.rows import each_row

USAGE = HopUsage(prompt_tokens=100, cached_tokens=60, completion_tokens=10, tokens_per_s=5.0)


def started(name: str, turn: str = "t1") -> TurnStarted:
    return TurnStarted(conversation_id=name, turn_id=turn, provider="local")


def failed(name: str, turn: str, code: str) -> TurnFailed:
    return TurnFailed(conversation_id=name, turn_id=turn, code=code, message="")


def told(*events: tuple[str, Event]) -> Activity:
    hub, activity = Hub(), Activity()
    hub.add_listener(activity.note)
    for name, event in events:
        Broadcast(hub, owner=1, conversation_id=name).emit(event)
    return activity


def test_a_turn_counts_its_tokens_its_time_and_its_end() -> None:
    evaluated = PromptEvaluated(
        tokens=100, cached=60, elapsed_ms=250.0, context_used=0, context_size=0
    )
    activity = told(
        ("a", started("a")),
        ("a", evaluated),
        ("a", TextDelta(text="x")),
        ("a", TextDelta(text="y")),
        ("a", HopFinished(usage=USAGE)),
        ("a", TurnFinished(conversation_id="a", turn_id="t1", text="xy")),
    )
    models = activity.models
    assert models.tokens.values() == {("prompt",): 100, ("cached",): 60, ("generated",): 10}
    assert models.seconds.values() == {("prompt",): 0.25, ("generate",): 2.0}
    assert models.requests.values() == {("local", "hit"): 1}
    assert models.first_token.count == activity.turn_seconds.count == 1
    assert activity.turns.values() == {("stop",): 1}
    assert models.errors.values() == {}


def test_failures_of_providers_are_told_from_other_ends() -> None:
    activity = told(
        ("a", started("a")),
        ("a", failed("a", "t1", "provider")),
        ("b", started("b", "t2")),
        ("b", failed("b", "t2", "cancelled")),
    )
    assert activity.models.errors.values() == {("local", "provider"): 1}
    assert activity.turns.values() == {("provider",): 1, ("cancelled",): 1}


def test_one_that_is_cancelled_while_it_waits_does_not_end_the_turn_before_it() -> None:
    activity = told(
        ("a", started("a")),
        ("a", failed("a", "t2", "cancelled")),
        ("a", TextDelta(text="x")),
        ("a", TurnFinished(conversation_id="a", turn_id="t1", text="x")),
    )
    assert activity.turn_seconds.count == activity.models.first_token.count == 1
    assert activity.turns.total() == 2


def test_what_belongs_to_no_turn_is_counted_by_its_deltas() -> None:
    counts = ModelCounts()
    usage = HopUsage(prompt_tokens=7, cached_tokens=0, completion_tokens=2)
    evaluated = PromptEvaluated(tokens=7, cached=0, elapsed_ms=100, context_used=9, context_size=99)
    whole: list[Delta] = [
        evaluated,
        TextDelta(text="a"),
        Finished(reason="stop", usage=usage, provider="mock"),
    ]
    broken: list[Delta] = [Failed(error=WorkerDiedError("x")), Failed(error=ValueError())]
    for deltas in (whole, broken[:1], broken[1:]):
        meter = DeltaMeter(counts, "some")
        for delta in deltas:
            meter.note(delta)
    assert counts.requests.values() == {("mock", "miss"): 1}
    assert counts.tokens.total(kind="prompt") == 7
    assert counts.first_token.count == 1
    assert counts.errors.values() == {("some", "worker_died"): 1, ("some", "internal"): 1}
    assert ProviderError("x", kind="network").code == "provider"


def test_calls_are_counted_by_the_word_of_their_receipt() -> None:
    activity = Activity()
    made: list[tuple[str, OutcomeKind, Status]] = [
        ("time", "ok", "allowed"),
        ("shell", "denied", "denied"),
        ("made up by a model", "unknown_tool", "failed"),
        ("another", "unknown_tool", "failed"),
    ]
    for tool, kind, status in made:
        outcome = CallOutcome(
            kind=kind, status=status, text="", receipt_id="r", risk="low", duration_ms=20
        )
        activity.count_call(tool, outcome)
    assert activity.calls.values() == {
        ("time", "allowed"): 1,
        ("shell", "denied"): 1,
        ("unknown", "failed"): 2,
    }
    assert activity.call_seconds.count == 4


ADMIN = Principal(uid=0, gid=0, pid=1, role="admin")
ADA = Principal(uid=7, gid=7, pid=1, role="user")
BOB = Principal(uid=8, gid=8, pid=1, role="user")
ASKED = ApprovalRequested(
    approval_id="a",
    digest="d",
    call_id="c",
    tool="file_write",
    arguments="{}",
    risk="medium",
    reason="",
    workspace="/w",
)
LOADING = ModelLoading(model="m", loaded_bytes=1, total_bytes=4)
EVALUATED = PromptEvaluated(tokens=10, cached=4, elapsed_ms=1, context_used=50, context_size=100)


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def turns(clock: Clock) -> Activity:
    made = Activity(clock)
    note(made, TurnStarted(conversation_id="c1", turn_id="t1", provider="local"))
    return made


def note(turns: Activity, event: Event, conversation_id: str = "c1") -> None:
    turns.note(DaemonEvent(event=event, owner=7, conversation_id=conversation_id))


def only(turns: Activity) -> TurnLine:
    (line,) = turns.listed(ADA).items
    return line


@each_row(
    ("events", "doing", "detail"),
    [
        ([], "thinking", ""),
        ([LOADING], "loading", "25%"),
        ([LOADING, PromptProgress(processed=0, cached=0, total=2)], "prompt", "0%"),
        ([PromptProgress(processed=43, cached=0, total=100)], "prompt", "43%"),
        ([PromptProgress(processed=0, cached=0, total=0)], "prompt", "0%"),
        ([PromptProgress(processed=1, cached=0, total=2), EVALUATED], "thinking", ""),
        ([ReasoningDelta(text="hm")], "thinking", ""),
        ([TextDelta(text="x")], "answering", ""),
        ([ToolStarted(call_id="c", tool="grep")], "tool", "grep"),
        ([ASKED], "approval", "file_write"),
        ([ASKED, ApprovalResolved(approval_id="a", answer="once", by="")], "thinking", ""),
        ([QuestionAsked(question_id="q", text="?")], "question", ""),
    ],
    fresh=["turns"],
)
def test_a_line_says_what_the_turn_does(
    turns: Activity, events: list[Event], doing: str, detail: str
) -> None:
    for event in events:
        note(turns, event)
    assert (only(turns).doing, only(turns).detail) == (doing, detail)
    assert only(turns).question == (events[-1] if doing == "question" else None)


def test_a_call_that_has_ended_is_not_said_to_run(turns: Activity) -> None:
    note(turns, ToolRequested(call_id="c", tool="grep", arguments="{}"))
    note(turns, ToolStarted(call_id="c", tool="grep"))
    done = ToolFinished(call_id="c", tool="grep", status="allowed", output="", receipt_id="r")
    note(turns, done)
    assert (only(turns).doing, only(turns).detail, only(turns).tool_calls) == ("thinking", "", 1)


def test_times_are_of_the_turn_and_of_what_it_does(turns: Activity, clock: Clock) -> None:
    clock.now = 103.0
    note(turns, TextDelta(text="a"))
    clock.now = 105.0
    note(turns, TextDelta(text="b"))
    assert (only(turns).elapsed_s, only(turns).doing_s) == (5.0, 2.0)


def test_speed_is_of_the_answer_under_way_then_of_the_last(turns: Activity, clock: Clock) -> None:
    for number in range(11):
        clock.now = 110.0 + number / 10
        note(turns, TextDelta(text="x"))
    assert only(turns).tokens_per_s == pytest.approx(10.0)
    assert only(turns).tokens == 11
    usage = HopUsage(prompt_tokens=20, cached_tokens=15, completion_tokens=12, tokens_per_s=9.5)
    note(turns, HopFinished(usage=usage))
    line = only(turns)
    assert (line.tokens, line.tokens_per_s, line.rounds) == (12, 9.5, 1)
    assert (line.cached_tokens, line.prompt_tokens) == (15, 20)


def test_what_is_void_does_not_count(turns: Activity) -> None:
    note(turns, TextDelta(text="x"))
    note(turns, HopReset(reason="no answer"))
    assert only(turns).tokens == 0


def test_context_fill_is_the_last_prompts(turns: Activity) -> None:
    note(turns, EVALUATED)
    assert (only(turns).context_used, only(turns).context_size) == (50, 100)


def test_a_user_sees_own_turns_and_the_number_of_others(turns: Activity) -> None:
    assert (turns.listed(BOB).items, turns.listed(BOB).others) == ((), 1)
    assert (len(turns.listed(ADMIN).items), turns.listed(ADMIN).others) == (1, 0)


def test_the_end_of_a_turn_that_waited_ends_no_other(turns: Activity) -> None:
    note(turns, TurnFailed(conversation_id="c1", turn_id="t2", code="cancelled", message=""))
    assert only(turns).turn_id == "t1"
    note(turns, TurnFailed(conversation_id="c1", turn_id="t1", code="cancelled", message=""))
    assert turns.listed(ADMIN).items == ()


def test_events_of_no_turn_are_nothing(turns: Activity) -> None:
    note(turns, TextDelta(text="x"), "c9")
    assert only(turns).tokens == 0
