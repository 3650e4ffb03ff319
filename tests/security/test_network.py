"""Which URLs may be fetched, in every notation, and that a connection goes where was judged."""

import socket

import pytest
from aiohttp import web

from clawd.errors import ForbiddenError, InvalidRequestError, ProviderError
from clawd.security.network import (
    NetworkRules,
    judge_url,
    refused_because,
    resolve_and_judge,
)
from clawd.security.pinned_http import PinnedResolver, pinned_session
from tests.support.rows import each_row

_NOBODY = NetworkRules()


def resolver(*addresses: str) -> "Answers":
    return Answers(addresses)


class Answers:
    """A resolver with fixed answers that counts how often it was asked."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked += 1
        return list(self.addresses)


@each_row(
    "host",
    [
        "127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0x7f.1", "0", "0.0.0.0",
        "127.255.255.254", "①②⑦.⓪.⓪.①", "１２７.0.0.1", "127。0。0。1", "localhost", "LOCALHOST",
        "localhost.", "a.localhost", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]", "[64:ff9b:1::1]", "[::127.0.0.1]", "[2002:7f00:1::]", "[2001::1]",
        "192.0.0.192", "224.0.0.1", "[ff02::1]", "168.63.129.16", "100.64.1.1", "100.100.100.200",
        "169.254.169.254", "0xa9fea9fe", "[fe80::1]", "[fd00:ec2::254]", "[fec0::1]", "10.0.0.1",
        "172.16.0.1", "192.168.1.1", "255.255.255.255", "240.0.0.1", "198.18.0.1", "192.0.2.1",
    ],
)  # fmt: skip
def test_refused_addresses_are_refused_in_every_notation(host: str) -> None:
    for url in (f"http://{host}/", f"https://{host}:8443/x?y=z", f"http://{host}#@good.example"):
        with pytest.raises((ForbiddenError, InvalidRequestError)):
            judge_url(url, _NOBODY)


@each_row(
    "url",
    [
        "file:///etc/passwd", "gopher://x/", "ftp://x/", "unix:///run/x", "javascript:alert(1)",
        "http:///x", "http://", "//example.org/", "example.org", "", "http://good@example.org/",
        "http://good:pw@127.0.0.1/", "http://127.0.0.1%2f@good.com/", "http://%31%32%37.0.0.1/",
        "http://[fe80::1%25eth0]/", "http://exa mple.org/", "http://example.org\\@x/",
        "http://example.org/\r\nHost: x", "http://example.org:99999/", "http://example.org:0/",
        "http://[::1/", "http://example.org/" + "x" * 9000,
    ],
)  # fmt: skip
def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    with pytest.raises((InvalidRequestError, ForbiddenError)):
        judge_url(url, _NOBODY)


@each_row(
    ("url", "host", "port"),
    [
        ("http://example.org", "example.org", 80),
        ("https://example.org:8443/a?b=c#d", "example.org", 8443),
        ("https://1.1.1.1/", "1.1.1.1", 443),
        ("https://[2606:4700::1111]/", "2606:4700::1111", 443),
        ("https://exämple.org/ü", "xn--exmple-cua.org", 443),
        (" https://example.org/ ", "example.org", 443),
    ],
)
def test_public_addresses_are_good(url: str, host: str, port: int) -> None:
    target = judge_url(url, _NOBODY)
    assert (target.host, target.port) == (host, port)
    assert "#" not in target.url


@each_row("address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "93.184.216.34"])
def test_public_addresses_have_no_reason_against_them(address: str) -> None:
    assert refused_because(address) == ""


async def test_every_resolved_address_is_judged() -> None:
    pinned = await resolve_and_judge("http://a.example/", _NOBODY, resolve=resolver("8.8.8.8"))
    assert pinned.addresses == ("8.8.8.8",)
    for bad in ("127.0.0.1", "::1", "10.0.0.1", "fe80::1%eth0", "169.254.169.254", "nonsense"):
        with pytest.raises(ForbiddenError):
            await resolve_and_judge("http://a.example/", _NOBODY, resolve=resolver("8.8.8.8", bad))


async def test_a_name_without_an_answer_is_a_network_error() -> None:
    async def fails(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    for resolve in (fails, resolver()):
        with pytest.raises(ProviderError, match=r"gone\.example") as caught:
            await resolve_and_judge("http://gone.example/", _NOBODY, resolve=resolve)
        assert caught.value.kind == "network"
        assert "Errno" not in caught.value.message


async def test_exceptions_hold_for_their_host_and_port_only() -> None:
    rules = NetworkRules(allowed_addresses=("127.0.0.1:8080", "nas.local:80", "[::1]:9"))
    assert judge_url("http://127.0.0.1:8080/x", rules).port == 8080
    assert judge_url("http://[::1]:9/", rules).host == "::1"
    answers = resolver("192.168.1.5")
    pinned = await resolve_and_judge("http://nas.local/", rules, resolve=answers)
    assert pinned.addresses == ("192.168.1.5",)
    for url in ("http://127.0.0.1:8081/", "http://127.1:8080/", "http://localhost:8080/"):
        with pytest.raises((ForbiddenError, InvalidRequestError)):
            judge_url(url, rules)
    with pytest.raises(ForbiddenError):
        await resolve_and_judge("https://nas.local/", rules, resolve=answers)


def test_domains_match_whole_labels() -> None:
    rules = NetworkRules(allowed_domains=("example.org", "*.wiki.example", "Mixed.Example."))
    trusted = ("example.org", "EXAMPLE.org", "example.org.", "a.wiki.example", "a.b.wiki.example")
    assert all(rules.trusts(host) for host in (*trusted, "mixed.example"))
    for host in ("a.example.org", "badexample.org", "wiki.example", "example.org.evil", "", "org"):
        assert not rules.trusts(host), host


async def test_the_pinned_resolver_answers_for_what_was_judged_and_nothing_else() -> None:
    pinned = await resolve_and_judge(
        "http://a.example/", _NOBODY, resolve=resolver("8.8.8.8", "2606:4700::1")
    )
    answers = PinnedResolver(pinned)
    found = await answers.resolve("a.example", 80, socket.AF_UNSPEC)
    assert [item["host"] for item in found] == ["8.8.8.8", "2606:4700::1"]
    only_v4 = await answers.resolve("a.example", 80, socket.AF_INET)
    assert [item["host"] for item in only_v4] == ["8.8.8.8"]
    for host, port in (("b.example", 80), ("a.example", 81)):
        with pytest.raises(OSError, match="not judged"):
            await answers.resolve(host, port)


async def test_a_second_answer_of_the_resolver_is_never_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1/")

    async def hello(request: web.Request) -> web.Response:
        return web.Response(text=f"{request.host} {request.path}")

    app = web.Application()
    app.router.add_get("/{tail:.*}", hello)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        answers = resolver("127.0.0.1")
        url = f"http://rebinding.example:{port}/path"
        rules = NetworkRules(allowed_addresses=(f"rebinding.example:{port}",))
        pinned = await resolve_and_judge(url, rules, resolve=answers)
        async with pinned_session(pinned, timeout_s=60) as session, session.get(url) as answer:
            assert await answer.text() == f"rebinding.example:{port} /path"
        assert answers.asked == 1
    finally:
        await runner.cleanup()
