"""The tools of the web.

`http` sends one request to a public address, or to one that the owner allowed; `web_fetch` returns
the readable text and the links of a page, `web_search` results of search engines that need no key.
"""

import asyncio
import contextlib
import functools
import json
import re
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError
from clawd.security.network import UNRESOLVED, NetworkRules, Target, judge_url
from clawd.security.risk import Assessment, Risk, raised
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.builtin import transfer
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.reader import MAX_CHARS, Reader, Reading

_MAX_HEADERS = 50
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_OWN_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade"}
    | {"proxy-authorization", "proxy-connection", "expect", "keep-alive"}
)
_SHOWN_HEADERS = ("content-type", "content-length", "last-modified", "location", "retry-after")


class HttpTool(Tool):
    """Sends a request."""

    name: ClassVar[str] = "http"
    short: ClassVar[str] = "Send an HTTP request (GET, HEAD or POST) and show the response."
    description: ClassVar[str] = (
        "Answers the status line, some headers and the body of the response as text. `method` is "
        "GET by default. `headers` is an object of strings, `body` the text to POST; a body that "
        "is JSON is sent as such. Redirects are followed for GET and HEAD, at most five. Addresses "
        "of this machine and of private networks are refused unless the owner allowed them."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "url": {"type": "string", "description": "Address, http:// or https://."},
            "method": {"type": "string", "enum": ["GET", "HEAD", "POST"]},
            "headers": {"type": "object", "description": "Further request headers."},
            "body": {"type": "string", "description": "What to POST."},
        },
        "url",
    )

    # A host's name and a path are data too, wherever they lead.
    outward: ClassVar[bool | None] = True

    def __init__(self, deps: BuiltinDeps) -> None:
        self._deps = deps
        self.timeout_s = deps.http_timeout_s + 5

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        method = arguments.get("method", "GET")
        rules = self._deps.network
        try:
            target = judge_url(arguments["url"], rules)
        except ClawError as error:
            return Assessment(risk="high", blocked=error.message, allow_hint=error.hint)
        trusted = rules.trusts(target.host)
        hint = "" if trusted else f'allowed_domains = ["{target.host}"] in [security]'
        reason = f"sends a {method} to {target.host}"
        risk: Risk = "low" if trusted else "medium"
        if method == "POST":
            risk = raised(risk)
        return Assessment(risk=risk, reason=reason, allow_hint=hint, outward=True)

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        request = _request(arguments, judge_url(arguments["url"], self._deps.network))
        deps = self._deps
        carrier = transfer.Carrier(deps.network, deps.resolve, timeout_s=deps.http_timeout_s)
        answer = await carrier.fetch(request, max_bytes=deps.max_response_bytes)
        if isinstance(answer, transfer.TransferFailure):
            return answer.result()
        return await in_thread(lambda: _told(answer))


def _request(arguments: Arguments, target: Target) -> transfer.HttpRequest:
    method = arguments.get("method", "GET")
    body = arguments.get("body")
    if body is not None and method != "POST":
        raise InvalidRequestError(f"a {method} takes no body", hint='Give method = "POST".')
    headers = _checked_headers(arguments.get("headers", {}))
    names = {name.lower() for name in headers}
    if body is not None and "content-type" not in names:
        headers["Content-Type"] = (
            "application/json" if _is_json(body) else "text/plain; charset=utf-8"
        )
    if "user-agent" not in names:
        headers["User-Agent"] = "clawd"
    data = body.encode("utf-8", "replace") if body is not None else None
    return transfer.HttpRequest(method=method, target=target, headers=headers, body=data)


def _checked_headers(given: dict[str, Any]) -> dict[str, str]:
    if len(given) > _MAX_HEADERS:
        raise InvalidRequestError(f"at most {_MAX_HEADERS} headers can be given")
    headers = {}
    for name, value in given.items():
        text = str(value)
        if not _TOKEN.fullmatch(name) or re.search(r"[\x00-\x08\x0a-\x1f\x7f]", text):
            raise InvalidRequestError(f"{name[:50]!r} is no header, or its value has line breaks")
        if name.lower() in _OWN_HEADERS:
            raise InvalidRequestError(f"the header {name} is set by clawd itself")
        headers[name] = text
    return headers


def _is_json(text: str) -> bool:
    with contextlib.suppress(msgspec.DecodeError):
        return isinstance(msgspec.json.decode(text), (dict, list))
    return False


def _told(response: transfer.Response) -> ToolResult:
    lines = [f"HTTP {response.status} {response.reason}".rstrip()]
    lines += [f"{k}: {response.headers[k]}" for k in _SHOWN_HEADERS if k in response.headers]
    kind = response.headers.get("content-type", "application/octet-stream").partition(";")[0]
    if response.body:
        text = _text(response, kind)
        lines += [
            "",
            text if text is not None else f"[not text: {kind}, {len(response.body)} bytes]",
        ]
    if response.is_cut:
        lines.append(f"[cut after {len(response.body)} bytes]")
    return succeeded(
        "\n".join(lines),
        status=response.status,
        url=response.target.url,
        bytes=len(response.body),
        truncated=response.is_cut,
        untrusted_source=response.target.host,
    )


def _text(response: transfer.Response, kind: str) -> str | None:
    if kind.partition("/")[0] in {"image", "audio", "video", "font"} and kind != "image/svg+xml":
        return None
    return transfer.decoded(response.body, response.charset)


MAX_LINKS = 50
_MIN_BYTES = 1_024
_LINK_CHARS = 120


class WebFetchTool(Tool):
    """Fetches a page."""

    name: ClassVar[str] = "web_fetch"
    short: ClassVar[str] = "Fetch a web page and show its readable text and links."
    description: ClassVar[str] = (
        "Answers title, address, main text and up to "
        f"{MAX_LINKS} links of the page; JSON, XML and plain text are shown as they are. Scripts "
        "are not run. `max_bytes` limits what is read of it. At most five redirects are followed. "
        "For a PDF use pdf_extract, for status and headers http. Addresses of this machine and of "
        "private networks are refused unless the owner allowed them."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "url": {"type": "string", "description": "Address, http:// or https://."},
            "max_bytes": {"type": "integer", "description": "How much of the page to read."},
        },
        "url",
    )
    starts_process: ClassVar[bool] = True
    # A host's name and a path are data too, wherever they lead.
    outward: ClassVar[bool | None] = True

    def __init__(self, deps: BuiltinDeps) -> None:
        self._deps = deps
        web = deps.web
        self._reader = Reader(
            deps.sandbox, timeout_s=web.extract_timeout_s, memory_bytes=web.extract_memory_bytes
        )
        self.timeout_s = deps.http_timeout_s + web.extract_timeout_s + 10

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return transfer.assess_address(arguments["url"], self._deps.network, "fetches a page")

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        return Touched()  # its process sees no file

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        most = self._deps.web.max_page_bytes
        limit = min(max(_MIN_BYTES, arguments.get("max_bytes", most)), most)
        answer = await transfer.get(arguments["url"], self._deps, max_bytes=limit)
        if isinstance(answer, transfer.TransferFailure):
            return answer.result()
        kind = transfer.kind_of(answer.body, answer.kind)
        if kind == "application/pdf":
            url = answer.target.url
            told = f'{url} is a PDF: call pdf_extract with {{"source": "{url}"}}'
            return failed(told, mime=kind, untrusted_source=answer.target.host)
        text = None
        if transfer.is_readable(kind):
            text = await in_thread(lambda: transfer.decoded(answer.body, answer.charset))
        if text is None:
            return _no_text(answer, kind)
        if not transfer.is_page(kind):
            return await in_thread(functools.partial(_plain, answer, kind, text))
        job = {"kind": "page", "url": answer.target.url, "max_links": MAX_LINKS}
        reading = await self._reader.read(job, text.encode("utf-8", "replace"))
        return _page(answer, kind, reading)


def _no_text(answer: transfer.Response, kind: str) -> ToolResult:
    size = transfer.size_of(answer)
    if transfer.is_readable(kind):
        kind = f"it says {kind}, but holds binary data"
    return failed(
        f"{answer.target.url} is no text: {transfer.one_line(kind, 100)}, {size}",
        mime=transfer.one_line(kind, 100),
        untrusted_source=answer.target.host,
    )


def _page(answer: transfer.Response, kind: str, reading: Reading) -> ToolResult:
    """Tell what was read; a reading that a limit ended may have got that far."""
    texts = [each for each in reading.answers if isinstance(each.get("text"), str)]
    if not texts:
        problem = reading.problem or "nothing could be read"
        return failed(
            f"{answer.target.url}: {problem}. The tool http shows the page as it is.",
            untrusted_source=answer.target.host,
        )
    best = texts[-1]
    lines = []
    if title := transfer.one_line(str(reading.first("title") or ""), 200):
        lines.append(f"title: {title}")
    lines += [f"url: {answer.target.url}", ""]
    text = transfer.cleaned(best["text"]).strip()
    lines.append(text or "(no readable text; the page may be made by scripts, which are not run)")
    if best.get("length") != len(best["text"]):
        lines.append(f"[cut: the text has {best.get('length')} characters]")
    links = _links(reading.first("links"))
    if links:
        lines += ["", "links:", *links]
    return _found_told(answer, kind, "\n".join(lines), links=len(links))


def _links(found: object) -> list[str]:
    lines = []
    for each in found if isinstance(found, list) else []:
        if not (isinstance(each, list) and len(each) == 2):
            continue
        url, label = (
            transfer.one_line(str(each[0]), 2_048),
            transfer.one_line(str(each[1]), _LINK_CHARS),
        )
        lines.append(f"- {label}: {url}" if label else f"- {url}")
    return lines[:MAX_LINKS]


def _plain(answer: transfer.Response, kind: str, raw: str) -> ToolResult:
    text = transfer.cleaned(raw)
    shown = text[:MAX_CHARS] or "(empty)"
    if len(text) > MAX_CHARS:
        shown += f"\n[cut: the text has {len(text)} characters]"
    return _found_told(answer, kind, shown)


def _found_told(answer: transfer.Response, kind: str, text: str, **facts: Any) -> ToolResult:
    if answer.is_cut:
        text += f"\n[cut: only the first {len(answer.body)} bytes of the page were read]"
    return succeeded(
        text,
        status=answer.status,
        url=answer.target.url,
        mime=kind,
        bytes=len(answer.body),
        truncated=answer.is_cut,
        untrusted_source=answer.target.host,
        **facts,
    )


MAX_RESULTS = 20
_MAX_QUERY = 500
_MAX_PAGE_BYTES = 2_000_000
_MAX_STEPS = 4
_MAX_URL = 2_048
# Where each engine is asked, and nowhere else.
HOSTS = {
    "duckduckgo": ("html.duckduckgo.com",),
    "brave": ("search.brave.com",),
    "mojeek": ("www.mojeek.com",),
    "yahoo": ("search.yahoo.com",),
    "startpage": ("www.startpage.com",),
    "wikipedia": ("LANGUAGE.wikipedia.org",),
    "grokipedia": ("grokipedia.com",),
}
_HEADERS_TAKEN = frozenset({"cookie", "referer", "accept", "accept-language"})
_NO_RULES = NetworkRules()
_CAPTCHA = re.compile(
    r"captcha|anomaly-modal|unusual traffic|are you a (?:human|robot)|not a robot|"
    r"automated (?:queries|requests)|verify you are human|checking your browser",
    re.IGNORECASE,
)


class WebHit(msgspec.Struct, frozen=True, kw_only=True):
    """One result."""

    title: str
    url: str
    snippet: str


class Fetch(Protocol):
    """Sends one request of an engine; `Carrier.fetch` is one."""

    async def __call__(
        self, request: transfer.HttpRequest, *, max_bytes: int
    ) -> transfer.Response | transfer.TransferFailure:
        """Return what came back; raises ClawError when the address is refused."""


class WebSearchTool(Tool):
    """Searches the web.

    Args:
        deps: what it needs.
        fetch: how engines are asked; a `Carrier` if None.
    """

    name: ClassVar[str] = "web_search"
    short: ClassVar[str] = "Search the web; shows titles, addresses and snippets."
    description: ClassVar[str] = (
        "Asks search engines one after the other until there are enough results, and answers each "
        f"as title, address and snippet. `max_results` is at most {MAX_RESULTS}. web_fetch reads "
        "a page that was found."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "query": {"type": "string", "description": "What to look for."},
            "max_results": {"type": "integer", "description": "How many results."},
        },
        "query",
    )
    starts_process: ClassVar[bool] = True
    # The query goes to third parties.
    outward: ClassVar[bool | None] = True

    def __init__(self, deps: BuiltinDeps, fetch: Fetch | None = None) -> None:
        web = deps.web
        limit_s = min(deps.http_timeout_s, web.search_timeout_s)
        self._web = web
        self._fetch = fetch or transfer.Carrier(deps.network, deps.resolve, timeout_s=limit_s).fetch
        self._reader = Reader(
            deps.sandbox, timeout_s=web.extract_timeout_s, memory_bytes=web.extract_memory_bytes
        )
        self.timeout_s = web.search_timeout_s + 10

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="asks search engines", outward=True)

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        return Touched()  # its process sees no file

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        query = transfer.one_line(arguments["query"], _MAX_QUERY)
        if not query:
            raise InvalidRequestError(
                "the query is empty", hint='Write query = "weather in Paris tomorrow".'
            )
        if not self._web.search_backends:
            return failed("the owner switched searching off (search_backends in [web] is empty)")
        wanted = min(max(1, arguments.get("max_results", self._web.max_results)), MAX_RESULTS)
        search = _Search(wanted)
        try:
            async with asyncio.timeout(self._web.search_timeout_s):
                for backend in self._web.search_backends:
                    search.take(backend, await self._ask(backend, query, search))
                    if search.is_done:
                        break
        except TimeoutError:
            search.problems.append(f"the time limit of {self._web.search_timeout_s:g} s was met")
        return search.result()

    async def _ask(self, backend: str, query: str, search: "_Search") -> list[WebHit] | str:
        """Ask one engine; return what it found, or why it did not."""
        web = self._web
        job = {
            "kind": "search",
            "backend": backend,
            "query": query,
            "region": web.region,
            "safesearch": web.safesearch,
        }
        answers: list[dict[str, Any]] = []
        for _ in range(_MAX_STEPS):
            given = await in_thread(lambda: json.dumps(answers).encode())
            reading = await self._reader.read(job, given)
            raw = reading.first("request")
            if raw is None:
                problem = str(reading.first("error") or "") or reading.problem
                results = reading.first("results")
                return await in_thread(functools.partial(_found, results, answers, problem))
            try:
                request = engine_request(raw, backend, self._web.region, web.user_agent)
                answer = await self._fetch(request, max_bytes=_MAX_PAGE_BYTES)
            except ClawError as error:
                return error.message
            if isinstance(answer, transfer.TransferFailure):
                search.heard += [answer.heard] if answer.heard else []
                return answer.message
            search.heard.append(answer.target.host)
            answers.append(await in_thread(functools.partial(_answer, answer)))
        return "it wants to be asked too often"


class _Search:
    """What one search has come to."""

    def __init__(self, wanted: int) -> None:
        self.problems: list[str] = []
        self.heard: list[str] = []
        self._wanted = wanted
        self._hits: dict[str, WebHit] = {}
        self._has_answer = False

    @property
    def is_done(self) -> bool:
        return len(self._hits) >= self._wanted

    def take(self, backend: str, found: list[WebHit] | str) -> None:
        """Add what an engine found, or why it did not."""
        if isinstance(found, str):
            self.problems.append(f"{backend}: {transfer.one_line(found, 300)}")
            return
        self._has_answer = True
        for hit in found:
            self._hits.setdefault(_identity(hit.url), hit)

    def result(self) -> ToolResult:
        """Tell it."""
        facts: dict[str, Any] = {"problems": self.problems, "results": len(self._hits)}
        if self.heard:
            facts["untrusted_sources"] = list(dict.fromkeys(self.heard))
        hits = list(self._hits.values())[: self._wanted]
        if hits:
            lines = []
            for number, hit in enumerate(hits, 1):
                lines.append(f"{number}. {hit.title or hit.url}\n   {hit.url}")
                lines += [f"   {hit.snippet}"] if hit.snippet else []
            return succeeded("\n".join(lines), **facts)
        if self._has_answer:
            return succeeded("(no results)", **facts)
        why = "; ".join(self.problems) or "none is configured"
        if self.problems and all(UNRESOLVED in each for each in self.problems):
            why = "none of their names can be resolved, so there seems to be no network"
        return failed(f"no search engine answered: {why}. Try again later.", **facts)


def engine_request(raw: object, backend: str, region: str, user_agent: str) -> transfer.HttpRequest:
    """Return the request that an engine's parser wants, where it may be sent.

    Raises:
        InvalidRequestError: it is none.
        ForbiddenError: it leads elsewhere than to this engine.
    """
    match raw:
        case {
            "method": "GET" | "POST" as method,
            "url": str(url),
            "headers": dict(headers),
            "body": str(body),
        }:
            pass
        case _:
            raise InvalidRequestError(f"the parser of {backend} wants no request")
    # The rules of the owner may open addresses of this machine; an engine is at none of them.
    target = judge_url(url, _NO_RULES)
    language = region.rpartition("-")[2]
    hosts = tuple(host.replace("LANGUAGE", language) for host in HOSTS[backend])
    if target.scheme != "https" or target.port != 443 or target.host not in hosts:
        raise ForbiddenError(f"the parser of {backend} wants to ask {target.host}:{target.port}")
    kept = {
        str(name): re.sub(r"[^ -~]", "", str(value))
        for name, value in headers.items()
        if str(name).lower() in _HEADERS_TAKEN
    }
    kept |= {"User-Agent": user_agent, "Accept": "text/html,application/json;q=0.9,*/*;q=0.5"}
    kept.setdefault("Accept-Language", f"{language},en;q=0.5")
    if method == "POST":
        kept["Content-Type"] = "application/x-www-form-urlencoded"
    data = body.encode() if method == "POST" else None
    return transfer.HttpRequest(method=method, target=target, headers=kept, body=data, hosts=hosts)


def _answer(response: transfer.Response) -> dict[str, Any]:
    """Return a response as the reader takes it."""
    text = transfer.decoded(response.body, response.charset) or ""
    return {"status": response.status, "text": text}


def _found(results: object, answers: list[dict[str, Any]], problem: str) -> list[WebHit] | str:
    """Return the results, or what the engine's last page says instead."""
    hits = [hit for each in (results if isinstance(results, list) else []) if (hit := _hit(each))]
    if hits:
        return hits
    if not answers:
        return f"it could not be asked ({problem})"
    status, text = answers[-1]["status"], answers[-1]["text"]
    if status == 429:
        return "it says that it is asked too often (HTTP 429)"
    if status in {202, 403, 503} or _CAPTCHA.search(text):
        return f"it wants a person to show that they are no machine (HTTP {status})"
    if status != 200:
        return f"it answered HTTP {status}"
    return f"its page could not be read ({problem})" if problem else []


def _hit(raw: object) -> WebHit | None:
    """Return a result that leads somewhere on the web."""
    match raw:
        case {"title": str(title), "url": str(url), "snippet": str(snippet)}:
            pass
        case _:
            return None
    url = url.strip().replace(" ", "%20")
    try:
        parts = urlsplit(url)
        is_web = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        return None
    if not is_web or len(url) > _MAX_URL or re.search(r"[\x00-\x20\x7f-\x9f\u2000-\u200f]", url):
        return None
    return WebHit(
        title=transfer.one_line(title, 200), url=url, snippet=transfer.one_line(snippet, 400)
    )


def _identity(url: str) -> str:
    """Return what two addresses of the same page have in common."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removeprefix("www.")
    return f"{host}{parts.path.rstrip('/')}?{parts.query}"
