"""Keywords: each rule with what it takes and what it refuses."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawd.errors import InvalidRequestError
from clawd.memory.knowledge.keywords import (
    KEYWORD_LIMIT,
    MAX_KEYWORDS,
    STEM_LIMIT,
    WantedEntries,
    entry_name,
    header_keywords,
    is_plain_word,
    searched_keywords,
    wanted_entries,
)
from tests.support.rows import each_row

FILE = re.compile(r"(fix-)?[a-z0-9+][a-z0-9._+-]{0,31}(_[a-z0-9+][a-z0-9._+-]{0,31}){0,7}\.md")


@each_row(
    ("text", "file"),
    [
        ("server backup", "backup_server.md"),
        ("server, backup", "backup_server.md"),
        ("server/backup", "backup_server.md"),
        ("server_backup", "backup_server.md"),
        ("backup_server.md", "backup_server.md"),
        ("  server\n\tbackup  server ", "backup_server.md"),
        ("Backup SERVER", "backup_server.md"),
        ('"backup", (server).', "backup_server.md"),
        ("Café Straße", "cafe_strasse.md"),
        ("ﬁle", "file.md"),
        ("server，backup", "backup_server.md"),
        ("c++ usb-c v1.2", "c++_usb-c_v1.2.md"),
        ("r & d", "d_r.md"),
        (".bashrc", "bashrc.md"),
        ("--force", "force.md"),
        ("#topic", "topic.md"),
    ],
)
def test_what_is_meant_in_one_way_names_an_entry(text: str, file: str) -> None:
    assert entry_name(text).file == file


@each_row(
    ("text", "told"),
    [
        ("", '"backup server"'),
        ("  ,, / ", '"backup server"'),
        ("...", '"backup server"'),
        ("日本", '"backup server"'),
        ("a@b", '"a-b"'),
        ("a\x00b", '"a-b"'),
        ("nul\x1b[31m", '"nul-31m"'),
        ("c#", '"c"'),
        ("a:b", '"a-b"'),
        ("login fix-bug", '"bug"'),
        ("fix-bug", '"bug"'),
        ("fix-fix-bug", '"bug"'),
    ],
)
def test_what_is_not_is_refused_with_a_form_that_can_be_copied(text: str, told: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        entry_name(text)
    assert told in refusal.value.message
    assert "\x1b" not in refusal.value.message
    example = refusal.value.message.rpartition('"')[0].rpartition('"')[2]
    if example != "fix":
        entry_name(example)


def test_the_longest_keyword_is_taken_and_one_letter_more_is_not() -> None:
    assert entry_name("a" * KEYWORD_LIMIT).keywords == ("a" * KEYWORD_LIMIT,)
    with pytest.raises(InvalidRequestError, match="1 to 32"):
        entry_name("a" * (KEYWORD_LIMIT + 1))


def test_eight_keywords_are_taken_and_nine_are_not() -> None:
    eight = " ".join("abcdefgh")
    assert len(entry_name(eight).keywords) == MAX_KEYWORDS
    with pytest.raises(InvalidRequestError, match="9 keywords, and 8 is the most") as refusal:
        entry_name(eight + " i")
    assert f'"{eight}"' in refusal.value.message


def test_a_stem_of_64_is_taken_and_one_of_65_is_not() -> None:
    taken = f"{'a' * 32} {'b' * 31}"
    assert len(entry_name(taken).stem) == STEM_LIMIT
    with pytest.raises(InvalidRequestError, match="65 characters, and 64"):
        entry_name(f"{'a' * 32} {'b' * 32}")
    with pytest.raises(InvalidRequestError, match="68 characters, and 64"):
        entry_name(taken, fixed=True)


def test_a_fixed_entry_is_named_with_its_beginning() -> None:
    assert entry_name("vpn office", fixed=True).file == "fix-office_vpn.md"
    assert entry_name("fix-office_vpn", fixed=True).file == "fix-office_vpn.md"
    assert wanted_entries("fix-office_vpn.md") == WantedEntries(
        keywords=("office", "vpn"), fixed=True
    )
    assert wanted_entries("office vpn") == WantedEntries(keywords=("office", "vpn"))


def test_a_search_takes_what_can_be_a_keyword_and_leaves_the_rest() -> None:
    assert searched_keywords("What is 日本's backup, server?") == ("what", "is", "backup", "server")
    assert len(searched_keywords("a b c d e f g h i j")) == MAX_KEYWORDS
    with pytest.raises(InvalidRequestError, match="no keyword"):
        searched_keywords("日本 ???")


def test_far_too_long_a_text_is_refused_before_it_is_looked_at() -> None:
    for ask in (entry_name, wanted_entries, searched_keywords):
        with pytest.raises(InvalidRequestError, match="characters long"):
            ask("word " * 1_000)


def test_a_header_by_hand_keeps_what_is_good_of_it() -> None:
    assert header_keywords("Server, 日本, Backup") == ("backup", "server")
    assert header_keywords("日本") == ()


def test_plain_words_are_short_and_hold_letters_and_digits_only() -> None:
    assert [w for w in ("nas2", "run-this.sh", "a" * 21, "a" * 20) if is_plain_word(w)] == [
        "nas2",
        "a" * 20,
    ]


@given(st.text(max_size=80), st.booleans())
def test_no_text_names_a_file_that_leads_elsewhere_or_looks_fixed(text: str, fixed: bool) -> None:
    try:
        name = entry_name(text, fixed=fixed)
    except InvalidRequestError:
        return
    assert FILE.fullmatch(name.file), name.file
    assert name.file.startswith("fix-") == fixed
    assert len(name.stem) <= STEM_LIMIT
    assert entry_name(name.file, fixed=fixed) == name
    assert header_keywords(", ".join(name.keywords)) == name.keywords
