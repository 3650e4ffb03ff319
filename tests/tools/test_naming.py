"""Which tool a name means: other words, other spellings, and what is never guessed."""

from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.tools.base import builtin_traits
from clawd.tools.naming import (
    ALIASES,
    EITHER,
    NO_CHOICE,
    choice_of,
    cleaned,
    distance,
    is_one_slip,
    near_name,
    nearest,
    words_of,
)
from clawd.tools.registry import FACADES
from tests.support.rows import each_row

TOOLS = tuple(sorted({*ALIASES.values(), "cwd", "knowledge_append", "knowledge_keywords"}))
KNOWN = ALIASES | {name: name for name in TOOLS}


def rank_of(name: str) -> int:
    traits = builtin_traits(name)
    assert traits is not None, name
    return traits.rank


RANKS = {name: rank_of(name) for name in TOOLS}


def test_a_word_for_a_tool_is_no_tools_name_and_stands_once() -> None:
    assert not set(ALIASES) & {*TOOLS, *EITHER, *FACADES}
    assert set(EITHER).isdisjoint(TOOLS)
    for words in (*ALIASES, *EITHER):
        assert "_".join(words_of(words)) == words


def test_a_word_that_says_that_it_looks_leads_to_a_tool_that_looks() -> None:
    says_look = {"read", "get", "list", "show", "view", "find", "search", "cat", "ls", "stat"}
    looking = {
        word: ALIASES[word]
        for word in ALIASES
        if says_look.intersection(words_of(word)) and "replace" not in word
    }
    assert looking
    assert {word: tool for word, tool in looking.items() if RANKS[tool] > 0} == {}


@each_row(
    ("name", "tool"),
    [
        ("FILE_WRITE", "file_write"),
        ("fileWrite", "file_write"),
        ("write-file", "file_write"),
        ("memory_serach", "memory_search"),
        ("knowledg_serch", "knowledge_search"),
        ("file_wrte", "file_write"),
        ("filelist", "file_list"),
        ("RunCommand", "shell"),
        ("file_rite", None),
        ("file_exit", None),
        ("file_delete", None),
        ("read", "file_read"),
        ("undelete", None),
        ("tim", None),
        ("timer", None),
        ("unread_file", None),
        ("x" * 500, None),
        ("", None),
    ],
)
def test_a_name_means_one_tool_or_none(name: str, tool: str | None) -> None:
    assert near_name(cleaned(name), KNOWN, RANKS) == tool


_SPELLINGS = st.sampled_from(sorted(KNOWN))


@settings(deadline=None)
@given(_SPELLINGS, st.integers(0, 40), st.sampled_from("abcdeilorstw_"), st.integers(0, 2))
def test_a_slip_never_leads_to_a_tool_that_does_more_than_another_reading(
    spelling: str, at: int, letter: str, how: int
) -> None:
    at %= len(spelling)
    tail = {0: spelling[at + 1 :], 1: spelling[at:], 2: spelling[at + 1 :]}[how]
    name = spelling[:at] + ("" if how == 2 else letter) + tail
    found = near_name(name, KNOWN, RANKS)
    if found is None or "_".join(words_of(name)) in KNOWN:
        return
    shape = "".join(words_of(name))
    best = min(distance(shape, "".join(words_of(each))) for each in KNOWN)
    readings = {
        tool for each, tool in KNOWN.items() if distance(shape, "".join(words_of(each))) == best
    }
    assert all(RANKS[found] <= RANKS[tool] for tool in readings)


@each_row(
    "name",
    [
        "functions.shell",
        "functions.shell:3",
        " shell() ",
        "'shell'",
        "shell<|message|>x",
        "tool.shell",
    ],
)
def test_what_models_put_around_a_name_is_taken_off(name: str) -> None:
    assert cleaned(name) == "shell"


def test_the_nearest_are_the_most_alike() -> None:
    assert nearest("file_delete", {name: name for name in TOOLS})[0].startswith("file_")
    assert nearest("qqqqqqq", KNOWN) == []


FS = tuple(FACADES["fs"])
PLAN = ("add", "update", "delete", "list")
STATUS = ("pending", "working", "done", "error", "deleted")


@each_row(
    ("word", "choices", "choice"),
    [
        ("remove", PLAN, "delete"),
        ("rm", PLAN, "delete"),
        ("create", PLAN, "add"),
        ("Show All", PLAN, "list"),
        ("updated", PLAN, "update"),
        ("undelete", PLAN, NO_CHOICE),
        ("purge", PLAN, NO_CHOICE),
        ("create", FS, "write"),
        ("WRITE", FS, "write"),
        ("edti", FS, "edit"),
        ("remove", FS, NO_CHOICE),
        ("delete", FS, NO_CHOICE),
        ("search", FS, NO_CHOICE),
        ("show", FS, NO_CHOICE),
        ("view", ("list", "write"), "list"),
        ("in-progress", STATUS, "working"),
        ("inProgress", STATUS, "working"),
        ("todo", STATUS, "pending"),
        ("Completed", STATUS, "done"),
        ("failed", STATUS, "error"),
        ("undone", STATUS, NO_CHOICE),
        ("PUT", ("GET", "HEAD", "POST"), NO_CHOICE),
        (0, (0, 1), 0),
        (True, (0, 1), NO_CHOICE),
    ],
)
def test_a_word_means_one_choice_or_none(
    word: object, choices: tuple[object, ...], choice: object
) -> None:
    assert choice_of(word, choices) == choice


@given(st.text("abcd", max_size=6), st.text("abcd", max_size=6))
def test_one_slip_is_a_distance_of_one(one: str, other: str) -> None:
    assert is_one_slip(one, other) == (distance(one, other) == 1)
    assert distance(one, other) == distance(other, one)
