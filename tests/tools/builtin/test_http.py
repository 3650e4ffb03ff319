"""The http tool against a real server on loopback, which the owner allowed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from aiohttp import web

from clawd.errors import InvalidRequestError
from clawd.security.network import NetworkRules
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench
from tests.tools.builtin.nasty_site import MIB, serving


class Site:
    """A server and what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[tuple[str, str, dict[str, str], str]] = []

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append((request.method, request.path_qs, headers, await request.text()))
        match request.path:
            case "/redirect":
                raise web.HTTPFound(request.query["to"])
            case "/loop":
                raise web.HTTPFound("/loop")
            case "/big":
                return web.Response(body=b"x" * 3_000_000)
            case "/binary":
                return web.Response(body=b"\x89PNG\0\0", content_type="image/png")
            case "/latin":
                return web.Response(
                    body=b"\xfcbung", headers={"Content-Type": "text/plain; charset=latin-1"}
                )
            case "/slow":
                response = web.StreamResponse()
                await response.prepare(request)
                while True:
                    await response.write(b"x")
                    await asyncio.sleep(0.05)
            case "/gone":
                raise web.HTTPNotFound(text="no such page")
            case _:
                return web.Response(text="hello")


@pytest.fixture
async def site(bench: Bench) -> AsyncIterator[Site]:
    site = Site()
    app = web.Application(client_max_size=10 << 20)
    app.router.add_route("*", "/{tail:.*}", site.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.port = runner.addresses[0][1]
    bench.network = NetworkRules(allowed_addresses=(f"127.0.0.1:{site.port}",))
    yield site
    await runner.cleanup()


async def test_a_page_is_shown_with_status_and_headers(bench: Bench, site: Site) -> None:
    result = await bench.call("http", url=site.url("/x?y=%20z"))
    status, kind, length, blank, body = result.output.splitlines()
    assert (status, blank, body) == ("HTTP 200 OK", "", "hello")
    assert kind == "content-type: text/plain; charset=utf-8"
    assert length == "content-length: 5"
    assert result.metadata["untrusted_source"] == "127.0.0.1"
    method, path, headers, _ = site.seen[0]
    assert (method, path, headers["user-agent"]) == ("GET", "/x?y=%20z", "clawd")
    assert headers["host"] == f"127.0.0.1:{site.port}"


async def test_a_status_of_failure_is_an_answer_too(bench: Bench, site: Site) -> None:
    result = await bench.call("http", url=site.url("/gone"))
    assert result.output.splitlines()[0] == "HTTP 404 Not Found"
    assert result.output.endswith("no such page")


async def test_a_post_sends_its_body_and_a_head_gets_none(bench: Bench, site: Site) -> None:
    await bench.call("http", url=site.url(), method="POST", body='{"a":1}', headers={"X-A": "b"})
    await bench.call("http", url=site.url(), method="post", body="words")
    head = await bench.call("http", url=site.url(), method="HEAD")
    first, second, third = site.seen
    assert (first[0], first[2]["content-type"], first[3]) == ("POST", "application/json", '{"a":1}')
    assert first[2]["x-a"] == "b"
    assert second[2]["content-type"].startswith("text/plain")
    assert (third[0], "hello" in head.output) == ("HEAD", False)


async def test_redirects_are_followed_within_bounds(bench: Bench, site: Site) -> None:
    result = await bench.call("http", url=site.url("/redirect?to=/end"))
    assert result.output.endswith("hello")
    assert result.metadata["url"] == site.url("/end")
    looping = await bench.call("http", url=site.url("/loop"))
    assert "more than 5 redirects" in looping.error
    posted = await bench.call("http", url=site.url("/redirect?to=/end"), method="POST", body="x")
    assert "HTTP 302" in posted.output
    assert "location: /end" in posted.output


@each_row(
    "to",
    [
        "http://169.254.169.254/latest", "http://127.0.0.1:1/", "http://localhost/", "http://2130706433/",
        "file:///etc/passwd", "http://user@example.org/", "//[::1]/",
    ],
 fresh=["bench", "site"])  # fmt: skip
async def test_a_redirect_to_a_refused_address_is_refused(
    bench: Bench, site: Site, to: str
) -> None:
    result = await bench.call("http", url=site.url(f"/redirect?to={quote(to)}"))
    assert not result.success
    assert result.metadata["untrusted_source"] == "127.0.0.1"
    assert len(site.seen) == 1


async def test_a_trusted_site_cannot_redirect_to_one_that_is_not(bench: Bench, site: Site) -> None:
    other = f"http://other.example:{site.port}/"
    bench.network = NetworkRules(
        allowed_domains=("127.0.0.1",),
        allowed_addresses=(f"127.0.0.1:{site.port}", f"other.example:{site.port}"),
    )
    result = await bench.call("http", url=site.url(f"/redirect?to={other}"))
    assert "allowed_domains" in result.error
    assert result.metadata["untrusted_source"] == "127.0.0.1"


async def test_secrets_in_headers_stay_with_their_origin(bench: Bench, site: Site) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    rules = (f"127.0.0.1:{site.port}", f"other.example:{site.port}")
    bench.network = NetworkRules(allowed_addresses=rules)
    bench.changes = {"resolve": resolve}
    secret = {"Authorization": "Bearer s", "X-Key": "s", "Accept": "text/plain"}
    url = site.url(f"/redirect?to=http://other.example:{site.port}/end")
    await bench.call("http", url=url, headers=secret)
    first, second = (headers for _, _, headers, _ in site.seen)
    assert (first["authorization"], first["x-key"]) == ("Bearer s", "s")
    assert "authorization" not in second
    assert "x-key" not in second
    assert second["accept"] == "text/plain"


async def test_size_and_time_end_a_transfer(bench: Bench, site: Site) -> None:
    big = await bench.call("http", url=site.url("/big"))
    assert big.metadata == {**big.metadata, "bytes": 1_000_000, "truncated": True}
    assert big.output.endswith("[cut after 1000000 bytes]")
    bench.changes = {"http_timeout_s": 0.3}
    slow = await bench.call("http", url=site.url("/slow"))
    assert (slow.success, slow.error) == (False, "127.0.0.1 took over 0.3 s")


async def test_what_is_no_text_is_not_shown_and_charsets_are_read(bench: Bench, site: Site) -> None:
    assert (await bench.call("http", url=site.url("/binary"))).output.endswith(
        "[not text: image/png, 6 bytes]"
    )
    assert (await bench.call("http", url=site.url("/latin"))).output.endswith("übung")


@each_row(
    "more",
    [
        {"headers": {"Host": "evil"}},
        {"headers": {"Content-Length": "3"}},
        {"headers": {"A": "b\r\nC: d"}},
        {"headers": {"bad name": "x"}},
        {"body": "a GET has none"},
    ],
    fresh=["bench", "site"],
)
async def test_requests_that_cannot_be_meant_are_refused(
    bench: Bench, site: Site, more: dict[str, Any]
) -> None:
    with pytest.raises(InvalidRequestError):
        await bench.call("http", url=site.url(), **more)
    assert site.seen == []


async def test_nobody_there_is_a_failure_that_says_so(bench: Bench) -> None:
    bench.network = NetworkRules(allowed_addresses=("127.0.0.1:9",))
    result = await bench.call("http", url="http://127.0.0.1:9/")
    assert not result.success
    assert "127.0.0.1" in result.error


def test_the_risk_follows_the_domain(bench: Bench) -> None:
    bench.network = NetworkRules(allowed_domains=("example.org",))
    risks = {
        (method, host): bench.risk("http", url=f"https://{host}/", method=method).risk
        for method in ("GET", "HEAD", "POST")
        for host in ("example.org", "example.com")
    }
    assert risks == {
        ("GET", "example.org"): "low",
        ("HEAD", "example.org"): "low",
        ("POST", "example.org"): "medium",
        ("GET", "example.com"): "medium",
        ("HEAD", "example.com"): "medium",
        ("POST", "example.com"): "high",
    }
    for url in ("http://127.1/", "file:///etc/passwd", "http://localhost/"):
        blocked = bench.risk("http", url=url)
        assert (blocked.risk, bool(blocked.blocked)) == ("high", True)


def test_results_can_be_encoded(bench: Bench) -> None:
    assert msgspec.json.encode(bench.tool("http").parameters)


@each_row("path", ["/gzip-bomb", "/deflate-bomb", "/endless", "/large"], fresh=["bench"])
async def test_a_body_is_unpacked_up_to_the_limit_and_no_further(bench: Bench, path: str) -> None:
    bench.changes = {"max_response_bytes": 200_000}
    async with serving(bench) as nasty:
        result = await bench.call("http", url=nasty.url(path))
        assert (result.metadata["bytes"], result.metadata["truncated"]) == (200_000, True)
        async with asyncio.timeout(60):
            await nasty.closed.wait()
        assert nasty.sent < 16 * MIB


async def test_a_compressed_body_is_shown_unpacked(bench: Bench) -> None:
    async with serving(bench) as nasty:
        result = await bench.call("http", url=nasty.url("/gzip"))
        assert "A paragraph of the article" in result.output
        asked = await bench.call("http", url=nasty.url("/brotli"))
        assert "unknown coding 'br'" in asked.error
