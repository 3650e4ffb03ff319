"""How things stand, for the bar: put together from what the daemon reports and the last turn.

Asks the daemon how it is while a prompt waits, over a connection of its own.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from clawctl.client import Client
from clawctl.render import percent
from clawctl.repl.host import Host
from clawctl.repl.theme import Span, shortened_row, width_of
from clawctl.workspace_trust import real_folder
from clawd.errors import ClawError
from clawd.wire.conversations import ConversationLine, ShowConversation
from clawd.wire.daemon import Status, StatusReport
from clawd.wire.method import Method
from clawd.wire.safe_text import visible_line

PERIOD_S = 1.5
ANSWER_LIMIT_S = 5.0
GONE = "no daemon"

R = TypeVar("R")


class Pulse:
    """What was last heard of the daemon. One thread, that rests while no prompt waits.

    Attributes:
        report: the last one, None before the first.
        trouble: why there is no newer one, "" when there is.
        conversation: the one that was asked about last, None when it is unknown.
    """

    def __init__(self, connect: Callable[[], Client], conversation_id: Callable[[], str]) -> None:
        self._connect = connect
        self._conversation_id = conversation_id
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._is_wanted = threading.Event()
        self._ended = threading.Event()
        self._on_change: Callable[[], None] = lambda: None
        self._thread: threading.Thread | None = None
        self.report: StatusReport | None = None
        self.trouble = ""
        self.conversation: ConversationLine | None = None

    def watch(self, on_change: Callable[[], None]) -> None:
        """Ask from now on, at once and then and again; `on_change` is called in the thread."""
        self._on_change = on_change
        self._is_wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)
            self._thread.start()

    def rest(self) -> None:
        """Ask no more until the next `watch`."""
        self._is_wanted.clear()

    def close(self) -> None:
        """End; a question that is under way is left to itself."""
        self._ended.set()
        self._is_wanted.set()

    def ask(self, params: Method[R]) -> R | None:
        """Return the answer, None when there is none soon; never starts a daemon."""
        with self._lock:
            try:
                if self._client is not None and not self._client.is_alive():
                    self._drop()
                if self._client is None:
                    self._client = self._connect()
                return self._client.call(params, limit_s=ANSWER_LIMIT_S)
            except ClawError as error:
                if error.code == "unreachable":
                    self._drop()
                return None

    def _run(self) -> None:
        while not self._ended.is_set():
            self._is_wanted.wait()
            if self._beat():
                self._on_change()
            self._ended.wait(PERIOD_S)
        with self._lock:
            self._drop()

    def _beat(self) -> bool:
        """Ask once; return whether anything that is shown has changed."""
        before = self.report, self.trouble, self.conversation
        report = self.ask(Status())
        self.trouble = GONE if report is None else ""
        self.report = report or self.report
        conversation_id = self._conversation_id()
        known = self.conversation
        if report is not None and conversation_id and not (known and known.title):
            found = self.ask(ShowConversation(conversation_id=conversation_id, limit=1))
            known = found.conversation if found is not None else None
        is_same = known is not None and known.id == conversation_id
        self.conversation = known if is_same else None
        return before != (self.report, self.trouble, self.conversation)

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


# Parts in the order in which they are shown; what has the highest number goes first when it is
# narrow. Safety never goes.
ALERT, PLACE, AUTONOMY, MODEL, CONTEXT, SPEED, SANDBOX, JOBS = range(8)
_GOES_AT = {ALERT: 0, SANDBOX: 1, AUTONOMY: 2, MODEL: 3, PLACE: 4, CONTEXT: 5, JOBS: 6, SPEED: 7}
_GAP = " · "
_MODEL_COLUMNS = 24
_PLACE_COLUMNS = 32
_Fragments = list[tuple[str, str]]


# The line below the prompt: what matters most first, and as much of the rest as fits. Pure.


class BarState(msgspec.Struct, frozen=True, kw_only=True):
    """What the bar shows; empty and 0 stand for what is not known.

    Attributes:
        sandbox: its level, shown when it is weak.
        place: the folder in which tools act.
        trouble: why the daemon does not answer.
        jobs: how many commands go on after their call.
    """

    model: str = ""
    autonomy: str = ""
    sandbox: str = ""
    place: str = ""
    trouble: str = ""
    is_stopped: bool = False
    context_percent: int | None = None
    tokens_per_s: float = 0.0
    jobs: int = 0


def fragments(state: BarState, columns: int, remark: str = "") -> _Fragments:
    """Return the bar as styled parts that take at most so many columns."""
    if remark:
        return [("class:bar.alert", _cut(visible_line(f" {remark} "), columns))]
    parts = _parts(state)
    while len(parts) > 1 and _width(parts) > columns:
        parts.remove(max(parts, key=lambda part: _GOES_AT[part[0]]))
    shown: _Fragments = []
    for index, (kind, text) in enumerate(parts):
        shown.append(("class:bar", _GAP if index else " "))
        style = {ALERT: "class:bar.alert", SANDBOX: "class:bar.weak"}.get(kind, "class:bar")
        shown.append((style, text))
    if _width(parts) > columns:
        return [(shown[-1][0], _cut(shown[-1][1], columns))]
    return shown


def _line(state: BarState, columns: int) -> str:
    """Return the bar as text."""
    return "".join(text for _, text in fragments(state, columns)).strip()


def _parts(state: BarState) -> list[tuple[int, str]]:
    percent = state.context_percent
    parts = [
        (ALERT, "ESTOP" if state.is_stopped else ""),
        (ALERT, visible_line(state.trouble)),
        (PLACE, visible_line(_end_of(state.place))),
        (AUTONOMY, visible_line(state.autonomy)),
        (MODEL, visible_line(state.model, _MODEL_COLUMNS)),
        (CONTEXT, "" if percent is None else f"ctx {percent}%"),
        (SPEED, f"{state.tokens_per_s:.1f} tok/s" if state.tokens_per_s else ""),
        (SANDBOX, f"sandbox {visible_line(state.sandbox)}" if state.sandbox else ""),
        (JOBS, f"{state.jobs} job{'' if state.jobs == 1 else 's'}" if state.jobs else ""),
    ]
    return [part for part in parts if part[1]]


def _end_of(place: str) -> str:
    """Return the end of a long path, which tells it from others."""
    return place if len(place) <= _PLACE_COLUMNS else f"…{place[1 - _PLACE_COLUMNS :]}"


def _width(parts: Sequence[tuple[int, str]]) -> int:
    return 1 + sum(width_of(text) for _, text in parts) + len(_GAP) * max(len(parts) - 1, 0)


def _cut(text: str, columns: int) -> str:
    """Return the text in so many columns: half of a wide character would wrap to a new row."""
    return "".join(span.text for span in shortened_row([Span(text)], columns, "…"))


NO_SANDBOX = "none"
ANY_WIDTH = 1_000


class SessionStanding:
    """What is known at any time; it asks nobody."""

    def __init__(self, host: Host, pulse: Pulse) -> None:
        self._host = host
        self._pulse = pulse
        self._report: StatusReport | None = None
        self._default = ""
        self._reported: str | None = None

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

    def mode(self) -> str:
        """Return how far the model may go without a person now, as far as it is known."""
        return self._host.mode or (self._report.autonomy if self._report is not None else "")

    def folder(self) -> Path:
        """Return the folder that files of a message are named in."""
        conversation, report = self._pulse.conversation, self._report
        known = conversation.workspace if conversation is not None else ""
        named = known or self._host.workspace or (report.workspace if report else "") or "."
        return Path(real_folder(named))

    def state(self) -> BarState:
        """Return what the bar shows."""
        if self._pulse.report is not None:
            self.hear(self._pulse.report)
        report, host = self._report, self._host
        usage = host.last.usage if host.last is not None else None
        size = usage.context_size if usage is not None else 0
        return BarState(
            model=self.model(),
            autonomy=self.mode(),
            sandbox=_weak_sandbox(report),
            place=self._place(),
            trouble=self._pulse.trouble,
            is_stopped=host.is_stopped,
            context_percent=percent(usage.context_used, size) if usage and size else None,
            tokens_per_s=usage.tokens_per_s if usage is not None else 0.0,
            jobs=report.jobs_running if report is not None else 0,
        )

    def in_words(self) -> str:
        """Return what has changed since the last report, "" for nothing: for a plain prompt."""
        state = msgspec.structs.replace(
            self.state(), context_percent=None, tokens_per_s=0.0, place=""
        )
        before, self._reported = self._reported, _line(state, ANY_WIDTH)
        is_known = before is None and not state.is_stopped and not state.trouble
        return "" if is_known or before == self._reported else self._reported

    def _place(self) -> str:
        folder = self.folder()
        home = Path.home()
        return f"~/{folder.relative_to(home)}" if folder.is_relative_to(home) else str(folder)


def _default_model(report: StatusReport) -> str:
    return report.model or report.default_model or report.default_provider


def _weak_sandbox(report: StatusReport | None) -> str:
    """Return the level of a sandbox that something is said against, else ""."""
    if report is None or (report.sandbox != NO_SANDBOX and not report.sandbox_reason):
        return ""
    return report.sandbox
