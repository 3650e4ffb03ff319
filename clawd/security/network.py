"""Whether a URL may be fetched, judged by the addresses that it really leads to.

`judge_url` looks at the text alone (for the policy); `resolve_and_judge` asks the resolver once
and pins what it answered, so that a second answer cannot lead elsewhere. Every redirect is a new
URL and goes through both again.
"""

import asyncio
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable

import msgspec
import yarl

from clawd.errors import ForbiddenError, InvalidRequestError, ProviderError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Awaitable[list[str]]]

MAX_URL_LENGTH = 8192
UNRESOLVED = "cannot be resolved"
_RESOLVE_LIMIT_S = 10.0

# What is_global thinks of some of these differs between Python versions.
_REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "168.63.129.16/32",  # Azure's host agent, on a public address
        "192.0.0.0/24",  # protocol assignments, and Oracle's metadata
        "192.88.99.0/24",  # relays of 6to4
        "2001::/23",  # protocol assignments, Teredo among them
        "2002::/16",  # 6to4 leads to any IPv4 address
        "3fff::/20",  # documentation (RFC 9637)
    )
)
# Whatever IPv6 has outside of it leads nowhere, to one site, or to IPv4 (NAT64, compatible, SIIT).
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_ISATAP = frozenset({0x00005EFE, 0x02005EFE})
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.IGNORECASE)


class NetworkRules(msgspec.Struct, frozen=True, kw_only=True):
    """Where web tools may go.

    Attributes:
        allowed_domains: domains of lower risk; `*.example.org` means subdomains of any depth.
        allowed_addresses: `host:port` entries that may lead to this machine or a private
            network, for example `127.0.0.1:8080`.
    """

    allowed_domains: tuple[str, ...] = ()
    allowed_addresses: tuple[str, ...] = ()

    def trusts(self, host: str) -> bool:
        """Whether a host is one of the allowed domains."""
        name = host.rstrip(".").lower()
        return any(
            _matches(name, entry.strip().rstrip(".").lower()) for entry in self.allowed_domains
        )

    def excepts(self, host: str, port: int) -> bool:
        """Whether a host and port may lead to any address."""
        wanted = {f"{host.lower()}:{port}", f"[{host.lower()}]:{port}"}
        return any(entry.strip().lower() in wanted for entry in self.allowed_addresses)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A URL that was found good as text."""

    url: str
    scheme: str
    host: str
    port: int


class PinnedTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target and the only addresses that a connection to it may use."""

    target: Target
    addresses: tuple[str, ...]


def judge_url(url: str, rules: NetworkRules) -> Target:
    """Judge a URL without asking anybody: its form, and its address when it names one.

    Raises:
        InvalidRequestError: it is no URL, or not one of http or https.
        ForbiddenError: it names a refused address, in whatever notation.
    """
    parsed = _parsed(url)
    host, port = parsed.raw_host or "", parsed.port or 0
    target = Target(url=str(parsed), scheme=parsed.scheme, host=host, port=port)
    if rules.excepts(host, port):
        return target
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        raise _refusal(host, port, "it is this machine")
    for address in _literal_addresses(host, port):
        if reason := refused_because(address):
            raise _refusal(host, port, reason)
    return target


async def resolve_and_judge(
    url: str, rules: NetworkRules, *, resolve: Resolve | None = None
) -> PinnedTarget:
    """Resolve a URL's host and judge every address that came back.

    Args:
        url: the URL.
        rules: the owner's.
        resolve: gives the addresses of a host and port; the system's resolver if None.

    Raises:
        InvalidRequestError, ForbiddenError: as `judge_url`, or one of its addresses is refused.
        ProviderError: the name cannot be resolved (`network`).
    """
    target = judge_url(url, rules)
    try:
        async with asyncio.timeout(_RESOLVE_LIMIT_S):
            found = await (resolve or system_resolve)(target.host, target.port)
    except (OSError, TimeoutError, UnicodeError) as error:
        why = getattr(error, "strerror", "") or str(error) or "no answer in time"
        message = f"the name {target.host} {UNRESOLVED}: {why}"
        raise ProviderError(message, kind="network") from error
    if not found:
        raise ProviderError(f"the name {target.host} has no address", kind="network")
    if not rules.excepts(target.host, target.port):
        for text in found:
            if reason := refused_because(text):
                raise _refusal(target.host, target.port, f"it leads to {text}: {reason}")
    return PinnedTarget(target=target, addresses=tuple(dict.fromkeys(found)))


async def system_resolve(host: str, port: int) -> list[str]:
    """Ask the system's resolver."""
    loop = asyncio.get_running_loop()
    answers = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(answer[4][0]) for answer in answers]


def refused_because(address: str) -> str:
    """Say why an address is refused, or return an empty string."""
    try:
        parsed: Address = ipaddress.ip_address(address)
    except ValueError:
        return f"{address} is no address"
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.scope_id:
            return "it belongs to one link"
        parsed = parsed.ipv4_mapped or parsed
    for words, applies in (
        ("it is this machine", parsed.is_loopback or parsed.is_unspecified),
        ("it belongs to one link, where clouds keep their metadata", parsed.is_link_local),
        ("it is a multicast address", parsed.is_multicast),
        ("it is not a public address", not parsed.is_global or parsed.is_reserved),
        ("it is a special address", _is_special(parsed)),
    ):
        if applies:
            return words
    return ""


def _parsed(url: str) -> yarl.URL:
    text = url.strip()
    if len(text) > MAX_URL_LENGTH:
        raise InvalidRequestError(f"a URL has at most {MAX_URL_LENGTH} characters")
    if re.search(r"[\x00-\x20\x7f\\]", text):
        raise InvalidRequestError(f"{text!r} holds blanks, control characters or a backslash")
    try:
        parsed = yarl.URL(text)
        port = parsed.port
    except (ValueError, LookupError) as error:  # yarl trips over some brackets
        raise InvalidRequestError(f"{text!r} is no URL: {error}") from error
    if parsed.scheme not in {"http", "https"}:
        raise InvalidRequestError(
            f"{text!r} is no web address", hint="Only http:// and https:// URLs can be fetched."
        )
    if not parsed.raw_host or not port:
        raise InvalidRequestError(f"{text!r} names no host")
    if parsed.user is not None or parsed.password is not None:
        raise InvalidRequestError(
            "a URL with a user name or password in it is refused",
            hint="Leave out what is before @.",
        )
    if "%" in parsed.raw_host:
        raise InvalidRequestError(f"the host {parsed.raw_host!r} cannot be meant")
    authority = re.split(r"[/?#]", text.partition("://")[2], maxsplit=1)[0]
    if _is_odd_number(parsed.raw_host, is_bracketed="[" in authority):
        raise InvalidRequestError(
            f"the host {parsed.raw_host} is written like an address, but not in its usual form",
            hint="Write an IPv4 address as four decimal numbers, an IPv6 address in brackets.",
        )
    return parsed.with_fragment(None)


def _literal_addresses(host: str, port: int) -> list[str]:
    """Return the address that a host spells, in any notation that the resolver would take."""
    try:
        answers = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return []
    return [str(answer[4][0]) for answer in answers]


def _is_special(address: Address) -> bool:
    if any(address in network for network in _REFUSED_NETWORKS):
        return True
    if isinstance(address, ipaddress.IPv4Address):
        return False
    return address not in _GLOBAL_UNICAST or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP


def _is_odd_number(host: str, *, is_bracketed: bool) -> bool:
    """Whether a host is written like an address without being one in its usual form.

    Resolvers, proxies and libraries read 127.1, 0x7f.1, 127.0.0.1. and 0177.1 differently.
    """
    try:
        if is_bracketed or ":" in host:
            ipaddress.IPv6Address(host)
        elif _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
            ipaddress.IPv4Address(host)
    except ValueError:
        return True
    return False


def _refusal(host: str, port: int, reason: str) -> ForbiddenError:
    return ForbiddenError(
        f"{host} is refused: {reason}",
        hint=f'To allow it: allowed_addresses = ["{host}:{port}"] in [security].',
    )


def _matches(name: str, entry: str) -> bool:
    if entry.startswith("*."):
        return name.endswith(entry[1:]) and name != entry[2:]
    return bool(entry) and name == entry
