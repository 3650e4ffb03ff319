"""Markdown that streams: whatever the pieces and the sizes, the terminal ends with the same."""

import re
from itertools import pairwise

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from clawctl.repl.markdown import Splitter
from clawd.wire.events import HopReset, TextDelta
from tests.support.drawing import Drawing, PyteTerminal, drawn
from tests.support.reflow import ReflowTerminal
from tests.support.rows import each_row

SAMPLE = """# A title

Some *words* in **bold**, `code`, and a [link](https://example.org/page).
A paragraph that is long enough to be broken in several rows on any of the terminals here.

- one
- two
  goes on
  - nested

1. first
2. second

> quoted
> text

| name | size |
|------|-----:|
| 日本語 | 12 |
| x | 3 |

```python
def f(x):
\t'''doc

\tmore'''
    return "text" * 3  # 👩‍👩‍👧 and e\u0301
```
The end, with `an open mark and **another
"""
LINES = st.sampled_from(
    [
        *SAMPLE.split("\n"),
        "",
        "",
        "```",
        "~~~",
        "- [x] done",
        "    code by indent",
        "***",
        "---",
        "|a|b|",
        "|-|-|",
        "<b>html</b> &amp; &#27;[2J",
        "[x]: http://definition",
        "![picture](address)",
        "日本語の長い文章です" * 4,
        "👩‍👩‍👧‍👦 ❤️ 🇩🇪 " * 6,
        "a\u0301\u0302\u0303" * 20,
        "x" * 150,
        "\x1b[31mred\x1b]8;;http://evil\x07 \u202e",
        "  3) three",
        "+ plus",
        "#",
        ">",
    ]
)
MARKDOWN = st.lists(LINES, max_size=14).map("\n".join) | st.text(
    st.sampled_from("ab `*_~|-#>1.[]()\n\t\\<&日\u0301")
)


def parts(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(places)]


@settings(max_examples=40, deadline=None)
@given(
    MARKDOWN,
    st.lists(st.integers(0, 2_000), max_size=30),
    st.sampled_from([8, 20, 60, 100]),
    st.sampled_from([3, 6, 24]),
)
@example(SAMPLE, list(range(0, 700, 3)), 60, 10)
@example(SAMPLE, list(range(0, 700, 2)), 20, 6)
def test_text_in_any_pieces_ends_as_if_it_came_at_once(
    text: str, cuts: list[int], columns: int, lines: int
) -> None:
    # Known to differ: joined emoji that are as wide as the terminal, where a cut goes through them,
    # and an accent on a blank at which a line is broken.
    assume(columns > 8 or "\u200d" not in text)
    assume(" \u0301" not in text)
    drawing = Drawing(PyteTerminal(columns, lines))
    for part in parts(text, cuts):
        drawing.show(TextDelta(text=part))
        assert text.startswith(drawing.view._hop_text)
    drawing.finish(text)
    at_once = drawn(text, columns, lines)
    assert isinstance(drawing.terminal, PyteTerminal)
    assert drawing.terminal.text == at_once.text
    shown = [row for row in drawing.terminal.cells if any(cell[0].strip() for cell in row)]
    assert shown == [row for row in at_once.cells if any(cell[0].strip() for cell in row)]


@settings(max_examples=40, deadline=None)
@given(st.text(st.sampled_from("ab `*_~|-#>1.[]()\n\t\\<&日\u0301") | st.characters()))
def test_no_letter_of_a_text_is_lost(text: str) -> None:
    shown = "".join(drawn(text, 40).text)
    letters = re.findall(r"[a-z0-9]", text)
    assert sorted(letters) == sorted(re.findall(r"[a-z0-9]", re.sub("‹[^›]*›", "", shown))) or (
        set(letters) <= set(shown)
    )


def words(count: int) -> str:
    """Return numbered words as a long answer: paragraphs, items, code."""
    made = []
    for number in range(0, count, 12):
        line = " ".join(f"w{each}." for each in range(number, min(number + 12, count)))
        made.append(f"{('', '- ', '> ', '')[number // 12 % 4]}{line}\n")
    return "\n".join(made)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.sampled_from([20, 33, 60, 80, 120])), max_size=12))
@example([(1, 20), (1, 20), (53, 33), (60, 20)])
def test_a_terminal_that_reflows_stays_clean_when_its_width_changes(
    sizes: list[tuple[int, int]],
) -> None:
    text = words(240)
    terminal = ReflowTerminal(60, 30)
    drawing = Drawing(terminal, reflows=True)
    at = 0
    for length, columns in sizes:
        drawing.show(TextDelta(text=text[at : at + length]))
        at += length
        terminal.resize(columns, 30)
        drawing.tick()
    drawing.show(TextDelta(text=text[at:]))
    drawing.finish(text)
    assert re.findall(r"w\d+\.", " ".join(terminal.text)) == re.findall(r"w\d+\.", text)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.sampled_from([60, 80, 120])), max_size=8))
def test_a_terminal_that_does_not_reflow_stays_clean_when_it_grows(
    sizes: list[tuple[int, int]],
) -> None:
    text = words(120)
    terminal = PyteTerminal(60, 30)
    drawing = Drawing(terminal)
    at = 0
    for length, columns in sorted(sizes, key=lambda size: size[1]):
        drawing.show(TextDelta(text=text[at : at + length]))
        at += length
        terminal.resize(columns, 30)
        drawing.tick()
    drawing.show(TextDelta(text=text[at:]))
    drawing.finish(text)
    assert re.findall(r"w\d+\.", " ".join(terminal.text)) == re.findall(r"w\d+\.", text)


def cost_of_a_letter(count: int, size: int = 4) -> float:
    text = words(count)
    drawing = Drawing(PyteTerminal(80, 24))
    for at in range(0, len(text), size):
        drawing.show(TextDelta(text=text[at : at + size]))
    drawing.finish(text)
    return drawing.bytes_written / len(text)


def test_what_is_written_grows_with_the_text_and_no_faster() -> None:
    small, large = cost_of_a_letter(100), cost_of_a_letter(600)
    assert large < 1.2 * small
    assert large < 10


def test_a_block_taller_than_the_terminal_is_whole_in_the_scrollback() -> None:
    text = "one " * 400 + "end"
    drawing = Drawing(PyteTerminal(20, 6))
    for at in range(0, len(text), 7):
        drawing.show(TextDelta(text=text[at : at + 7]))
    drawing.finish(text)
    assert " ".join(drawing.terminal.text).split() == text.split()


def test_code_is_shown_as_it_is_and_line_by_line() -> None:
    drawing = Drawing(PyteTerminal(30, 10))
    line = "    return " + "x + " * 20 + "1"
    drawing.show(TextDelta(text=f"```python\ndef f():\n{line}\n"))
    drawing.finish(None)
    assert "".join(drawing.terminal.text[1:]) == line, "a long line is one line for who copies it"
    assert "\x1b[95mdef\x1b[0m" in drawing.raw


def test_links_are_text_and_address_and_never_codes() -> None:
    terminal = drawn("See [the page](https://evil.example/a) and <https://plain.example>.")
    assert terminal.text == ["See the page (https://evil.example/a) and https://plain.example."]


def test_what_a_hop_said_is_void_when_it_is_asked_again() -> None:
    drawing = Drawing(PyteTerminal(60, 10))
    drawing.show(TextDelta(text="First paragraph.\n\nSecond, still com"))
    drawing.show(HopReset(reason="the tool call was broken"))
    assert drawing.terminal.text[:4] == [
        "First paragraph.",
        "",
        "  the text above is void; it is asked again",
        "  ● again: the tool call was broken",
    ]
    drawing.show(TextDelta(text="Third."))
    drawing.finish("Third.")
    assert drawing.terminal.text[-1] == "Third."
    assert "Second" not in "".join(drawing.terminal.text)


@each_row("text", ["- a\n- b\n", "a\n\nb", "```\na\n```\nb", "# a\nb"])
def test_pieces_do_not_depend_on_how_text_comes(text: str) -> None:
    whole = Splitter()
    expected = whole.feed(text) + whole.end()
    single = Splitter()
    found = [piece for character in text for piece in single.feed(character)]
    assert found + single.end() == expected
