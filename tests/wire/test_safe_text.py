"""Text made safe to show and to splice."""

import json
import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from clawd.wire.safe_text import (
    ascii_json,
    has_invisible,
    lookalikes,
    paragraph,
    shortened,
    single_line,
    terminal_safe,
    visible,
    visible_line,
    with_few_marks,
)
from tests.support.rows import each_row

ANY_TEXT = st.text(st.characters(codec=None))


@each_row(
    ("text", "shown"),
    [
        ("plain ü 漢字 😀", "plain ü 漢字 😀"),
        ("a\x1b[2Jb", "a‹U+001B›[2Jb"),
        ("\x1b]52;c;eA==\x07", "‹U+001B›]52;c;eA==‹U+0007›"),
        ("a\x9b2Jb", "a‹U+009B›2Jb"),
        ("rm\u202e txt.a", "rm‹U+202E› txt.a"),
        ("a\u2066b\u2069", "a‹U+2066›b‹U+2069›"),
        ("r\u200bm", "r‹U+200B›m"),
        ("a\ufeffb\u00adc\u2060", "a‹U+FEFF›b‹U+00AD›c‹U+2060›"),
        ("hi\U000e0068\U000e0069", "hi‹U+E0068›‹U+E0069›"),
        ("ls\u00a0-l", "ls‹U+00A0›-l"),
        ("a\r\nb\tc", "a‹U+000D›\nb\tc"),
        ("\ud800", "‹U+D800›"),
        ("\u3164\u2800\uffa0", "‹U+3164›‹U+2800›‹U+FFA0›"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert has_invisible(text) == (text != shown)


@given(ANY_TEXT)
def test_visible_text_holds_nothing_that_moves_or_hides(text: str) -> None:
    for character in visible(text):
        if character in "\n\t ":
            continue
        assert unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zl", "Zp", "Zs"} or (
            character
            in "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2"
            "\U000110bd\U000110cd"
            or 0x13430 <= ord(character) <= 0x1345F
        )  # number signs and hieroglyph joiners are Cf and visible


@given(ANY_TEXT)
def test_terminal_safe_text_cannot_drive_a_terminal(text: str) -> None:
    safe = terminal_safe(text)
    for character in safe:
        code = ord(character)
        assert character in "\n\t" or not (code < 0x20 or 0x7F <= code < 0xA0)
        assert unicodedata.bidirectional(character) not in {
            "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"
        }  # fmt: skip
    assert terminal_safe(safe) == safe


def test_terminal_safe_keeps_emoji_and_scripts() -> None:
    text = "❤️ 👩‍💻 नमस्ते שלום"
    assert terminal_safe(text) == text


@given(ANY_TEXT)
def test_visible_twice_is_visible_once(text: str) -> None:
    assert visible(visible(text)) == visible(text)


@given(ANY_TEXT, st.integers(min_value=0, max_value=40))
def test_lines_are_one_line_and_bounded(text: str, limit: int) -> None:
    for line in (single_line(text, limit), visible_line(text, limit or 1)):
        assert len(line) <= max(limit, 1)
        assert "\n" not in line


def test_single_line_makes_controls_blanks() -> None:
    assert single_line("a\nb\x1b[0m\x7fc\x00") == "a b [0m c"
    assert single_line("x" * 300) == "x" * 199 + "…"
    assert single_line("x" * 300, 64) == "x" * 63 + "…"


def test_paragraph_keeps_breaks_and_drops_other_controls() -> None:
    assert paragraph("a\r\n\tb\x1b[0m\x07\x7f\x00c") == "a\n\tb[0mc"


def test_shortened_keeps_what_fits() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "ab…"
    assert shortened("abcd", 0) == ""


@given(ANY_TEXT)
def test_json_without_active_characters_means_the_same(text: str) -> None:
    made = ascii_json(json.dumps({"a": text}, ensure_ascii=False))
    assert json.loads(made) == {"a": text}
    assert not has_invisible(made)


def test_marks_beyond_a_few_are_told_and_not_shown() -> None:
    assert with_few_marks("z" + "\u0301" * 200 + "y") == "z" + "\u0301" * 8 + "‹more marks›y"
    kept = "é́ ── 👩‍💻 ê̄ \u0e19\u0e49\u0e33"
    assert with_few_marks(kept) == kept


@each_row(
    ("text", "shown"),
    [
        ("r\u200dm", "r‹U+200D›m"),
        ("a\u200bb\u3164c\u00add", "a‹U+200B›b‹U+3164›c‹U+00AD›d"),
        ("x\ufe0f", "x‹U+FE0F›"),
        ("\u2764\ufe0f\ufe0f", "\u2764‹U+FE0F›\ufe0f"),
        ("1\ufe0f\u20e3", "1\ufe0f\u20e3"),
        ("\u0915\u094d\u200d\u0937", "\u0915\u094d\u200d\u0937"),
    ],
)
def test_what_hides_is_written_out_where_it_has_no_place(text: str, shown: str) -> None:
    assert terminal_safe(text) == shown


def test_s12_letters_that_pass_for_latin_ones_are_named() -> None:
    """Rows: a text, and the letters that are named in it."""
    rows = {
        "p\u0430ypal.com/x": ["\u0430"],
        "\u0435\u0445\u0435": ["\u0435", "\u0445", "\u0435"],  # all of it, in Cyrillic
        "curl \u0435xample.org": ["\u0435"],
        "\uff52\uff4d -rf": ["\uff52", "\uff4d"],
        "\U0001d42b\U0001d426 x": ["\U0001d42b", "\U0001d426"],
        "\u0391dmin": ["\u0391"],
        "plain text, docs/a.md": [],
        "na\u00efve stra\u00dfe": [],
        "\u0394t \u03bcs \u03bbx": [],
        "\u0441\u043e\u0440 \u0432 \u043b\u0435\u0441\u0443": [],  # a Russian sentence
        "\u65e5\u672c\u8a9e docs": [],
    }
    found = {text: re.findall("‹(.) [^›]*›", "".join(lookalikes(text))) for text in rows}
    assert found == rows
    assert lookalikes("p\u0430ypal") == ["p‹\u0430 CYRILLIC SMALL LETTER A›ypal"]
