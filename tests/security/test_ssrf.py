"""Forms of an address that must not be asked: each is refused, and nothing was connected to."""

import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yarl

from clawd.errors import ForbiddenError, InvalidRequestError
from clawd.security.network import NetworkRules, refused_because
from clawd.security.sandbox.egress import Egress
from clawd.security.sandbox.egress_proxy import RefusedRequest, parse_authority
from tests.security.canary import Canary, Names, canary
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench

pytestmark = pytest.mark.ssrf

_REFUSALS = (ForbiddenError, InvalidRequestError)

# What a host can look like that leads to this machine.
THIS_MACHINE = {
    "loopback": "127.0.0.1",
    "loopback-other": "127.0.0.2",
    "loopback-last": "127.255.255.254",
    "unspecified": "0.0.0.0",
    "fullwidth-digits": "１２７.０.０.１",
    "circled-digits": "①②⑦.⓪.⓪.①",
    "superscript-digits": "¹²⁷.⁰.⁰.¹",
    "mathematical-digits": "𝟙𝟚𝟟.𝟘.𝟘.𝟙",
    "ideographic-dots": "127。0。0。1",
    "fullwidth-dots": "127．0．0．1",
    "halfwidth-dots": "127｡0｡0｡1",
    "localhost": "localhost",
    "localhost-upper": "LOCALHOST",
    "localhost-dot": "localhost.",
    "localhost-below": "app.localhost",
    "localhost-fullwidth": "ｌｏｃａｌｈｏｓｔ",
    "localhost-circled": "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ",
    "localhost-long-s": "localhoſt",
    "mapped": "[::ffff:127.0.0.1]",
    "mapped-hex": "[::ffff:7f00:1]",
    "mapped-upper": "[::FFFF:7F00:1]",
    "mapped-long": "[0:0:0:0:0:ffff:127.0.0.1]",
    "v6-loopback": "[::1]",
    "v6-loopback-long": "[0000:0000:0000:0000:0000:0000:0000:0001]",
    "v6-unspecified": "[::]",
}

# Numbers that a resolver takes for an address of this machine or its network.
ODD_NUMBERS = {
    "short-two-parts": "127.1",
    "short-three-parts": "127.0.1",
    "decimal": "2130706433",
    "hex": "0x7f000001",
    "hex-upper": "0X7F000001",
    "hex-parts": "0x7f.0x0.0x0.0x1",
    "hex-short": "0x7f.1",
    "octal": "0177.0.0.1",
    "octal-long": "017700000001",
    "octal-padded": "0000177.0000.0000.0001",
    "mixed-bases": "0177.0x0.1",
    "unspecified-short": "0",
    "unspecified-hex": "0x0",
    "trailing-dot": "127.0.0.1.",
    "trailing-dot-short": "127.1.",
    "trailing-dot-decimal": "2130706433.",
    "link-local-hex": "0xa9fe0101",
    "private-10-short": "10.1",
    "private-10-octal": "012.0.0.1",
    "private-192-decimal": "3232235777",
    "broadcast-hex": "0xffffffff",
    "metadata-decimal": "2852039166",
    "metadata-octal": "0251.0376.0251.0376",
}

# Hosts that lead elsewhere, to where only this machine or its network can go.
PRIVATE = {
    "v4-compatible": "[::127.0.0.1]",
    "v4-translated": "[::ffff:0:127.0.0.1]",
    "nat64": "[64:ff9b::127.0.0.1]",
    "nat64-metadata": "[64:ff9b::a9fe:a9fe]",
    "nat64-local": "[64:ff9b:1::7f00:1]",
    "6to4": "[2002:7f00:1::]",
    "6to4-private": "[2002:a00:1::1]",
    "6to4-relay": "192.88.99.1",
    "teredo": "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
    "isatap": "[2606:4700::5efe:7f00:1]",
    "isatap-global": "[2606:4700::200:5efe:10.0.0.1]",
    "orchid": "[2001:10::1]",
    "orchid-2": "[2001:20::1]",
    "port-control-anycast": "[2001:1::1]",
    "v6-discard": "[100::1]",
    "v6-dummy": "[100:0:0:1::1]",
    "v6-segment-routing": "[5f00::1]",
    "v6-outside-global-unicast": "[4000::1]",
    "link-local": "169.254.1.1",
    "v6-link-local": "[fe80::1]",
    "v6-link-local-upper": "[FE80::1]",
    "v6-site-local": "[fec0::1]",
    "v6-unique-local": "[fd12:3456:789a::1]",
    "v6-unique-local-fc": "[fc00::1]",
    "private-10": "10.0.0.1",
    "private-172": "172.16.0.1",
    "private-172-last": "172.31.255.254",
    "private-192": "192.168.1.1",
    "mapped-private": "[::ffff:192.168.1.1]",
    "carrier-nat": "100.64.0.1",
    "carrier-nat-last": "100.127.255.254",
    "this-network": "0.1.2.3",
    "protocol-assignments": "192.0.0.1",
    "benchmark": "198.18.0.1",
    "benchmark-last": "198.19.255.254",
    "v6-benchmark": "[2001:2::1]",
    "documentation-1": "192.0.2.1",
    "documentation-2": "198.51.100.1",
    "documentation-3": "203.0.113.1",
    "v6-documentation": "[2001:db8::1]",
    "v6-documentation-2": "[3fff::1]",
    "multicast": "224.0.0.1",
    "multicast-ssdp": "239.255.255.250",
    "v6-multicast": "[ff02::1]",
    "v6-multicast-global": "[ff0e::1]",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "metadata": "169.254.169.254",
    "metadata-fullwidth": "１６９.２５４.１６９.２５４",
    "metadata-mapped": "[::ffff:a9fe:a9fe]",
    "metadata-containers": "169.254.170.2",
    "metadata-v6-amazon": "[fd00:ec2::254]",
    "metadata-v6-google": "[fd20:ce::254]",
    "metadata-v6-oracle": "[fd00:c1::a9fe:a9fe]",
    "metadata-v6-openstack": "[fe80::a9fe:a9fe]",
    "metadata-oracle": "192.0.0.192",
    "metadata-alibaba": "100.100.100.200",
    "metadata-azure-host": "168.63.129.16",
}

# URLs that mean something else than they show, or nothing; PORT is the canary's.
TRICKS = {
    "user": "http://public.example@127.0.0.1:PORT/",
    "user-password": "http://public.example:80@127.0.0.1:PORT/",
    "user-empty": "http://@127.0.0.1:PORT/",
    "user-behind": "http://127.0.0.1:PORT@public.example/",
    "user-twice": "http://a@public.example@127.0.0.1:PORT/",
    "user-encoded-at": "http://public.example%40127.0.0.1:PORT/",
    "user-slash": "http://127.0.0.1:PORT%2f@public.example/",
    "fragment-at": "http://127.0.0.1:PORT#@public.example/",
    "query-at": "http://127.0.0.1:PORT?@public.example/",
    "backslash-at": "http://public.example\\@127.0.0.1:PORT/",
    "backslashes": "http:\\\\127.0.0.1:PORT\\",
    "backslash-in-host": "http://127.0.0.1:PORT\\.public.example/",
    "tab": "http://127.0.0.1\t:PORT/",
    "tab-in-scheme": "ht\ttp://127.0.0.1:PORT/",
    "newline": "http://127.0.0.1:PORT/\nHost: public.example",
    "carriage-return": "http://127.0.0.1:PORT\r\n/",
    "nul": "http://127.0.0.1\0.public.example:PORT/",
    "blank": "http://127.0.0.1 .public.example:PORT/",
    "leading-blank": " http://127.0.0.1:PORT/",
    "no-break-space": "\u00a0http://127.0.0.1:PORT/",
    "leading-control": "\x01http://127.0.0.1:PORT/",
    "soft-hyphen": "http://local\u00adhost:PORT/",
    "zero-width-space": "http://127.0.0\u200b.1:PORT/",
    "lone-surrogate": "http://127.0.0.1\ud800:PORT/",
    "encoded-host": "http://%31%32%37%2e%30%2e%30%2e%31:PORT/",
    "encoded-localhost": "http://%6c%6f%63%61%6c%68%6f%73%74:PORT/",
    "encoded-dots": "http://127%2E0%2E0%2E1:PORT/",
    "encoded-twice": "http://127%252e0%252e0%252e1:PORT/",
    "encoded-nul": "http://127.0.0.1%00.public.example:PORT/",
    "zone": "http://[fe80::1%lo]:PORT/",
    "zone-encoded": "http://[fe80::1%25lo]:PORT/",
    "zone-loopback": "http://[::1%25lo]:PORT/",
    "zone-public": "http://[2606:4700::1111%25lo]:PORT/",
    "zone-mapped": "http://[::ffff:127.0.0.1%25lo]:PORT/",
    "brackets-around-v4": "http://[127.0.0.1]:PORT/",
    "brackets-around-name": "http://[localhost]:PORT/",
    "brackets-open": "http://[::1:PORT/",
    "brackets-missing": "http://::1:PORT/",
    "brackets-and-more": "http://[::1].public.example:PORT/",
    "brackets-and-colons": "http://[localhost::]:PORT/",
    "brackets-behind": "http://]::1[:PORT/",
    "brackets-empty": "http://[]:PORT/",
    "brackets-behind-a-user": "http://@[:PORT/",
    "brackets-in-user": "http://[]@/",
    "future-name": "http://[v1.localhost]:PORT/",
    "future-colon": "http://[v1.a:b]:PORT/",
    "address-of-the-future": "http://[v1.127.0.0.1]:PORT/",
    "number-too-large": "http://4294967296:PORT/",
    "number-that-wraps": "http://6425673729:PORT/",
    "part-too-large": "http://127.0.0.257:PORT/",
    "part-that-wraps": "http://383.256.256.257:PORT/",
    "parts-too-many": "http://127.0.0.0.1:PORT/",
    "parts-empty": "http://127..1:PORT/",
    "octal-that-is-none": "http://0188.0.0.1:PORT/",
    "number-behind-a-name": "http://public.127.1:PORT/",
    "dots-twice": "http://127.0.0.1..:PORT/",
    "localhost-dots-twice": "http://localhost..:PORT/",
    "port-twice": "http://127.0.0.1:PORT:80/",
    "port-too-large": "http://127.0.0.1:65536/",
    "port-negative": "http://127.0.0.1:-PORT/",
    "port-zero": "http://127.0.0.1:0/",
    "port-fullwidth": "http://127.0.0.1:８０/",
    "port-signed": "http://127.0.0.1:+PORT/",
    "port-empty": "http://127.0.0.1:/",
    "no-host": "http:///127.0.0.1:PORT/",
    "no-slashes": "http:127.0.0.1:PORT/",
    "one-slash": "http:/127.0.0.1:PORT/",
    "no-scheme": "//127.0.0.1:PORT/",
    "scheme-upper": "HTTP://127.0.0.1:PORT/",
    "https": "https://127.0.0.1:PORT/",
    "file": "file:///etc/passwd",
    "file-host": "file://127.0.0.1/etc/passwd",
    "file-upper": "FILE:///etc/passwd",
    "gopher": "gopher://127.0.0.1:PORT/_GET%20/",
    "dict": "dict://127.0.0.1:PORT/info",
    "ftp": "ftp://127.0.0.1:PORT/",
    "ldap": "ldap://127.0.0.1:PORT/",
    "tftp": "tftp://127.0.0.1:PORT/x",
    "websocket": "ws://127.0.0.1:PORT/",
    "websocket-public": "wss://public.example:PORT/",
    "unix": "unix:///run/docker.sock",
    "http-unix": "http+unix://%2Frun%2Fdocker.sock/info",
    "unix-in-host": "http://unix:%2Frun%2Fdocker.sock:/info",
    "data": "data:text/plain,hello",
    "jar": "jar:http://127.0.0.1:PORT!/",
    "view-source": "view-source:http://127.0.0.1:PORT/",
    "javascript": "javascript:fetch('http://127.0.0.1:PORT')",
}  # fmt: skip

# What a resolver may answer for a harmless name; the first is asked for by that name.
ANSWERS = {
    "name-to-loopback": ("127-0-0-1.dns.example", ["127.0.0.1"]),
    "name-to-v6-loopback": ("public.example", ["::1"]),
    "name-to-unspecified": ("public.example", ["0.0.0.0"]),
    "name-to-mapped": ("public.example", ["::ffff:127.0.0.1"]),
    "name-to-private": ("intranet.example", ["192.168.0.10"]),
    "name-to-unique-local": ("intranet.example", ["fd00::1"]),
    "name-to-zone": ("public.example", ["fe80::1%lo"]),
    "name-to-nat64": ("public.example", ["64:ff9b::7f00:1"]),
    "name-to-nonsense": ("public.example", ["not-an-address"]),
    "name-to-short-notation": ("public.example", ["127.1"]),
    "name-upper": ("PUBLIC.EXAMPLE", ["127.0.0.1"]),
    "name-trailing-dot": ("public.example.", ["127.0.0.1"]),
    "name-idna": ("bücher.example", ["127.0.0.1"]),
    "name-of-one-label": ("router", ["192.168.0.1"]),
    "name-localdomain": ("localhost.localdomain", ["127.0.0.1"]),
    "name-localhost6": ("ip6-localhost", ["::1"]),
    "name-docker-host": ("host.docker.internal", ["172.17.0.1"]),
    "name-kubernetes": ("kubernetes.default.svc", ["10.96.0.1"]),
    "name-mdns": ("printer.local", ["169.254.7.7"]),
    "metadata-google": ("metadata.google.internal", ["169.254.169.254"]),
    "metadata-google-short": ("metadata", ["169.254.169.254"]),
    "metadata-google-dot": ("metadata.google.internal.", ["fd20:ce::254"]),
    "metadata-amazon": ("instance-data.ec2.internal", ["169.254.169.254"]),
    "metadata-tencent": ("metadata.tencentyun.com", ["169.254.0.23"]),
    "metadata-azure": ("metadata.azure.internal", ["169.254.169.254"]),
    "mixed-private-last": ("public.example", ["8.8.8.8", "127.0.0.1"]),
    "mixed-private-first": ("public.example", ["127.0.0.1", "8.8.8.8"]),
    "mixed-families": ("public.example", ["2606:4700::1111", "127.0.0.1"]),
    "mixed-v6-private": ("public.example", ["8.8.8.8", "::1"]),
    "mixed-metadata": ("public.example", ["8.8.8.8", "1.1.1.1", "169.254.169.254"]),
}  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
async def bird() -> AsyncIterator[Canary]:
    async with canary() as bird:
        yield bird


# Every tool that takes an address, and what it calls it.
TOOLS = {"http": "url", "web_fetch": "url", "pdf_extract": "source"}


async def assert_refused(bench: Bench, bird: Canary, url: str, tool: str = "http") -> None:
    """The tool itself refuses, whatever the policy said before, and nobody was connected to."""
    with pytest.raises(_REFUSALS) as caught:
        await bench.call(tool, **{TOOLS[tool]: url})
    assert caught.value.message
    assert bird.attempts == []
    assert await bird.visits() == 0


@each_row("tool", TOOLS)
@each_row("form", [*THIS_MACHINE, *ODD_NUMBERS, *PRIVATE], fresh=["bench", "bird"])
async def test_an_address_is_refused_in_this_notation(
    bench: Bench, bird: Canary, form: str, tool: str
) -> None:
    host = {**THIS_MACHINE, **ODD_NUMBERS, **PRIVATE}[form]
    names = Names()
    bench.changes = {"resolve": names}
    bench.network = NetworkRules(allowed_addresses=(f"other.example:{bird.port}",))
    url = f"http://{host}:{bird.port}/"
    assert bench.risk(tool, **{TOOLS[tool]: url}).blocked
    await assert_refused(bench, bird, url, tool)
    assert names.asked == []


# Without :// it is a path for pdf_extract, and no way to anybody.
@each_row(
    ("form", "tool"),
    [
        (form, tool)
        for tool in TOOLS
        for form, url in TRICKS.items()
        if tool != "pdf_extract" or "://" in url
    ],
    fresh=["bench", "bird"],
)
async def test_a_url_that_hides_something_is_refused(
    bench: Bench, bird: Canary, form: str, tool: str
) -> None:
    names = Names({"public.example": [["127.0.0.1"]]})
    bench.changes = {"resolve": names}
    arguments = {TOOLS[tool]: TRICKS[form].replace("PORT", str(bird.port))}
    with pytest.raises(_REFUSALS):
        await bench.tool(tool).invoke(arguments, bench.context())
    assert bench.tool(tool).risk(arguments, bench.context()).blocked
    assert bird.attempts == []
    assert await bird.visits() == 0
    assert names.asked == []


@each_row("form", [f for f, url in TRICKS.items() if "://" not in url], fresh=["bench", "bird"])
async def test_what_is_no_address_is_a_path_for_pdf_extract(
    bench: Bench, bird: Canary, form: str
) -> None:
    names = Names()
    bench.changes = {"resolve": names}
    arguments = {"source": TRICKS[form].replace("PORT", str(bird.port))}
    with contextlib.suppress(*_REFUSALS):
        result = await bench.tool("pdf_extract").invoke(arguments, bench.context())
        assert not result.success
    assert (bird.attempts, names.asked) == ([], [])
    assert await bird.visits() == 0


@each_row("tool", TOOLS)
@each_row("form", ANSWERS, fresh=["bench", "bird"])
async def test_a_name_that_leads_there_is_refused(
    bench: Bench, bird: Canary, form: str, tool: str
) -> None:
    name, addresses = ANSWERS[form]
    spelled = yarl.URL(f"http://{name}").raw_host or ""
    names = Names({spelled.rstrip(".").lower(): [addresses]})
    bench.changes = {"resolve": names}
    bench.network = NetworkRules(allowed_domains=(name, "*.example"))
    await assert_refused(bench, bird, f"http://{name}:{bird.port}/", tool)
    assert len(names.asked) == 1


@each_row("form", [*THIS_MACHINE, *PRIVATE], fresh=["bench", "bird"])
async def test_the_same_notation_gets_through_once_the_owner_allows_it(
    bench: Bench, bird: Canary, form: str
) -> None:
    """So the refusals above are the rules' work: nothing else stops these forms."""
    host = {**THIS_MACHINE, **PRIVATE}[form]
    url = yarl.URL(f"http://{host}:{bird.port}/")
    bench.changes = {"resolve": Names()}
    bench.network = NetworkRules(allowed_addresses=(f"{url.raw_host}:{bird.port}",))
    result = await bench.call("http", url=f"http://{host}:{bird.port}/")
    assert len(bird.attempts) >= 1, result
    if form in THIS_MACHINE and ":" not in (url.raw_host or ""):
        assert result.output.startswith("HTTP 200")
        assert await bird.visits() == 1


@each_row("form", ODD_NUMBERS, fresh=["bench", "bird"])
async def test_an_odd_number_is_refused_even_where_its_address_is_allowed(
    bench: Bench, bird: Canary, form: str
) -> None:
    host = ODD_NUMBERS[form]
    (address,) = await Names()(host, bird.port)
    assert refused_because(address)
    entries = tuple(f"{each}:{bird.port}" for each in (host, address))
    bench.network = NetworkRules(allowed_addresses=entries)
    await assert_refused(bench, bird, f"http://{host}:{bird.port}/")


@each_row("form", [*THIS_MACHINE, *ODD_NUMBERS, *PRIVATE, *ANSWERS], fresh=["bird"])
async def test_a_command_is_led_there_by_no_grant(bird: Canary, form: str) -> None:
    """Also where every host is granted to it: what the proxy is asked for goes the same way."""
    plain = {**THIS_MACHINE, **ODD_NUMBERS, **PRIVATE}
    name, addresses = ANSWERS[form] if form in ANSWERS else (plain[form], [])
    names = Names({name.rstrip(".").lower(): [addresses]} if addresses else {})
    egress = Egress(resolve=names, connect=_never)

    async def decide(_host: str, _port: int) -> None:
        return None

    way = egress.way_out(decide)
    with pytest.raises((*_REFUSALS, RefusedRequest)):
        host, port = parse_authority(f"{name}:{bird.port}", 0)
        await way._connected(host, port)
    assert bird.attempts == []
    assert await bird.visits() == 0


async def _never(addresses: tuple[str, ...], _port: int) -> tuple[socket.socket, str]:
    raise AssertionError(f"connected to {addresses}")
