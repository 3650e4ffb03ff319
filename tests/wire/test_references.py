"""References of session files: one way to write them, and nothing that looks like one is a path."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import InvalidRequestError
from clawd.wire.references import (
    NAME_LIMIT,
    check_name,
    is_name,
    looks_like_reference,
    name_in,
    reference,
)
from tests.support.rows import each_row

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True)

NEARLY = [
    "file+session:/x",
    "file+session:x",
    "file+session:",
    "file+session:///x",
    "file+session://x/y",
    "file+session://x/",
    "file+session://../x",
    "file+session://..",
    "file+session://.",
    "file+session://.hidden",
    "file+session://-x",
    "file+session://x y",
    "file+session://x?y",
    "file+session://x%2e",
    "file+session://x\n",
    "file+session://x\x00",
    "file+session://é.txt",
    f"file+session://{'a' * (NAME_LIMIT + 1)}",
    "FILE+SESSION://x",
    "File+Session://x",
    "file%2Bsession://x",
    "file%252Bsession%253A//x",
    "%66ile+session://x",
    "file+session%3A%2F%2Fx",
    "file+session：//x",
    "ｆile+session://x",
    "file + session://x",
    "./file+session://x",
    "a/../file+session://x",
    "/srv/file+session://x",
    "a\\file+session:\\x",
    '"file+session://x"',
    "`file+session://x`",
]


@given(NAMES)
def test_a_reference_leads_back_to_its_name(name: str) -> None:
    assert is_name(name)
    assert looks_like_reference(reference(name))
    assert name_in(f" {reference(name)} ") == name


@each_row("path", [path for path in NEARLY if path.strip() == path])
def test_what_is_nearly_a_reference_is_refused_with_an_example(path: str) -> None:
    assert looks_like_reference(path)
    with pytest.raises(InvalidRequestError) as refused:
        name_in(path)
    assert refused.value.message.endswith('as in {"path": "file+session://notes.txt"}')


def test_the_scheme_alone_means_all_of_them() -> None:
    assert name_in("file+session://") == ""


@each_row(
    "path",
    ["notes.txt", "session.txt", "file+session", "my-file+sessions/a:b", "file/session:x", "", "%"],
)
def test_other_paths_are_paths(path: str) -> None:
    assert not looks_like_reference(path)


@given(st.text())
def test_no_text_breaks_the_look(text: str) -> None:
    looks_like_reference(text)
    if not is_name(text):
        with pytest.raises(InvalidRequestError):
            check_name(text)
