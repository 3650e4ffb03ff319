"""The tool `http`: one request to a public address, or to one that the owner allowed."""

import asyncio
import codecs
import contextlib
import re
from typing import Any, ClassVar

import aiohttp
import msgspec
import yarl
from typing_extensions import override

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, ProviderError
from clawd.security.network import Target, judge_url, pinned_session, resolve_and_judge
from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.builtin.file_text import is_text

MAX_REDIRECTS = 5
_MAX_HEADERS = 50
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
# Browsers take these for another host, RFC 3986 for a path.
_AMBIGUOUS = re.compile(r"[\x00-\x1f\x7f\\]|^ *///|^ *https?:(?!//[^/])", re.IGNORECASE)
_OWN_HEADERS = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade"}
    | {"proxy-authorization", "proxy-connection", "expect", "keep-alive"}
)
_SHOWN_HEADERS = ("content-type", "content-length", "last-modified", "location", "retry-after")


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    target: Target
    headers: dict[str, str]
    body: bytes | None


class _Response(msgspec.Struct, frozen=True, kw_only=True):
    status: int
    reason: str
    headers: dict[str, str]
    charset: str
    body: bytes
    is_cut: bool


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
        if method == "POST":
            risk = Assessment(risk="medium" if trusted else "high", reason=reason, allow_hint=hint)
        else:
            risk = Assessment(risk="low" if trusted else "medium", reason=reason, allow_hint=hint)
        return risk

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        request = _request(arguments, judge_url(arguments["url"], self._deps.network))
        host = request.target.host
        heard: list[_Response] = []
        try:
            async with asyncio.timeout(self._deps.http_timeout_s):
                return await self._follow(request, heard)
        except TimeoutError:
            return failed(f"{host} took over {self._deps.http_timeout_s:g} s")
        except ClawError as error:
            if not heard and not isinstance(error, ProviderError):
                raise
            # Where a redirect leads is the other side's text.
            told = error.message + (f" {error.hint}" if error.hint else "")
            return failed(told, **({"untrusted_source": host} if heard else {}))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            why = str(error) or type(error).__name__
            # What was received and made no sense may be quoted in the error.
            is_unheard = isinstance(error, aiohttp.ClientConnectorError) and not heard
            facts = {} if is_unheard else {"untrusted_source": host}
            return failed(f"{host} could not be asked: {why}", **facts)

    async def _follow(self, request: _Request, heard: list[_Response]) -> ToolResult:
        """Send it and follow redirects; every hop is judged as if it had been asked for."""
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send(request)
            heard.append(response)
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not location or request.method == "POST":
                return _told(request, response)
            request = self._redirected(request, location)
        url, host = request.target.url, request.target.host
        return failed(
            f"more than {MAX_REDIRECTS} redirects, the last to {url}", untrusted_source=host
        )

    def _redirected(self, request: _Request, location: str) -> _Request:
        rules, origin = self._deps.network, request.target
        if _AMBIGUOUS.search(location):
            raise InvalidRequestError(
                f"{origin.host} redirects to {location[:200]!r}, which leads elsewhere depending "
                "on who reads it"
            )
        try:
            url = yarl.URL(origin.url).join(yarl.URL(location))
        except (ValueError, LookupError) as error:
            raise InvalidRequestError(f"{origin.host} redirects to no URL: {error}") from error
        target = judge_url(str(url), rules)
        if origin.scheme == "https" and target.scheme == "http":
            raise ForbiddenError(f"{origin.host} redirects from https to {target.url}")
        if rules.trusts(origin.host) and not rules.trusts(target.host):
            raise ForbiddenError(
                f"{origin.host} redirects to {target.url}, which is not in allowed_domains",
                hint="Ask for that URL itself.",
            )
        is_same = (origin.scheme, origin.host, origin.port) == (
            target.scheme, target.host, target.port
        )  # fmt: skip
        headers = request.headers if is_same else _without_secrets(request.headers)
        return msgspec.structs.replace(request, target=target, headers=headers)

    async def _send(self, request: _Request) -> _Response:
        deps, url = self._deps, request.target.url
        pinned = await resolve_and_judge(url, deps.network, resolve=deps.resolve)
        async with (
            pinned_session(pinned, timeout_s=deps.http_timeout_s) as session,
            session.request(
                request.method,
                yarl.URL(url, encoded=True),
                headers=request.headers,
                data=request.body,
                allow_redirects=False,
            ) as answer,
        ):
            body, is_cut = await _limited_body(answer, deps.max_response_bytes)
            return _Response(
                status=answer.status,
                reason=answer.reason or "",
                headers={name.lower(): value for name, value in answer.headers.items()},
                charset=answer.charset or "utf-8",
                body=body,
                is_cut=is_cut,
            )


def _request(arguments: Arguments, target: Target) -> _Request:
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
    return _Request(method=method, target=target, headers=headers, body=data)


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


def _without_secrets(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers that another origin may see."""
    kept = {"accept", "accept-language", "user-agent"}
    return {name: value for name, value in headers.items() if name.lower() in kept}


def _is_json(text: str) -> bool:
    with contextlib.suppress(msgspec.DecodeError):
        return isinstance(msgspec.json.decode(text), (dict, list))
    return False


async def _limited_body(answer: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """Read at most `limit` bytes; the connection is closed with the rest unread."""
    parts: list[bytes] = []
    room = limit
    async for part in answer.content.iter_chunked(1 << 16):
        parts.append(part[:room])
        room -= len(part)
        if room < 0:
            answer.close()
            return b"".join(parts), True
    return b"".join(parts), False


def _told(request: _Request, response: _Response) -> ToolResult:
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
        url=request.target.url,
        bytes=len(response.body),
        truncated=response.is_cut,
        untrusted_source=request.target.host,
    )


def _text(response: _Response, kind: str) -> str | None:
    try:
        codecs.lookup(response.charset)
    except LookupError:
        return None
    is_unicode = response.charset.lower().replace("_", "-") in {"utf-8", "utf8", "ascii"}
    if is_unicode and not is_text(response.body[:8192]):
        return None
    if kind.partition("/")[0] in {"image", "audio", "video", "font"} and kind != "image/svg+xml":
        return None
    return response.body.decode(response.charset, "replace")
