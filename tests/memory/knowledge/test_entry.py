"""The format of an entry: what is written is read back, and no body is taken for a header."""

from hypothesis import given
from hypothesis import strategies as st

from clawd.memory.knowledge.files import (
    HEADER_LIMIT_BYTES,
    MAX_SOURCES,
    EntryHeader,
    clean_body,
    parse,
    render,
    snippet,
)
from tests.support.rows import each_row

KEYWORD = st.from_regex(r"[a-z0-9][a-z0-9.+-]{0,10}[a-z0-9]", fullmatch=True)
LINE = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=60).map(str.strip)
SOURCE = LINE.filter(bool)
HEADERISH = st.sampled_from(
    ["keywords: evil", "untrusted:", "---", "", "created: now by uid 0", "updated: x", "text"]
)
BODY = st.one_of(st.text(max_size=200), st.lists(HEADERISH, max_size=8).map("\n".join))
HEADERS = st.builds(
    EntryHeader,
    keywords=st.lists(KEYWORD, min_size=1, max_size=8, unique=True).map(
        lambda words: tuple(sorted(words))
    ),
    created=st.sampled_from(["", "2026-11-21T08:00:00Z by uid 1000"]),
    updated=st.sampled_from(["", "2026-11-21T08:00:00Z by a model in conv-1"]),
    untrusted=st.lists(SOURCE, max_size=5, unique=True).map(tuple),
)


@given(HEADERS, BODY)
def test_what_is_written_is_read_back_whatever_the_body_looks_like(
    header: EntryHeader, text: str
) -> None:
    body = clean_body(text)
    data = render(header, body)
    parsed = parse(data)
    assert parsed.header == header
    assert parsed.body == body.encode(errors="replace").decode()
    assert len(data) - parsed.offset - 1 == len(body.encode(errors="replace"))


@given(HEADERS, st.text(max_size=300))
def test_a_source_cannot_end_the_header(header: EntryHeader, source: str) -> None:
    marked = EntryHeader(keywords=header.keywords, untrusted=(source,))
    parsed = parse(render(marked, "body"))
    assert parsed.header is not None
    assert parsed.header.keywords == header.keywords
    assert len(parsed.header.untrusted) == 1
    assert parsed.body == "body"


@given(st.binary(max_size=400))
def test_any_file_can_be_read(data: bytes) -> None:
    parse(data)


@each_row(
    ("text", "keywords", "body"),
    [
        ("keywords: server, Backup\n\nnas2\n", ("backup", "server"), "nas2"),
        ("keywords: server backup\nnas2: the one\n", ("backup", "server"), "nas2: the one"),
        ("---\ntitle: x\nkeywords: a\n---\nbody\n", ("a",), "body"),
        ("\ufeffkeywords: a\r\n\r\nbody\r\nmore", ("a",), "body\nmore"),
        ("keywords: a", ("a",), ""),
    ],
)
def test_a_header_by_hand_is_read(text: str, keywords: tuple[str, ...], body: str) -> None:
    parsed = parse(text.encode())
    assert parsed.header is not None
    assert (parsed.header.keywords, parsed.body) == (keywords, body)


@each_row(
    "text",
    [
        "",
        "# a title\nkeywords: a\n",
        "\nkeywords: a\n\nbody",
        " keywords: a\n\nbody",
        "Keywords a\n",
        "keywords:\n\nbody",
        "keywords: 日本\n\nbody",
        "---\ntitle: x\n---\nkeywords: a\n",
    ],
)
def test_what_only_looks_like_a_header_is_none(text: str) -> None:
    assert parse(text.encode()).header is None


def test_a_body_has_no_control_characters_but_line_end_and_tab() -> None:
    assert clean_body("\n\na\x00\x1b[2J\tb\r\nc\x7f\r\n\n") == "a[2J\tb\nc"


def test_however_many_sources_there_are_the_header_stays_within_its_limit() -> None:
    many = tuple(f"{number} {'ü' * 500}" for number in range(1_000))
    data = render(EntryHeader(keywords=tuple("abcdefgh"), untrusted=many), "body")
    assert len(data) < HEADER_LIMIT_BYTES
    parsed = parse(data)
    assert parsed.header is not None
    assert len(parsed.header.untrusted) == MAX_SOURCES
    assert parsed.header.untrusted[-1] == "more sources"


def test_a_snippet_is_one_short_line() -> None:
    assert snippet("a\n\n b\tc", 10) == "a b c"
    assert snippet("word " * 100, 20) == "word word word word…"
