"""What the config says to the runtime, as plain values; a reload replaces them as a whole."""

from pathlib import Path

import msgspec

from clawd.config.schema import AgentProfile, AgentSection, ChannelsSection, LimitsSection
from clawd.config.sections import CompressionSection, ToolsSection
from clawd.errors import ForbiddenError, InvalidRequestError, NotFoundError
from clawd.runtime.prompt import PromptSettings


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime's part of the configuration.

    Attributes:
        workspace: where a conversation works unless it names a folder.
        workspace_roots: a folder it names must lie under one of these.
        home: clawd's own home, which is nobody's workspace.
        loop: the section of the agent loop.
        agents: the named agents.
    """

    workspace: Path
    workspace_roots: tuple[Path, ...]
    default_provider: str
    default_model: str
    home: Path | None = None
    channels: ChannelsSection = ChannelsSection()
    tools: ToolsSection = ToolsSection()
    prompt: PromptSettings = PromptSettings()
    loop: AgentSection = AgentSection()
    limits: LimitsSection = LimitsSection()
    compression: CompressionSection = CompressionSection()
    agents: dict[str, AgentProfile] = {}

    def tools_allow(self, door: str) -> tuple[str, ...]:
        """Return patterns of the names of flat tools that a channel offers."""
        channel = self.channels.http if door == "http" else self.channels.cli
        return channel.tools_allow

    def agent(self, name: str) -> AgentProfile:
        """Return the agent of this name; "" is the plain one.

        Raises:
            NotFoundError: there is none; the message names those that are.
        """
        if not name:
            return AgentProfile()
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
        workspace = folder = self.workspace.resolve()
        of = {"workspace": asked}  # a client may go on in another one, and only then
        if asked:
            path = Path(asked)
            if not path.is_absolute() or "\0" in asked:
                raise InvalidRequestError(f"workspace {asked!r} is not an absolute path", data=of)
            try:
                folder = path.resolve()
                is_folder = folder.is_dir()
            except (OSError, RuntimeError) as error:
                text = f"workspace {asked} cannot be entered: {error}"
                raise InvalidRequestError(text, data=of) from error
            if not is_folder:
                raise InvalidRequestError(f"workspace {asked} is not a folder", data=of)
            roots = (self.workspace, *self.workspace_roots)
            if not any(folder.is_relative_to(root.resolve()) for root in roots):
                allowed = ", ".join(map(str, roots))
                raise ForbiddenError(
                    f"workspace {folder} lies under none of: {allowed}",
                    hint="Add its parent to [security] workspace_roots in the config.",
                    data=of,
                )
        if self.home is None or not folder.is_relative_to(home := self.home.resolve()):
            return folder
        if workspace != home and folder.is_relative_to(workspace):
            return folder
        raise ForbiddenError(
            f"workspace {folder} is clawd's own home, or lies in it",
            hint="What is there decides what tools may do. Choose another folder.",
            data=of,
        )
