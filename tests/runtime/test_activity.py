"""What is counted of turns, requests and calls."""

from clawd.errors import ProviderError, WorkerDiedError
from clawd.providers.base import Delta, Evaluated, Failed, Finished, Text, Usage
from clawd.receipts.record import Status
from clawd.runtime.activity import Activity, DeltaMeter, ModelCounts
from clawd.runtime.hub import Hub
from clawd.tools.outcome import CallOutcome, OutcomeKind
from clawd.wire.events import (
    Event,
    HopFinished,
    HopUsage,
    PromptEvaluated,
    TextDelta,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)

USAGE = HopUsage(prompt_tokens=100, cached_tokens=60, completion_tokens=10, tokens_per_s=5.0)


def started(name: str, turn: str = "t1") -> TurnStarted:
    return TurnStarted(conversation_id=name, turn_id=turn, provider="local")


def failed(name: str, turn: str, code: str) -> TurnFailed:
    return TurnFailed(conversation_id=name, turn_id=turn, code=code, message="")


def told(*events: tuple[str, Event]) -> Activity:
    hub, activity = Hub(), Activity()
    hub.add_listener(activity.note)
    for name, event in events:
        hub.teller(owner=1, conversation_id=name)(event)
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
    usage = Usage(prompt_tokens=7, cached_tokens=0, completion_tokens=2)
    evaluated = Evaluated(tokens=7, cached=0, elapsed_ms=100, context_used=9, context_size=99)
    whole: list[Delta] = [
        evaluated,
        Text(text="a"),
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
