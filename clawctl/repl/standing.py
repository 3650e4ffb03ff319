"""How things stand, for the bar: put together from what the daemon reports and the last turn."""

from pathlib import Path

import msgspec

from clawctl.repl.bar import BarState, line
from clawctl.repl.host import Host
from clawctl.repl.pulse import Pulse
from clawd.wire.reports import StatusReport

NO_SANDBOX = "none"
ANY_WIDTH = 1_000


class Standing:
    """What is known at any time; it asks nobody."""

    def __init__(self, host: Host, pulse: Pulse) -> None:
        self._host = host
        self._pulse = pulse
        self._report: StatusReport | None = None
        self._default = ""
        self._told: str | None = None

    def hear(self, report: StatusReport) -> None:
        """Take a report of the daemon: what it says is newer than what we did."""
        if report is not self._report:
            self._report = report
            self._default = self._default or _default_model(report)
            self._host.is_stopped = report.estop

    def answered(self) -> None:
        """Take note that a turn has ended: its model is the one that answers now."""
        if self._report is not None:
            self._default = _default_model(self._report)

    def model(self) -> str:
        """Return the name of the model that answers the next message, as far as it is known."""
        choice, report, last = self._host.choice, self._report, self._host.last
        default = _default_model(report) if report is not None else ""
        if choice.model or choice.provider:
            return choice.model or choice.provider
        has_changed = default != self._default
        return default if has_changed or last is None else last.model or default

    def folder(self) -> Path:
        """Return the folder that files of a message are named in."""
        conversation, report = self._pulse.conversation, self._report
        known = conversation.workspace if conversation is not None else ""
        return Path(known or self._host.workspace or (report.workspace if report else "") or ".")

    def state(self) -> BarState:
        """Return what the bar shows."""
        if self._pulse.report is not None:
            self.hear(self._pulse.report)
        report, host = self._report, self._host
        usage = host.last.usage if host.last is not None else None
        size = usage.context_size if usage is not None else 0
        return BarState(
            model=self.model(),
            autonomy=report.autonomy if report is not None else "",
            sandbox=_weak_sandbox(report),
            place=self._place(),
            trouble=self._pulse.trouble,
            is_stopped=host.is_stopped,
            context_percent=100 * usage.context_used // size if usage and size else None,
            tokens_per_s=usage.tokens_per_s if usage is not None else 0.0,
        )

    def in_words(self) -> str:
        """Return what has changed since it was last told, "" for nothing: for a plain prompt."""
        state = msgspec.structs.replace(
            self.state(), context_percent=None, tokens_per_s=0.0, place=""
        )
        told, self._told = self._told, line(state, ANY_WIDTH)
        is_known = told is None and not state.is_stopped and not state.trouble
        return "" if is_known or told == self._told else self._told

    def _place(self) -> str:
        conversation = self._pulse.conversation
        if conversation is not None and conversation.title:
            return conversation.title
        folder = self.folder()
        home = Path.home()
        return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)


def _default_model(report: StatusReport) -> str:
    return report.default_model or report.default_provider


def _weak_sandbox(report: StatusReport | None) -> str:
    """Return the level of a sandbox that something is said against, else ""."""
    if report is None or (report.sandbox != NO_SANDBOX and not report.sandbox_reason):
        return ""
    return report.sandbox
