"""What the config says to the runtime, as plain values; a reload replaces them as a whole."""

from pathlib import Path
from typing import Literal

import msgspec

from clawd.config.sections import CompressionSection
from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError
from clawd.runtime.prompt import PromptSettings
from clawd.runtime.turn_plan import TurnLimits
from clawd.tools.offer import OfferRules
from clawd.tools.registry import ToolMode

Titles = Literal["first-words", "model"]


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A named agent: its prompt, its model and sampling ("" is the default) and its tools."""

    prompt: str = ""
    model: str = ""
    preset: str = ""
    tools_allow: tuple[str, ...] = ("*",)


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime's part of the configuration.

    Attributes:
        workspace: where a conversation works unless it names a folder.
        workspace_roots: a folder it names must lie under one of these.
        tools_allow: patterns of the names of flat tools that are offered on the socket.
        http_tools_allow: the same for the HTTP gateway.
        http_agent: whether clawd's own loop answers there.
        http_keeps: whether its conversations stay in memory.
        tool_mode: how they are offered: flat, as `fs` and `web`, or in both ways.
        offer: which of them requests carry.
        max_queued_events: kept for a slow reader before its deltas are merged.
        follower_stall_s: a reader that takes nothing for that long is cut off.
        cli_enabled: whether conversations may be held over the socket.
        agents: the named agents.
        home: clawd's own home, which is nobody's workspace.
        agents_md: whether AGENTS.md of a workspace is shown to the model.
        workspace_message: of the operator, for every answer.
        compression: when the beginning of a conversation gives way to a summary.
        titles: where the titles of conversations come from.
        show_results: whether a person sees what tools gave; `auto` beside answers of small models.
    """

    workspace: Path
    workspace_roots: tuple[Path, ...]
    default_provider: str
    default_model: str
    tools_allow: tuple[str, ...] = ("*",)
    http_tools_allow: tuple[str, ...] = ("*",)
    http_agent: bool = True
    http_keeps: bool = True
    tool_mode: ToolMode = "split"
    offer: OfferRules = OfferRules()
    prompt: PromptSettings = PromptSettings()
    limits: TurnLimits = TurnLimits()
    attended_rounds: int = 25
    max_queued_messages: int = 64
    max_inline_message_bytes: int = 64 * 1024
    max_queued_events: int = 1000
    follower_stall_s: float = 30.0
    cli_enabled: bool = True
    agents: dict[str, AgentSettings] = {}
    home: Path | None = None
    agents_md: bool = True
    workspace_message: str = ""
    compression: CompressionSection = CompressionSection()
    titles: Titles = "first-words"
    show_results: Literal["auto", "always", "never"] = "auto"

    def agent(self, name: str) -> AgentSettings:
        """Return the agent of this name; "" is the plain one.

        Raises:
            NotFoundError: there is none; the message names those that are.
        """
        if not name:
            return AgentSettings()
        if name not in self.agents:
            known = ", ".join(sorted(self.agents)) or "none"
            raise NotFoundError(f"there is no agent {name!r}; configured: {known}")
        return self.agents[name]

    def resolve_workspace(self, asked: str) -> Path:
        """Return the folder a conversation works in, symbolic links resolved.

        Raises:
            InvalidRequestError: it is no absolute path of an existing folder.
            ForbiddenError: it lies under none of the workspace roots, or in clawd's home.
        """
        if not asked:
            return self._outside_home(self.workspace.resolve())
        path = Path(asked)
        if not path.is_absolute() or "\0" in asked:
            raise InvalidRequestError(f"workspace {asked!r} is not an absolute path")
        try:
            resolved = path.resolve()
            is_folder = resolved.is_dir()
        except (OSError, RuntimeError) as error:
            raise InvalidRequestError(f"workspace {asked} cannot be entered: {error}") from error
        if not is_folder:
            raise InvalidRequestError(f"workspace {asked} is not a folder")
        roots = (self.workspace, *self.workspace_roots)
        if not any(resolved.is_relative_to(root.resolve()) for root in roots):
            allowed = ", ".join(map(str, roots))
            raise ForbiddenError(
                f"workspace {resolved} lies under none of: {allowed}",
                hint="Add its parent to [security] workspace_roots in the config.",
            )
        return self._outside_home(resolved)

    def _outside_home(self, folder: Path) -> Path:
        """Refuse clawd's own home and what lies in it, but for the configured workspace."""
        home, workspace = self.home, self.workspace.resolve()
        if home is None or not folder.is_relative_to(home := home.resolve()):
            return folder
        if workspace != home and folder.is_relative_to(workspace):
            return folder
        raise ForbiddenError(
            f"workspace {folder} is clawd's own home, or lies in it",
            hint="What is there decides what tools may do. Choose another folder.",
        )
