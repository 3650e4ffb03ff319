"""What `clawctl top` asks the daemon, and what it makes of two answers."""

import contextlib
import time
from collections.abc import Mapping

import msgspec

from clawctl.client import Client
from clawd.errors import ClawError
from clawd.wire.daemon import MetricsReport, ShowMetrics, Status, StatusReport
from clawd.wire.mcp import ListMcpServers, McpServerLine
from clawd.wire.models import ListLoadedModels, LoadedModel
from clawd.wire.turns import ListTurns, TurnList

CALL_LIMIT_S = 10.0
COUNTED = {
    "clawd_prompt_tokens_total",
    "clawd_cached_tokens_total",
    "clawd_generated_tokens_total",
    "clawd_tool_calls_total",
    "clawd_tool_denials_total",
    "clawd_provider_errors_total",
    "clawd_worker_restarts_total",
    "clawd_receipt_chain_valid",
    "clawd_http_requests_open",
}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon at one moment.

    Attributes:
        at: monotonic seconds.
        counts: the sums of `COUNTED`, where the daemon reports them.
        resident: bytes in memory by process id, of the daemon and of workers that may be looked at.
    """

    at: float
    status: StatusReport
    turns: TurnList
    models: tuple[LoadedModel, ...]
    servers: tuple[McpServerLine, ...]
    counts: dict[str, float]
    resident: dict[str, int]

    @property
    def tokens_per_s(self) -> float:
        """Tokens that are being generated a second, over all turns that may be seen."""
        return sum(turn.tokens_per_s for turn in self.turns.items if turn.doing == "answering")

    @property
    def cache_share(self) -> float | None:
        """Of all prompt tokens, how many came from a cache; None before the first."""
        prompt = self.counts.get("clawd_prompt_tokens_total", 0.0)
        cached = self.counts.get("clawd_cached_tokens_total", 0.0)
        return cached / prompt if prompt else None


def look(client: Client) -> Snapshot:
    """Ask the daemon how it stands.

    Raises:
        ClawError: it does not answer.
    """
    status = client.call(Status(), limit_s=CALL_LIMIT_S)
    return Snapshot(
        at=time.monotonic(),
        status=status,
        turns=_turns(client),
        models=client.call(ListLoadedModels(), limit_s=CALL_LIMIT_S).items,
        servers=client.call(ListMcpServers(), limit_s=CALL_LIMIT_S).items,
        counts=counts_of(client.call(ShowMetrics(), limit_s=CALL_LIMIT_S)),
        resident=_resident([status.pid, *(worker.pid for worker in status.workers)]),
    )


def counts_of(report: MetricsReport) -> dict[str, float]:
    """Return the sums of what is shown, by name."""
    return {
        family.name: sum(sample.value for sample in family.samples)
        for family in report.families
        if family.name in COUNTED
    }


def per_s(now: Mapping[str, float], before: Mapping[str, float], name: str, over_s: float) -> float:
    """Return how fast a counter grows; a daemon that began anew counts from nothing."""
    grown = now.get(name, 0.0) - before.get(name, 0.0)
    return max(grown, 0.0) / over_s if over_s > 0 else 0.0


def _turns(client: Client) -> TurnList:
    try:
        return client.call(ListTurns(), limit_s=CALL_LIMIT_S)
    except ClawError as error:
        if error.code != "unknown_method":
            raise
        return TurnList(items=())  # an older daemon


def _resident(pids: list[int]) -> dict[str, int]:
    import psutil

    found: dict[str, int] = {}
    for pid in pids:
        # Another user's process, or one that has ended, is left out.
        with contextlib.suppress(psutil.Error, ValueError):
            found[str(pid)] = psutil.Process(pid).memory_info().rss
    return found
