"""A web server as strangers run them: raw bytes on a socket, broken, endless, lying or slow."""

import asyncio
import contextlib
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import unquote

from clawd.security.network import NetworkRules
from tests.tools.builtin.conftest import Bench
from tests.tools.builtin.tiny_pdf import tiny_pdf

MIB = 1 << 20
ARTICLE = (
    "<p>A paragraph of the article, which is long enough to be taken for the main text of it, "
    "as every reader of pages would say.</p>"
)
Write = Callable[[bytes], Awaitable[None]]


def page(body: str, *, title: str = "The title", head: str = "") -> bytes:
    return f"<html><head>{head}<title>{title}</title></head><body>{body}</body></html>".encode()


PAGES: dict[str, tuple[str, bytes]] = {
    "/article": (
        "text/html; charset=utf-8",
        page(
            "<nav><a href='/home'>Home</a></nav><article><h1>Wind and weather</h1>"
            + ARTICLE
            + "<p>See <a href='more.html?x=1#y'>the other page</a> and "
            "<a href='https://other.example/'>a friend</a>, not "
            "<a href='javascript:alert(1)'>this</a> or <a href='#top'>that</a>.</p>"
            "</article><script>var hidden = 'in a script';</script><style>p{}</style>",
            title="Wind &amp; weather",
        ),
    ),
    "/lies-utf8": ("text/html; charset=utf-8", page("<p>\u00fcbung</p>").decode().encode("cp1252")),
    "/lies-latin": ("text/html; charset=iso-8859-1", page("<p>\u00fcbung</p>")),
    "/no-charset": (
        "text/html",
        page("<p>\u043f\u0440\u0438\u0432\u0435\u0442</p>", head="<meta charset=koi8-r>")
        .decode()
        .encode("koi8-r"),
    ),
    "/odd-charset": ("text/html; charset=unicode_escape", page("<p>\u00fcbung \\x41</p>")),
    "/unknown-charset": ("text/html; charset=klingon", page("<p>\u00fcbung</p>")),
    "/utf16": ("text/html", b"\xff\xfe" + page("<p>\u00fcbung</p>").decode().encode("utf-16-le")),
    "/nul": ("text/html", page("<p>with a \0NUL</p>" + ARTICLE)),
    "/binary": ("text/html; charset=utf-8", b"<html>" + bytes(range(256)) * 40),
    "/png": ("text/html", b"\x89PNG\r\n\x1a\n" + bytes(100)),
    "/zip": ("application/zip", b"PK\x03\x04" + bytes(100)),
    "/json": ("application/json", b'{"a": [1, 2]}'),
    "/plain": ("text/plain", b"one\r\ntwo\x1b[31m\x00"),
    "/no-type": ("", page("<p>typed by nobody</p>")),
    "/no-type-binary": ("", bytes(range(256)) * 10),
    "/script-only": ("text/html", page("<div id=root></div><script>render('all of it')</script>")),
    "/empty": ("text/html", b""),
    "/deep": ("text/html", page("<div>" * 10_000 + "<p>at the bottom</p>" + "</div>" * 10_000)),
    "/unclosed": ("text/html", page("<b><i><div>" * 50_000 + "the end of it")),
    "/angles": ("text/html", page("<" * 500_000)),
    "/attributes": ("text/html", page("<p " + "a=b " * 200_000 + ">some text</p>")),
    "/links": ("text/html", page("".join(f"<a href=/{n}>link {n}</a> " for n in range(5_000)))),
    "/unseen": ("text/html", page("<p>visible\u202e\U000e0041\u200b text</p>" + ARTICLE)),
    "/pdf": ("application/pdf", tiny_pdf(["first page", "second page"])),
    "/pdf-as-page": ("text/html", tiny_pdf(["first page"])),
}  # fmt: skip


class Site:
    """The server and what happened.

    Attributes:
        seen: the paths that were asked for, in order.
        sent: bytes of bodies that were written to the socket before it was closed.
    """

    def __init__(self) -> None:
        self.port = 0
        self.seen: list[str] = []
        self.sent = 0
        self.closed = asyncio.Event()

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()
            await asyncio.sleep(0)  # who has heard enough hangs up here
            self.sent += len(data)

        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            self.seen.append(path)
            await self._answer(path, write)
        writer.close()
        self.closed.set()

    async def _answer(self, path: str, write: Write) -> None:
        name, _, query = path.partition("?")
        if name in PAGES:
            kind, body = PAGES[name]
            typed = f"Content-Type: {kind}\r\n" if kind else ""
            await write(f"HTTP/1.1 200 OK\r\n{typed}Content-Length: {len(body)}\r\n\r\n".encode())
            await write(body)
        elif name in _STREAMS:
            await _STREAMS[name](write)
        elif name == "/to":
            await write(_found(unquote(query)))
        elif name == "/ring":
            await write(_found(f"/ring?{int(query or 0) + 1}"))
        else:
            await write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone")


def _found(to: str) -> bytes:
    return f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


def _head(more: str = "", kind: str = "text/html") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{more}\r\n".encode()


async def _large(write: Write) -> None:
    await write(_head(f"Content-Length: {100 * MIB}\r\n"))
    for _ in range(100):
        await write(b"<p>more</p>" * (MIB // 11) + b" " * (MIB % 11))


async def _endless(write: Write) -> None:
    await write(_head())
    while True:
        await write(b"<p>again</p>" * 5_000)


async def _endless_pdf(write: Write) -> None:
    await write(_head(kind="application/pdf") + b"%PDF-1.7\n")
    while True:
        await write(b"0" * 65_536)


async def _gzip_bomb(write: Write) -> None:
    await write(_head("Content-Encoding: gzip\r\n"))
    engine = zlib.compressobj(9, zlib.DEFLATED, 31)
    for _ in range(500):
        await write(engine.compress(b"x" * MIB))
    await write(engine.flush())


async def _deflate_bomb(write: Write) -> None:
    await write(_head("Content-Encoding: deflate\r\n"))
    engine = zlib.compressobj(9)
    for _ in range(500):
        await write(engine.compress(b"x" * MIB))


async def _gzip_of_nothing(write: Write) -> None:
    await write(_head("Content-Encoding: gzip\r\n"))
    while True:
        await write(gzip.compress(b"") * 1_000)


async def _drip(write: Write) -> None:
    await write(_head())
    while True:
        await write(b"x")
        await asyncio.sleep(0.02)


async def _slow_headers(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n")
    while True:
        await write(b"X-A: b\r\n")
        await asyncio.sleep(0.02)


async def _header_flood(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n")
    while True:
        await write(b"X-Flood: and another one\r\n" * 1_000)


async def _header_giant(write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\nX-Giant: ")
    while True:
        await write(b"g" * 65_536)


def _coded(coding: str, body: bytes) -> Callable[[Write], Awaitable[None]]:
    async def stream(write: Write) -> None:
        await write(_head(f"Content-Encoding: {coding}\r\nContent-Length: {len(body)}\r\n") + body)

    return stream


def _said(answer: bytes) -> Callable[[Write], Awaitable[None]]:
    async def stream(write: Write) -> None:
        await write(answer)

    return stream


_RAW = zlib.compressobj(9, zlib.DEFLATED, -15)
_BARE = _RAW.compress(page(ARTICLE)) + _RAW.flush()

_STREAMS: dict[str, Callable[[Write], Awaitable[None]]] = {
    "/large": _large,
    "/endless": _endless,
    "/endless-pdf": _endless_pdf,
    "/gzip-bomb": _gzip_bomb,
    "/deflate-bomb": _deflate_bomb,
    "/gzip-of-nothing": _gzip_of_nothing,
    "/drip": _drip,
    "/slow-headers": _slow_headers,
    "/header-flood": _header_flood,
    "/header-giant": _header_giant,
    "/gzip": _coded("gzip", gzip.compress(page(ARTICLE))),
    "/gzip-members": _coded("gzip", gzip.compress(b"<p>one") + gzip.compress(page(ARTICLE))),
    "/deflate": _coded("deflate", zlib.compress(page(ARTICLE))),
    "/deflate-bare": _coded("deflate", _BARE),
    "/gzip-broken": _coded("gzip", gzip.compress(b"x" * 50)[:20] + b"rubbish" * 50),
    "/brotli": _coded("br", b"\x0b\x02\x80hello\x03"),
    "/gzip-twice": _coded("gzip, gzip", gzip.compress(gzip.compress(b"x"))),
    "/promises-more": _said(_head("Content-Length: 1000\r\n") + page(ARTICLE)),
    "/promises-less": _said(_head("Content-Length: 20\r\n") + page(ARTICLE)),
    "/promises-nonsense": _said(_head("Content-Length: -5\r\n") + page(ARTICLE)),
    "/no-http": _said(b"SSH-2.0-OpenSSH_9.9\r\n"),
    "/silence": _said(b""),
}


@contextlib.asynccontextmanager
async def serving(bench: Bench) -> AsyncIterator[Site]:
    """Serve, on an address that the owner allowed."""
    site = Site()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    site.port = server.sockets[0].getsockname()[1]
    bench.network = NetworkRules(allowed_addresses=(f"127.0.0.1:{site.port}",))
    try:
        yield site
    finally:
        server.close()
        await server.wait_closed()
