"""Handlers about numbers."""

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.wire.metric_methods import ShowMetrics
from clawd.wire.metric_reports import MetricsReport


class MetricHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def show_metrics(self, _params: ShowMetrics, _call: Call) -> MetricsReport:
        """Show what the daemon counts and measures."""
        return await self.parts.metrics()
