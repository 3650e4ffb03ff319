"""The names that completion offers beside commands and options; asked of a daemon that runs.

What is named by others (titles, tools, notes) is data: whoever offers it leaves out what is not
printable. Nothing here makes a tool call, so TAB leaves no receipt.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from clawctl.client import Client
from clawctl.reach import reach
from clawd.errors import ClawError
from clawd.paths import layout

LISTED = 200
MAX_NOTES = 2_000

Name = tuple[str, str]


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was typed before: the socket, and the values of the command's own parameters."""

    socket: str | None = None
    params: dict[str, str] = {}

    def client(self) -> Client:
        """Connect to a daemon that runs; none is started for a completion.

        Raises:
            ClawError: none runs, or it does not serve us.
        """
        return reach(self.socket, may_start=False)


def _conversations(asked: Asked) -> Iterator[Name]:
    from clawd.wire.methods import ListConversations

    with asked.client() as client:
        for line in client.call(ListConversations(limit=LISTED)).items:
            yield line.id, line.title


def _providers(asked: Asked) -> Iterator[Name]:
    from clawd.wire.methods import ListProviders

    with asked.client() as client:
        for line in client.call(ListProviders()).items:
            yield line.name, f"{line.kind} {line.model}".strip()


def _models(asked: Asked) -> Iterator[Name]:
    from clawctl.render import size
    from clawd.wire.methods import ListModels

    with asked.client() as client:
        for line in client.call(ListModels()).items:
            yield line.name, size(line.size_bytes)


def _loaded_models(asked: Asked) -> Iterator[Name]:
    from clawd.wire.methods import ListLoadedModels

    with asked.client() as client:
        for line in client.call(ListLoadedModels()).items:
            yield line.name, line.state


def _tools(asked: Asked) -> Iterator[Name]:
    from clawd.wire.methods import ListTools

    with asked.client() as client:
        for line in client.call(ListTools()).items:
            yield line.name, line.short


def _approvals(asked: Asked) -> Iterator[Name]:
    from clawd.wire.methods import ListApprovals

    with asked.client() as client:
        for line in client.call(ListApprovals()).items:
            yield line.id, f"{line.tool}: {line.reason}"


def _rules(asked: Asked) -> Iterator[Name]:
    from clawd.wire.methods import ListRules

    with asked.client() as client:
        for line in client.call(ListRules()).items:
            yield line.id, f"{line.tool} {line.pattern}"


def _keys(asked: Asked) -> Iterator[Name]:
    from clawd.wire.key_methods import ListKeys

    with asked.client() as client:
        for line in client.call(ListKeys()).items:
            yield line.id, line.name


def _aliases(asked: Asked) -> Iterator[Name]:
    from clawd.wire.status_methods import Status

    with asked.client() as client:
        for line in client.call(Status()).servers:
            yield line.alias, line.link


def _mcp_tools(asked: Asked) -> Iterator[Name]:
    from clawd.wire.mcp_methods import ListMcpTools

    with asked.client() as client:
        for line in client.call(ListMcpTools(alias=asked.params.get("alias", ""))).items:
            yield line.tool, line.short


def _plugins(asked: Asked) -> Iterator[Name]:
    from clawd.wire.plugin_methods import ListPlugins

    with asked.client() as client:
        for line in client.call(ListPlugins()).items:
            yield line.name, line.state


def _receipts(asked: Asked) -> Iterator[Name]:
    from clawd.wire.receipt_methods import ListReceipts

    with asked.client() as client:
        for line in client.call(ListReceipts(limit=LISTED)).items:
            yield line.id, f"{line.seq} {line.tool} {line.status}"


def _session_files(asked: Asked) -> Iterator[Name]:
    from clawd.wire.session_methods import ListSessionFiles

    conversation = asked.params.get("conversation", "")
    if not conversation:
        return
    with asked.client() as client:
        for line in client.call(ListSessionFiles(conversation_id=conversation)).items:
            yield line.name, line.summary


def _knowledge(asked: Asked) -> Iterator[Name]:
    for path in _notes(asked):
        yield path.stem, ""


def _keywords(asked: Asked) -> Iterator[Name]:
    words = {word for path in _notes(asked) for word in path.stem.removeprefix("fix-").split("_")}
    for word in sorted(words):
        yield word, ""


def _notes(asked: Asked) -> list[Path]:
    """Return the notes of the home, by the folder: listing them by the daemon is a tool call."""
    try:
        with asked.client() as client:
            home = Path(client.welcome.home)
    except ClawError:
        home = layout().home
    return sorted((home / "knowledge").glob("*.md"))[:MAX_NOTES]


SOURCES: dict[str, Callable[[Asked], Iterator[Name]]] = {
    "aliases": _aliases,
    "approvals": _approvals,
    "conversations": _conversations,
    "keys": _keys,
    "keywords": _keywords,
    "knowledge": _knowledge,
    "loaded_models": _loaded_models,
    "mcp_tools": _mcp_tools,
    "models": _models,
    "plugins": _plugins,
    "providers": _providers,
    "receipts": _receipts,
    "rules": _rules,
    "session_files": _session_files,
    "tools": _tools,
}
