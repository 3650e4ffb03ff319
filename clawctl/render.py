"""How clawctl shows things: tables, JSON, colour, errors. Text of others is made safe here."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TextIO, TypeVar

import msgspec

from clawd.errors import ClawError
from clawd.wire.codec import to_builtins
from clawd.wire.safe_text import ascii_json, terminal_safe, visible_line

T = TypeVar("T")
CELL_LIMIT = 60
NARROWEST = 20


class Palette:
    """Colours for one stream; plain text where colour is not wanted."""

    def __init__(self, *, is_on: bool) -> None:
        self.is_on = is_on

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str] | None = None) -> "Palette":
        """Return colours for a terminal; NO_COLOR and TERM=dumb turn them off."""
        env = os.environ if environ is None else environ
        wanted = not env.get("NO_COLOR") and env.get("TERM", "") != "dumb"
        return cls(is_on=wanted and stream.isatty())

    def bold(self, text: str) -> str:
        """Return the text in bold."""
        return self._paint("1", text)

    def dim(self, text: str) -> str:
        """Return the text less bright."""
        return self._paint("2", text)

    def red(self, text: str) -> str:
        """Return the text in red."""
        return self._paint("31", text)

    def green(self, text: str) -> str:
        """Return the text in green."""
        return self._paint("32", text)

    def yellow(self, text: str) -> str:
        """Return the text in yellow."""
        return self._paint("33", text)

    def cyan(self, text: str) -> str:
        """Return the text in cyan."""
        return self._paint("36", text)

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_on and text else text


def say(text: str) -> None:
    """Print text of a person, a model or a tool to stdout, made safe."""
    print(terminal_safe(text))


def note(text: str) -> None:
    """Print a remark to stderr, made safe."""
    print(terminal_safe(text), file=sys.stderr)


def emit_json(value: object) -> None:
    """Print one JSON document to stdout."""
    from clawctl.safe_stream import plain

    data = msgspec.json.format(msgspec.json.encode(to_builtins(value)), indent=2)
    print(ascii_json(data.decode()), file=plain(sys.stdout))


def emit(value: T, shown: str | list[str] | Callable[[T], object], *, as_json: bool) -> None:
    """Print a JSON document, or what says the same.

    Args:
        value: the document.
        shown: a sentence, which is made safe here; rows of `table` or `fields`; or what prints.
        as_json: whether the document is wanted.
    """
    if as_json:
        emit_json(value)
    elif isinstance(shown, str):
        say(shown)
    elif isinstance(shown, list):
        print("\n".join(shown))
    else:
        shown(value)


def emit_schema(prints: Any, title: str) -> None:
    """Print the JSON Schema of a type, or of the one at `module:name`."""
    import pkgutil
    from types import UnionType
    from typing import get_args

    kind = pkgutil.resolve_name(prints) if isinstance(prints, str) else prints
    # msgspec makes no one schema of several structs without tags.
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    parts, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    found = parts[0] if len(parts) == 1 else {"anyOf": list(parts)}
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **found}
    emit_json(document | ({"$defs": components} if components else {}))


def show_error(error: ClawError, *, as_json: bool = False) -> None:
    """Print message and hint to stderr; with `as_json` a JSON document to stdout as well."""
    palette = Palette.of(sys.stderr)
    print(f"{palette.red('error')}: {terminal_safe(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"{palette.cyan('hint')}: {terminal_safe(error.hint)}", file=sys.stderr)
    if as_json:
        emit_json({"error": error_values(error)})


def error_values(error: ClawError) -> dict[str, Any]:
    """Return an error as JSON-like data."""
    return {
        "code": error.code,
        "message": error.message,
        "hint": error.hint,
        "data": error.data,
    }


def table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], *, nothing: str = "(none)"
) -> list[str]:
    """Return rows in aligned columns; a cell is one line, the last column takes what it needs."""
    if not rows:
        return [nothing]
    last = len(headers) - 1
    cells = [
        [visible_line(str(value), 0 if i == last else CELL_LIMIT) for i, value in enumerate(row)]
        for row in rows
    ]
    widths = [max(display_width(line[i]) for line in [list(headers), *cells]) for i in range(last)]
    indent, lines = sum(widths) + 2 * last, [Palette.of(sys.stdout).bold(_line(headers, widths))]
    for row in cells:
        text, *more = _wrapped([row[-1]], indent)
        lines += [_line([*row[:-1], text], widths), *(f"{' ' * indent}{part}" for part in more)]
    return lines


def show_table(
    headers: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    nothing: str = "(none)",
    narrow: tuple[Sequence[str], Sequence[Sequence[object]]] | None = None,
) -> None:
    """Print what `table` returns; `narrow` has less, for a terminal that is too narrow for all."""
    lines = table(headers, rows, nothing=nothing)
    if narrow is not None and sys.stdout.isatty():
        from clawctl.safe_stream import columns

        if max(map(display_width, lines[1:]), default=0) > columns(sys.stdout):
            lines = table(*narrow, nothing=nothing)
    print("\n".join(lines))


def fields(named: Sequence[tuple[str, object]]) -> list[str]:
    """Return names and values, one a line; a value of several lines is indented."""
    palette = Palette.of(sys.stdout)
    shown = [(visible_line(name, CELL_LIMIT), value) for name, value in named]
    width = max((display_width(name) for name, _ in shown), default=0)
    rows: list[str] = []
    for name, value in shown:
        first, *more = _wrapped(terminal_safe(str(value)).split("\n"), width + 2)
        rows.append(f"{palette.dim(name)}{' ' * (width - display_width(name))}  {first}")
        rows += [f"{' ' * width}  {line}" for line in more]
    return rows


def show_fields(named: Sequence[tuple[str, object]]) -> None:
    """Print what `fields` returns."""
    print("\n".join(fields(named)))


def _wrapped(lines: list[str], indent: int) -> list[str]:
    """Break lines that a terminal would break itself, at blanks; for a pipe they stay whole."""
    if not sys.stdout.isatty():
        return lines
    from clawctl.safe_stream import columns

    room = columns(sys.stdout) - indent
    if room < NARROWEST or max(map(display_width, lines)) <= room:
        return lines
    import textwrap

    return [part for line in lines for part in textwrap.wrap(line, room) or [""]]


def display_width(text: str) -> int:
    """Return the columns that the text takes on a terminal."""
    if text.isascii():
        return len(text)
    import unicodedata

    wide = sum(1 for char in text if unicodedata.east_asian_width(char) in "WF")
    return len(text) + wide - sum(1 for char in text if unicodedata.combining(char))


def percent(used: int, size: int) -> int:
    """Return how full something is, rounded; the same number wherever it is displayed."""
    return round(100 * used / size)


def duration(seconds: float) -> str:
    """Return a duration as people say it: `3 d 4 h`, `12 min`, `8 s`."""
    whole = int(seconds)
    days, rest = divmod(whole, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, left = divmod(rest, 60)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {left} s" if minutes else f"{left} s"


def size(count: int) -> str:
    """Return bytes as people say them: `4.9 GB`, `512 kB`, `12 B`."""
    for factor, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        text + " " * (width - display_width(text))
        for text, width in zip(cells, widths, strict=False)
    ]
    return "  ".join([*padded, cells[-1]]).rstrip()


def without_status(text: str) -> str:
    """Return why a call did not act, without the words that say so: a row says that before it."""
    for word in ("denied: ", "error: "):
        text = text.removeprefix(word)
    return text.removeprefix("denied ") if text.startswith("denied by ") else text
