"""`clawctl status`: what the daemon is and does."""

import click

from clawctl.app import App, json_option, pass_app
from clawctl.render import duration, emit_json, show_fields, show_table
from clawd.wire.methods import Status
from clawd.wire.reports import StatusReport


@click.command()
@json_option
@pass_app
def command(app: App, *, as_json: bool) -> None:
    """Say what the daemon is and does."""
    with app.client() as client:
        report = client.call(Status())
    if as_json:
        emit_json(report)
    else:
        show_status(report)


def show_status(report: StatusReport) -> None:
    """Print a report for people."""
    stop = f"SET: {report.estop_reason or 'no reason given'}" if report.estop else "not set"
    if not report.receipts_enabled:
        receipts = "OFF: nothing is recorded"
    elif report.receipts_problem:
        receipts = f"{report.receipts}, PROBLEM: {report.receipts_problem}"
    else:
        receipts = f"{report.receipts}, head {report.receipts_head[:16]}"
    sandbox = report.sandbox + (f" ({report.sandbox_reason})" if report.sandbox_reason else "")
    model = f" ({report.default_model})" if report.default_model else ""
    show_fields(
        [
            ("clawd", f"{report.version}, pid {report.pid}, up {duration(report.uptime_s)}"),
            ("home", report.home),
            ("socket", report.socket),
            ("config", report.config),
            ("workspace", report.workspace),
            ("provider", f"{report.default_provider}{model}"),
            ("autonomy", report.autonomy),
            ("sandbox", sandbox),
            ("estop", stop),
            ("receipts", receipts),
            ("conversations", report.conversations),
            ("turns", f"{report.turns_running} running, {report.turns_queued} waiting"),
            ("approvals", f"{report.approvals_pending} pending"),
        ]
    )
    if report.workers:
        print()
        show_table(
            ("MODEL", "PID", "STATE", "RUNNING", "CONTEXT"),
            [(w.alias, w.pid, w.state, w.running, w.context_size) for w in report.workers],
        )
