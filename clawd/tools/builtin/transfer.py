"""Transfers over HTTP, which the tools of the web share, and what their bytes are as text.

Every hop is judged, resolved, judged again, pinned, and bounded. A response is read up to a limit,
counted after decompression, and the rest is left unread; a redirect is a new URL that goes through
every check again.
"""

import asyncio
import codecs
import re
import unicodedata
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import yarl

from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, ProviderError
from clawd.security.network import NetworkRules, Resolve, Target, judge_url, resolve_and_judge
from clawd.security.risk import Assessment, Risk
from clawd.tools.base import ToolResult, failed
from clawd.tools.builtin.deps import BuiltinDeps

MAX_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Browsers take these for another host, RFC 3986 for a path.
_AMBIGUOUS = re.compile(r"[\x00-\x1f\x7f\\]|^ *///|^ *https?:(?!//[^/])", re.IGNORECASE)
_KEPT_ELSEWHERE = frozenset({"accept", "accept-language", "user-agent"})
_CODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
_CHUNK_BYTES = 1 << 16
_STEP_BYTES = 1 << 18
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
_ACCEPT = "text/html,application/xhtml+xml,application/pdf,text/plain,application/json,*/*;q=0.5"
# What browsers know, by its usual labels. Python knows codecs that are none, and slow ones.
_CHARSETS = re.compile(
    r"utf-?8|utf-?16(-?[lb]e)?|(us-)?ascii|iso-?8859-?\d{1,2}|latin-?\d|(windows|cp)-?125\d|koi8-[ru]"
    r"|shift[_-]jis|sjis|windows-31j|euc-(jp|kr)|iso-2022-jp|gb2312|gbk|gb18030|big5(-hkscs)?"
    r"|tis-620|windows-874|macintosh|ibm866|cp866"
)
# The web means these by the others.
_MEANT = {"windows-31j": "cp932", "windows-874": "cp874", "macintosh": "mac-roman"}
_LATIN = re.compile(r"iso-?8859-?1|latin-?1|(us-)?ascii")
# Every repetition here is bounded or ends where it can: no text makes them try for long.
_META = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]{0,300}?(?:charset|encoding)\s{0,9}=\s{0,9}["']?\s{0,9}([\w:.-]{2,40})""",
    re.IGNORECASE,
)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SNIFFED_BYTES = 8192
_META_BYTES = 4096
_STRANGE_SHARE = 0.05
_MAGIC = (
    (b"%PDF-", "application/pdf"),
    (b"\x89PNG", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
    (b"\x7fELF", "application/x-executable"),
    (b"SQLite format 3\0", "application/vnd.sqlite3"),
    (b"OggS", "application/ogg"),
    (b"ID3", "audio/mpeg"),
)
_HTML_START = re.compile(
    rb"\s*(?:<!--(?:[^-]|-(?!->))*-->\s*)*<(?:!doctype\s+html|html|head|body|title)\b",
    re.IGNORECASE,
)
# Written to be unseen by people and read by models: tags, direction, variation, joiners' kin.
_UNSEEN = re.compile(
    "[\u00ad\u061c\u180e\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e0fff\U0001d173-\U0001d17a]"
)
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
if TYPE_CHECKING:
    import aiohttp


class HttpRequest(msgspec.Struct, frozen=True, kw_only=True):
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


class TransferFailure(msgspec.Struct, frozen=True, kw_only=True):
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

    async def fetch(self, request: HttpRequest, *, max_bytes: int) -> Response | TransferFailure:
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
            return TransferFailure(message=message, heard=host if heard else "")
        except ClawError as error:
            if not heard and not isinstance(error, ProviderError):
                raise
            # Where a redirect leads is the other side's text.
            told = error.message + (f" {error.hint}" if error.hint else "")
            return TransferFailure(message=told, heard=host if heard else "")
        except (aiohttp.ClientError, OSError, ValueError, zlib.error) as error:
            why = str(error) or type(error).__name__
            # What was received and made no sense may be quoted in the error.
            is_unheard = isinstance(error, aiohttp.ClientConnectorError) and not heard
            message = f"{host} could not be asked: {why}"
            return TransferFailure(message=message, heard="" if is_unheard else host)

    async def _follow(
        self, request: HttpRequest, max_bytes: int, heard: list[Response]
    ) -> Response | TransferFailure:
        """Send it and follow redirects; every hop is judged as if it had been asked for."""
        for _ in range(MAX_REDIRECTS + 1):
            response = await self._send(request, max_bytes)
            heard.append(response)
            location = response.headers.get("location", "")
            if response.status not in _REDIRECTS or not location or request.method == "POST":
                return response
            request = redirected(request, location, self._rules)
        url, host = request.target.url, request.target.host
        return TransferFailure(
            message=f"more than {MAX_REDIRECTS} redirects, the last to {url}", heard=host
        )

    async def _send(self, request: HttpRequest, max_bytes: int) -> Response:
        from clawd.security.pinned_http import pinned_session

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


def redirected(request: HttpRequest, location: str, rules: NetworkRules) -> HttpRequest:
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


def assess_address(url: str, rules: NetworkRules, verb: str) -> Assessment:
    """Say how risky it is to get what is at an address, by its text alone."""
    try:
        target = judge_url(url, rules)
    except ClawError as error:
        return Assessment(risk="high", blocked=error.message, allow_hint=error.hint)
    trusted = rules.trusts(target.host)
    hint = "" if trusted else f'allowed_domains = ["{target.host}"] in [security]'
    reason = f"{verb} from {target.host}"
    risk: Risk = "low" if trusted else "medium"
    # A host's name and a path are data too, wherever they lead.
    return Assessment(risk=risk, reason=reason, allow_hint=hint, outward=True)


async def get(url: str, deps: BuiltinDeps, *, max_bytes: int) -> Response | TransferFailure:
    """Get what is at an address; a status that is no success is a trouble.

    Raises:
        ClawError: the address is refused.
    """
    headers = {"User-Agent": deps.web.user_agent, "Accept": _ACCEPT}
    request = HttpRequest(target=judge_url(url, deps.network), headers=headers)
    carrier = Carrier(deps.network, deps.resolve, timeout_s=deps.http_timeout_s)
    answer = await carrier.fetch(request, max_bytes=max_bytes)
    if isinstance(answer, TransferFailure) or 200 <= answer.status < 300:
        return answer
    said = f"HTTP {answer.status} {answer.reason}".rstrip()
    return TransferFailure(message=f"{answer.target.url} answered {said}", heard=answer.target.host)


def size_of(response: Response) -> str:
    """Return how large a body is, in words, as far as it is known."""
    if not response.is_cut:
        return f"{len(response.body)} bytes"
    told = response.headers.get("content-length", "")
    is_known = told.isascii() and told.isdigit() and len(told) < 20
    if is_known and not response.headers.get("content-encoding"):
        return f"{int(told)} bytes"
    return f"over {len(response.body)} bytes"


def kind_of(body: bytes, claimed: str) -> str:
    """Return what a body is as a media type: by its beginning where that is certain, else as told.

    `application/octet-stream` is what is no text and tells nothing.
    """
    for start, kind in _MAGIC:
        if body.startswith(start):
            return kind
    if b"%PDF-" in body[:1024] and claimed in {"", "application/pdf", "application/octet-stream"}:
        return "application/pdf"
    if claimed and claimed != "application/octet-stream":
        return claimed
    if _HTML_START.match(body[:_META_BYTES]):
        return "text/html"
    return "text/plain" if not _is_binary(body, "") else "application/octet-stream"


def is_readable(kind: str) -> bool:
    """Whether a media type is one of text."""
    return (
        kind.startswith("text/")
        or kind.endswith(("+xml", "+json", "/json", "/xml", "/javascript", "/x-ndjson", "/yaml"))
        or kind in {"application/x-yaml", "application/toml", "application/sql"}
    )


def is_page(kind: str) -> bool:
    """Whether a media type is one of HTML."""
    return kind in {"text/html", "application/xhtml+xml"}


def decoded(body: bytes, declared: str) -> str | None:
    """Return a body as text, or None where it is no text whatever it says.

    The order: a byte order mark, valid UTF-8 beyond ASCII (which nothing else looks like), what the
    header declares, what the page declares, UTF-8. One that does not fit is passed over.
    """
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, "replace")
    written = _META.search(body[:_META_BYTES])
    inside = written[1].decode("ascii", "replace") if written else ""
    candidates = [name for name in (_codec(declared), _codec(inside)) if name]
    wide = any(name.startswith("utf-16") for name in candidates)
    if _is_binary(body, "utf-16" if wide else ""):
        return None
    if not body.isascii() and not wide:
        candidates.insert(0, "utf-8")
    # The last character may be cut by the limit of size.
    for name in candidates:
        try:
            return codecs.getincrementaldecoder(name)("strict").decode(body)
        except (UnicodeDecodeError, LookupError):
            continue
    fallback = next((name for name in candidates if name != "utf-8"), "")
    return body.decode(fallback or ("cp1252" if not body.isascii() else "utf-8"), "replace")


def cleaned(text: str) -> str:
    """Return text without control characters and what is there to be unseen; lines stay lines."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return _UNSEEN.sub("", _CONTROL.sub("", text))


def one_line(text: str, limit: int) -> str:
    """Return text on one line of at most `limit` characters."""
    line = " ".join(cleaned(unicodedata.normalize("NFC", text[: limit * 20])).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def _codec(label: str) -> str:
    """Return the codec that a label means; empty for one that is not known here."""
    name = label.strip().strip("\"'").lower()
    if _LATIN.fullmatch(name):
        return "cp1252"
    if not _CHARSETS.fullmatch(name):
        return ""
    name = _MEANT.get(name, name)
    try:
        codecs.lookup(name)
    except LookupError:
        return ""
    return name


def _is_binary(body: bytes, charset: str) -> bool:
    head = body[:_SNIFFED_BYTES]
    if not head or charset:
        return False
    # Escape is a part of ISO-2022-JP; a few others are dirt that pages of people hold.
    strange = sum(head.count(byte) for byte in _STRANGE)
    return strange > 1 and strange > len(head) * _STRANGE_SHARE


_STRANGE = tuple(byte for byte in range(32) if byte not in {9, 10, 12, 13, 27})
