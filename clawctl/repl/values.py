"""The live values that stand behind commands: asked of the daemon when wanted, and kept."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from clawctl.repl.bar_state import Pulse, SessionStanding
from clawctl.repl.host import Host
from clawctl.repl.slash import COMMANDS
from clawctl.repl.suggestions import FileIndex, Known, Value
from clawctl.repl.theme import THEMES
from clawd.wire.conversations import ListConversations, ListSessionFiles
from clawd.wire.daemon import ShowConfig
from clawd.wire.mcp import ListMcpServers
from clawd.wire.models import ListModels, ListProviders
from clawd.wire.policy import ListApprovals
from clawd.wire.skills import ListSkills
from clawd.wire.sops import ListSops
from clawd.wire.tools import ListJobs, ListTools

FRESH_S = 5.0
PRESETS = ("deterministic", "precise", "balanced", "creative", "wild")
CONVERSATIONS = 50


def known_to(host: Host, standing: SessionStanding, pulse: Pulse) -> Known:
    """Return what can be completed in a session."""
    indexes: dict[Path, FileIndex] = {}

    def files() -> FileIndex:
        folder = standing.folder()
        if folder not in indexes:
            indexes.clear()
            indexes[folder] = FileIndex(folder)
        return indexes[folder]

    return Known(
        commands=[Value(text=name, about=slash.help) for name, slash in COMMANDS.items()],
        values=Values(pulse, host).after,
        files=files,
    )


class Values:
    """What may follow the words of a command. It is called beside the editor, so it may wait."""

    def __init__(self, pulse: Pulse, host: Host) -> None:
        self._pulse = pulse
        self._host = host
        self._kept: dict[str, tuple[float, list[Value]]] = {}
        self._sources: dict[str, Callable[[], Iterable[Value]]] = {
            "own": self._own,
            "tools": self._tools,
            "models": self._models,
            "presets": lambda: [Value(text=name) for name in PRESETS],
            "agents": self._agents,
            "providers": self._providers,
            "conversations": self._conversations,
            "files": self._files,
            "servers": self._servers,
            "skills": self._skills,
            "sops": self._sops,
            "approvals": self._approvals,
            "jobs": self._jobs,
            "themes": _themes,
            "commands": lambda: [
                Value(text=name.removeprefix("/"), about=slash.help)
                for name, slash in COMMANDS.items()
            ],
        }

    def after(self, words: Sequence[str]) -> Iterable[Value]:
        """Return what may be the last one of the words, of which the first is a command.

        With one word these are the commands of the person's own and of the workspace.
        """
        if len(words) == 1:
            return self._of("own")
        command = COMMANDS.get(words[0])
        place = len(words) - 2
        if command is None or place >= len(command.arguments):
            return []
        kind = command.arguments[place]
        if kind.startswith("="):
            return [Value(text=word) for word in kind[1:].split("|")]
        return self._of(kind)

    def _of(self, kind: str) -> list[Value]:
        at, values = self._kept.get(kind, (-FRESH_S, []))
        if time.monotonic() - at >= FRESH_S:
            values = list(self._sources[kind]())
            self._kept[kind] = time.monotonic(), values
        return values

    def _items(self, request: Any) -> Sequence[Any]:
        answer = self._pulse.ask(request)
        return answer.items if answer is not None else ()

    def _own(self) -> Iterable[Value]:
        found = self._items(ListSkills(workspace=self._host.workspace, kind="command"))
        names = ((f"/{each.name}", each) for each in found if each.state == "ready")
        return [
            Value(text=name, about=each.description) for name, each in names if name not in COMMANDS
        ]

    def _tools(self) -> Iterable[Value]:
        return [Value(text=tool.name, about=tool.short) for tool in self._items(ListTools())]

    def _models(self) -> Iterable[Value]:
        models = self._items(ListModels())
        known = {model.name: model.state for model in models}
        for provider in self._items(ListProviders()):
            known.setdefault(provider.model, f"of provider {provider.name}")
        return [Value(text=name, about=about) for name, about in known.items() if name]

    def _agents(self) -> Iterable[Value]:
        found = self._pulse.ask(ShowConfig())
        agents = found.values.get("agents", {}) if found is not None else {}
        return [Value(text=name) for name in agents]

    def _providers(self) -> Iterable[Value]:
        lines = self._items(ListProviders())
        return [Value(text=each.name, about=f"{each.kind} {each.model}") for each in lines]

    def _conversations(self) -> Iterable[Value]:
        lines = self._items(ListConversations(limit=CONVERSATIONS))
        return [Value(text=each.id, about=each.title) for each in lines]

    def _files(self) -> Iterable[Value]:
        conversation_id = self._host.conversation_id
        if not conversation_id:
            return []
        files = self._items(ListSessionFiles(conversation_id=conversation_id))
        return [Value(text=file.name, about=file.summary) for file in files]

    def _skills(self) -> Iterable[Value]:
        skills = self._items(ListSkills())
        return [Value(text=each.name, about=each.state) for each in skills]

    def _sops(self) -> Iterable[Value]:
        return [Value(text=each.name, about=each.state) for each in self._items(ListSops())]

    def _servers(self) -> Iterable[Value]:
        servers = self._items(ListMcpServers())
        return [Value(text=each.alias, about=each.link) for each in servers]

    def _approvals(self) -> Iterable[Value]:
        lines = self._items(ListApprovals())
        return [Value(text=each.id, about=each.tool) for each in lines]

    def _jobs(self) -> Iterable[Value]:
        lines = self._items(ListJobs())
        return [Value(text=each.id, about=f"{each.state}: {each.command}") for each in lines]


def _themes() -> Iterable[Value]:
    return [Value(text=name) for name in THEMES]
