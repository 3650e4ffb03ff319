"""Draws pieces of Markdown as rows; what lays them out is imported with the first piece.

Nothing of the text becomes a code: links are shown as text and address, HTML and entities as they
are written, and rows are made safe once more when they are broken (`cells.fitted`).
"""

import importlib
import itertools

from clawctl.repl.blocks import Piece
from clawctl.repl.styled_rows import Span, fitted, joined, rendered, safe
from clawctl.repl.theme import Look, Theme

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
