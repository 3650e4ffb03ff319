"""What the options of `clawctl agent` chose, for one message and for the REPL alike."""

import msgspec

from clawctl.client import Client
from clawd.wire.methods import OpenConversation, SendMessage


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of `agent` chose, for one message and for the REPL alike.

    Attributes:
        workspace: absolute folder, or empty for the configured one.
        resume: go on with the newest conversation of the workspace.
        interactive: whether a person may be asked.
        hints: what a router is asked for.
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
        )

    def resumed(self, client: Client) -> str:
        """Return the id of the conversation to go on with; empty to open a new one."""
        if not self.resume:
            return self.conversation_id
        found = client.call(
            OpenConversation(workspace=self.workspace, agent=self.agent, resume=True)
        )
        return found.id
