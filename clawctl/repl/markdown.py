"""Draws pieces of Markdown as rows; what lays them out is imported with the first piece.

Nothing of the text becomes a code: links are shown as text and address, HTML and entities as they
are written, and rows are made safe once more when they are broken (`cells.fitted`).

Cuts Markdown that is still coming into pieces that later text cannot change.

A piece is what can be printed once and for good: a paragraph, a table, a heading, one item of a
list, one line of a code fence. Where the cuts are depends on the text alone, never on how it came.
"""

import importlib
import itertools
import re
from typing import Literal

import msgspec

from clawctl.repl.theme import Look, Span, Theme, fitted, joined, rendered, safe

MAX_LINE_CHARS = 16_384
MAX_BLOCK_LINES = 400
MAX_BLOCK_CHARS = 32_768

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})([^`]*)$")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
_RULE = re.compile(r" {0,3}([*_-])[ \t]*(?:\1[ \t]*){2,}$")
_BULLET = re.compile(r"( *)([-+*]|\d{1,9}[.)])( +|$)")
_QUOTE = re.compile(r" {0,3}>")

Kind = Literal["text", "code", "fence"]


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the text that is complete.

    Attributes:
        kind: Markdown text, one line of code, or a line that opens or closes a fence.
        gap: an empty line stands before it.
        language: of code, as the fence names it.
        block: counts fences, so that lines of one belong together.
    """

    kind: Kind
    source: str
    gap: bool = False
    language: str = ""
    block: int = 0


class Splitter:
    """Takes text as it comes and gives the pieces that are complete."""

    def __init__(self) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._chars = 0
        self._state: Literal["", "text", "quote", "list", "fence"] = ""
        self._fence = ""
        self._inner_fence = ""
        self._fence_indent = 0
        self._item_indent = 0
        self._language = ""
        self._block = 0
        self._gap = False
        self._has_begun = False
        self._done: list[Piece] = []

    def feed(self, text: str) -> list[Piece]:
        """Take text; return what is complete by it."""
        *lines, self._partial = (self._partial + text).split("\n")
        for line in lines:
            self._long_line(line)
        while len(self._partial) > MAX_LINE_CHARS:
            self._line(self._partial[:MAX_LINE_CHARS])
            self._partial = self._partial[MAX_LINE_CHARS:]
        return self._taken()

    def end(self) -> list[Piece]:
        """Say that no more comes; return what is left."""
        if self._partial:
            self._long_line(self._partial)
            self._partial = ""
        self._flush()
        return self._taken()

    def pending(self) -> list[Piece]:
        """Return what `end` would, and go on as before."""
        other = Splitter()
        other.__dict__.update(self.__dict__)
        other._lines, other._done = list(self._lines), []
        return other.end()

    def _long_line(self, line: str) -> None:
        line = line.removesuffix("\r")
        while len(line) > MAX_LINE_CHARS:
            self._line(line[:MAX_LINE_CHARS])
            line = line[MAX_LINE_CHARS:]
        self._line(line)

    def _line(self, line: str) -> None:
        if self._state == "fence":
            self._code_line(line)
        elif not line.strip():
            self._empty_line()
        elif self._state == "list":
            self._list_line(line)
        elif self._state and not self._interrupts(line):
            self._append(line)
        else:
            self._begin(line)

    def _code_line(self, line: str) -> None:
        closing = line.strip()
        if closing and closing == closing[0] * len(closing) and closing.startswith(self._fence):
            self._emit("fence", closing)
            self._state, self._gap = "", True
            return
        lead = len(line) - len(line.lstrip(" "))
        self._emit("code", line[min(lead, self._fence_indent) :])

    def _empty_line(self) -> None:
        if self._state == "list":
            self._append("")
            return
        self._flush()
        self._gap = True

    def _list_line(self, line: str) -> None:
        lead = len(line) - len(line.lstrip(" "))
        if self._inner_fence:
            if line.strip().startswith(self._inner_fence) and not line.strip().strip("`~"):
                self._inner_fence = ""
            self._append(line)
            return
        had_empty = bool(self._lines) and not self._lines[-1]
        if lead >= self._item_indent or not (
            had_empty or _BULLET.match(line) or self._interrupts(line)
        ):
            found = re.match(r"\s*(`{3,}|~{3,})", line)
            self._inner_fence = found[1] if found else ""
            self._append(line)
            return
        is_next = _BULLET.match(line) is not None and not _RULE.match(line)
        self._flush()
        self._gap = had_empty or not is_next
        self._begin(line)

    def _interrupts(self, line: str) -> bool:
        """Return whether a line ends the block before it."""
        if _QUOTE.match(line):
            return self._state != "quote"
        bullet = _BULLET.match(line)
        if bullet is not None and len(bullet[1]) < 4 and bullet[3] and len(line) > bullet.end():
            return bullet[2][:-1] in {"", "1"}
        is_rule = _RULE.match(line) is not None and "-" not in line
        return bool(_FENCE.match(line) or _HEADING.match(line) or is_rule)

    def _begin(self, line: str) -> None:
        self._flush(gap=True)
        fence, bullet = _FENCE.match(line), _BULLET.match(line)
        if fence is not None:
            self._block += 1
            self._fence, self._fence_indent = fence[2], len(fence[1])
            words = fence[3].split()
            self._language = words[0].strip("{}.") if words else ""
            self._gap = True
            self._emit("fence", line.strip())
            self._state, self._gap = "fence", False
        elif _HEADING.match(line) or _RULE.match(line):
            self._append(line)
            self._gap = True
            self._flush(gap=True)
        elif bullet is not None and len(bullet[1]) < 4:
            self._state = "list"
            self._item_indent = len(bullet[1]) + len(bullet[2]) + 1
            self._append(line)
        else:
            self._state = "quote" if _QUOTE.match(line) else "text"
            self._append(line)

    def _append(self, line: str) -> None:
        self._lines.append(line)
        self._chars += len(line) + 1
        if len(self._lines) > MAX_BLOCK_LINES or self._chars > MAX_BLOCK_CHARS:
            self._flush()

    def _flush(self, *, gap: bool = False) -> None:
        """End the block under way."""
        had_empty = bool(self._lines) and not self._lines[-1]
        source = "\n".join(self._lines).rstrip("\n")
        self._lines, self._chars = [], 0
        self._state, self._inner_fence = "", ""
        if source.strip():
            self._emit("text", source)
            self._gap = gap or had_empty

    def _emit(self, kind: Kind, source: str) -> None:
        is_code = kind != "text"
        self._done.append(
            Piece(
                kind=kind,
                source=source,
                gap=self._gap and self._has_begun,
                language=self._language if is_code else "",
                block=self._block if is_code else 0,
            )
        )
        self._has_begun = True
        self._gap = False

    def _taken(self) -> list[Piece]:
        done, self._done = self._done, []
        return done


CODE_CONTEXT_LINES = 40
_LAID_OUT_BY = "clawctl.repl.rich_layout"


class Painter:
    """Turns pieces into rows; keeps the lines of the fence under way, for their colours."""

    def __init__(self, look: Look) -> None:
        self._look = look
        self._code: list[str] = []
        self._block = 0
        self._last: tuple[str, int, list[str]] = ("", 0, [])

    def rows(self, pieces: list[Piece], columns: int) -> list[str]:
        """Return the rows of pieces that are complete; a line of code is one row, however wide."""
        found: list[str] = []
        for _, group in itertools.groupby(pieces, key=lambda piece: (piece.kind, piece.block)):
            same = list(group)
            if same[0].kind == "code":
                found += self._code_rows(same)
                continue
            for piece in same:
                found += [""] if piece.gap else []
                if piece.kind == "text":
                    found += self._text(piece.source, columns)
        return found

    def _code_rows(self, pieces: list[Piece]) -> list[str]:
        """Return the rows of lines of one fence; their colours know the lines before."""
        before = self._code if pieces[0].block == self._block else []
        self._block = pieces[0].block
        lines = [safe_code(piece.source) for piece in pieces]
        self._code = [*before, *lines][-CODE_CONTEXT_LINES:]
        rows = highlighted([*before, *lines], pieces[0].language, self._look.theme, len(lines))
        return list(map(rendered, rows))

    def live_rows(self, pieces: list[Piece], columns: int) -> list[str]:
        """Return rows of pieces that are still coming, none wider than the terminal."""
        found: list[str] = []
        for piece in pieces:
            found += [""] if piece.gap else []
            if piece.kind == "text":
                found += self._text(piece.source, columns)
            elif piece.kind == "code":
                before = self._code if piece.block == self._block else []
                lines = [*before, safe(piece.source)]
                (spans,) = highlighted(lines, piece.language, self._look.theme)
                found += [rendered(row) for row in fitted(spans, columns)]
        return found

    def _text(self, source: str, columns: int) -> list[str]:
        if self._last[:2] != (source, columns):
            layout = importlib.import_module(_LAID_OUT_BY)
            rows = layout.laid_out(safe(source), columns, self._look)
            self._last = (source, columns, [rendered(row) for row in rows])
        return self._last[2]


def preload() -> None:
    """Import what drawing needs, for the moments in which a person reads or types."""
    importlib.import_module(_LAID_OUT_BY)
    importlib.import_module("pygments.lexers")


def safe_code(line: str) -> str:
    """Return a line of code as it may stand in a row, its tabs as they are, so that it copies."""
    return "\t".join(safe(part) for part in line.split("\t"))


def highlighted(lines: list[str], language: str, theme: Theme, count: int = 1) -> list[list[Span]]:
    """Return the last of the lines in the colours of their language, or of code in general."""
    plain = [[Span(line, theme.code)] for line in lines[-count:]]
    if not language or not theme.keyword + theme.string + theme.comment:
        return plain
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language.lower(), stripnl=False)
    except ClassNotFound:
        return plain
    rows: list[list[Span]] = [[]]
    for kind, text in lexer.get_tokens("\n".join(lines)):
        style = style_of(str(kind), theme)
        for index, part in enumerate(text.split("\n")):
            if index:
                rows.append([])
            if part:
                rows[-1].append(Span(part, style))
    found = [joined(row) for row in rows[len(lines) - count : len(lines)]]
    # A lexer that changes the text is not trusted with it.
    is_same = [["".join(span.text for span in row)] for row in found] == [
        [row[0].text] for row in plain
    ]
    return found if is_same else plain


def style_of(kind: str, theme: Theme) -> str:
    """Return the style of a kind of token, named as pygments does: `Token.Name.Function`."""
    for prefix, role in _ROLES:
        if kind.startswith(f"Token.{prefix}"):
            return str(getattr(theme, role))
    return ""


_ROLES = (
    ("Comment", "comment"),
    ("Keyword", "keyword"),
    ("Operator.Word", "keyword"),
    ("Literal.String", "string"),
    ("Literal.Number", "number"),
    ("Name.Function", "name"),
    ("Name.Class", "name"),
    ("Name.Decorator", "name"),
    ("Name.Tag", "keyword"),
    ("Name.Attribute", "name"),
    ("Generic.Inserted", "added"),
    ("Generic.Deleted", "removed"),
    ("Generic.Heading", "strong"),
)
