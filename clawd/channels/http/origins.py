"""Which requests may come from where: the rules about Host, Origin and Sec-Fetch-Site. Pure.

A page in a browser can send requests to loopback. It can neither leave out its Origin where it
matters nor name a Host that is not its own: so both are looked at before anything else, for every
method. A name that resolves to loopback (DNS rebinding) is a Host that nobody configured.
"""

import ipaddress
import re

import msgspec

_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>\d{1,5}))?")
_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]{0,40})://"
    r"(?P<host>\[[0-9a-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(?::\d{1,5})?"
)
_OURSELVES = frozenset({"same-origin", "none"})
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
MAX_ASKED_HEADERS = 64


class DoorRules(msgspec.Struct, frozen=True, kw_only=True):
    """What is configured.

    Attributes:
        hosts: names and addresses to be called by, beside localhost and loopback addresses.
        origins: of the pages that may ask; `http://localhost:*` with any port or none, and
            `vscode-webview://*` every page of a scheme that is not the web's.
        is_tls: whether TLS is spoken here.
    """

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    is_tls: bool = False


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of where it comes from.

    Attributes:
        target: the request target as it was sent.
        hosts: the values of its Host headers.
        origins: those of its Origin headers.
        fetch_sites: those of its Sec-Fetch-Site headers.
        local_address: the address that the connection came to.
    """

    method: str
    target: str
    hosts: tuple[str, ...]
    origins: tuple[str, ...] = ()
    fetch_sites: tuple[str, ...] = ()
    local_address: str = ""


def refusal(asked: Asked, rules: DoorRules) -> str:
    """Return why a request is refused, or "" when it may go on."""
    return _host_problem(asked, rules) or _origin_problem(asked, rules)


def cross_origin(asked: Asked, rules: DoorRules) -> str:
    """Return the configured origin that a request comes from, or "" for none."""
    origin = asked.origins[0] if len(asked.origins) == 1 else ""
    return origin if is_listed(origin, rules.origins) else ""


def is_listed(origin: str, listed: frozenset[str]) -> bool:
    """Return whether an origin is one of those, or of their patterns."""
    if origin in listed and "*" not in origin:
        return True
    match = _ORIGIN.fullmatch(origin)
    if match is None:
        return False
    scheme = match["scheme"]
    if scheme in {"http", "https"}:
        return f"{scheme}://{match['host']}:*" in listed
    return f"{scheme}://*" in listed


def preflight_problem(method: str, headers: str) -> str:
    """Return what is wrong with what a preflight asks for, or ""."""
    if method not in _METHODS:
        return f"method {method[:20]!r} is not for pages"
    names = asked_headers(headers)
    if len(names) > MAX_ASKED_HEADERS or not all(map(_HEADER_NAME.fullmatch, names)):
        return "the headers that are asked for are no header names"
    return ""


def asked_headers(headers: str) -> list[str]:
    """Return the names in an Access-Control-Request-Headers."""
    return [name.strip() for name in headers.split(",") if name.strip()]


def _host_problem(asked: Asked, rules: DoorRules) -> str:
    if len(asked.hosts) != 1 or not asked.hosts[0]:
        return "a request must name one host"
    host = asked.hosts[0].lower()
    match = _HOST.fullmatch(host)
    if match is None:
        return "the host is no name and no address"
    if not asked.target.startswith("/") and asked.target != "*":
        scheme, _, rest = asked.target.partition("://")
        authority = rest.partition("/")[0].partition("?")[0].lower()
        if scheme.lower() not in {"http", "https"} or authority != host:
            return "the address that is asked for is not on the host that is named"
    name = match["name"] or match["six"]
    if name == "localhost" or name in rules.hosts or _is_ours(name, asked.local_address):
        return ""
    return (
        f"{name} is no name of this gateway; an admin can add it to [channels.http] allowed_hosts"
    )


def _is_ours(name: str, local_address: str) -> bool:
    """Tell whether it is a loopback address, or the very one that the connection came to."""
    try:
        address = ipaddress.ip_address(name)
        mapped = getattr(address, "ipv4_mapped", None)
        return mapped is None and (
            address.is_loopback
            or (bool(local_address) and address == ipaddress.ip_address(local_address))
        )
    except ValueError:
        return False


def _origin_problem(asked: Asked, rules: DoorRules) -> str:
    if len(asked.origins) > 1:
        return "a request may name one origin"
    if asked.origins:
        origin = asked.origins[0]
        own = f"{'https' if rules.is_tls else 'http'}://{asked.hosts[0].lower()}"
        if is_listed(origin, rules.origins) or origin == own:
            return ""
        return (
            "pages of this origin may not ask; an admin can add it to [channels.http] cors_origins"
        )
    if any(site not in _OURSELVES for site in asked.fetch_sites):
        return "pages of other sites may not ask"
    return ""
