"""Counts what turns, requests to models and tool calls cost. Fed by events and by dispatch."""

import time
from collections.abc import Callable

import msgspec

from clawd.counts import SHORT_S, Histogram, Tally
from clawd.errors import ClawError
from clawd.providers.base import CallDelta, Failed, Finished
from clawd.runtime.hub import DaemonEvent
from clawd.security.principal import Principal
from clawd.tools.outcome import CallOutcome
from clawd.wire import events
from clawd.wire.codec import mirror
from clawd.wire.turns import Doing, TurnLine, TurnList

MAX_OPEN_TURNS = 10_000


class OpenTurn(msgspec.Struct, kw_only=True):
    """A turn that runs. Times are of the monotonic clock, in seconds."""

    owner: int
    about: events.TurnStarted
    began: float
    has_answered: bool = False
    doing: Doing = "thinking"
    detail: str = ""
    since: float = 0.0
    rounds: int = 0
    tool_calls: int = 0
    tokens: int = 0
    pieces: int = 0
    pieces_began: float = 0.0
    tokens_per_s: float = 0.0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    context_used: int = 0
    context_size: int = 0
    asked: events.QuestionAsked | None = None

    def take(self, event: object, now: float) -> None:
        """Take an event of the turn."""
        match event:
            case events.TextDelta() | events.ReasoningDelta() | events.ToolDraft():
                if not self.pieces:
                    self.pieces_began = now
                self.pieces += 1
                is_thought = isinstance(event, events.ReasoningDelta)
                self._do("thinking" if is_thought else "answering", now)
            case events.HopFinished():
                usage = event.usage
                self.rounds += 1
                self.tokens += usage.completion_tokens
                self.prompt_tokens += usage.prompt_tokens
                self.cached_tokens += usage.cached_tokens
                self.tokens_per_s = usage.tokens_per_s or self.tokens_per_s
                self.pieces = 0
            case events.HopReset():
                self.pieces = 0
            case events.PromptEvaluated():
                self.context_used, self.context_size = event.context_used, event.context_size
                self._do("thinking", now)
            case events.ToolRequested():
                self.tool_calls += 1
            case _:
                self._change(event, now)

    def line(self, now: float) -> TurnLine:
        """Return how the turn stands."""
        speed = self.tokens_per_s
        if self.pieces > 1 and now > self.pieces_began:
            speed = (self.pieces - 1) / (now - self.pieces_began)
        return mirror(
            TurnLine,
            self,
            conversation_id=self.about.conversation_id,
            turn_id=self.about.turn_id,
            provider=self.about.provider,
            model=self.about.model,
            workspace=self.about.workspace,
            client=self.about.client,
            elapsed_s=now - self.began,
            doing_s=now - self.since,
            tokens=self.tokens + self.pieces,
            tokens_per_s=speed,
            question=self.asked if self.doing == "question" else None,
        )

    def _change(self, event: object, now: float) -> None:
        match event:
            case events.ModelLoading():
                share = 100 * event.loaded_bytes // max(event.total_bytes, 1)
                self._do("loading", now, f"{share}%")
            case events.PromptProgress():
                self._do("prompt", now, f"{100 * event.processed // max(event.total, 1)}%")
            case events.ToolStarted():
                self._do("tool", now, event.tool)
            case events.ApprovalRequested():
                self._do("approval", now, event.tool)
            case events.QuestionAsked():
                self.asked = event
                self._do("question", now)
            case events.ApprovalResolved() | events.ToolFinished():
                self._do("thinking", now)
            case _:
                pass

    def _do(self, doing: Doing, now: float, detail: str = "") -> None:
        if doing != self.doing:
            self.doing, self.since = doing, now
        self.detail = detail


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

    def answered(self, provider: str, usage: events.HopUsage) -> None:
        """Count an answer."""
        self.requests.add(provider, "hit" if usage.cached_tokens else "miss")
        self.tokens.add("prompt", by=usage.prompt_tokens)
        self.tokens.add("cached", by=usage.cached_tokens)
        self.tokens.add("generated", by=usage.completion_tokens)
        if usage.tokens_per_s > 0:
            self.seconds.add("generate", by=usage.completion_tokens / usage.tokens_per_s)

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
        if (
            isinstance(delta, events.TextDelta | events.ReasoningDelta | CallDelta)
            and not self._has_begun
        ):
            self._has_begun = True
            counts.first_token.observe(time.monotonic() - self._began)
        match delta:
            case events.PromptEvaluated():
                counts.evaluated(delta.elapsed_ms)
            case Finished():
                counts.answered(delta.provider or self._provider, delta.usage)
            case Failed():
                error = delta.error
                code = error.code if isinstance(error, ClawError) else "internal"
                counts.failed(self._provider, code)
            case _:
                pass


class Activity:
    """Listens to all events of the daemon, and to dispatch.

    Args:
        clock: returns the monotonic time in seconds.

    Attributes:
        models: requests to models, those of turns and others.
        turns: turns that ended, by how.
        turn_seconds: from the start of a turn to its end.
        calls: tool calls by tool and status of their receipt.
        call_seconds: how long calls took, people's answers included.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[str, OpenTurn] = {}  # by conversation: each runs one turn at a time
        self.models = ModelCounts()
        self.turns = Tally("end")
        self.turn_seconds = Histogram()
        self.calls = Tally("tool", "status")
        self.call_seconds = Histogram(SHORT_S)

    def count_call(self, tool: str, outcome: CallOutcome) -> None:
        """Count a tool call; a name that is no tool's is counted as `unknown`."""
        name = "unknown" if outcome.kind == "unknown_tool" else tool
        self.calls.add(name, outcome.status)
        self.call_seconds.observe(outcome.duration_ms / 1000)

    def note(self, told: DaemonEvent) -> None:
        """Take an event of the daemon."""
        event, now = told.event, self._clock()
        open_turn = self._open.get(told.conversation_id)
        if open_turn is not None:
            open_turn.take(event, now)
        match event:
            case events.TurnStarted() if len(self._open) < MAX_OPEN_TURNS:
                begun = OpenTurn(owner=told.owner or 0, about=event, began=now, since=now)
                self._open[told.conversation_id] = begun
            case events.TextDelta() | events.ReasoningDelta() | events.ToolRequested():
                if open_turn is not None and not open_turn.has_answered:
                    open_turn.has_answered = True
                    self.models.first_token.observe(now - open_turn.began)
            case events.PromptEvaluated():
                self.models.evaluated(event.elapsed_ms)
            case events.HopFinished():
                provider = open_turn.about.provider if open_turn is not None else ""
                self.models.answered(provider, event.usage)
            case events.TurnFinished():
                self._end(told.conversation_id, event.turn_id, event.stop_reason)
            case events.TurnFailed():
                if event.code in PROVIDER_CODES:
                    provider = open_turn.about.provider if open_turn is not None else ""
                    self.models.failed(provider, event.code)
                self._end(told.conversation_id, event.turn_id, event.code)
            case _:
                pass

    def listed(self, principal: Principal) -> TurnList:
        """Return what a principal may see of the turns that run."""
        now = self._clock()
        seen = [turn for turn in self._open.values() if principal.may_see(turn.owner)]
        lines = sorted((turn.line(now) for turn in seen), key=lambda line: -line.elapsed_s)
        return TurnList(items=tuple(lines), others=len(self._open) - len(seen))

    def _end(self, conversation_id: str, turn_id: str, end: str) -> None:
        """Count a turn that ended and forget it; one cancelled while it waited never was open."""
        self.turns.add(end)
        open_turn = self._open.get(conversation_id)
        if open_turn is not None and open_turn.about.turn_id == turn_id:
            self.turn_seconds.observe(self._clock() - open_turn.began)
            del self._open[conversation_id]
