"""What bytes of the web are: kinds, charsets, and text without what is there to deceive."""

from hypothesis import given
from hypothesis import strategies as st

from clawd.tools.builtin.transfer import cleaned, decoded, is_readable, kind_of, one_line
from tests.support.rows import each_row


@each_row(
    ("body", "claimed", "kind"),
    [
        (b"%PDF-1.7", "text/html", "application/pdf"),
        (b"\n\n%PDF-1.7", "", "application/pdf"),
        (b"a page on %PDF- files", "text/html", "text/html"),
        (b"\x89PNG\r\n", "text/plain", "image/png"),
        (b"PK\x03\x04", "", "application/zip"),
        (b"<!DOCTYPE html><p>x", "", "text/html"),
        (b"  <!-- x -->\n<html>", "application/octet-stream", "text/html"),
        (b"words", "", "text/plain"),
        (b"\x00\x01\x02\x03", "", "application/octet-stream"),
        (b"{}", "application/json", "application/json"),
    ],
)
def test_the_kind_is_what_the_beginning_shows_else_what_is_claimed(
    body: bytes, claimed: str, kind: str
) -> None:
    assert kind_of(body, claimed) == kind


@each_row(
    ("kind", "expected"),
    [
        ("text/html", True), ("text/css", True), ("application/json", True),
        ("application/ld+json", True), ("application/xml", True), ("image/svg+xml", True),
        ("application/rss+xml", True), ("image/png", False), ("application/zip", False),
        ("application/octet-stream", False), ("audio/mpeg", False), ("", False),
    ],
)  # fmt: skip
def test_only_media_types_of_text_are_readable(kind: str, expected: bool) -> None:
    assert is_readable(kind) is expected


@each_row(
    ("text", "charset", "declared"),
    [
        ("Gr\u00fc\u00dfe", "utf-8", ""),
        ("Gr\u00fc\u00dfe", "utf-8", "iso-8859-1"),
        ("Gr\u00fc\u00dfe", "cp1252", "utf-8"),
        ("Gr\u00fc\u00dfe", "cp1252", "ISO-8859-1"),
        ("Gr\u00fc\u00dfe \u20ac", "cp1252", "latin1"),
        ("\u041f\u0440\u0438\u0432\u0435\u0442", "cp1251", "windows-1251"),
        ("\u65e5\u672c\u8a9e", "shift_jis", "Shift_JIS"),
        ("\u65e5\u672c\u8a9e", "iso-2022-jp", "iso-2022-jp"),
        ("\u65e5\u672c\u8a9e", "utf-16", ""),
        ("\u65e5\u672c\u8a9e", "utf-16-le", "utf-16le"),
        ("\u4e2d\u6587", "gb18030", "gb2312"),
        ("plain", "ascii", "punycode"),
        ("plain", "ascii", "x" * 1000),
    ],
)
def test_text_is_decoded_whatever_is_said_of_it(text: str, charset: str, declared: str) -> None:
    if declared == "gb2312":
        assert decoded(text.encode("gb2312"), declared) == text
    assert decoded(text.encode(charset), declared) == text


@each_row("charset", ["rot13", "base64", "zip", "idna", "unicode_escape", "utf-7"])
def test_a_codec_that_is_no_charset_of_the_web_is_not_used(charset: str) -> None:
    text = "uryyb \\x41 +AGE-"
    assert decoded(text.encode(), charset) == text


def test_a_character_that_the_limit_cut_costs_nothing_but_itself() -> None:
    assert decoded("Gr\u00fc".encode()[:-1], "utf-8") == "Gr"


def test_no_page_makes_the_look_at_its_beginning_take_long() -> None:
    assert kind_of(b"<!---->" * 580 + b"x", "") == "text/plain"
    assert kind_of(b"<!---->" * 580 + b"<html>", "") == "text/html"
    assert decoded(b"<meta charset=" * 20 + b" " * 4_000 + b"!", "") is not None


@given(st.binary(max_size=300), st.text(max_size=30))
def test_any_bytes_are_text_or_none(body: bytes, declared: str) -> None:
    text = decoded(body, declared)
    assert text is None or isinstance(text, str)
    assert kind_of(body, declared)


@given(st.text(max_size=200))
def test_cleaned_text_can_be_sent_and_holds_nothing_unseen(text: str) -> None:
    shown = cleaned(text)
    shown.encode()
    assert cleaned(shown) == shown
    assert not any(ord(letter) < 32 and letter not in "\n\t" for letter in shown)
    assert not any(
        0xE0000 <= ord(letter) <= 0xE0FFF or letter in "\u202e\u200b" for letter in shown
    )
    assert "\n" not in one_line(text, 50)
    assert len(one_line(text, 50)) <= 50


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "P", "Zs"])))
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert cleaned(text) == text
