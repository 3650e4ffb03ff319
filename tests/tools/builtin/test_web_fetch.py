"""web_fetch against a real server on loopback that serves what strangers serve."""

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import quote

import pytest

from clawd.config.sections import WebSection
from clawd.errors import ForbiddenError, SandboxUnavailableError
from clawd.security.network import NetworkRules
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.base import ToolResult
from tests.support.rows import each_row
from tests.support.time_limits import TimeLimit
from tests.tools.builtin.conftest import Bench
from tests.tools.builtin.nasty_site import MIB, Site, serving

# What the kernel and both ends hold of a connection whose rest nobody reads.
_IN_FLIGHT = 16 * MIB


@pytest.fixture
async def site(bench: Bench) -> AsyncIterator[Site]:
    async with serving(bench) as site:
        yield site


async def fetched(bench: Bench, site: Site, path: str, **more: int) -> ToolResult:
    result = await bench.call("web_fetch", url=site.url(path), **more)
    assert result.metadata.get("untrusted_source") == "127.0.0.1", result
    return result


async def test_a_page_is_shown_as_title_text_and_links(bench: Bench, site: Site) -> None:
    result = await fetched(bench, site, "/article")
    title, url, blank, *rest = result.output.splitlines()
    assert (title, url, blank) == ("title: Wind & weather", f"url: {site.url('/article')}", "")
    text, links = "\n".join(rest).split("\n\nlinks:\n")
    assert "A paragraph of the article" in text
    assert "hidden" not in result.output
    assert links.splitlines() == [
        f"- Home: {site.url('/home')}",
        f"- the other page: {site.url('/more.html?x=1#y')}",
        "- a friend: https://other.example/",
    ]
    assert result.metadata["mime"] == "text/html"


@each_row(
    ("path", "text"),
    [
        ("/lies-utf8", "\u00fcbung"),
        ("/lies-latin", "\u00fcbung"),
        ("/no-charset", "\u043f\u0440\u0438\u0432\u0435\u0442"),
        ("/odd-charset", "\u00fcbung \\x41"),
        ("/unknown-charset", "\u00fcbung"),
        ("/utf16", "\u00fcbung"),
        ("/nul", "with a NUL"),
        ("/json", '{"a": [1, 2]}'),
        ("/plain", "one\ntwo[31m"),
        ("/no-type", "typed by nobody"),
        ("/gzip", "A paragraph"),
        ("/gzip-members", "A paragraph"),
        ("/deflate", "A paragraph"),
        ("/deflate-bare", "A paragraph"),
        ("/script-only", "no readable text"),
        ("/empty", "no readable text"),
        ("/deep", "at the bottom"),
        ("/unclosed", "the end of it"),
        ("/attributes", "some text"),
    ],
    fresh=["bench", "site"],
)
@pytest.mark.usefixtures("read_here")
async def test_a_page_of_this_kind_is_read(bench: Bench, site: Site, path: str, text: str) -> None:
    result = await fetched(bench, site, path)
    assert result.success, result
    assert text in result.output
    assert "\0" not in result.output


@each_row(
    ("path", "error"),
    [
        ("/binary", "holds binary data"),
        ("/png", "is no text: image/png, 108 bytes"),
        ("/zip", "is no text: application/zip, 104 bytes"),
        ("/no-type-binary", "is no text: application/octet-stream, 2560 bytes"),
        ("/gone", "answered HTTP 404 Not Found"),
        ("/brotli", "unknown coding 'br'"),
        ("/gzip-twice", "unknown coding 'gzip, gzip'"),
        ("/gzip-broken", "could not be asked"),
        ("/promises-less", "could not be asked"),
        ("/promises-more", "could not be asked"),
        ("/promises-nonsense", "could not be asked"),
        ("/header-flood", "could not be asked"),
        ("/header-giant", "could not be asked"),
        ("/no-http", "could not be asked"),
        ("/silence", "could not be asked"),
        ("/ring", "more than 5 redirects"),
    ],
    fresh=["bench", "site"],
)
async def test_what_is_no_page_is_told_as_what_it_is(
    bench: Bench, site: Site, path: str, error: str
) -> None:
    result = await fetched(bench, site, path)
    assert not result.success
    assert error in result.error
    assert site.sent < _IN_FLIGHT


async def test_a_ring_of_redirects_is_walked_five_times(bench: Bench, site: Site) -> None:
    await fetched(bench, site, "/ring")
    assert site.seen == ["/ring", *(f"/ring?{n}" for n in range(1, 6))]


@each_row("path", ["/pdf", "/pdf-as-page"], fresh=["bench", "site"])
async def test_a_pdf_is_told_with_the_call_that_reads_it(
    bench: Bench, site: Site, path: str
) -> None:
    result = await fetched(bench, site, path)
    assert f'pdf_extract with {{"source": "{site.url(path)}"}}' in result.error


@each_row("path", ["/large", "/endless", "/gzip-bomb", "/deflate-bomb"], fresh=["bench", "site"])
@pytest.mark.usefixtures("read_here")
async def test_a_body_is_read_up_to_the_limit_and_no_further(
    bench: Bench, site: Site, path: str
) -> None:
    bench.changes = {"web": WebSection(max_page_bytes=300_000, extract_timeout_s=100)}
    result = await fetched(bench, site, path)
    assert (result.metadata["bytes"], result.metadata["truncated"]) == (300_000, True)
    assert "[cut: only the first 300000 bytes of the page were read]" in result.output
    async with asyncio.timeout(60):
        await site.closed.wait()
    assert site.sent < _IN_FLIGHT


async def test_a_stream_that_unpacks_to_nothing_is_ended_too(bench: Bench, site: Site) -> None:
    bench.changes = {"web": WebSection(max_page_bytes=300_000, extract_timeout_s=100)}
    result = await fetched(bench, site, "/gzip-of-nothing")
    assert result.metadata["bytes"] == 0
    async with asyncio.timeout(60):
        await site.closed.wait()
    assert site.sent < _IN_FLIGHT


@pytest.mark.usefixtures("read_here")
async def test_a_call_may_ask_for_less_but_not_for_more(bench: Bench, site: Site) -> None:
    bench.changes = {"web": WebSection(max_page_bytes=50_000, extract_timeout_s=100)}
    less = await fetched(bench, site, "/large", max_bytes=2_000)
    more = await fetched(bench, site, "/large", max_bytes=50_000_000)
    none = await fetched(bench, site, "/large", max_bytes=-1)
    sizes = [result.metadata["bytes"] for result in (less, more, none)]
    assert sizes == [2_000, 50_000, 1_024]


@each_row("path", ["/drip", "/slow-headers"], fresh=["bench", "site"])
async def test_a_slow_server_is_left(
    bench: Bench, site: Site, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = TimeLimit(monkeypatch)
    bench.changes = {"http_timeout_s": limit.seconds}
    call = asyncio.create_task(bench.call("web_fetch", url=site.url(path)))
    async with asyncio.timeout(60):
        while not site.sent:
            await asyncio.sleep(0.01)
    limit.is_over()
    assert (await call).error == "127.0.0.1 took over 271.25 s"
    async with asyncio.timeout(60):
        await site.closed.wait()


async def test_a_page_that_takes_too_long_to_read_is_told(bench: Bench, site: Site) -> None:
    bench.changes = {"web": WebSection(extract_timeout_s=0.01)}
    result = await fetched(bench, site, "/article")
    assert "reading took over 0.01 s and was ended" in result.error


async def test_a_page_of_nothing_but_angles_ends_within_the_limits(
    bench: Bench, site: Site
) -> None:
    bench.changes = {"web": WebSection(extract_timeout_s=30)}
    await fetched(bench, site, "/angles")


@pytest.mark.usefixtures("read_here")
async def test_links_are_counted_and_text_is_cut(bench: Bench, site: Site) -> None:
    result = await fetched(bench, site, "/links")
    assert result.metadata["links"] == 50
    bench.changes = {"web": WebSection(max_page_bytes=600_000, extract_timeout_s=100)}
    long = await fetched(bench, site, "/endless")
    assert "[cut: the text has " in long.output
    assert len(long.output) < 210_000


@pytest.mark.usefixtures("read_here")
async def test_what_is_there_to_be_unseen_is_taken_out(bench: Bench, site: Site) -> None:
    result = await fetched(bench, site, "/unseen")
    assert "visible text" in result.output


@each_row(
    "to",
    [
        "http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:1/", "http://[::1]/",
        "http://localhost/", "http://2130706433/", "file:///etc/passwd", "gopher://127.0.0.1/",
        "http://user@example.org/",
    ],
 fresh=["bench", "site"])  # fmt: skip
async def test_a_redirect_to_a_refused_address_is_refused(
    bench: Bench, site: Site, to: str
) -> None:
    result = await fetched(bench, site, f"/to?{quote(to)}")
    assert not result.success
    assert len(site.seen) == 1


@pytest.mark.usefixtures("read_here")
async def test_a_page_that_redirects_is_told_where_it_ended(bench: Bench, site: Site) -> None:
    result = await fetched(bench, site, "/to?article")
    assert f"url: {site.url('/article')}" in result.output


async def test_an_address_that_was_not_allowed_is_refused_before_anybody_is_asked(
    bench: Bench, site: Site
) -> None:
    bench.network = NetworkRules()
    assert bench.risk("web_fetch", url=site.url()).blocked
    with pytest.raises(ForbiddenError):
        await bench.call("web_fetch", url=site.url())
    assert site.seen == []


def test_the_risk_depends_on_whether_the_domain_is_allowed(bench: Bench) -> None:
    bench.network = NetworkRules(allowed_domains=("docs.example",))
    assert bench.risk("web_fetch", url="https://docs.example/a").risk == "low"
    other = bench.risk("web_fetch", url="https://other.example/a")
    assert (other.risk, other.allow_hint) == (
        "medium",
        'allowed_domains = ["other.example"] in [security]',
    )
    assert bench.tool("web_fetch").outward


async def test_nothing_is_parsed_where_a_required_sandbox_is_missing(
    bench: Bench, site: Site
) -> None:
    bench.sandbox = Sandbox(SandboxSettings(home=bench.home, levels=()))
    with pytest.raises(SandboxUnavailableError):
        await bench.call("web_fetch", url=site.url("/article"))


async def test_every_sandbox_can_read_a_page(bench: Bench, site: Site) -> None:
    for level in ("bwrap", "landlock"):
        bench.sandbox = Sandbox(SandboxSettings(home=bench.home, levels=(level,)))
        if (await bench.sandbox.probe()).level == "none":
            continue
        result = await fetched(bench, site, "/article")
        assert "A paragraph of the article" in result.output


async def test_a_cancelled_call_hangs_up(bench: Bench, site: Site) -> None:
    task = asyncio.create_task(bench.call("web_fetch", url=site.url("/drip")))
    async with asyncio.timeout(60):
        while not site.sent:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await site.closed.wait()
