"""A session over HTTP that connects to what was judged, and to nothing else.

Apart from the judging, as the HTTP client takes a tenth of a second to load and most starts of the
daemon never ask the web for anything.
"""

import socket

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override

from clawd.security.network import PinnedTarget


class PinnedResolver(AbstractResolver):
    """Answers for one host and port with the addresses that were judged, and for no other."""

    def __init__(self, pinned: PinnedTarget) -> None:
        self._pinned = pinned

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the pinned addresses of that family."""
        target = self._pinned.target
        if (host, port) != (target.host, target.port):
            raise OSError(f"{host}:{port} was not judged")
        found = []
        for address in self._pinned.addresses:
            own = socket.AF_INET6 if ":" in address else socket.AF_INET
            if family in {socket.AF_UNSPEC, own}:
                found.append(_result(host, address, port, own))
        if not found:
            raise OSError(f"{host} has no address of that family")
        return found

    @override
    async def close(self) -> None:
        """Do nothing: it holds nothing."""


def pinned_session(pinned: PinnedTarget, *, timeout_s: float) -> aiohttp.ClientSession:
    """Return a session for requests to this target only; the caller closes it.

    It ignores proxies and credentials of the environment, keeps no cookies and no connections. It
    leaves bodies compressed: the reader of one bounds what it unpacks to.
    """
    connector = aiohttp.TCPConnector(
        resolver=PinnedResolver(pinned), use_dns_cache=False, force_close=True
    )
    return aiohttp.ClientSession(
        connector=connector,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=timeout_s),
        auto_decompress=False,
        max_line_size=16_384,
        max_field_size=16_384,
    )


def _result(host: str, address: str, port: int, family: int) -> ResolveResult:
    return ResolveResult(
        hostname=host,
        host=address,
        port=port,
        family=family,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
    )
