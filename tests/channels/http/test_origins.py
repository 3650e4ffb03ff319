"""Which Host and which Origin may ask: a table of those that may, and one of those that may not."""

from clawd.channels.http.guard import (
    DoorRules,
    RequestOrigin,
    asked_headers,
    cross_origin,
    preflight_problem,
    refusal,
)
from tests.support.rows import each_row

RULES = DoorRules(
    hosts=frozenset({"clawd.lan", "192.168.1.5"}), origins=frozenset({"http://localhost:3000"})
)


def asked(
    host: str = "localhost:8686", *, origin: str | None = None, site: str = "", target: str = "/"
) -> RequestOrigin:
    return RequestOrigin(
        method="GET",
        target=target,
        hosts=(host,),
        origins=() if origin is None else (origin,),
        fetch_sites=(site,) if site else (),
        local_address="10.0.0.7",
    )


@each_row(
    "host",
    [
        "localhost",
        "LOCALHOST:8686",
        "localhost:1",
        "127.0.0.1:8686",
        "127.9.9.9",
        "[::1]:8686",
        "[::1]",
        "clawd.lan:8686",
        "Clawd.LAN",
        "192.168.1.5",
        "10.0.0.7:8686",
    ],
)
def test_a_host_that_is_ours_may_be_asked(host: str) -> None:
    assert refusal(asked(host), RULES) == ""


@each_row(
    "host",
    [
        "",
        " ",
        ":8686",
        "evil.example",
        "localhost.evil.example",
        "evil.localhost.example",
        "localhost.",
        "clawd.lan.",
        "xclawd.lan",
        "127.0.0.1.nip.io",
        "0.0.0.0",
        "[::]",
        "10.0.0.8",
        "192.168.1.6",
        "[::ffff:127.0.0.1]",
        "[fe80::1%25eth0]",
        "127.1",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "2130706433",
        "::1",
        "localhost:8686@evil.example",
        "evil.example@localhost",
        "localhost:99999999",
        "localhost:x",
        "localhost, evil.example",
        "localhost/evil",
        "localhost\\.evil",
        "ⓛocalhost",
        "localhost\x00",
    ],
)
def test_a_host_that_is_not_ours_is_refused(host: str) -> None:
    assert refusal(asked(host), RULES) != ""


@each_row("hosts", [(), ("localhost", "localhost"), ("localhost", "evil.example")])
def test_there_must_be_exactly_one_host(hosts: tuple[str, ...]) -> None:
    assert refusal(RequestOrigin(method="GET", target="/", hosts=hosts), RULES) != ""


@each_row(
    ("target", "is_taken"),
    [
        ("/v1/models", True),
        ("*", True),
        ("http://localhost:8686/v1/models", True),
        ("http://evil.example/v1/models", False),
        ("http://localhost:8686.evil.example/", False),
        ("http://localhost:9999/", False),
        ("http://evil.example?x=http://localhost:8686/", False),
        ("ftp://localhost:8686/", False),
        ("localhost:8686", False),
        ("evil.example:443", False),
    ],
)
def test_a_whole_address_must_be_on_the_host(target: str, is_taken: bool) -> None:
    assert (refusal(asked(target=target), RULES) == "") is is_taken


@each_row(
    "origin", [None, "http://localhost:3000", "http://localhost:8686", "http://LOCALHOST:8686"]
)
def test_no_page_or_one_of_ours_may_ask(origin: str | None) -> None:
    is_exact = origin != "http://LOCALHOST:8686"  # browsers write origins in lower case
    assert (refusal(asked(origin=origin), RULES) == "") is is_exact


@each_row(
    "origin",
    [
        "",
        "null",
        "*",
        "http://evil.example",
        "https://localhost:3000",
        "http://localhost",
        "http://localhost:3001",
        "http://localhost:30000",
        "http://localhost:3000.evil.example",
        "http://localhost:3000/",
        "http://localhost:3000, http://evil.example",
        "https://localhost:8686",
        "http://127.0.0.1:8686",
        "http://clawd.lan",
        "file://",
        "chrome-extension://abcdefgh",
    ],
)
def test_a_page_of_others_is_refused(origin: str) -> None:
    assert refusal(asked(origin=origin), RULES) != ""
    assert cross_origin(asked(origin=origin), RULES) == ""


def test_a_page_of_a_rebound_name_is_refused_though_its_origin_fits_its_host() -> None:
    assert refusal(asked("evil.example:8686", origin="http://evil.example:8686"), RULES) != ""


def test_over_tls_our_own_origin_is_an_https_one() -> None:
    rules = DoorRules(is_tls=True)
    assert refusal(asked(origin="https://localhost:8686"), rules) == ""
    assert refusal(asked(origin="http://localhost:8686"), rules) != ""


@each_row(
    ("site", "is_taken"),
    [
        ("", True),
        ("none", True),
        ("same-origin", True),
        ("same-site", False),
        ("cross-site", False),
        ("anything", False),
    ],
)
def test_a_browser_that_says_the_page_is_anothers_is_believed(site: str, is_taken: bool) -> None:
    assert (refusal(asked(site=site), RULES) == "") is is_taken


def test_a_configured_page_is_of_another_site_and_may_ask_all_the_same() -> None:
    request = asked(origin="http://localhost:3000", site="cross-site")
    assert refusal(request, RULES) == ""
    assert cross_origin(request, RULES) == "http://localhost:3000"


@each_row(
    ("method", "headers", "is_taken"),
    [
        ("POST", "authorization, content-type, x-stainless-lang", True),
        ("DELETE", "", True),
        ("CONNECT", "", False),
        ("POST\r\nX: y", "", False),
        ("POST", "x y", False),
        ("POST", "x\r\nset-cookie: a", False),
        ("POST", ",".join(f"x-{number}" for number in range(65)), False),
    ],
)
def test_a_preflight_names_methods_and_headers(method: str, headers: str, is_taken: bool) -> None:
    assert (preflight_problem(method, headers) == "") is is_taken


def test_names_of_headers_are_taken_apart() -> None:
    assert asked_headers(" a ,b,, c") == ["a", "b", "c"]


PATTERNS = DoorRules(
    origins=frozenset(
        {"http://localhost:*", "http://[::1]:*", "vscode-webview://*", "app://*", "tauri://*"}
    )
)
# What each origin comes to with patterns in the list.
LISTED = {
    "http://localhost": True,
    "http://localhost:1": True,
    "http://localhost:65535": True,
    "http://[::1]:5173": True,
    "vscode-webview://1a2b3c-4d5e": True,
    "app://obsidian.md": True,
    "tauri://localhost": True,
    "https://localhost:1": False,
    "http://localhost.evil.example:1": False,
    "http://evil.example#localhost:1": False,
    "http://localhost:1@evil.example": False,
    "http://localhost:*": False,
    "http://127.0.0.1:1": False,
    "vscode-webview://a/b": False,
    "vscode-webview://": False,
    "xapp://evil": False,
    "app://evil http://x": False,
    "chrome-extension://abc": False,
    "null": False,
    "*": False,
}


def test_h6_an_origin_may_be_any_port_of_a_host_or_any_page_of_a_programs_scheme() -> None:
    found = {
        origin: (refusal(asked(origin=origin), PATTERNS) == "")
        and bool(cross_origin(asked(origin=origin), PATTERNS))
        for origin in LISTED
    }
    assert found == LISTED
    # Whatever is listed, a name that leads here from elsewhere is judged first.
    for host in ("evil.example:8686", "localhost.evil.example"):
        assert refusal(asked(host, origin="http://localhost:1"), PATTERNS) != ""
    assert cross_origin(asked(origin="http://localhost:3001"), RULES) == ""
