"""Grants of hosts, as people write them: `get.example.org:443`, `*.example.org:443`.

What a config or a manifest lists for one program may also be `*`: every public host.
"""

import ipaddress
import re
from collections.abc import Iterable

from clawd.errors import InvalidRequestError

HOST_TOOL = "egress:host"
"""What a host is asked about as, in the place of a tool's name; no tool can be called so."""

ANY_HOST = "*"
"""Stands for every public host and port, where a program is given its hosts."""

_PORTS = {"": 443, "https": 443, "http": 80}
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_BRACKETED = re.compile(r"\[[0-9a-f:.]{2,45}\]")
_NAME_LIMIT = 253


def host_grant(text: str) -> str:
    """Return a grant as it is kept and compared: in lower case, with its port.

    `get.example.org` means port 443; an address as `http://mirror.lan:8080/simple` its host and
    port.

    Raises:
        InvalidRequestError: it is none.
    """
    scheme, is_url, rest = text.strip().lower().rpartition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0] if is_url else rest
    found = re.fullmatch(r"(\*\.)?(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?", authority, re.ASCII)
    if found is None or scheme not in _PORTS:
        raise _no_grant(text)
    wildcard, name, port = found[1] or "", found[2].removesuffix("."), found[3]
    number = int(port) if port else _PORTS[scheme]
    is_name = _NAME.fullmatch(name) is not None and len(name) <= _NAME_LIMIT
    is_address = not wildcard and _BRACKETED.fullmatch(name) is not None
    if not (is_name or is_address) or not 0 < number < 1 << 16:
        raise _no_grant(text)
    if wildcard and "." not in name:
        raise InvalidRequestError(
            f"{text!r} would be every host below {name}", hint="Name a domain: *.example.org:443."
        )
    return f"{wildcard}{name}:{number}"


def is_listed_form(text: str, *, any_host: bool = False) -> bool:
    """Return whether a config or a manifest may list a host so: with its port, in lower case.

    Args:
        text: as it is written.
        any_host: whether it may be `*`.
    """
    if any_host and text == ANY_HOST:
        return True
    try:
        return host_grant(text) == text.lower()
    except InvalidRequestError:
        return False


def this_machine_among(hosts: Iterable[str]) -> tuple[str, ...]:
    """Return those of listed hosts that are addresses, or this machine by its name.

    Only such an entry says by itself that it may lead to a private address: any other name leads
    to where its name server says.
    """
    return tuple(host for host in hosts if _is_address(host.rpartition(":")[0]))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host == "localhost"
    return True


def covers_host(grant: str, host: str, port: int) -> bool:
    """Return whether a grant, as `host_grant` gives it or `*`, is one of this host and port.

    A wildcard means subdomains of any depth, and not the domain itself.
    """
    if grant == ANY_HOST:
        return True
    if grant.startswith("*."):
        name, _, number = grant[1:].rpartition(":")
        return number == str(port) and host.endswith(name)
    return grant == f"{host}:{port}"


def _no_grant(text: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{text!r} is no host", hint="Write HOST:PORT or *.DOMAIN:PORT, as in get.example.org:443."
    )
