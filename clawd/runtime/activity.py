"""Counts what turns, requests to models and tool calls cost. Fed by events and by dispatch."""

import time

from clawd.counts import SHORT_S, Histogram, Tally
from clawd.errors import ClawError
from clawd.providers.base import CallDelta, Evaluated, Failed, Finished, Reasoning, Text
from clawd.runtime.hub import DaemonEvent
from clawd.runtime.open_turns import OpenTurn, OpenTurns
from clawd.tools.outcome import CallOutcome
from clawd.wire.events import (
    HopFinished,
    PromptEvaluated,
    ReasoningDelta,
    TextDelta,
    ToolRequested,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)

PROVIDER_CODES = frozenset({"provider", "worker_died", "model_load", "engine", "model_not_found"})


class ModelCounts:
    """What models were asked and answered, whatever for.

    Attributes:
        requests: answers that are complete, by provider and whether a prefix was in the cache.
        errors: answers that failed for good, by provider and code.
        tokens: by kind: prompt, cached (of these), generated.
        seconds: spent on prompts and on generating, as far as providers tell.
        first_token: seconds until something of the answer came.
    """

    def __init__(self) -> None:
        self.requests = Tally("provider", "cache")
        self.errors = Tally("provider", "code")
        self.tokens = Tally("kind")
        self.seconds = Tally("phase")
        self.first_token = Histogram()

    def answered(self, provider: str, counts: tuple[int, int, int], tokens_per_s: float) -> None:
        """Count an answer: tokens of its prompt, of these from the cache, and generated."""
        prompt, cached, generated = counts
        self.requests.add(provider, "hit" if cached else "miss")
        for kind, tokens in (("prompt", prompt), ("cached", cached), ("generated", generated)):
            self.tokens.add(kind, by=tokens)
        if tokens_per_s > 0:
            self.seconds.add("generate", by=generated / tokens_per_s)

    def evaluated(self, elapsed_ms: float) -> None:
        """Count the evaluation of a prompt."""
        self.seconds.add("prompt", by=elapsed_ms / 1000)

    def failed(self, provider: str, code: str) -> None:
        """Count an answer that did not come."""
        self.errors.add(provider, code)


class DeltaMeter:
    """Counts the deltas of one answer that belongs to no turn."""

    def __init__(self, counts: ModelCounts, provider: str) -> None:
        self._counts = counts
        self._provider = provider
        self._began = time.monotonic()
        self._has_begun = False

    def note(self, delta: object) -> None:
        """Take what came of the answer."""
        counts = self._counts
        if isinstance(delta, Text | Reasoning | CallDelta) and not self._has_begun:
            self._has_begun = True
            counts.first_token.observe(time.monotonic() - self._began)
        match delta:
            case Evaluated():
                counts.evaluated(delta.elapsed_ms)
            case Finished():
                usage = delta.usage
                tokens = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
                counts.answered(delta.provider or self._provider, tokens, delta.tokens_per_s)
            case Failed():
                error = delta.error
                code = error.code if isinstance(error, ClawError) else "internal"
                counts.failed(self._provider, code)
            case _:
                pass


class Activity:
    """Listens to all events of the daemon, and to dispatch.

    Attributes:
        models: requests to models, those of turns and others.
        turns: turns that ended, by how.
        turn_seconds: from the start of a turn to its end.
        calls: tool calls by tool and status of their receipt.
        call_seconds: how long calls took, people's answers included.
        open: the turns that run.
    """

    def __init__(self) -> None:
        self.models = ModelCounts()
        self.turns = Tally("end")
        self.turn_seconds = Histogram()
        self.calls = Tally("tool", "status")
        self.call_seconds = Histogram(SHORT_S)
        self.open = OpenTurns()

    def count_call(self, tool: str, outcome: CallOutcome) -> None:
        """Count a tool call; a name that is no tool's is counted as `unknown`."""
        name = "unknown" if outcome.kind == "unknown_tool" else tool
        self.calls.add(name, outcome.status)
        self.call_seconds.observe(outcome.duration_ms / 1000)

    def note(self, told: DaemonEvent) -> None:
        """Take an event of the daemon."""
        event, open_turn = told.event, self.open.get(told.conversation_id)
        match event:
            case TurnStarted():
                self.open.begin(event, told.owner or 0)
            case TextDelta() | ReasoningDelta() | ToolRequested():
                self._first_token(open_turn)
            case PromptEvaluated():
                self.models.evaluated(event.elapsed_ms)
            case HopFinished():
                usage = event.usage
                tokens = (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
                provider = open_turn.about.provider if open_turn is not None else ""
                self.models.answered(provider, tokens, usage.tokens_per_s)
            case TurnFinished():
                self._end(told.conversation_id, event.turn_id, event.stop_reason)
            case TurnFailed():
                if event.code in PROVIDER_CODES:
                    provider = open_turn.about.provider if open_turn is not None else ""
                    self.models.failed(provider, event.code)
                self._end(told.conversation_id, event.turn_id, event.code)
            case _:
                pass
        self.open.note(told.conversation_id, event)

    def _first_token(self, open_turn: OpenTurn | None) -> None:
        if open_turn is None or open_turn.has_answered:
            return
        open_turn.has_answered = True
        self.models.first_token.observe(time.monotonic() - open_turn.began)

    def _end(self, conversation_id: str, turn_id: str, end: str) -> None:
        self.turns.add(end)
        open_turn = self.open.end(conversation_id, turn_id)
        if open_turn is not None:
            self.turn_seconds.observe(time.monotonic() - open_turn.began)
