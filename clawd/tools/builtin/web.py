"""The tools of the web.

The tool `http`: one request to a public address, or to one that the owner allowed.

The tool `web_fetch`: the readable text and the links of a page.
"""

import contextlib
import functools
import re
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, InvalidRequestError
from clawd.security.network import Target, judge_url
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
from clawd.tools.builtin.transfer import Carrier, HttpRequest, Response, TransferFailure, decoded
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
        carrier = Carrier(deps.network, deps.resolve, timeout_s=deps.http_timeout_s)
        answer = await carrier.fetch(request, max_bytes=deps.max_response_bytes)
        if isinstance(answer, TransferFailure):
            return answer.result()
        return await in_thread(lambda: _told(answer))


def _request(arguments: Arguments, target: Target) -> HttpRequest:
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
    return HttpRequest(method=method, target=target, headers=headers, body=data)


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


def _told(response: Response) -> ToolResult:
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


def _text(response: Response, kind: str) -> str | None:
    if kind.partition("/")[0] in {"image", "audio", "video", "font"} and kind != "image/svg+xml":
        return None
    return decoded(response.body, response.charset)


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
