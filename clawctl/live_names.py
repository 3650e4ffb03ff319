"""The names that completion offers beside commands and options: what is asked for them.

What others named (titles, tools, notes) is data: the completer that offers it leaves out what is
not printable. Nothing here makes a tool call, so TAB leaves no receipt.
"""

import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from clawctl.render import size
from clawd.wire.method import Method

LISTED = 200


class NameSource(msgspec.Struct, frozen=True, kw_only=True):
    """Who knows the names of a kind.

    Attributes:
        request: the method that lists them, `models:ListModels` of `clawd.wire`.
        name: the field of a line with the name.
        about: what is said of it, a format of the line and of `size`.
        given: fields of the request by the parameters that they are taken from.
        needs_all: whether nothing is asked where one of these is empty.
    """

    request: str
    name: str
    about: str
    given: Mapping[str, str] = {}
    needs_all: bool = False


def _source(request: str, name: str, about: str, **more: Any) -> NameSource:
    return NameSource(request=request, name=name, about=about, **more)


SOURCES = {
    "aliases": _source("mcp:ListMcpServers", "alias", "{0.link}"),
    "approvals": _source("policy:ListApprovals", "id", "{0.tool}: {0.reason}"),
    "conversations": _source("conversations:ListConversations", "id", "{0.title}"),
    "jobs": _source("tools:ListJobs", "id", "{0.state}: {0.command}"),
    "keys": _source("daemon:ListKeys", "id", "{0.name}"),
    "loaded_models": _source("models:ListLoadedModels", "name", "{0.state}"),
    "mcp_tools": _source("mcp:ListMcpTools", "tool", "{0.short}", given={"alias": "alias"}),
    "models": _source("models:ListModels", "name", "{0.state} {size}"),
    "plugins": _source("tools:ListPlugins", "name", "{0.state}"),
    "providers": _source("models:ListProviders", "name", "{0.kind} {0.model}"),
    "receipts": _source("receipts:ListReceipts", "id", "{0.seq} {0.tool} {0.status}"),
    "rules": _source("policy:ListRules", "id", "{0.tool} {0.pattern}"),
    "schedules": _source("schedules:ListSchedules", "name", "{0.when}"),
    "session_files": _source(
        "conversations:ListSessionFiles",
        "name",
        "{0.summary}",
        given={"conversation_id": "conversation"},
        needs_all=True,
    ),
    "skills": _source("skills:ListSkills", "name", "{0.state}"),
    "sop_runs": _source("sops:ListSopRuns", "id", "{0.name}: {0.status}"),
    "sops": _source("sops:ListSops", "name", "{0.state}"),
    "tools": _source("tools:ListTools", "name", "{0.short}"),
}


def request_of(kind: str, params: Mapping[str, Any]) -> Method[Any] | None:
    """Return the method that lists the names of a kind; None where what it takes is not there.

    Args:
        kind: a key of `SOURCES`.
        params: what was typed before, by the names of parameters.
    """
    source = SOURCES[kind]
    given = {field: params.get(param) or "" for field, param in source.given.items()}
    if source.needs_all and not all(given.values()):
        return None
    method = pkgutil.resolve_name(f"clawd.wire.{source.request}")
    if "limit" in method.__struct_fields__:
        given["limit"] = LISTED
    request: Method[Any] = method(**given)
    return request


def names_in(kind: str, lines: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Yield the names in what that method lists, each with what is said of it."""
    source = SOURCES[kind]
    for line in lines:
        about = source.about.format(line, size=size(getattr(line, "size_bytes", 0)))
        yield getattr(line, source.name), about.strip()
