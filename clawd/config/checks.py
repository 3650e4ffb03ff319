"""What the schema cannot say: rules between keys, and the form of addresses and names.

They run on the untyped tree even when the schema found something, so that a person gets every
problem in one pass; values of the wrong type are left to the schema.
"""

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

from clawd.config import mcp
from clawd.config.expand import engine_sections
from clawd.config.problems import Problem, nearest, refused
from clawd.config.tree import Tree, value_at

ROUNDS_WITHOUT_BUDGET = 100

_OVER_OTHERS = ("reliable", "router")

_DOMAIN = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9-]{1,63}", re.I)


def all_problems(tree: Tree) -> Iterator[Problem]:
    """Return every problem that is not one of a single value's type or range."""
    for check in _CHECKS:
        yield from check(tree)


def _providers(tree: Tree) -> dict[str, dict[str, Any]]:
    models = value_at(tree, ("providers", "models"))
    if not isinstance(models, dict):
        return {}
    return {name: section for name, section in models.items() if isinstance(section, dict)}


def _default_provider(tree: Tree) -> Iterator[Problem]:
    name, known = tree.get("default_provider"), list(_providers(tree))
    if isinstance(name, str) and known and name not in known:
        yield refused(
            ("default_provider",), name, f"a provider of [providers.models]; {nearest(name, known)}"
        )


def _provider_sections(tree: Tree) -> Iterator[Problem]:
    providers = _providers(tree)
    for name, section in providers.items():
        kind, url = section.get("kind"), section.get("base_url", "")
        if kind == "openai-compatible" or (kind == "anthropic" and url):
            yield from _base_url(name, url)
        if kind in _OVER_OTHERS:
            yield from _chain(name, section.get("providers", []), list(providers))
    yield from _loops(providers)


def _base_url(name: str, url: object) -> Iterator[Problem]:
    key = ("providers", "models", name, "base_url")
    if not isinstance(url, str):
        return
    try:
        parts = urlsplit(url)
        host, user, _port = parts.hostname, parts.username, parts.port
    except ValueError as error:
        yield Problem(key, f" is no URL ({error}): expected one like http://localhost:8080/v1")
        return
    if parts.scheme not in {"http", "https"} or not host:
        yield Problem(key, ": expected a URL like http://localhost:8080/v1")
    elif user is not None:
        yield Problem(key, " holds a name or password: expected none; name the key in api_key_env")


def _chain(name: str, chain: object, known: list[str]) -> Iterator[Problem]:
    key = ("providers", "models", name, "providers")
    if not isinstance(chain, list | tuple):
        return
    if not chain:
        yield Problem(key, " is empty: expected names of other providers")
    for index, member in enumerate(chain):
        if isinstance(member, str) and member not in known:
            yield refused((*key, index), member, f"a provider; {nearest(member, known)}")
        elif member in chain[:index]:
            yield refused((*key, index), member, "each provider once")


def _loops(providers: dict[str, dict[str, Any]]) -> Iterator[Problem]:
    for name in providers:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            section = providers.get(waiting.pop(), {})
            chain = section.get("providers", []) if section.get("kind") in _OVER_OTHERS else []
            members = [m for m in chain if isinstance(m, str)] if isinstance(chain, list) else []
            if name in members:
                yield Problem(
                    ("providers", "models", name, "providers"),
                    f" leads back to {name} itself: expected an order that ends",
                )
                break
            waiting += [member for member in members if member not in seen]
            seen.update(members)


def _rounds(tree: Tree) -> Iterator[Problem]:
    rounds = value_at(tree, ("agent", "max_tool_rounds"))
    if not isinstance(rounds, int) or rounds <= ROUNDS_WITHOUT_BUDGET:
        return
    budget = value_at(tree, ("agent", "wall_clock_budget_s"))
    if value_at(tree, ("security", "autonomy")) != "full" or not budget:
        yield refused(
            ("agent", "max_tool_rounds"),
            rounds,
            f"at most {ROUNDS_WITHOUT_BUDGET}, or security.autonomy full and a "
            "agent.wall_clock_budget_s",
        )


def _batches(tree: Tree) -> Iterator[Problem]:
    sizes: dict[str, Any] = {"n_batch": 512, "n_ubatch": 512}
    for at in engine_sections(tree):
        own = {name: value_at(tree, (*at, name)) for name in sizes}
        merged = sizes | {name: value for name, value in own.items() if value is not None}
        sizes = merged if at == ("engine",) else sizes
        batch, ubatch = merged.values()
        if isinstance(batch, int) and isinstance(ubatch, int) and 0 < batch < ubatch:
            yield refused((*at, "n_ubatch"), ubatch, f"at most n_batch ({batch})")


def _rpc_servers(tree: Tree) -> Iterator[Problem]:
    for at in engine_sections(tree):
        for index, server in _texts(tree, (*at, "rpc_servers")):
            if server.startswith("[") or not _is_host_and_port(server):
                yield refused((*at, "rpc_servers", index), server, "host:port, as 10.0.0.2:50052")


def _domains(tree: Tree) -> Iterator[Problem]:
    key = ("security", "allowed_domains")
    for index, domain in _texts(tree, key):
        if not _DOMAIN.fullmatch(domain):
            yield refused((*key, index), domain, "a host name, or *. and a host name")


def _addresses(tree: Tree) -> Iterator[Problem]:
    key = ("security", "allowed_addresses")
    for index, address in _texts(tree, key):
        if not _is_host_and_port(address):
            yield refused((*key, index), address, "host:port, as 127.0.0.1:8080 or [::1]:8080")


def _tls(tree: Tree) -> Iterator[Problem]:
    at = ("channels", "http")
    key, cert = value_at(tree, (*at, "tls_key")), value_at(tree, (*at, "tls_cert"))
    if key and not cert:
        yield Problem((*at, "tls_key"), " stands alone: expected a tls_cert beside it")


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        return False
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            return False
        return True
    return _DOMAIN.fullmatch(host) is not None and not host.startswith("*")


def _mcp(tree: Tree) -> Iterator[Problem]:
    section = tree.get("mcp")
    for key, value, expected in mcp.wrong_values(section) if isinstance(section, dict) else ():
        yield refused(("mcp", *key), value, expected)


def _texts(tree: Tree, key: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    values = value_at(tree, key)
    if isinstance(values, list | tuple):
        for index, value in enumerate(values):
            if isinstance(value, str):
                yield index, value


_CHECKS: tuple[Callable[[Tree], Iterator[Problem]], ...] = (
    _default_provider,
    _provider_sections,
    _rounds,
    _batches,
    _rpc_servers,
    _domains,
    _addresses,
    _tls,
    _mcp,
)
