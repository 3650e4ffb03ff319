"""Text that was made to be slow: each pass over it goes through once, however it is made up."""

import base64
import hashlib
import json
import resource
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clawctl.shell.command_log import TAG, redacted
from clawctl.shell.question import plain_text
from tests.support.rows import each_row, thorough

# Processor time, so that other programs do not count. What grows with the square of the length
# takes minutes to hours on a row of a megabyte, and a sixteenth of that on a quarter of it; what
# goes through once takes less than a second.
ROW_CHARS, LIMIT_S = (1 << 20, 60) if thorough() else (1 << 18, 15)

RANDOM = base64.urlsafe_b64encode(hashlib.sha512(b"row").digest()).decode().rstrip("=")

TEXTS = (
    *("._-=:@\"'\\aAaZ9+ \t"),
    *("a.", "a_", "a-", "a1b2_", "aB3_", "eyJ-", "eyJaaaaaaa.", "sk-", "token", "token_", "dsn"),
    *("://", "://a:", "://a:b@", "-u a", "--password", "--password ", "bearer ", "login x "),
    *('password="', "password='", 'password="\\', "password: ", "authorization: ", "secret-key-"),
    *("mysql a ", "mysql-", "login ", "password x ", "$1$", "a:1:a:a:", "export A=", "-u a:"),
    *("-----", "-----BEGIN ", "-----BEGIN PRIVATE " + "KEY-----", "-----END ", "-----END A-----\n"),
    *("A" * 64 + "\n", "A" * 41 + "\n", "| " + "A" * 64 + "\n", "a\n", "\n"),
)
LONG = (
    ".",
    "_",
    "a_",
    "aZ9+",
    "token_",
    "://a:",
    "--password ",
    'password="',
    "=",
    "A" * 64 + "\n",
)
DRAWN = (
    *("\x1b", "\x1b[", "\x1b[1", "\x1b]", "\x1b]a", "\x1bPa", "\x1b ", "\x1b[?1049h", "\x1b[K"),
    *("a\x1b[2K", "\x1b[2Ka\r\x1b[K", "\b", "\r", "ab\b", "\u0301", "a\r\n"),
)
PROGRAM = """
import json, sys
from clawctl.shell.question import plain_text
from clawctl.shell.command_log import redacted
for unit in json.load(sys.stdin):
    row = (unit * (int(sys.argv[1]) // len(unit) + 1))[: int(sys.argv[1])]
    print(repr(unit), flush=True)
    redacted(plain_text(row.encode()))
"""


@pytest.mark.timeout(300)
@each_row("size", [32 * 1024, ROW_CHARS])
def test_no_row_takes_long_whatever_it_is_made_of(size: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(size)],
        input=json.dumps([*TEXTS, *DRAWN] if size < ROW_CHARS else [*LONG, *DRAWN[:1]]),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_limited,
    )
    assert done.returncode == 0, f"more than {LIMIT_S} s or an error: {done.stdout[-40:]}"


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))


@given(st.lists(st.sampled_from(TEXTS), max_size=60).map("".join))
@example("a:1:a:a:.-----BEGIN PRIVATE KEY-----")
def test_pieces_of_secrets_in_any_order_are_answered_and_twice_is_as_once(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once


@given(st.lists(st.sampled_from([*TEXTS, *DRAWN]), max_size=60).map("".join))
def test_a_secret_is_found_after_whatever_was_drawn(before: str) -> None:
    secret = "hunter22-correct-horse"
    shown = redacted(
        plain_text(f"{before}\x18\x1b[?1049l\x1b\\\n\nDB_PASSWORD={secret}\n".encode())
    )
    assert secret not in shown


def test_an_erased_line_costs_what_was_drawn_and_shows_it() -> None:
    assert plain_text(b"abc\x1b[2Kd\x1b[1;3H\re") == "e  d"
    assert plain_text(b"abcdef\r\x1b[Kxy\x1b[2Kz") == "  z"


@each_row(
    "text",
    [
        "PASSWORD=ab&cd;ef,gh|ij",
        'PASSWORD="cut off here',
        "PASSWORD='cut off here",
        "git clone https://me:p@ss@example.org/x",
        "curl -u me:correct-horse example.org",
        "cookie: " + "a=b; " * 2000 + "ij",
        "machine x\n  login me\n  password hunter-ij\n",
        "sig=" + RANDOM[:40] + "ij",
        "x " + RANDOM * 12 + "ij",
    ],
)
def test_the_whole_of_a_secret_goes_and_not_its_beginning(text: str) -> None:
    shown = redacted(text)
    assert TAG in shown
    assert not any(part in shown for part in ("ij", "gh", "here", "ss@", "horse"))
