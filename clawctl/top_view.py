"""Draws what `clawctl top` found. Loads rich, so it is imported when it is needed."""

import contextlib
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clawctl.app import App
from clawctl.client import Client
from clawctl.render import duration, percent, size
from clawctl.safe_stream import plain
from clawctl.top import CALL_LIMIT_S, Snapshot, look, per_s
from clawctl.views import warm_text
from clawd.errors import ClawError
from clawd.wire.daemon import SetEstop
from clawd.wire.safe_text import visible_line
from clawd.wire.turns import CancelTurn, TurnLine

NARROW, NARROWEST = 90, 70
MODEL_CELL, TEXT_CELL = 24, 60
KEYS = "q leave · ↑ ↓ choose · x cancel the chosen turn · s emergency stop"
WORDS = {
    "thinking": "thinking",
    "loading": "loading the model",
    "prompt": "reading the prompt",
    "answering": "answering",
    "tool": "runs",
    "approval": "asks for",
    "question": "asks a question",
}


def screen(
    now: Snapshot, before: Snapshot | None, *, chosen: str, message: str, width: int
) -> RenderableType:
    """Return the whole screen; `chosen` is a turn's id, `message` what keys were answered."""
    parts: list[RenderableType] = [_head(now), _numbers(now, before), Text()]
    parts += [_turns(now, chosen, width), Text(), _models(now, width)]
    if now.servers:
        parts += [Text(), _servers(now, width)]
    parts += [Text(), Text(message or KEYS, style="bold" if message else "dim", no_wrap=True)]
    return Group(*parts)


def print_once(console: Console, now: Snapshot) -> None:
    """Print the daemon as it stands, for a pipe."""
    shown = screen(now, None, chosen="", message=" ", width=console.width)
    console.print(shown)


def safe(value: object, limit: int = TEXT_CELL) -> Text:
    """Return text of others so that it can be shown."""
    return Text(visible_line(str(value), limit), no_wrap=True, overflow="ellipsis")


def _head(now: Snapshot) -> Text:
    status = now.status
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"clawd {visible_line(status.version)}", style="bold")
    line.append(f" · pid {status.pid} · up {duration(status.uptime_s)}")
    line.append(f" · {visible_line(status.autonomy)} · sandbox ")
    weak = status.sandbox == "none"
    line.append(visible_line(status.sandbox), style="bold red" if weak else "")
    if status.estop:
        why = visible_line(status.estop_reason or "no reason given", TEXT_CELL)
        line.append(f"\nEMERGENCY STOP is set: {why}", style="bold red")
    return line


def _numbers(now: Snapshot, before: Snapshot | None) -> Text:
    status, counts = now.status, now.counts
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"turns {status.turns_running} running, {status.turns_queued} waiting")
    waiting = status.approvals_pending
    line.append(f" · approvals {waiting}", style="bold yellow" if waiting else "")
    line.append(f" · {now.tokens_per_s:.1f} tok/s", style="bold" if now.tokens_per_s else "")
    if now.cache_share is not None:
        line.append(f" · cache {100 * now.cache_share:.0f}%")
    if before is not None:
        over_s = now.at - before.at
        calls = per_s(counts, before.counts, "clawd_tool_calls_total", over_s)
        line.append(f" · {calls:.1f} calls/s")
    line.append("\n")
    line.append_text(_receipts(now))
    for name, word in (
        ("clawd_tool_denials_total", "denied"),
        ("clawd_provider_errors_total", "provider errors"),
        ("clawd_worker_restarts_total", "worker deaths"),
    ):
        if counts.get(name):
            line.append(f" · {word} {counts[name]:.0f}", style="yellow")
    memory = sum(now.resident.values())
    if memory:
        line.append(f" · memory {size(memory)}")
    return line


def _receipts(now: Snapshot) -> Text:
    status = now.status
    if not status.receipts_enabled:
        return Text("receipts OFF", style="bold red")
    if status.receipts_problem or now.counts.get("clawd_receipt_chain_valid") == 0:
        return Text(f"receipts {status.receipts} NOT VALID", style="bold red")
    return Text(f"receipts {status.receipts} ✓", style="green")


def _turns(now: Snapshot, chosen: str, width: int) -> RenderableType:
    table = _table("CONVERSATION", "DOES")
    wide = ("FOR", "TURN", "TOKENS", "TOK/S", "CTX")
    for name in wide if width >= NARROWEST else wide[:1]:
        table.add_column(name, justify="right", no_wrap=True)
    if width >= NARROW:
        table.add_column("CACHE", justify="right", no_wrap=True)
        table.add_column("CALLS", justify="right", no_wrap=True)
        table.add_column("UID", justify="right", no_wrap=True)
        table.add_column("MODEL", no_wrap=True)
    for turn in now.turns.items:
        cells = _cells(turn, width)
        table.add_row(*cells, style="reverse" if turn.turn_id == chosen else None)
    if not now.turns.items:
        others = now.turns.others
        nobody = f"{others} turns of others run." if others else "No turn runs."
        return Text(nobody, style="dim")
    return table


def _cells(turn: TurnLine, width: int) -> list[Text]:
    does = f"{WORDS.get(turn.doing, turn.doing)} {turn.detail}".strip()
    style = "yellow" if turn.doing in {"approval", "question"} else ""
    what = safe(does, 34)
    what.stylize(style)
    fill = f"{percent(turn.context_used, turn.context_size)}%" if turn.context_size else "–"
    cells = [safe(turn.conversation_id, 31), what, Text(duration(turn.doing_s))]
    if width < NARROWEST:
        return cells
    cells += [
        Text(duration(turn.elapsed_s)),
        Text(str(turn.tokens)),
        Text(f"{turn.tokens_per_s:.1f}"),
        Text(fill),
    ]
    if width >= NARROW:
        share = f"{100 * turn.cached_tokens // turn.prompt_tokens}%" if turn.prompt_tokens else "–"
        model = safe(turn.model or turn.provider, MODEL_CELL)
        cells += [Text(share), Text(str(turn.tool_calls)), Text(str(turn.owner)), model]
    return cells


def _models(now: Snapshot, width: int) -> RenderableType:
    if not now.models:
        return Text("No local model is loaded.", style="dim")
    table = _table("MODEL", "STATE")
    wide = ("RUN", "WAIT", "CONTEXT", "CACHE", "WARM", "MEMORY", "DEATHS")
    for name in wide if width >= NARROWEST else wide[:2]:
        table.add_column(name, justify="right", no_wrap=True)
    if width >= NARROW:
        table.add_column("FENCE", no_wrap=True)
    for model in now.models:
        running = min(model.running, model.parallel) if model.parallel else model.running
        share = 100 * model.cached_tokens // model.prompt_tokens if model.prompt_tokens else None
        held = now.resident.get(str(model.pid))
        cells = [
            safe(model.name, MODEL_CELL),
            safe(model.state, MODEL_CELL),
            Text(f"{running}/{model.parallel}"),
            Text(str(model.running - running)),
            Text(str(model.context_size)),
            Text("–" if share is None else f"{share}%"),
            Text(warm_text(model)),
            Text("–" if held is None else size(held)),
            Text(str(model.deaths), style="red" if model.deaths else ""),
            safe(model.fence, MODEL_CELL),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def _servers(now: Snapshot, width: int) -> RenderableType:
    table = _table("MCP SERVER", "LINK")
    wide = ("TOOLS", "CALLS", "FAILED", "LAST")
    for name in wide if width >= NARROWEST else wide[:1]:
        table.add_column(name, justify="right", no_wrap=True)
    if width >= NARROW:
        table.add_column("PROBLEM", no_wrap=True)
    for each in now.servers:
        link = safe(each.link, MODEL_CELL)
        link.stylize({"ready": "green", "waiting": "yellow"}.get(each.link, ""))
        cells = [
            safe(each.alias, MODEL_CELL),
            link,
            Text(str(each.tools)),
            Text(str(each.calls)),
            Text(str(each.failures), style="yellow" if each.failures else ""),
            Text(f"{each.last_call_ms} ms" if each.calls else "–"),
            safe(each.problem),
        ]
        table.add_row(*cells[: len(table.columns)])
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    return table


KEY_BYTES = 64
_KEY = re.compile(r"\x1b[\[O].|.", re.DOTALL)
UP, DOWN = {"\x1b[A", "\x1bOA", "k"}, {"\x1b[B", "\x1bOB", "j"}
QUESTIONS = {
    "x": "Cancel the chosen turn? y for yes, any other key for no.",
    "s": "Set the EMERGENCY STOP? y for yes, any other key for no.",
}


class LiveTop:
    """One run of the live screen."""

    def __init__(self, app: App, interval_s: float) -> None:
        self._app = app
        self._interval_s = interval_s
        self._client: Client | None = None
        self._now: Snapshot | None = None
        self._before: Snapshot | None = None
        self._chosen = ""
        self._message = ""
        self._asked = ""
        self._meant = ""
        self._was_away = False

    def run(self) -> None:
        """Draw until the person leaves.

        Raises:
            ClawError: there was no daemon at all; one that goes away later is waited for.
        """
        self._client = self._app.client()
        console = Console(file=plain(sys.stdout), highlight=False, markup=False, emoji=False)
        try:
            with (
                _keys() as keyboard,
                Live(console=console, screen=True, auto_refresh=False) as live,
            ):
                self._loop(console, live, keyboard)
        finally:
            self._drop()

    def _loop(self, console: Console, live: Live, keyboard: int) -> None:
        due = 0.0
        while True:
            if time.monotonic() >= due:
                self._look()
                due = time.monotonic() + self._interval_s
            if self._now is not None:
                live.update(
                    screen(
                        self._now,
                        self._before,
                        chosen=self._chosen,
                        message=self._message,
                        width=console.width,
                    ),
                    refresh=True,
                )
            wait_s = max(due - time.monotonic(), 0.0)
            if select.select([keyboard], [], [], wait_s)[0]:
                typed = os.read(keyboard, KEY_BYTES).decode(errors="replace")
                if not typed or not all(map(self._key, _KEY.findall(typed))):
                    return

    def _look(self) -> None:
        try:
            if self._client is None:
                self._client = self._app.running_client()
            self._before, self._now = self._now, look(self._client)
        except ClawError as error:
            if error.code == "unreachable":
                self._drop()
            self._message = visible_line(f"No answer, trying again: {error.message}")
            self._was_away = True
            return
        if self._was_away:
            self._was_away, self._message = False, "The daemon is back."
        self._keep_choice()

    def _keep_choice(self) -> None:
        ids = [turn.turn_id for turn in self._turns()]
        if self._chosen not in ids:
            self._chosen = ids[0] if ids else ""

    def _turns(self) -> tuple[TurnLine, ...]:
        return self._now.turns.items if self._now is not None else ()

    def _key(self, key: str) -> bool:
        """Take a key; False to leave."""
        if self._asked:
            asked, self._asked, self._message = self._asked, "", ""
            if key in {"y", "Y"}:
                self._do(asked)
            return True
        self._message = ""
        if key in {"q", "Q", "\x03", "\x04", "\x1b"}:
            return False
        if key in UP or key in DOWN:
            self._move(-1 if key in UP else 1)
        elif key in QUESTIONS and (key != "x" or self._chosen):
            # The yes is for this one: another may be chosen by the time it comes.
            self._asked, self._meant, self._message = key, self._chosen, QUESTIONS[key]
        return True

    def _move(self, by: int) -> None:
        ids = [turn.turn_id for turn in self._turns()]
        if ids:
            at = ids.index(self._chosen) if self._chosen in ids else 0
            self._chosen = ids[max(0, min(at + by, len(ids) - 1))]

    def _do(self, asked: str) -> None:
        if self._client is None:
            return
        try:
            if asked == "s":
                self._client.call(SetEstop(reason="clawctl top"), limit_s=CALL_LIMIT_S)
                self._message = "EMERGENCY STOP is set. Clear it with: clawctl estop --clear"
                return
            self._message = "That turn has ended; nothing was cancelled."
            for turn in self._turns():
                if turn.turn_id == self._meant:
                    params = CancelTurn(conversation_id=turn.conversation_id)
                    self._message = self._client.call(params, limit_s=CALL_LIMIT_S).message
        except ClawError as error:
            self._message = visible_line(f"{error.message} {error.hint}")

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Let single keys through, without echo; afterwards all is as it was."""
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard)
        yield keyboard
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
