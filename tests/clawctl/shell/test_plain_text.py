"""Terminal output as text."""

from hypothesis import given
from hypothesis import strategies as st

from clawctl.shell.question import plain_text
from tests.support.rows import each_row


@each_row(
    ("data", "text"),
    [
        (b"a\r\nb\r\n", "a\nb\n"),
        (b"\x1b[1;31merror\x1b[0m: no\x1b[K", "error: no"),
        (b"\x1b]0;title\x07shown\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "shownlink"),
        (b" 10%\r 55%\r100%\n", "100%\n"),
        (b"done\r\n", "done\n"),
        (b"line\r\r\n", "line\n"),
        (b"downloading\r\x1b[Kdone\r\n", "done\n"),
        (b"downloading\x1b[2K\rok\n", "ok\n"),
        (b"long line\rab\n", "abng line\n"),
        (b"out\n\x1b[7m%\x1b[0m          \r \r", "out\n"),
        ("out\n⏎          \r⏎ \r\x1b[K".encode(), "out\n"),
        (b"N\x08NA\x08AME\x08E", "NAME"),
        (b"before\x1b[?1049hall of vim\x1b[2Jmore\x1b[?1049lafter", "before\nafter"),
        (b"before\x1b[?1049hcut off here", "before\n"),
        (b"cut \x1b[38;5", "cut "),
        (b"gr\xc3\xbc\xc3\x9fe \xff", "grüße \ufffd"),
        ("a\u202eb\U000e0041c".encode(), "abc"),
        (b"bell\x07 nul\x00", "bell nul"),
        (b"\x1bPq#0\x1b\\six\x1b(Bel", "sixel"),
    ],
)
def test_shows_what_stood_there(data: bytes, text: str) -> None:
    assert plain_text(data) == text


@given(st.binary(max_size=300))
def test_no_control_character_is_left(data: bytes) -> None:
    assert not set(plain_text(data)) & {chr(code) for code in (*range(9), *range(11, 32), 127)}
