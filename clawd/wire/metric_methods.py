"""The method of the control socket about numbers; see `wire.methods`."""

from clawd.wire.method import Method
from clawd.wire.metric_reports import MetricsReport


class ShowMetrics(Method[MetricsReport], frozen=True, kw_only=True):
    """Show what the daemon counts and measures: sums over everybody, nobody's contents."""
