"""`clawctl metrics`: what the daemon counts and measures."""

import click

from clawctl.app import App, json_command
from clawctl.render import emit_json, show_table
from clawd.wire.daemon import MetricFamily, MetricSpread, MetricsReport, ShowMetrics


@click.command()
@json_command(MetricsReport)
def command(app: App, *, as_json: bool) -> None:
    """Show what the daemon counts and measures since it began."""
    report = app.call(ShowMetrics())
    if as_json:
        emit_json(report)
        return
    rows = [row for family in report.families for row in _rows(family)]
    show_table(("NAME", "LABELS", "VALUE"), rows)


def _rows(family: MetricFamily) -> list[tuple[str, str, str]]:
    numbers = [(sample.labels, f"{sample.value:g}") for sample in family.samples]
    numbers += [(spread.labels, _of(spread)) for spread in family.spreads]
    return [
        (family.name, ", ".join(f"{name}={value}" for name, value in labels.items()), number)
        for labels, number in numbers
    ]


def _of(spread: MetricSpread) -> str:
    """Return how many values there were, and their mean."""
    if not spread.count:
        return "0 values"
    return f"{spread.count} values, {spread.sum / spread.count:.3g} on average"
