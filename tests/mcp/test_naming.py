"""Names of MCP tools: they fit, they are one of a kind, and they stay."""

import re

from hypothesis import given
from hypothesis import strategies as st

from clawd.mcp.catalogue import alias_of, approval_of, is_matched, names_of, prefix_of
from clawd.tools.base import NAME_PATTERN
from tests.support.rows import each_row

ALIASES = st.from_regex(r"[a-z0-9][a-z0-9-]{0,31}", fullmatch=True)
NAMES = st.lists(st.text(max_size=120), max_size=12)


@given(ALIASES, NAMES)
def test_every_name_fits_is_one_of_a_kind_and_leads_back(alias: str, tools: list[str]) -> None:
    found = names_of(alias, tools)
    names = list(found.names.values())
    assert all(re.fullmatch(NAME_PATTERN, name) for name in names)
    assert len(set(names)) == len(names)
    assert {alias_of(name) for name in names} <= {alias}
    assert {*found.names, *found.lost} == set(tools)
    others = [other for spellings in found.others.values() for other in spellings]
    assert len(set(others)) == len(others)
    assert not set(others) & set(names)
    assert all(re.fullmatch(NAME_PATTERN, other) for other in others)


@given(ALIASES, NAMES, st.text(max_size=80))
def test_a_name_does_not_depend_on_the_order_or_on_other_tools(
    alias: str, tools: list[str], another: str
) -> None:
    before = names_of(alias, tools).names
    assert names_of(alias, reversed(tools)).names == before
    after = names_of(alias, [another, *tools]).names
    # A tool whose own name is what another was mapped to takes it: then that one has a longer end.
    taken = {prefix_of(alias) + another} & set(before.values())
    assert {t: n for t, n in before.items() if n not in taken}.items() <= after.items()


@given(ALIASES, ALIASES, NAMES, NAMES)
def test_servers_never_share_a_name(one: str, two: str, first: list[str], other: list[str]) -> None:
    if one != two:
        names = set(names_of(one, first).names.values())
        assert not names & set(names_of(two, other).names.values())


def test_names_that_fit_are_kept_and_others_are_marked_by_their_hash() -> None:
    found = names_of("files", ["read_file", "read.file", "_x", "a__b"])
    assert found.names["read_file"] == "files__read_file"
    assert found.names["_x"] == "files___x"
    assert found.names["a__b"] == "files__a__b"
    assert re.fullmatch(r"files__read_file_[0-9a-f]{8}", found.names["read.file"])


def test_an_alias_that_begins_with_a_digit_gets_a_letter_before_it() -> None:
    assert names_of("9p", ["stat"]).names == {"stat": "m_9p__stat"}
    assert alias_of("m_9p__stat") == "9p"


def test_a_long_name_is_cut_to_64_characters() -> None:
    (name,) = names_of("files", ["x" * 80]).names.values()
    assert len(name) == 64
    assert name.startswith("files__xxxx")


def test_a_tool_that_has_the_mapped_name_of_another_keeps_it() -> None:
    mapped = names_of("a", ["x.y"]).names["x.y"]
    own = mapped.removeprefix("a__")
    found = names_of("a", ["x.y", own]).names
    assert found[own] == mapped
    assert found["x.y"].startswith("a__x_y_")
    assert len(found["x.y"]) == len(mapped) + 8


def test_other_spellings_lead_to_a_tool_while_they_can_mean_one_only() -> None:
    found = names_of("a", ["get.user", "list"])
    assert found.others["list"] == ("mcp__a__list",)
    assert "a__get_user" in found.others["get.user"]
    twice = names_of("a", ["get.user", "get/user"])
    spellings = [other for others in twice.others.values() for other in others]
    assert "a__get_user" not in spellings


@each_row(
    ("patterns", "tool", "expected"),
    [
        (("*",), "read", True),
        (("read",), "read", True),
        (("read",), "read_all", False),
        (("read*",), "read_all", True),
        ((), "read", False),
        (("[a-z]ead",), "read", False),
        (("r?ad",), "read", False),
    ],
)
def test_patterns_are_names_or_beginnings_and_nothing_else(
    patterns: tuple[str, ...], tool: str, expected: bool
) -> None:
    assert is_matched(tool, patterns) is expected


@each_row(
    ("entries", "expected"),
    [
        (("files__read",), "files__read"),
        (("files__*",), "files__*"),
        (("other__*", "files__*"), "files__*"),
        (("files__rea",), ""),
        (("files__readme",), ""),
        (("*",), ""),
        (("file__*",), ""),
        ((), ""),
    ],
)
def test_auto_approve_names_a_tool_exactly_or_a_whole_server(
    entries: tuple[str, ...], expected: str
) -> None:
    assert approval_of("files", "read", "files__read", entries) == expected


def test_auto_approve_takes_the_own_name_of_a_tool_that_is_called_otherwise() -> None:
    name = names_of("files", ["read.it"]).names["read.it"]
    assert approval_of("files", "read.it", name, ("files__read.it",)) == "files__read.it"
    assert approval_of("files", "read.it", name, (name,)) == name
