"""Where the gateway listens: addresses resolved and bound, TLS loaded, with errors that teach."""

import asyncio
import errno
import ipaddress
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from clawd.config.http import HttpSection
from clawd.errors import ClawError

BACKLOG = 128
CHOICES = 20
RESOLVE_LIMIT_S = 10.0


async def addresses_of(host: str) -> tuple[str, ...]:
    """Return the addresses that a host name stands for; an address stands for itself.

    What is bound is what was judged: the name is resolved once.

    Raises:
        ClawError: it stands for none.
    """
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_LIMIT_S):
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
    """Tell whether only this machine reaches all of them."""
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
                f"the private key {key} can be read by everybody",
                f"Run: chmod o= {key}",
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
    for _ in range(CHOICES if port == 0 else 0):
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
        made.listen(BACKLOG)
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
