"""What the options of `clawctl agent` chose, for one message and for the REPL alike."""

from typing import Literal

import msgspec

from clawctl.client import Client
from clawd.wire.methods import OpenConversation, SamplingWishes, SendMessage


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of `agent` chose, for one message and for the REPL alike.

    Attributes:
        workspace: absolute folder, or empty for the configured one.
        resume: go on with the newest conversation of the workspace.
        interactive: whether a person may be asked.
        hints: what a router is asked for.
        sampling: goes before the preset.
        tools_allow: patterns of the tools that may be used; () is all that are offered.
        tool_mode: how they are offered, "" for the configured way.
        retry: whether incomplete answers are asked for again; None is as configured.
        url: of an API to ask instead of a configured provider.
        verbose: tell every event in a line.
        log_file: where every event is appended as a line of JSON; "" for nowhere.
    """

    conversation_id: str = ""
    workspace: str = ""
    agent: str = ""
    provider: str = ""
    model: str = ""
    preset: str = ""
    resume: bool = False
    interactive: bool = True
    progress: bool = True
    quiet: bool = False
    hints: dict[str, str] = {}
    sampling: SamplingWishes | None = None
    tools_allow: tuple[str, ...] = ()
    tool_mode: Literal["", "split", "unified", "both"] = ""
    retry: bool | None = None
    url: str = ""
    verbose: bool = False
    log_file: str = ""

    def message(self, text: str, conversation_id: str, *, interactive: bool) -> SendMessage:
        """Return the request that sends a text."""
        return SendMessage(
            text=text,
            conversation_id=conversation_id,
            workspace=self.workspace,
            provider=self.provider,
            model=self.model,
            agent=self.agent,
            preset=self.preset,
            interactive=interactive,
            hints=self.hints,
            sampling=self.sampling,
            tools_allow=self.tools_allow,
            tool_mode=self.tool_mode,
            retry=self.retry,
            url=self.url,
        )

    def resumed(self, client: Client) -> str:
        """Return the id of the conversation to go on with; empty to open a new one."""
        if not self.resume:
            return self.conversation_id
        found = client.call(
            OpenConversation(workspace=self.workspace, agent=self.agent, resume=True)
        )
        return found.id
