"""Secrets become keyed tags before anything is hashed, logged or stored."""

import io
import json
import logging
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import StorageError
from clawd.security.redact import RedactingFilter, Redactor, load_or_create_key
from tests.support.rows import each_row

KEY = bytes(range(32))
SECRET = "correct-horse-battery"
REDACTOR = Redactor([SECRET, 'quo"ted\\secret', "short", ""], KEY)
# Put together here, so that no scanner takes the test for a leak.
KEY_NAME = "PRIVATE" + " KEY-----"
PEM = f"-----BEGIN OPENSSH {KEY_NAME}\nb3BlbnNz\nAAAA\n-----END OPENSSH {KEY_NAME}"
AWS = "AKIA" + "IOSFODNN7EXAMPLE"


def test_a_known_secret_becomes_a_tag_that_names_it_only_to_the_key() -> None:
    text = REDACTOR.text(f"key={SECRET} and {SECRET}")
    assert SECRET not in text
    tags = {part for part in text.replace("key=", "").split() if part != "and"}
    assert len(tags) == 1
    assert tags.pop().startswith("[secret:")
    assert Redactor([SECRET], b"x" * 32).text(SECRET) != Redactor([SECRET], KEY).text(SECRET)


@each_row(
    ("text", "secret"),
    [
        (PEM, "b3BlbnNz"),
        (PEM.rpartition("-----END")[0], "b3BlbnNz"),
        ("sk-" + "proj-abcdefghijklmnop1234", "abcdefghijklmnop"),
        (f"id {AWS} here", AWS),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "abcdefghij"),
        ("Authorization: Bearer abc.def-ghi_123", "abc.def-ghi_123"),
        ("https://ada:hunter2@example.org/x", "hunter2"),
        ("postgres://u:p%40ss@db/x", "p%40ss"),
        ("password=hunter2&x=1", "hunter2"),
        ('{"api_key": "hunter2hunter2"}', "hunter2"),
        ("eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0NTY3.SflKxwRJSMeKKF2QT4fw", "SflKxw"),
    ],
)
def test_what_has_the_shape_of_a_secret_is_replaced(text: str, secret: str) -> None:
    redacted = REDACTOR.text(text)
    assert secret not in redacted
    assert "[secret:" in redacted


def test_what_stands_around_a_secret_stays() -> None:
    assert REDACTOR.text("https://ada:hunter2@example.org/x").startswith("https://ada:[secret:")
    assert REDACTOR.text("https://ada:hunter2@example.org/x").endswith("]@example.org/x")


@each_row(
    "text",
    ["", "short", "a plain text", "https://example.org:8080/a", "sk-short", "tokens: 12", "ask-x"],
)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert REDACTOR.text(text) == text


def test_json_text_hides_a_secret_with_quotes_in_it() -> None:
    text = json.dumps({"x": 'quo"ted\\secret'})
    assert "ted" not in REDACTOR.text(text)
    assert json.loads(REDACTOR.text(text))["x"] == REDACTOR.text('quo"ted\\secret')


def test_a_tree_is_redacted_in_strings_keys_and_by_name() -> None:
    tree = {
        "a": [SECRET, 1, None, True, {"b": f"x {SECRET}"}],
        SECRET: 2,
        "password": "x",
        "db_token": "y",
        "tokens": "z",
        "raw": SECRET.encode(),
    }
    clean = REDACTOR.tree(tree)
    assert SECRET not in json.dumps(clean, default=bytes.decode)
    assert clean["a"][1:4] == [1, None, True]
    assert clean["password"].startswith("[secret:")
    assert clean["db_token"].startswith("[secret:")
    assert clean["tokens"] == "z"


def test_a_tree_without_end_is_cut() -> None:
    tree: list[object] = []
    for _ in range(10_000):
        tree = [tree]
    assert "[too deep]" in json.dumps(REDACTOR.tree(tree))


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_bytes_around_a_secret_come_through(before: bytes, after: bytes) -> None:
    redactor = Redactor([SECRET], KEY)
    clean = redactor.data(before + b"\n" + SECRET.encode() + b"\n" + after)
    assert SECRET.encode() not in clean
    tag = redactor.text(SECRET).encode()
    assert clean.count(tag) >= 1
    if b":" not in before + after and b"=" not in before + after and b"ey" not in before + after:
        assert clean == before + b"\n" + tag + b"\n" + after


@given(st.text())
def test_redacting_twice_is_redacting_once(text: str) -> None:
    once = REDACTOR.text(f"{text} {SECRET} password={text}")
    assert REDACTOR.text(once) == once


def test_hostile_text_is_redacted_in_time() -> None:
    for text in (f"-----BEGIN {KEY_NAME}" * 5_000, "://a:" * 40_000, "eyJ" * 60_000,
                 "password=" * 20_000, "bearer " * 20_000, "a" * 1_000_000):  # fmt: skip
        REDACTOR.text(text)


def test_logs_hide_secrets_in_messages_arguments_and_tracebacks() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.addFilter(RedactingFilter(REDACTOR))
    logger = logging.getLogger("tests.redact")
    logger.addHandler(handler)
    logger.propagate = False
    try:
        logger.warning("key %s", SECRET)
        try:
            raise ValueError(f"bad key {SECRET}")
        except ValueError:
            logger.exception("failed with %r", {"k": SECRET})
    finally:
        logger.removeHandler(handler)
    assert SECRET not in stream.getvalue()
    assert stream.getvalue().count("[secret:") == 3
    assert "ValueError" in stream.getvalue()


def test_the_key_is_made_once_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "receipts.key"
    key = load_or_create_key(path)
    assert len(key) == 32
    assert load_or_create_key(path) == key
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["receipts.key"]


def test_two_that_make_the_key_at_once_get_the_same(tmp_path: Path) -> None:
    keys: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: keys.append(load_or_create_key(tmp_path / "k")))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(keys) == 8
    assert len(set(keys)) == 1


def test_a_key_that_others_can_read_or_of_another_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "k"
    load_or_create_key(path)
    path.chmod(0o640)
    with pytest.raises(StorageError, match="mode 0600"):
        load_or_create_key(path)
    path.chmod(0o600)
    path.write_bytes(b"x" * 31)
    with pytest.raises(StorageError, match="31 bytes"):
        load_or_create_key(path)
    with pytest.raises(StorageError, match="cannot be made"):
        load_or_create_key(tmp_path / "missing" / "k")


def test_extra_fields_of_a_record_are_redacted() -> None:
    record = logging.makeLogRecord({"msg": "x", "address": f"http://u:{'hunter22hunter'}@host/"})
    assert RedactingFilter(Redactor([], bytes(32))).filter(record)
    assert "hunter22hunter" not in str(record.__dict__)
