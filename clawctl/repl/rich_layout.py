"""Lays out Markdown with rich, as spans: paragraphs, lists, tables, quotes, headings.

Imported with the first block that is drawn, because rich's Markdown is slow to import.
"""

import functools
import io
import re
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement, TableElement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from rich.theme import Theme as RichTheme
from typing_extensions import override

from clawctl.repl.theme import Look, Span, Theme, fitted, joined

LEAST_TABLE_COLUMN = 6

_TABLE = re.compile(r"\A *[^\n]*\|[^\n]*\n[ \t]*[|:-][-|: \t]*(\n|\Z)")


def laid_out(source: str, columns: int, look: Look) -> list[list[Span]]:
    """Return the rows of Markdown that was made safe; none is wider than `columns`."""
    if _TABLE.match(source) and _is_crowded(source, columns):
        return [row for line in source.split("\n") for row in fitted([Span(line)], columns)]
    console = _console(look.theme)
    options = console.options.update(width=columns, height=None)
    lines = console.render_lines(_Markdown(source), options, pad=False)
    rows: list[list[Span]] = []
    for line in lines:
        spans = [Span(segment.text, _sgr(segment.style)) for segment in line if not segment.control]
        rows += fitted(joined(spans), columns)
    return _without_empty_ends(rows)


class _Heading(Heading):
    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self.text.copy()
        text.justify = "left"
        yield text


class _Code(CodeBlock):
    """Code inside a list or a quote; that of a fence of its own never comes here."""

    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(str(self.text).rstrip("\n"), style="markdown.code_block", overflow="fold")


class _Item(ListItem):
    """An item whose number is written as people write it."""

    @override
    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        mark = f" {number}. "
        inner = options.update(width=max(options.max_width - len(mark), 1))
        style = console.get_style("markdown.item.number")
        for index, line in enumerate(console.render_lines(self.elements, inner)):
            yield Segment(mark, style) if index == 0 else Segment(" " * len(mark))
            yield from line
            yield Segment.line()


class _Table(TableElement):
    @override
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, style="markdown.table.border"
        )
        if self.header is not None and self.header.row is not None:
            for cell in self.header.row.cells:
                heading = cell.content.copy()
                heading.stylize("markdown.table.header")
                table.add_column(heading, justify=cell.justify, overflow="fold")
        if self.body is not None:
            for row in self.body.rows:
                table.add_row(*(cell.content for cell in row.cells))
        yield table


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "list_item_open": _Item,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }

    def __init__(self, markup: str) -> None:
        super().__init__("", hyperlinks=False)
        self.markup = markup
        self.parsed = _shown_links(_parser().parse(markup))


@functools.cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    # What these take away would be lost to the eye: pictures, definitions, characters by number.
    return parser.disable(["image", "reference", "entity"])


def _shown_links(tokens: list[Token]) -> list[Token]:
    """Let a link whose text is its address be that text alone."""
    for token in tokens:
        children = token.children or []
        for index in range(len(children) - 3, -1, -1):
            opening, text, closing = children[index : index + 3]
            is_link = (opening.type, text.type, closing.type) == ("link_open", "text", "link_close")
            address = str(opening.attrs.get("href", "")).removeprefix("mailto:")
            if is_link and address == text.content:
                children[index : index + 3] = [text]
    return tokens


@functools.cache
def _console(theme: Theme) -> Console:
    styles = {
        "markdown.paragraph": "",
        "markdown.text": "",
        "markdown.em": theme.emphasis,
        "markdown.emph": theme.emphasis,
        "markdown.strong": theme.strong,
        "markdown.s": theme.struck,
        "markdown.code": theme.code,
        "markdown.code_block": theme.code,
        "markdown.block_quote": theme.dim,
        "markdown.list": "",
        "markdown.item": "",
        "markdown.item.bullet": theme.accent,
        "markdown.item.number": theme.accent,
        "markdown.hr": theme.dim,
        "markdown.link": theme.link,
        "markdown.link_url": theme.address,
        "table.header": "",
        "markdown.table.border": theme.dim,
        "markdown.table.header": theme.strong,
        **{f"markdown.h{level}": theme.heading for level in range(1, 7)},
        "markdown.h1.border": "",
    }
    return Console(
        file=io.StringIO(),
        color_system=None,
        force_terminal=False,
        theme=RichTheme({name: _style(sgr) for name, sgr in styles.items()}),
        legacy_windows=False,
        emoji=False,
        markup=False,
        highlight=False,
    )


_ATTRIBUTES = {"1": "bold", "2": "dim", "3": "italic", "4": "underline", "7": "reverse"}
_STRUCK = "9"


def _style(sgr: str) -> Style:
    words: list[str] = []
    for code in sgr.split(";"):
        if code in _ATTRIBUTES:
            words.append(_ATTRIBUTES[code])
        elif code == _STRUCK:
            words.append("strike")
        elif code:
            number = int(code)
            words.append(f"color({number - 30 if number < 40 else number - 82})")
    return Style.parse(" ".join(words) or "none")


def _sgr(style: Style | None) -> str:
    if style is None:
        return ""
    codes = [code for code, name in _ATTRIBUTES.items() if getattr(style, name)]
    if style.strike:
        codes.append(_STRUCK)
    if style.color is not None and style.color.number is not None:
        number = style.color.number
        codes.append(str(number + 30 if number < 8 else number + 82))
    return ";".join(codes)


def _without_empty_ends(rows: list[list[Span]]) -> list[list[Span]]:
    while rows and not rows[-1]:
        rows.pop()
    while rows and not rows[0]:
        rows.pop(0)
    return rows


def _is_crowded(source: str, columns: int) -> bool:
    first = source.split("\n", 1)[0].strip().strip("|")
    return columns < LEAST_TABLE_COLUMN * (first.count("|") + 1)
