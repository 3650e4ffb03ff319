"""Handlers about numbers, and about what runs just now."""

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.wire.metric_methods import ShowMetrics
from clawd.wire.metric_reports import MetricsReport
from clawd.wire.turn_methods import ListTurns
from clawd.wire.turn_reports import TurnList


class MetricHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def show_metrics(self, _params: ShowMetrics, _call: Call) -> MetricsReport:
        """Show what the daemon counts and measures."""
        return await self.parts.metrics()

    async def list_turns(self, _params: ListTurns, call: Call) -> TurnList:
        """List the turns that run."""
        return self.parts.turns(call.principal)
