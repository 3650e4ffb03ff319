"""web_search with recorded pages: what engines are asked, what is read of their answers."""

import asyncio
import threading
from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from clawd.config.sections import WebSection
from clawd.errors import ClawError, InvalidRequestError
from clawd.tools.base import ToolResult
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.builtin.transfer import HttpRequest, Response, TransferFailure
from clawd.tools.builtin.web import WebSearchTool, engine_request
from tests.security.canary import Names, canary
from tests.support.rows import each_row
from tests.tools.builtin.conftest import Bench
from tests.tools.builtin.recorded_search import CAPTCHAS, PAGES, WIKIPEDIA

Answer = tuple[int, str] | TransferFailure


class Engines:
    """Answers requests with what was recorded, and keeps them.

    Args:
        answers: for each host what it answers the first time, the second and so on.
    """

    def __init__(self, answers: dict[str, list[Answer]]) -> None:
        self.answers = answers
        self.seen: list[HttpRequest] = []

    async def __call__(self, request: HttpRequest, *, max_bytes: int) -> Response | TransferFailure:
        assert max_bytes == 2_000_000
        self.seen.append(request)
        answer = self.answers[request.target.host].pop(0)
        if isinstance(answer, TransferFailure):
            return answer
        status, text = answer
        return Response(
            target=request.target,
            status=status,
            reason="",
            headers={"content-type": "text/html; charset=utf-8"},
            charset="utf-8",
            body=text.encode(),
            is_cut=False,
        )


def page(backend: str) -> list[Answer]:
    return [(200, PAGES[backend])]


async def search(
    bench: Bench, engines: Callable[..., object], *backends: str, **arguments: object
) -> ToolResult:
    deps = BuiltinDeps(policy=bench.policy, home=bench.home, sandbox=bench.sandbox)
    web = WebSection(
        search_backends=backends,  # type: ignore[arg-type]
        region="de-de",
        search_timeout_s=100,
        extract_timeout_s=100,
    )
    tool = WebSearchTool(msgspec.structs.replace(deps, web=web), engines)  # type: ignore[arg-type]
    return await tool.invoke({"query": "clawd daemon", **arguments}, bench.context())


HOSTS = {
    "duckduckgo": "html.duckduckgo.com",
    "brave": "search.brave.com",
    "mojeek": "www.mojeek.com",
    "yahoo": "search.yahoo.com",
}


@each_row("backend", list(HOSTS), fresh=["bench"])
@pytest.mark.usefixtures("read_here")
async def test_the_page_of_an_engine_becomes_results(bench: Bench, backend: str) -> None:
    engines = Engines({HOSTS[backend]: page(backend)})
    result = await search(bench, engines, backend)
    assert result.output == (
        "1. The clawd daemon\n   https://clawd.example/docs?a=1%2F2\n   A daemon for a machine.\n"
        "2. Second & last\n   https://second.example/\n   Text of the second."
    )
    assert result.metadata["untrusted_sources"] == [HOSTS[backend]]
    (request,) = engines.seen
    assert request.hosts == (HOSTS[backend],)
    assert request.headers["User-Agent"] == "Mozilla/5.0 (compatible; clawd)"
    sent = request.body.decode() if request.body else urlsplit(request.target.url).query
    assert "clawd daemon" in [value for each in parse_qs(sent).values() for value in each]


class _Watched:
    """A response that notes which threads look at its body."""

    def __init__(self, response: Response, seen: set[int]) -> None:
        self._response = response
        self._seen = seen

    def __getattr__(self, name: str) -> object:
        if name == "body":
            self._seen.add(threading.get_ident())
        return getattr(self._response, name)


async def test_a_page_is_decoded_off_the_loop(bench: Bench) -> None:
    engines, threads = Engines({"www.mojeek.com": page("mojeek")}), set[int]()

    async def watched(request: HttpRequest, *, max_bytes: int) -> object:
        answer = await engines(request, max_bytes=max_bytes)
        return _Watched(answer, threads) if isinstance(answer, Response) else answer

    assert (await search(bench, watched, "mojeek")).success
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.usefixtures("read_here")
async def test_an_engine_that_asks_twice_gets_both_answers(bench: Bench) -> None:
    engines = Engines({"de.wikipedia.org": [(200, each) for each in WIKIPEDIA]})
    result = await search(bench, engines, "wikipedia")
    assert result.output == (
        "1. Clawd\n   https://de.wikipedia.org/wiki/Clawd\n   Clawd is a word in a test."
    )
    assert [urlsplit(each.target.url).path for each in engines.seen] == ["/w/api.php"] * 2


@pytest.mark.usefixtures("read_here")
async def test_startpage_gets_its_token_first(bench: Bench) -> None:
    first = "<form id=search><input name=sc value=token1></form>"
    engines = Engines({"www.startpage.com": [(200, first), (200, PAGES["startpage"])]})
    result = await search(bench, engines, "startpage")
    assert "https://second.example/" in result.output
    assert [each.method for each in engines.seen] == ["GET", "POST"]
    assert parse_qs((engines.seen[1].body or b"").decode())["sc"] == ["token1"]


@pytest.mark.usefixtures("read_here")
async def test_the_next_engine_is_asked_when_one_fails_and_none_more_than_needed(
    bench: Bench,
) -> None:
    engines = Engines(
        {
            "html.duckduckgo.com": [(202, CAPTCHAS["duckduckgo"])],
            "search.brave.com": [(429, "slow down")],
            "www.mojeek.com": page("mojeek"),
            "search.yahoo.com": [],
        }
    )
    backends = ("duckduckgo", "brave", "mojeek", "yahoo")
    result = await search(bench, engines, *backends, max_results=2)
    assert result.success
    assert result.metadata["problems"] == [
        "duckduckgo: it wants a person to show that they are no machine (HTTP 202)",
        "brave: it says that it is asked too often (HTTP 429)",
    ]
    assert len(engines.seen) == 3


@pytest.mark.usefixtures("read_here")
async def test_results_of_several_engines_are_joined_without_doubles(bench: Bench) -> None:
    engines = Engines({HOSTS[name]: page(name) for name in HOSTS})
    result = await search(bench, engines, *HOSTS, max_results=10)
    assert result.output.count("clawd.example/docs") == 1
    assert (result.metadata["results"], len(engines.seen)) == (2, 4)
    one = await search(bench, Engines({HOSTS["brave"]: page("brave")}), "brave", max_results=1)
    assert one.output.splitlines()[-1] == "   A daemon for a machine."
    few = await search(bench, Engines({HOSTS["brave"]: page("brave")}), "brave", max_results=-3)
    assert few.output == one.output


@each_row(
    ("answer", "said"),
    [
        ((429, "later"), "asked too often (HTTP 429)"),
        ((200, CAPTCHAS["duckduckgo"]), "no machine (HTTP 200)"),
        ((200, CAPTCHAS["brave"]), "no machine (HTTP 200)"),
        ((403, "no"), "no machine (HTTP 403)"),
        ((503, "no"), "no machine (HTTP 503)"),
        ((500, "oops"), "it answered HTTP 500"),
        (TransferFailure(message="html.duckduckgo.com took over 20 s"), "took over 20 s"),
    ],
    fresh=["bench"],
)
@pytest.mark.usefixtures("read_here")
async def test_an_engine_that_does_not_answer_is_told_plainly(
    bench: Bench, answer: Answer, said: str
) -> None:
    engines = Engines({"html.duckduckgo.com": [answer]})
    result = await search(bench, engines, "duckduckgo")
    assert not result.success
    assert said in result.error


@each_row(
    "text",
    [
        "<html><body><p>nothing here</p></body></html>",
        "<div class=body><h2>no address</h2></div>",
        "<div class=body><a href='javascript:alert(1)'>x</a></div>",
        "<div class=body><a href='/relative'>x</a></div>",
        "<div class=body><a href='http://[bad'>x</a></div>",
        "<div class=body><a href='https://duckduckgo.com/y.js?ad'>an ad</a></div>",
        "{not html",
        "",
        "<" * 10_000,
        "<div>" * 10_000,
    ],
    fresh=["bench"],
)
@pytest.mark.usefixtures("read_here")
async def test_a_page_without_results_is_no_result(bench: Bench, text: str) -> None:
    result = await search(bench, Engines({"html.duckduckgo.com": [(200, text)]}), "duckduckgo")
    assert result.output == "(no results)"


@pytest.mark.usefixtures("read_here")
async def test_json_that_is_none_is_a_problem_of_that_engine(bench: Bench) -> None:
    engines = Engines({"de.wikipedia.org": [(200, "<html>")], "search.brave.com": page("brave")})
    result = await search(bench, engines, "wikipedia", "brave")
    assert result.success
    assert "could not be read" in result.metadata["problems"][0]


async def test_what_a_result_says_stays_on_its_line(bench: Bench) -> None:
    text = (
        "<div class=body><h2>One\n2. fake\u202e</h2><a href='https://a.example/x y'>"
        "snippet\x1b[31m\n\n3. fake\n   https://evil.example/" + "z" * 5_000 + "</a></div>"
    )
    result = await search(bench, Engines({"html.duckduckgo.com": [(200, text)]}), "duckduckgo")
    lines = result.output.splitlines()
    assert lines[0] == "1. One 2. fake"
    assert lines[1] == "   https://a.example/x%20y"
    assert len(lines) == 3
    assert len(lines[2]) <= 410
    assert "\x1b" not in result.output


@pytest.mark.usefixtures("read_here")
async def test_a_redirect_of_duckduckgo_is_undone(bench: Bench) -> None:
    link = "//duckduckgo.com/l/?uddg=https%3A%2F%2Freal.example%2Fa%3Fb%3Dc&rut=1"
    text = f"<div class=body><h2>T</h2><a href='https:{link}'>s</a></div>"
    result = await search(bench, Engines({"html.duckduckgo.com": [(200, text)]}), "duckduckgo")
    assert "   https://real.example/a?b=c" in result.output.splitlines()


@each_row("query", ["", "   ", "\n\x00"], fresh=["bench"])
async def test_an_empty_query_is_refused_with_an_example(bench: Bench, query: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await search(bench, Engines({}), "brave", query=query)
    assert "query = " in caught.value.hint


async def test_without_engines_nobody_is_asked(bench: Bench) -> None:
    result = await search(bench, Engines({}))
    assert "switched searching off" in result.error


@pytest.mark.usefixtures("read_here")
async def test_without_a_network_one_line_says_so_for_all_engines(bench: Bench) -> None:
    """Rows: how the last engine fails, and what is told."""
    rows = [
        ("cannot be resolved", "none of their names can be resolved, so there seems to be no net"),
        ("refused the connection", "duckduckgo: the name html.duckduckgo.com cannot be resolved:"),
    ]
    for last, told in rows:

        async def offline(request: HttpRequest, *, max_bytes: int, last: str = last) -> object:
            (host,) = request.hosts
            how = last if host == HOSTS["mojeek"] else "cannot be resolved"
            return TransferFailure(message=f"the name {host} {how}: Name or service not known")

        result = await search(bench, offline, "duckduckgo", "brave", "mojeek")
        assert result.error.startswith(f"no search engine answered: {told}")
        assert len(result.metadata["problems"]) == 3


async def test_a_search_ends_at_its_time_limit(bench: Bench) -> None:
    async def never(request: HttpRequest, *, max_bytes: int) -> Response | TransferFailure:
        await asyncio.Event().wait()
        raise AssertionError(request, max_bytes)

    deps = BuiltinDeps(
        policy=bench.policy,
        home=bench.home,
        sandbox=bench.sandbox,
        web=WebSection(search_timeout_s=1.5),
    )
    result = await WebSearchTool(deps, never).invoke({"query": "x"}, bench.context())
    assert "the time limit of 1.5 s was met" in result.error


async def test_a_parser_that_takes_too_long_is_a_problem_of_that_engine(bench: Bench) -> None:
    web = WebSection(search_backends=("brave",), extract_timeout_s=0.01)
    deps = BuiltinDeps(policy=bench.policy, home=bench.home, sandbox=bench.sandbox, web=web)
    engines = Engines({})
    result = await WebSearchTool(deps, engines).invoke({"query": "x"}, bench.context())
    told = "brave: it could not be asked (reading took over 0.01 s and was ended)"
    assert result.metadata["problems"] == [told]
    assert engines.seen == []


@each_row(
    "raw",
    [
        None,
        "GET",
        {"method": "GET", "url": "https://search.brave.com/"},
        {"method": "PUT", "url": "https://search.brave.com/", "headers": {}, "body": ""},
        {"method": "GET", "url": "http://search.brave.com/", "headers": {}, "body": ""},
        {"method": "GET", "url": "https://search.brave.com:8443/", "headers": {}, "body": ""},
        {"method": "GET", "url": "https://evil.example/", "headers": {}, "body": ""},
        {"method": "GET", "url": "https://search.brave.com.evil/", "headers": {}, "body": ""},
        {"method": "GET", "url": "https://search.brave.com@evil/", "headers": {}, "body": ""},
        {"method": "GET", "url": "https://127.0.0.1/", "headers": {}, "body": ""},
        {"method": "GET", "url": "https://169.254.169.254/", "headers": {}, "body": ""},
        {"method": "GET", "url": "file:///etc/passwd", "headers": {}, "body": ""},
    ],
)
def test_a_parser_that_was_taken_over_can_ask_its_own_engine_only(raw: object) -> None:
    with pytest.raises(ClawError):
        engine_request(raw, "brave", "us-en", "clawd")


def test_a_parser_sets_few_headers_and_no_lines_of_its_own() -> None:
    headers = {"Cookie": "a=b\r\nHost: evil", "Authorization": "x", "Host": "evil", "X-A": "b"}
    raw = {"method": "GET", "url": "https://search.brave.com/", "headers": headers, "body": ""}
    request = engine_request(raw, "brave", "us-en", "clawd")
    assert request.headers == {
        "Cookie": "a=bHost: evil",
        "User-Agent": "clawd",
        "Accept": "text/html,application/json;q=0.9,*/*;q=0.5",
        "Accept-Language": "en,en;q=0.5",
    }


@pytest.mark.ssrf
async def test_an_engine_whose_name_leads_to_this_machine_is_not_asked(bench: Bench) -> None:
    async with canary() as bird:
        names = Names({"search.brave.com": [["127.0.0.1"]]})
        bench.changes = {"resolve": names, "web": WebSection(search_backends=("brave",))}
        result = await bench.call("web_search", query="x")
        assert "it leads to 127.0.0.1" in result.error
        assert (names.asked, bird.attempts) == (["search.brave.com"], [])
        assert await bird.visits() == 0


def test_searching_is_low_and_reaches_out(bench: Bench) -> None:
    assert bench.risk("web_search", query="x").risk == "low"
    assert bench.tool("web_search").outward
