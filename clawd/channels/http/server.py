"""The server of the gateway: takes connections, answers, drains and ends."""

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web
from typing_extensions import override

from clawd.channels.http.app import DRAINING
from clawd.channels.http.errors import error_response
from clawd.channels.http.guard import HANDSHAKE_TIMEOUT_S, ProtocolFactory, Traffic, dress
from clawd.config.sections import HttpSection
from clawd.errors import ClawError, InvalidRequestError

# What aiohttp says by itself: to clients whose request cannot be read, and to the log.

_log = logging.getLogger(__name__)


class _ProtocolLog(logging.Logger):
    """What aiohttp says of connections: that rubbish came is no error of ours."""

    @override
    def exception(self, msg: object, *args: object, **kwargs: Any) -> None:
        error = kwargs.get("exc_info")
        if isinstance(error, web.HTTPException | ValueError) or type(error).__module__.startswith(
            "aiohttp."
        ):
            _log.debug("what came is no request", extra={"problem": type(error).__name__})
            return
        _log.error(str(msg), *args, exc_info=error if isinstance(error, BaseException) else True)

    @override
    def debug(self, msg: object, *args: object, **kwargs: Any) -> None:
        return


class _Protocol(web.RequestHandler):
    """Answers rubbish in the envelope that most clients read; whose path it was is not known."""

    __slots__ = ()

    @override
    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        super().handle_error(request, status, exc, message)  # logs, or says that it is too late
        if status >= web.HTTPInternalServerError.status_code:
            response = error_response("", RuntimeError())
        else:
            told = InvalidRequestError(f"this is no request of HTTP: {_reason(message)}")
            response = error_response("", told, status)
        response.headers["Server"] = "clawd"
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.force_close()
        return response


def _reason(message: str | None) -> str:
    """Return what is wrong without what came: there may be a key in it."""
    first = (message or "").partition("\n")[0]
    return first.partition(" when reading")[0].rstrip(": ") or "it cannot be read"


_MAX_HEAD_LINE = 8_190
_MAX_FIELD = 8_190
_MAX_HEADERS = 100
_LINGERING_S = 2.0
# aiohttp's own limit of idle connections knows nothing of a head that is under way: ours is used.
_KEPT_S = 7 * 86_400.0
_CANCEL_S = 2.0


class Server:
    """A gateway that listens.

    Args:
        app: answers; made by `app.make_app`.
        traffic: whose middleware is outermost in it.
        http: limits.
    """

    def __init__(self, app: web.Application, traffic: Traffic, http: HttpSection) -> None:
        self._app = app
        self._traffic = traffic
        self._http = http
        self._runner: web.AppRunner | None = None
        self._servers: list[asyncio.Server] = []
        self.addresses: tuple[str, ...] = ()

    async def start(self, sockets: list[socket.socket], tls: ssl.SSLContext | None) -> None:
        """Begin to take connections on bound sockets, which are the server's from now on."""
        self._app.on_response_prepare.append(dress)
        self._runner = web.AppRunner(
            self._app, handler_cancellation=True, access_log=None, shutdown_timeout=_CANCEL_S
        )
        await self._runner.setup()
        connections = ProtocolFactory(self._protocols(self._runner.server), self._http)
        loop = asyncio.get_running_loop()
        handshake_s = HANDSHAKE_TIMEOUT_S if tls is not None else None
        scheme = "http" if tls is None else "https"
        for each in sockets:
            server = await loop.create_server(
                connections, sock=each, ssl=tls, ssl_handshake_timeout=handshake_s
            )
            self._servers.append(server)
        self.addresses = tuple(f"{scheme}://{_shown(each)}" for each in sockets)

    def _protocols(self, manager: web.Server | None) -> Callable[[], _Protocol]:
        """Return what makes the protocol of each connection."""
        assert manager is not None
        options: dict[str, Any] = {
            "access_log": None,
            "logger": _ProtocolLog("clawd.channels.http.server"),
            "keepalive_timeout": _KEPT_S,
            "max_line_size": _MAX_HEAD_LINE,
            "max_field_size": _MAX_FIELD,
            "max_headers": _MAX_HEADERS,
            "lingering_time": _LINGERING_S,
            "auto_decompress": False,
        }
        loop = asyncio.get_running_loop()
        return lambda: _Protocol(manager, loop=loop, **options)

    def stop_listening(self) -> None:
        """Take no new connections, and refuse new requests on those there are."""
        self._traffic.is_draining = True
        self._app[DRAINING].set()
        for server in self._servers:
            server.close()

    async def settle(self, grace_s: float) -> None:
        """Let the requests that run end by themselves, at most that long."""
        await self._traffic.settle(grace_s)

    async def close(self) -> None:
        """Cancel what still runs, and close every connection; idempotent."""
        self.stop_listening()
        runner, self._runner = self._runner, None
        if runner is not None:
            await self._traffic.cancel(_CANCEL_S)  # aiohttp would first wait for them once more
            await runner.cleanup()


def _shown(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# Where the gateway listens: addresses resolved and bound, TLS loaded, with errors that teach.

_BACKLOG = 128
_CHOICES = 20
_RESOLVE_LIMIT_S = 10.0


async def addresses_of(host: str) -> tuple[str, ...]:
    """Return the addresses that a host name stands for; an address stands for itself.

    What is bound is what was judged: the name is resolved once.

    Raises:
        ClawError: it stands for none.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_RESOLVE_LIMIT_S):
            found = await loop.getaddrinfo(
                host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
    except (OSError, TimeoutError, UnicodeError) as error:
        raise _refused(
            f"[channels.http] host {host!r} does not resolve: {error!r}",
            "Use an address of this machine, as 127.0.0.1.",
        ) from error
    return tuple(dict.fromkeys(str(info[4][0]) for info in found))


def is_loopback(addresses: Sequence[str]) -> bool:
    """Return whether only this machine reaches all of them."""
    return all(ipaddress.ip_address(address.partition("%")[0]).is_loopback for address in addresses)


def check_exposure(http: HttpSection, addresses: Sequence[str], *, keys: int) -> None:
    """Refuse to listen to other machines without a key, or without TLS.

    Raises:
        ClawError: says what to do.
    """
    if is_loopback(addresses):
        return
    where = f"[channels.http] host {http.host!r} can be reached by other machines"
    if not keys:
        raise _refused(
            f"{where}, and there is no key in force: anybody could use the model and its tools",
            "Listen on 127.0.0.1 first, make a key with clawctl key create, then change host.",
        )
    if not http.tls_cert and not http.insecure_bind:
        raise _refused(
            f"{where}, and TLS is not set up: keys and answers could be read on the way",
            "Set tls_cert and tls_key, or insecure_bind = true where the network is your own.",
        )


def tls_of(http: HttpSection) -> ssl.SSLContext | None:
    """Return what TLS is spoken with, None for none; reads the files.

    Raises:
        ClawError: they are no certificate with its key.
    """
    if not http.tls_cert:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    key = http.tls_key or http.tls_cert
    try:
        if Path(key).stat().st_mode & 0o007:
            raise _refused(
                f"the private key {key} can be read by everybody", f"Run: chmod o= {key}"
            )
        # Without a function for the passphrase OpenSSL would ask at the terminal.
        context.load_cert_chain(http.tls_cert, http.tls_key or None, password=lambda: "")
    except (OSError, ValueError) as error:
        raise _refused(
            f"[channels.http] tls_cert {http.tls_cert} with tls_key {key} cannot be used: {error}",
            "Both are PEM files that the daemon's user can read; the key has no passphrase and "
            "belongs to the certificate.",
        ) from error
    return context


def bind(addresses: Sequence[str], port: int) -> list[socket.socket]:
    """Return listening sockets bound to the addresses, all on one port; 0 is any that is free.

    An address of a family that this machine does not have is left out while another is there.

    Raises:
        ClawError: the port is taken, or may not be had.
    """
    for _ in range(_CHOICES if port == 0 else 0):
        try:
            return _all_bound(addresses, 0)
        except ClawError as error:
            # The port was free at the first address, and is somebody's at another.
            if (
                not isinstance(error.__cause__, OSError)
                or error.__cause__.errno != errno.EADDRINUSE
            ):
                raise
    return _all_bound(addresses, port)


def _all_bound(addresses: Sequence[str], port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for address in addresses:
            try:
                bound.append(_bound(address, port))
            except OSError as error:
                if error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}:
                    raise _cannot_bind(address, port, error) from error
                missing = error
                continue
            port = bound[-1].getsockname()[1]
        if not bound:
            raise _cannot_bind(addresses[0], port, missing or OSError(errno.EADDRNOTAVAIL, ""))
    except BaseException:
        for each in bound:
            each.close()
        raise
    return bound


def _bound(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.settimeout(0)
        made.bind((address, port))
        # Two may bind with SO_REUSEADDR as long as none listens: listening is what takes the port.
        made.listen(_BACKLOG)
    except BaseException:
        made.close()
        raise
    return made


def _cannot_bind(address: str, port: int, error: OSError) -> ClawError:
    hints = {
        errno.EADDRINUSE: "Another program listens there: end it, or set another "
        f"[channels.http] port. Which one: ss -ltnp 'sport = :{port}'",
        errno.EACCES: "Ports under 1024 are for root: set a higher [channels.http] port.",
        errno.EADDRNOTAVAIL: "No interface has this address: set [channels.http] host to one of "
        "this machine's.",
    }
    why = error.strerror or os.strerror(error.errno or 0)
    return _refused(
        f"the HTTP gateway cannot listen on {address} port {port}: {why}",
        hints.get(error.errno or 0, "Set another [channels.http] host or port."),
    )


def _refused(message: str, hint: str) -> ClawError:
    return ClawError(message, code="gateway", hint=hint)
