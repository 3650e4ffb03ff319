"""Roundabout ways to a refused address: redirects, second answers, proxies; and the allowed way."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web

from clawd.errors import ForbiddenError
from clawd.security.network import NetworkRules, judge_url
from clawd.tools.builtin.transfer import HttpRequest, redirected
from tests.security.canary import Canary, Names, canary
from tests.security.test_ssrf import TOOLS
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench

pytestmark = pytest.mark.ssrf

_ORIGIN = "origin.example"
_PUBLIC = "8.8.8.8"

# Where a redirect may point; PORT is the canary's. Names lead where LEADS_TO says.
TARGETS = {
    "loopback": "http://127.0.0.1:PORT/",
    "loopback-short": "http://127.1:PORT/",
    "loopback-decimal": "http://2130706433:PORT/",
    "loopback-hex": "http://0x7f000001:PORT/",
    "loopback-octal": "http://0177.0.0.1:PORT/",
    "loopback-dot": "http://127.0.0.1.:PORT/",
    "localhost": "http://localhost:PORT/",
    "unspecified": "http://0.0.0.0:PORT/",
    "v6-loopback": "http://[::1]:PORT/",
    "mapped": "http://[::ffff:127.0.0.1]:PORT/",
    "nat64": "http://[64:ff9b::7f00:1]:PORT/",
    "6to4": "http://[2002:7f00:1::]:PORT/",
    "v6-link-local": "http://[fe80::1]/",
    "unique-local": "http://[fd00:ec2::254]/latest/",
    "private": "http://10.0.0.1/",
    "carrier-nat": "http://100.64.0.1/",
    "metadata": "http://169.254.169.254/latest/meta-data/",
    "metadata-name": "http://metadata.google.internal/computeMetadata/v1/",
    "broadcast": "http://255.255.255.255/",
    "multicast": "http://224.0.0.1/",
    "name-to-loopback": "http://loop.example:PORT/",
    "name-to-both": "http://mixed.example:PORT/",
    "fullwidth": "http://%EF%BC%91%EF%BC%92%EF%BC%97.0.0.1:PORT/",
    "no-scheme": "//127.0.0.1:PORT/",
    "no-scheme-localhost": "//localhost:PORT/x",
    "three-slashes": "///127.0.0.1:PORT/",
    "four-slashes": "////127.0.0.1:PORT/",
    "no-slashes": "http:127.0.0.1:PORT/",
    "one-slash": "http:/127.0.0.1:PORT/",
    "no-host": "http:///127.0.0.1:PORT/",
    "brackets-in-user": "http://[]@/",
    "user": "http://origin.example@127.0.0.1:PORT/",
    "user-of-origin": "http://origin.example:80@localhost:PORT/",
    "user-public": "http://somebody@public.example/",
    "backslashes": "\\\\127.0.0.1:PORT\\",
    "slash-backslash": "/\\127.0.0.1:PORT/",
    "backslash-at": "http://public.example\\@127.0.0.1:PORT/",
    "tab-in-scheme": "ht\ttp://127.0.0.1:PORT/",
    "tab-between-slashes": "/\t/127.0.0.1:PORT/",
    "encoded-host": "http://%31%32%37.0.0.1:PORT/",
    "zone": "http://[fe80::1%25lo]:PORT/",
    "to-https-loopback": "https://127.0.0.1:PORT/",
    "scheme-upper": "HTTP://127.0.0.1:PORT/",
    "file": "file:///etc/passwd",
    "file-host": "file://127.0.0.1/etc/passwd",
    "gopher": "gopher://127.0.0.1:PORT/_x",
    "ftp": "ftp://127.0.0.1:PORT/",
    "dict": "dict://127.0.0.1:PORT/",
    "websocket": "ws://127.0.0.1:PORT/",
    "unix": "unix:///run/docker.sock",
    "http-unix": "http+unix://%2Frun%2Fdocker.sock/info",
    "data": "data:text/html,hello",
    "javascript": "javascript:fetch('http://127.0.0.1:PORT')",
    "port-of-origin": "http://127.0.0.1:ORIGIN/",
    "other-port": "http://origin.example:PORT/",
}

LEADS_TO = {
    _ORIGIN: [["127.0.0.1"]],
    "metadata.google.internal": [["169.254.169.254"]],
    "loop.example": [["127.0.0.1"]],
    "mixed.example": [[_PUBLIC, "127.0.0.1"]],
    "public.example": [[_PUBLIC]],
}

# What a name answers the first time and the second.
SECOND_ANSWERS = {
    "loopback": ["127.0.0.1"],
    "v6-loopback": ["::1"],
    "mapped": ["::ffff:127.0.0.1"],
    "unspecified": ["0.0.0.0"],
    "private": ["192.168.1.1"],
    "metadata": ["169.254.169.254"],
    "mixed": [_PUBLIC, "127.0.0.1"],
}


class Origin:
    """A server that the owner allowed; it sends on whom it is told to."""

    def __init__(self, bench: Bench, bird: Canary) -> None:
        self.port = 0
        self.seen: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.bird = bird
        self.names = Names(LEADS_TO)
        bench.changes = {"resolve": self.names}

    def url(self, *hops: str, code: int = 302) -> str:
        """Return a URL that redirects over these."""
        url = hops[-1]
        for _ in hops[:-1]:
            url = self._step(url, code)
        return self._step(url, code)

    def _step(self, to: str, code: int) -> str:
        return f"http://{_ORIGIN}:{self.port}/?code={code}&to={quote(to, safe='')}"

    def filled(self, text: str) -> str:
        return text.replace("PORT", str(self.bird.port)).replace("ORIGIN", str(self.port))

    async def answer(self, request: web.Request) -> web.Response:
        self.seen.append(request.path_qs)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        to = request.query.get("to")
        if to is None:
            return web.Response(text="hello from the origin")
        return web.Response(status=int(request.query["code"]), headers={"Location": to})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
async def bird() -> AsyncIterator[Canary]:
    async with canary() as bird:
        yield bird


@pytest.fixture
async def origin(bench: Bench, bird: Canary) -> AsyncIterator[Origin]:
    origin = Origin(bench, bird)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", origin.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    origin.port = runner.addresses[0][1]
    bench.network = NetworkRules(allowed_addresses=(f"{_ORIGIN}:{origin.port}",))
    yield origin
    await runner.cleanup()


async def assert_stopped_at_origin(
    bench: Bench, origin: Origin, url: str, visits: int, tool: str = "http"
) -> None:
    result = await bench.call(tool, **{TOOLS[tool]: url})
    assert not result.success
    assert "HTTP" not in result.output
    assert result.metadata["untrusted_source"] == _ORIGIN
    assert len(origin.seen) == visits
    assert origin.bird.attempts == ["127.0.0.1"] * visits
    assert await origin.bird.visits() == 0


@each_row("tool", TOOLS)
@each_row("target", TARGETS, fresh=["bench", "origin"])
async def test_a_redirect_there_is_not_followed(
    bench: Bench, origin: Origin, target: str, tool: str
) -> None:
    url = origin.url(origin.filled(TARGETS[target]))
    await assert_stopped_at_origin(bench, origin, url, 1, tool)


@each_row(
    "to", ["http://public.example/", "http://secure.example/x", "HTTP://a.b/"], fresh=["bench"]
)
def test_a_redirect_from_https_to_http_is_refused(bench: Bench, to: str) -> None:
    target = judge_url("https://secure.example/", bench.network)
    request = HttpRequest(method="GET", target=target, headers={}, body=None)
    with pytest.raises(ForbiddenError, match="from https to"):
        redirected(request, to, bench.network)
    assert redirected(request, "/x", bench.network).target.url == "https://secure.example/x"


@each_row("code", [301, 302, 303, 307, 308])
@each_row("method", ["GET", "HEAD"], fresh=["bench", "origin"])
async def test_no_kind_of_redirect_leads_there(
    bench: Bench, origin: Origin, method: str, code: int
) -> None:
    url = origin.url(f"http://127.0.0.1:{origin.bird.port}/", code=code)
    result = await bench.call("http", url=url, method=method)
    assert not result.success
    assert await origin.bird.visits() == 0


@each_row("target", ["loopback", "metadata", "name-to-loopback", "file", "user"])
@each_row("length", [2, 5])
@each_row("tool", TOOLS, fresh=["bench", "origin"])
async def test_a_chain_of_redirects_ends_before_there(
    bench: Bench, origin: Origin, tool: str, length: int, target: str
) -> None:
    end = origin.filled(TARGETS[target])
    url = origin.url(*["x"] * (length - 1), end)
    await assert_stopped_at_origin(bench, origin, url, length, tool)


async def test_a_post_is_not_redirected_at_all(bench: Bench, origin: Origin) -> None:
    url = origin.url(f"http://127.0.0.1:{origin.bird.port}/", code=307)
    result = await bench.call("http", url=url, method="POST", body="x")
    assert result.output.startswith("HTTP 307")
    assert await origin.bird.visits() == 0


@each_row("tool", TOOLS)
@each_row("second", SECOND_ANSWERS, fresh=["bench", "bird"])
async def test_a_name_that_answers_otherwise_later_is_asked_once(
    bench: Bench, bird: Canary, second: str, tool: str
) -> None:
    names = Names({"rebinding.example": [[_PUBLIC], SECOND_ANSWERS[second]]})
    bench.changes = {"resolve": names}
    result = await bench.call(tool, **{TOOLS[tool]: f"http://rebinding.example:{bird.port}/"})
    assert not result.success
    assert (names.asked, bird.attempts) == (["rebinding.example"], [_PUBLIC])
    assert await bird.visits() == 0


@each_row("second", SECOND_ANSWERS, fresh=["bench", "bird"])
async def test_a_name_that_answers_otherwise_later_is_refused_the_next_time(
    bench: Bench, bird: Canary, second: str
) -> None:
    bench.changes = {"resolve": Names({"rebinding.example": [[_PUBLIC], SECOND_ANSWERS[second]]})}
    url = f"http://rebinding.example:{bird.port}/"
    await bench.call("http", url=url)
    with pytest.raises(ForbiddenError):
        await bench.call("http", url=url)
    assert bird.attempts == [_PUBLIC]
    assert await bird.visits() == 0


async def test_a_redirect_to_a_rebinding_name_goes_where_was_judged(
    bench: Bench, origin: Origin
) -> None:
    origin.names.answers["rebinding.example"] = [[_PUBLIC], ["127.0.0.1"]]
    result = await bench.call(
        "http", url=origin.url(f"http://rebinding.example:{origin.bird.port}/")
    )
    assert not result.success
    assert origin.bird.attempts == ["127.0.0.1", _PUBLIC]
    assert origin.names.asked == [_ORIGIN, "rebinding.example"]
    assert await origin.bird.visits() == 0


@each_row(
    "variable",
    [
        "http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY",
        "ws_proxy", "socks_proxy",
    ],
)  # fmt: skip
@each_row(
    ("tool", "scheme"),
    [("http", "http"), ("http", "https"), ("web_fetch", "http"), ("pdf_extract", "https")],
    fresh=["bench", "bird"],
)
async def test_a_proxy_of_the_environment_is_not_asked(
    bench: Bench,
    bird: Canary,
    monkeypatch: pytest.MonkeyPatch,
    *,
    tool: str,
    scheme: str,
    variable: str,
) -> None:
    monkeypatch.setenv(variable, f"http://127.0.0.1:{bird.port}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    bench.changes = {"resolve": Names({"public.example": [[_PUBLIC]]})}
    await bench.call(tool, **{TOOLS[tool]: f"{scheme}://public.example/"})
    assert bird.attempts == [_PUBLIC]
    assert await bird.visits() == 0


async def test_credentials_of_a_netrc_stay_at_home(
    bench: Bench, origin: Origin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text(f"machine {_ORIGIN} login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    await bench.call("http", url=f"http://{_ORIGIN}:{origin.port}/")
    assert "authorization" not in origin.headers[0]


@each_row(
    "entry",
    ["127.0.0.1:PORT", "localhost:PORT", "LOCALHOST:PORT", "nas.local:PORT"],
    fresh=["bench", "bird"],
)
async def test_an_allowed_address_works(bench: Bench, bird: Canary, entry: str) -> None:
    names = Names({"nas.local": [["127.0.0.1"]]})
    bench.changes = {"resolve": names}
    allowed = entry.replace("PORT", str(bird.port))
    bench.network = NetworkRules(allowed_addresses=(allowed,))
    url = f"http://{allowed}/"
    assert not bench.risk("http", url=url).blocked
    result = await bench.call("http", url=url)
    assert result.output.startswith("HTTP 200 OK")
    assert await bird.visits() == 1


@each_row(
    "entry",
    ["127.0.0.1", "127.0.0.1:1", "127.0.0.2:PORT", "*:PORT", "*", "", ":PORT", "127.0.0.1:"],
    fresh=["bench", "bird"],
)
async def test_an_entry_allows_nothing_but_its_own_host_and_port(
    bench: Bench, bird: Canary, entry: str
) -> None:
    bench.changes = {"resolve": Names()}
    bench.network = NetworkRules(allowed_addresses=(entry.replace("PORT", str(bird.port)),))
    with pytest.raises(ForbiddenError):
        await bench.call("http", url=f"http://127.0.0.1:{bird.port}/")
    assert bird.attempts == []
    assert await bird.visits() == 0


@each_row(
    "entry", ["127.0.0.1", "localhost", "*.example", "169.254.169.254"], fresh=["bench", "bird"]
)
async def test_an_allowed_domain_opens_no_address(bench: Bench, bird: Canary, entry: str) -> None:
    bench.changes = {"resolve": Names({"a.example": [["127.0.0.1"]]})}
    bench.network = NetworkRules(allowed_domains=(entry,))
    with pytest.raises(ForbiddenError):
        await bench.call("http", url=f"http://{entry.replace('*', 'a')}:{bird.port}/")
    assert bird.attempts == []
    assert await bird.visits() == 0


@each_row(
    ("host", "address"),
    [
        ("public.example", "8.8.8.8"),
        ("public.example", "2606:4700::1111"),
        ("public.example", "172.32.0.1"),
        ("public.example", "100.128.0.1"),
        ("8.8.8.8", "8.8.8.8"),
        ("[2606:4700::1111]", "2606:4700::1111"),
        ("bücher.example", "1.1.1.1"),
    ],
    fresh=["bench", "bird"],
)
async def test_a_public_address_is_asked(
    bench: Bench, bird: Canary, host: str, address: str
) -> None:
    bench.changes = {
        "resolve": Names({"public.example": [[address]], "xn--bcher-kva.example": [[address]]})
    }
    result = await bench.call("http", url=f"http://{host}/")
    assert not result.success
    assert bird.attempts == [address]


async def test_an_allowed_server_redirects_within_itself_and_to_another_allowed_one(
    bench: Bench, origin: Origin
) -> None:
    other = f"127.0.0.1:{origin.bird.port}"
    bench.network = NetworkRules(allowed_addresses=(f"{_ORIGIN}:{origin.port}", other))
    within = await bench.call("http", url=origin.url("/", "/end"))
    assert within.output.endswith("hello from the origin")
    there = await bench.call("http", url=origin.url(f"http://{other}/"))
    assert there.output.startswith("HTTP 200 OK")
    assert await origin.bird.visits() == 1


async def test_several_at_once_keep_apart_what_each_was_judged_for(
    bench: Bench, origin: Origin
) -> None:
    good = f"http://{_ORIGIN}:{origin.port}/"
    bad = f"http://loop.example:{origin.bird.port}/"
    answers = await asyncio.gather(
        *(bench.call("http", url=url) for url in [good, bad] * 8), return_exceptions=True
    )
    assert [isinstance(answer, ForbiddenError) for answer in answers] == [False, True] * 8
    assert len(origin.seen) == 8
    assert await origin.bird.visits() == 0


async def test_an_allowed_address_of_ipv6_is_asked(bench: Bench, bird: Canary) -> None:
    """Whether it answers depends on whether this machine has IPv6 at all."""
    bench.changes = {"resolve": Names()}
    bench.network = NetworkRules(allowed_addresses=(f"[::1]:{bird.port}",))
    await bench.call("http", url=f"http://[::1]:{bird.port}/")
    assert bird.attempts == ["::1"]
