"""pdf_extract: files and addresses, pages, and documents that are made to hurt."""

import asyncio
import contextlib
import io
import itertools
from collections.abc import AsyncIterator, Callable

import pypdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from clawd.config.sections import WebSection
from clawd.errors import ClawError, ForbiddenError, InvalidRequestError
from clawd.security.network import NetworkRules
from clawd.tools.builtin.pdf_extract import LAST_PAGE, limited, missing, page_ranges
from tests.support.rows import each_row
from tests.tools.builtin import tiny_pdf as made
from tests.tools.builtin.conftest import Bench
from tests.tools.builtin.nasty_site import MIB, Site, serving
from tests.tools.builtin.tiny_pdf import scanned_pdf, tiny_pdf


@pytest.fixture
async def site(bench: Bench) -> AsyncIterator[Site]:
    async with serving(bench) as site:
        yield site


def put(bench: Bench, data: bytes, name: str = "paper.pdf") -> str:
    (bench.workspace / name).write_bytes(data)
    return name


def encrypted(password: str) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(tiny_pdf(["hidden words"])))
    writer.encrypt(password, "owner", algorithm="AES-256")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


async def test_the_text_of_each_page_stands_below_its_number(bench: Bench) -> None:
    name = put(bench, tiny_pdf(["first words", "", "third words"], title="On words"))
    result = await bench.call("pdf_extract", source=f" {name} ")
    assert result.output == (
        "title: On words\npages: 3\n\n--- page 1 ---\nfirst words\n\n--- page 2 ---\n"
        "(no text; it may be a picture)\n\n--- page 3 ---\nthird words"
    )
    assert "untrusted_source" not in result.metadata


async def test_pages_are_shown_as_pictures_where_the_document_has_no_text(bench: Bench) -> None:
    result = await bench.call("pdf_extract", source=put(bench, scanned_pdf([40, 200])))
    note = "(no text; the page is shown as a picture)"
    assert result.output == f"pages: 2\n\n--- page 1 ---\n{note}\n\n--- page 2 ---\n{note}"
    shown = [Image.open(io.BytesIO(data)) for data in result.images]
    assert [each.size for each in shown] == [(1176, 1568)] * 2
    for each, shade in zip(shown, (40, 200), strict=True):
        assert each.convert("L").getextrema() == pytest.approx((shade, shade), abs=2)
    mixed = await bench.call("pdf_extract", source=put(bench, tiny_pdf(["words", ""])))
    assert mixed.images == ()
    alone = await bench.call("pdf_extract", source="paper.pdf", pages="2")
    assert len(alone.images) == 1


async def test_of_a_long_scan_the_first_pages_are_shown_and_the_rest_is_told(bench: Bench) -> None:
    result = await bench.call("pdf_extract", source=put(bench, scanned_pdf([99] * 12)))
    assert len(result.images) == result.metadata["read"] == 10
    assert result.output.endswith('[more: ask with pages = "11-12" for what was left out]')


async def test_an_address_works_and_its_text_is_untrusted(bench: Bench, site: Site) -> None:
    result = await bench.call("pdf_extract", source=site.url("/pdf"), pages="2")
    assert result.output == "pages: 2\n\n--- page 2 ---\nsecond page"
    assert result.metadata["untrusted_source"] == "127.0.0.1"


async def test_pages_are_chosen_and_the_rest_is_told(bench: Bench) -> None:
    name = put(bench, tiny_pdf([f"text {n}" for n in range(1, 11)]))
    chosen = await bench.call("pdf_extract", source=name, pages="2-3, 9")
    assert [line for line in chosen.output.splitlines() if line.startswith("text")] == [
        "text 2", "text 3", "text 9"
    ]  # fmt: skip
    assert chosen.metadata["truncated"] is False
    bench.changes = {"web": WebSection(max_pdf_pages=4, extract_timeout_s=100)}
    some = await bench.call("pdf_extract", source=name)
    assert some.output.endswith('[more: ask with pages = "5-10" for what was left out]')
    assert some.metadata["read"] == 4
    none = await bench.call("pdf_extract", source=name, pages="11-12")
    assert none.error == "paper.pdf has 10 pages, none of these pages"


@each_row(
    ("text", "ranges"),
    [
        ("", ((1, 1_000_000),)),
        ("all", ((1, 1_000_000),)),
        ("3", ((3, 3),)),
        ("1-3,5", ((1, 3), (5, 5))),
        ("5, 1 - 3", ((1, 3), (5, 5))),
        ("2-", ((2, 1_000_000),)),
        ("-2", ((1, 2),)),
        ("1,2,3", ((1, 3),)),
        ("pages 1-2", ((1, 2),)),
        ("[1, 4]", ((1, 1), (4, 4))),
        ("1..3", ((1, 3),)),
        ("1 4", ((1, 1), (4, 4))),
    ],
)
def test_pages_are_understood_as_they_are_written(
    text: str, ranges: tuple[tuple[int, int], ...]
) -> None:
    assert page_ranges(text) == ranges


@each_row(
    "text",
    [
        "0",
        "3-1",
        "x",
        "1-2-3",
        "-",
        "1,,2",
        "99999999",
        "1;rm",
        "\u0661",
        pytest.param("1" + " " * 100_000 + "x", id="blanks"),
    ],
)
def test_pages_that_mean_nothing_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        page_ranges(text)
    assert '"1-3,5"' in caught.value.hint


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 50)), min_size=1, max_size=20))
def test_ranges_mean_the_pages_that_are_written(parts: list[tuple[int, int]]) -> None:
    text = ", ".join(f"{first}-{first + more}" for first, more in parts)
    wanted = {n for first, more in parts for n in range(first, first + more + 1)}
    ranges = page_ranges(text)
    assert {n for first, last in ranges for n in range(first, last + 1)} == wanted
    assert sum(last - first + 1 for first, last in limited(ranges, 7)) == min(7, len(wanted))


@given(st.text(max_size=60))
def test_any_text_means_pages_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidRequestError):
        assert all(1 <= first <= last for first, last in page_ranges(text))


@each_row(
    ("make", "said"),
    [
        (lambda: b"%PDF-1.7\nrubbish", "broken: "),
        (lambda: tiny_pdf(["x"])[:200], "broken: "),
        (lambda: encrypted("secret"), "opens only with a password"),
        (made.looping_tree, "broken: "),
        (made.nested_arrays, "broken: "),
    ],
    ids=["rubbish", "cut", "encrypted", "loop", "nested"],
    fresh=["bench"],
)
async def test_a_document_that_cannot_be_read_is_told(
    bench: Bench, make: Callable[[], bytes], said: str
) -> None:
    result = await bench.call("pdf_extract", source=put(bench, make()))
    assert not result.success
    assert said in result.error


async def test_a_page_that_unpacks_to_too_much_is_told_as_unreadable(bench: Bench) -> None:
    assert len(made.bomb()) < 10_000
    result = await bench.call("pdf_extract", source=put(bench, made.bomb()))
    assert "--- page 1 ---\n(this page cannot be read: " in result.output


async def test_reading_that_takes_too_long_is_ended(bench: Bench) -> None:
    bench.changes = {"web": WebSection(extract_timeout_s=3)}
    result = await bench.call("pdf_extract", source=put(bench, made.endless_text()))
    assert not result.success
    assert "reading took over 3 s and was ended" in result.error


async def test_reading_that_needs_too_much_memory_is_ended(bench: Bench) -> None:
    bench.changes = {
        "web": WebSection.model_construct(extract_memory_bytes=16 * MIB, extract_timeout_s=100)
    }
    result = await bench.call("pdf_extract", source=put(bench, tiny_pdf(["x"])))
    assert "16 MiB of memory" in result.error or "MemoryError" in result.error


async def test_one_that_needs_no_password_is_read(bench: Bench) -> None:
    result = await bench.call("pdf_extract", source=put(bench, encrypted("")))
    assert "hidden words" in result.output


async def test_a_page_count_that_lies_costs_nothing(bench: Bench) -> None:
    result = await bench.call("pdf_extract", source=put(bench, made.lying_count()))
    assert result.output == "pages: 1\n\n--- page 1 ---\nonly one"


async def test_a_long_document_is_read_up_to_the_limit_of_pages(bench: Bench) -> None:
    data = tiny_pdf(["fine words"] * 2_000)
    bench.changes = {"web": WebSection(max_pdf_pages=1_000, extract_timeout_s=100)}
    result = await bench.call("pdf_extract", source=put(bench, data))
    assert result.metadata["read"] == 1_000
    assert 'pages = "1001-2000"' in result.output


async def test_what_is_no_pdf_is_told_as_what_it_is(bench: Bench, site: Site) -> None:
    text = await bench.call("pdf_extract", source=put(bench, b"plain words", "notes.txt"))
    assert text.error == "notes.txt is no PDF: text/plain. file_read shows a text file."
    page = await bench.call("pdf_extract", source=site.url("/article"))
    assert "is no PDF: text/html" in page.error
    assert "web_fetch" in page.error
    assert page.metadata["untrusted_source"] == "127.0.0.1"
    missing = await bench.call("pdf_extract", source="paper.pdf")
    assert "file_list shows" in missing.error


async def test_what_is_too_large_is_not_read(bench: Bench, site: Site) -> None:
    bench.changes = {"web": WebSection(max_pdf_bytes=100_000)}
    local = await bench.call("pdf_extract", source=put(bench, b"%PDF-1.7" + bytes(200_000)))
    assert "too large: over 100000 bytes" in local.error
    endless = await bench.call("pdf_extract", source=site.url("/endless-pdf"))
    assert "too large: over 100000 bytes" in endless.error
    async with asyncio.timeout(60):
        await site.closed.wait()
    assert site.sent < 16 * MIB


@each_row("source", ["../x.pdf", "/etc/x.pdf", "keys/x.pdf", "../home/x.pdf"], fresh=["bench"])
async def test_files_outside_are_refused(bench: Bench, source: str) -> None:
    assert bench.risk("pdf_extract", source=source).blocked
    with pytest.raises(ForbiddenError):
        await bench.call("pdf_extract", source=source)


async def test_a_link_out_of_the_workspace_is_not_followed(bench: Bench) -> None:
    (bench.home / "secret.pdf").write_bytes(tiny_pdf(["a secret"]))
    (bench.workspace / "innocent.pdf").symlink_to(bench.home / "secret.pdf")
    with pytest.raises(ClawError):
        await bench.call("pdf_extract", source="innocent.pdf")


@each_row(
    "source",
    ["file:///etc/passwd", "ftp://x.example/a.pdf", "http://127.0.0.1/a.pdf"],
    fresh=["bench"],
)
async def test_other_addresses_are_refused(bench: Bench, source: str) -> None:
    assert bench.risk("pdf_extract", source=source).blocked
    with pytest.raises((InvalidRequestError, ForbiddenError)):
        await bench.call("pdf_extract", source=source)


def test_a_file_is_low_and_stays_inside_an_address_is_not(bench: Bench) -> None:
    bench.network = NetworkRules(allowed_domains=("docs.example",))
    local = bench.risk("pdf_extract", source="a.pdf")
    assert (local.risk, local.outward) == ("low", False)
    near = bench.risk("pdf_extract", source="https://docs.example/a.pdf")
    far = bench.risk("pdf_extract", source="https://far.example/a.pdf")
    assert (near.risk, near.outward, far.risk) == ("low", True, "medium")
    tool, context = bench.tool("pdf_extract"), bench.context()
    assert tool.outward
    assert tool.touches({"source": "a.pdf"}, context).reads == (bench.workspace / "a.pdf",)
    assert tool.touches({"source": "https://far.example/a.pdf"}, context).reads == ()


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 30)).map(sorted), max_size=4),
    st.sets(st.integers(1, 30)),
    st.integers(0, 30),
)
def test_the_pages_left_out_are_those_wanted_and_not_read(
    given_ranges: list[list[int]], read: set[int], count: int
) -> None:
    ranges = page_ranges(",".join(f"{a}-{b}" for a, b in given_ranges)) if given_ranges else ()
    wanted = {n for a, b in ranges for n in range(a, b + 1) if n <= count}
    left = missing(ranges, read, count)
    assert {n for a, b in left for n in range(a, b + 1)} == wanted - read
    assert all(one[1] + 1 < other[0] for one, other in itertools.pairwise(left))


def test_a_document_may_claim_any_number_of_pages() -> None:
    assert missing(((1, LAST_PAGE),), {1, 2, 5}, 10**30) == ((3, 4), (6, LAST_PAGE))
