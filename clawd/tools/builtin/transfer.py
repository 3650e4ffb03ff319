"""One transfer over HTTP: every hop judged, resolved, judged again, pinned, and bounded.

What the tools of the web share. A response is read up to a limit, counted after decompression, and
the rest is left unread; a redirect is a new URL that goes through every check again.
"""

import asyncio
import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import yarl

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, ProviderError
from clawd.security.network import (
    NetworkRules,
    Resolve,
    Target,
    judge_url,
    resolve_and_judge,
)
from clawd.tools.base import ToolResult, failed

if TYPE_CHECKING:
    import aiohttp

MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Browsers take these for another host, RFC 3986 for a path.
_AMBIGUOUS = re.compile(r"[\x00-\x1f\x7f\\]|^ *///|^ *https?:(?!//[^/])", re.IGNORECASE)
_KEPT_ELSEWHERE = frozenset({"accept", "accept-language", "user-agent"})
_CODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
_CHUNK_BYTES = 1 << 16
_STEP_BYTES = 1 << 18
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What to send.

    Attributes:
        method: GET, HEAD or POST; a POST is not redirected.
        target: where to, judged.
        headers: all but those that belong to the connection.
        body: what a POST sends.
        hosts: where redirects must stay; empty for anywhere that the rules allow.
    """

    method: str = "GET"
    target: Target
    headers: dict[str, str]
    body: bytes | None = None
    hosts: tuple[str, ...] = ()


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What came back.

    Attributes:
        target: who answered; not who was asked first, after redirects.
        status: of HTTP.
        reason: the words behind it.
        headers: their names in lower case.
        charset: as the content type names it; may be empty or nonsense.
        body: decompressed.
        is_cut: whether there was more of it than was read.
    """

    target: Target
    status: int
    reason: str
    headers: dict[str, str]
    charset: str
    body: bytes
    is_cut: bool

    @property
    def kind(self) -> str:
        """The media type that it claims, without parameters; empty when it claims none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no response; `heard` names who answered something, and may be quoted in it."""

    message: str
    heard: str = ""

    def result(self) -> ToolResult:
        """Return it as the result of a tool."""
        return failed(self.message, **({"untrusted_source": self.heard} if self.heard else {}))


class Carrier:
    """Carries requests out.

    Args:
        rules: where they may lead.
        resolve: gives the addresses of a host; the system's resolver if None.
        timeout_s: how long a transfer may take, redirects included.
    """

    def __init__(self, rules: NetworkRules, resolve: Resolve | None, *, timeout_s: float) -> None:
        self._rules = rules
        self._resolve = resolve
        self._timeout_s = timeout_s

    async def fetch(self, request: Request, *, max_bytes: int) -> Response | Trouble:
        """Send a request, follow its redirects and read at most `max_bytes` of the body.

        Raises:
            ClawError: the address asked for is refused, and nobody was connected to.
        """
        import aiohttp

        host = request.target.host
        heard: list[Response] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._follow(request, max_bytes, heard)
        except TimeoutError:
            message = f"{host} took over {self._timeout_s:g} s"
            return Trouble(message=message, heard=host if heard else "")
        except ClawError as error:
            if not heard and not isinstance(error, ProviderError):
                raise
            # Where a redirect leads is the other side's text.
            told = error.message + (f" {error.hint}" if error.hint else "")
            return Trouble(message=told, heard=host if heard else "")
        except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
            why = str(error) or type(error).__name__
            # What was received and made no sense may be quoted in the error.
            is_unheard = isinstance(error, aiohttp.ClientConnectorError) and not heard
            message = f"{host} could not be asked: {why}"
            return Trouble(message=message, heard="" if is_unheard else host)

    async def _follow(
        self, request: Request, max_bytes: int, heard: list[Response]
    ) -> Response | Trouble:
        """Send it and follow redirects; every hop is judged as if it had been asked for."""
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send(request, max_bytes)
            heard.append(response)
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not location or request.method == "POST":
                return response
            request = redirected(request, location, self._rules)
        url, host = request.target.url, request.target.host
        return Trouble(
            message=f"more than {MAX_REDIRECTS} redirects, the last to {url}", heard=host
        )

    async def _send(self, request: Request, max_bytes: int) -> Response:
        from clawd.security.pinned import pinned_session

        url = request.target.url
        pinned = await resolve_and_judge(url, self._rules, resolve=self._resolve)
        headers = dict(request.headers)
        if "accept-encoding" not in {name.lower() for name in headers}:
            headers["Accept-Encoding"] = "gzip, deflate"
        async with (
            pinned_session(pinned, timeout_s=self._timeout_s) as session,
            session.request(
                request.method,
                yarl.URL(url, encoded=True),
                headers=headers,
                data=request.body,
                allow_redirects=False,
            ) as answer,
        ):
            body, is_cut = await _limited_body(answer, max_bytes)
            return Response(
                target=request.target,
                status=answer.status,
                reason=answer.reason or "",
                headers={name.lower(): value for name, value in answer.headers.items()},
                charset=_charset(answer),
                body=body,
                is_cut=is_cut,
            )


def redirected(request: Request, location: str, rules: NetworkRules) -> Request:
    """Return the request that a redirect leads to.

    Raises:
        InvalidRequestError: it leads to no URL, or not clearly to one.
        ForbiddenError: it leads where this request may not go.
    """
    origin = request.target
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
    if request.hosts and target.host not in request.hosts:
        raise ForbiddenError(f"{origin.host} redirects to {target.url}, which is another's")
    is_same = (origin.scheme, origin.host, origin.port) == (
        target.scheme, target.host, target.port
    )  # fmt: skip
    headers = request.headers if is_same else _without_secrets(request.headers)
    return msgspec.structs.replace(request, target=target, headers=headers)


def _without_secrets(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers that another origin may see."""
    return {name: value for name, value in headers.items() if name.lower() in _KEPT_ELSEWHERE}


def _charset(answer: "aiohttp.ClientResponse") -> str:
    try:
        return answer.charset or ""
    except ValueError:  # a content type that cannot be read names none
        return ""


async def _limited_body(answer: "aiohttp.ClientResponse", limit: int) -> tuple[bytes, bool]:
    """Read at most `limit` bytes; the connection is closed with the rest unread."""
    unpacker = _Unpacker(answer.headers.get("Content-Encoding", "").strip().lower())
    parts: list[bytes] = []
    room, carried = limit, 0
    async for packed in answer.content.iter_chunked(_CHUNK_BYTES):
        carried += len(packed)
        for part in unpacker.feed(packed):
            parts.append(part[:room])
            room -= len(part)
            if room < 0:
                answer.close()
                return b"".join(parts), True
            await asyncio.sleep(0)
        # What unpacks to nothing, for ever, is limited as well.
        if carried > limit:
            answer.close()
            return b"".join(parts), True
    return b"".join(parts), False


class _Unpacker:
    """Undoes a content coding in steps of bounded size."""

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._engine = zlib.decompressobj(_GZIP) if "gzip" in coding else None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield what the next bytes of the stream unpack to.

        Raises:
            ValueError: it is in a coding that is not known here.
            zlib.error: it is broken.
        """
        if self._coding not in _CODINGS:
            raise ValueError(f"it answers in the unknown coding {self._coding[:50]!r}")
        if self._coding in {"", "identity"}:
            yield data
            return
        if self._engine is None:
            # The standard means zlib's form; servers that send the bare one are common.
            self._engine = zlib.decompressobj(_ZLIB if data[0] & 15 == 8 else _RAW)
        while data:
            yield self._engine.decompress(data, _STEP_BYTES)
            data = self._engine.unconsumed_tail
            if self._engine.eof:
                data = self._engine.unused_data
                if self._coding == "deflate":
                    return
                self._engine = zlib.decompressobj(_GZIP)
