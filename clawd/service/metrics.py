"""What is counted and measured in a daemon, put together for a report."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from clawd import __version__
from clawd.counts import Histogram, Tally
from clawd.engine.slot import ModelStatus
from clawd.engine.supervisor import Engine
from clawd.runtime.activity import Activity
from clawd.runtime.inbox import Inbox
from clawd.security.approvals import Approvals
from clawd.security.estop import EmergencyStop
from clawd.security.principal import Principal
from clawd.service.receipts import ChainCheck
from clawd.service.upkeep import Watch
from clawd.wire.daemon import MetricFamily, MetricSample, MetricSpread, MetricsReport

Kind = Literal["counter", "gauge"]

LOGGED_EVERY_S = 300.0

_log = logging.getLogger(__name__)
_EVERYTHING = Principal(uid=0, gid=0, pid=0, role="admin")


@dataclass(frozen=True, kw_only=True)
class DaemonMetrics:
    """Reports on a daemon's parts.

    Attributes:
        mcp_servers: returns which MCP servers there are and whether they answer.
    """

    activity: Activity
    engine: Engine
    inbox: Inbox
    approvals: Approvals
    estop: EmergencyStop
    chain: ChainCheck | None
    mcp_servers: Callable[[], Mapping[str, bool]] = dict

    async def report(self) -> MetricsReport:
        """Return all numbers."""
        found = [*self._service(), *self._turns(), *self._models(), *self._local_models()]
        valid = await self.chain.is_valid() if self.chain is not None else None
        if valid is not None:
            found.append(
                _gauge("clawd_receipt_chain_valid", "1 if the receipt log verifies.", float(valid))
            )
        return MetricsReport(families=tuple(found))

    def _service(self) -> list[MetricFamily]:
        running, queued = self.inbox.turns
        pending = len(self.approvals.pending(_EVERYTHING))
        servers = [({"server": name}, float(up)) for name, up in self.mcp_servers().items()]
        opened = self.inbox.book.opened
        return [
            _of("clawd_info", "gauge", "The daemon.", [({"version": __version__}, 1.0)]),
            _counter("clawd_conversations_total", "Conversations that were opened.", opened),
            _gauge("clawd_turns_running", "Turns that run.", running),
            _gauge("clawd_turns_queued", "Turns that wait for the one before them.", queued),
            _gauge("clawd_approvals_pending", "Calls that wait for a person's answer.", pending),
            _gauge("clawd_estop", "1 while the emergency stop is set.", self.estop.is_set()),
            _of("clawd_mcp_server_up", "gauge", "1 if an MCP server answers.", servers),
        ]

    def _turns(self) -> list[MetricFamily]:
        activity = self.activity
        return [
            _tally("clawd_turns_total", "Turns that ended, by how.", activity.turns),
            _histogram(
                "clawd_turn_seconds", "From the start of a turn to its end.", activity.turn_seconds
            ),
            _tally("clawd_tool_calls_total", "Tool calls, by receipt.", activity.calls),
            _counter(
                "clawd_tool_denials_total",
                "Tool calls that were denied.",
                activity.calls.total(status="denied"),
            ),
            _histogram(
                "clawd_tool_call_seconds",
                "How long tool calls took, answers of people included.",
                activity.call_seconds,
            ),
        ]

    def _models(self) -> list[MetricFamily]:
        counts = self.activity.models
        prompt, cached = counts.tokens.total(kind="prompt"), counts.tokens.total(kind="cached")
        generated = counts.tokens.total(kind="generated")
        answers = "Answers of models, by whether a prefix of the prompt was in the cache."
        until = "Until something of an answer came."
        evaluating, generating = (
            counts.seconds.total(phase="prompt"),
            counts.seconds.total(phase="generate"),
        )
        new = max(prompt - cached, 0.0)
        return [
            _tally("clawd_model_answers_total", answers, counts.requests),
            _tally("clawd_provider_errors_total", "Answers that failed for good.", counts.errors),
            _counter("clawd_prompt_tokens_total", "Tokens of prompts.", prompt),
            _counter("clawd_cached_tokens_total", "Of these, from a prefix cache.", cached),
            _counter("clawd_generated_tokens_total", "Tokens generated.", generated),
            _histogram("clawd_first_token_seconds", until, counts.first_token),
            _counter("llamacpp:prompt_tokens_total", "Prompt tokens evaluated.", new),
            _counter("llamacpp:prompt_seconds_total", "Time spent on prompts.", evaluating),
            _counter("llamacpp:tokens_predicted_total", "Tokens generated.", generated),
            _counter(
                "llamacpp:tokens_predicted_seconds_total", "Time spent generating.", generating
            ),
            _gauge(
                "llamacpp:prompt_tokens_seconds",
                "Average prompt speed in tokens/s.",
                _per_s(new, evaluating),
            ),
            _gauge(
                "llamacpp:predicted_tokens_seconds",
                "Average generation speed in tokens/s.",
                _per_s(generated, generating),
            ),
        ]

    def _local_models(self) -> list[MetricFamily]:
        models = self.engine.status()
        busy = {each.alias: _busy(each) for each in models}
        running = [({"model": name}, float(now)) for name, (now, _) in busy.items()]
        waiting = [({"model": name}, float(later)) for name, (_, later) in busy.items()]
        loaded = [({"model": m.alias}, float(m.state == "ready")) for m in models]
        deaths = self.engine.deaths.total()
        return [
            _of("clawd_model_loaded", "gauge", "1 if a local model is loaded.", loaded),
            _of("clawd_model_running", "gauge", "Generations that run.", running),
            _of("clawd_model_queued", "gauge", "Generations that wait.", waiting),
            _counter("clawd_worker_restarts_total", "Workers that died and were replaced.", deaths),
            _gauge(
                "llamacpp:requests_processing", "Requests that run.", sum(n for _, n in running)
            ),
            _gauge("llamacpp:requests_deferred", "Requests that wait.", sum(n for _, n in waiting)),
        ]


class MetricsLog:
    """Writes the numbers of a daemon into its log, in one line, now and then.

    Args:
        report: returns them.
        every_s: how often.
    """

    def __init__(
        self, report: Callable[[], Awaitable[MetricsReport]], *, every_s: float = LOGGED_EVERY_S
    ) -> None:
        self._report = report
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None

    def start(self, watch: Watch) -> None:
        """Begin; `watch` is told of the task and its name."""
        self._task = asyncio.create_task(self._write())
        watch(self._task, "the log of metrics")

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            try:
                _log.info("METRICS %s", told_in_a_line(await self._report()))
            except Exception:  # noqa: BLE001 - the next line may be had again
                _log.exception("the metrics could not be logged, by a defect")


def told_in_a_line(report: MetricsReport) -> str:
    """Return the sums of the counters and gauges that are not 0, as in `turns_total=12 estop=1`."""
    sums = {
        family.name.removeprefix("clawd_"): sum(sample.value for sample in family.samples)
        for family in report.families
        if family.kind in {"counter", "gauge"}
    }
    return " ".join(f"{name}={value:g}" for name, value in sums.items() if value)


def _busy(model: ModelStatus) -> tuple[int, int]:
    """Return how many generations of a model run, and how many wait."""
    parallel = model.info.n_parallel if model.info is not None else 0
    running = min(model.running, parallel)
    return running, model.running - running


def _per_s(count: float, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _of(
    name: str, kind: Kind, about: str, values: Sequence[tuple[dict[str, str], float]]
) -> MetricFamily:
    samples = tuple(MetricSample(labels=labels, value=value) for labels, value in values)
    return MetricFamily(name=name, kind=kind, help=about, samples=samples)


def _gauge(name: str, about: str, value: float) -> MetricFamily:
    return _of(name, "gauge", about, [({}, float(value))])


def _counter(name: str, about: str, value: float) -> MetricFamily:
    return _of(name, "counter", about, [({}, float(value))])


def _tally(name: str, about: str, tally: Tally) -> MetricFamily:
    values = [
        (dict(zip(tally.labels, key, strict=True)), count) for key, count in tally.values().items()
    ]
    return _of(name, "counter", about, values)


def _histogram(name: str, about: str, histogram: Histogram) -> MetricFamily:
    spread = MetricSpread(count=histogram.count, sum=histogram.sum, buckets=histogram.cumulative())
    return MetricFamily(name=name, kind="histogram", help=about, spreads=(spread,))
