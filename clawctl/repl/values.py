"""The live values that stand behind commands: asked of the daemon when wanted, and kept."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from clawctl.agent_options import PRESETS
from clawctl.live_names import names_in, request_of
from clawctl.repl.bar_state import Pulse, SessionStanding
from clawctl.repl.host import Host
from clawctl.repl.slash import COMMANDS
from clawctl.repl.suggestions import FileIndex, Known, Value
from clawctl.repl.theme import THEMES
from clawd.wire.daemon import ShowConfig
from clawd.wire.models import ListProviders
from clawd.wire.skills import ListSkills

FRESH_S = 5.0


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
            values = [Value(text=name, about=about) for name, about in self._named(kind) if name]
            self._kept[kind] = time.monotonic(), values
        return values

    def _named(self, kind: str) -> Iterable[tuple[str, str]]:
        match kind:
            case "own":
                request = ListSkills(workspace=self._host.workspace, kind="command")
                found = self._pulse.ask(request)
                own = found.items if found is not None else ()
                ready = [
                    (f"/{each.name}", each.description) for each in own if each.state == "ready"
                ]
                return [each for each in ready if each[0] not in COMMANDS]
            case "commands":
                return [(name.removeprefix("/"), slash.help) for name, slash in COMMANDS.items()]
            case "presets" | "themes":
                return [(name, "") for name in (PRESETS if kind == "presets" else THEMES)]
            case "agents":
                config = self._pulse.ask(ShowConfig())
                return [(name, "") for name in (config.values.get("agents", {}) if config else ())]
            case "models":
                providers = self._pulse.ask(ListProviders())
                of_providers = {
                    each.model: f"of provider {each.name}"
                    for each in (providers.items if providers is not None else ())
                }
                return (of_providers | dict(self._live(kind))).items()
            case _:
                return self._live(kind)

    def _live(self, kind: str) -> Iterable[tuple[str, str]]:
        request = request_of(kind, {"conversation": self._host.conversation_id})
        found = self._pulse.ask(request) if request is not None else None
        return names_in(kind, found.items) if found is not None else ()
