"""The line below the prompt: what matters most first, and as much of the rest as fits. Pure."""

from collections.abc import Sequence

import msgspec

from clawctl.repl.cells import Span, shortened_row, width_of
from clawd.wire.safe_text import visible_line

# Parts in the order in which they are shown; what has the highest number goes first when it is
# narrow. Safety never goes.
ALERT, MODEL, CONTEXT, SPEED, AUTONOMY, SANDBOX, PLACE = range(7)
_GOES_AT = {ALERT: 0, SANDBOX: 1, MODEL: 2, CONTEXT: 3, AUTONOMY: 4, SPEED: 5, PLACE: 6}
GAP = " · "
MODEL_COLUMNS = 24
PLACE_COLUMNS = 32

Fragments = list[tuple[str, str]]


class BarState(msgspec.Struct, frozen=True, kw_only=True):
    """What the bar shows; empty and 0 stand for what is not known.

    Attributes:
        sandbox: its level, shown when it is weak.
        place: the conversation's title, or the workspace.
        trouble: why the daemon does not answer.
    """

    model: str = ""
    autonomy: str = ""
    sandbox: str = ""
    place: str = ""
    trouble: str = ""
    is_stopped: bool = False
    context_percent: int | None = None
    tokens_per_s: float = 0.0


def fragments(state: BarState, columns: int, remark: str = "") -> Fragments:
    """Return the bar as styled parts that take at most so many columns."""
    if remark:
        return [("class:bar.alert", _cut(visible_line(f" {remark} "), columns))]
    parts = _parts(state)
    while len(parts) > 1 and _width(parts) > columns:
        parts.remove(max(parts, key=lambda part: _GOES_AT[part[0]]))
    shown: Fragments = []
    for index, (kind, text) in enumerate(parts):
        shown.append(("class:bar", GAP if index else " "))
        style = {ALERT: "class:bar.alert", SANDBOX: "class:bar.weak"}.get(kind, "class:bar")
        shown.append((style, text))
    if _width(parts) > columns:
        return [(shown[-1][0], _cut(shown[-1][1], columns))]
    return shown


def line(state: BarState, columns: int) -> str:
    """Return the bar as text."""
    return "".join(text for _, text in fragments(state, columns)).strip()


def _parts(state: BarState) -> list[tuple[int, str]]:
    percent = state.context_percent
    parts = [
        (ALERT, "ESTOP" if state.is_stopped else ""),
        (ALERT, visible_line(state.trouble)),
        (MODEL, visible_line(state.model, MODEL_COLUMNS)),
        (CONTEXT, "" if percent is None else f"ctx {percent}%"),
        (SPEED, f"{state.tokens_per_s:.1f} tok/s" if state.tokens_per_s else ""),
        (AUTONOMY, visible_line(state.autonomy)),
        (SANDBOX, f"sandbox {visible_line(state.sandbox)}" if state.sandbox else ""),
        (PLACE, visible_line(state.place, PLACE_COLUMNS)),
    ]
    return [part for part in parts if part[1]]


def _width(parts: Sequence[tuple[int, str]]) -> int:
    return 1 + sum(width_of(text) for _, text in parts) + len(GAP) * max(len(parts) - 1, 0)


def _cut(text: str, columns: int) -> str:
    """Return the text in so many columns: half of a wide character would wrap to a new row."""
    return "".join(span.text for span in shortened_row([Span(text)], columns, "…"))
