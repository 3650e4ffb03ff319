"""What the options of `clawctl agent` chose, for one message and for the REPL alike."""

from typing import Literal

import click
import msgspec

from clawctl.app import C, Name
from clawctl.client import Client
from clawd.errors import ClawError
from clawd.wire.codec import mirror
from clawd.wire.conversations import ConversationLine, DeleteConversation, OpenConversation
from clawd.wire.pictures import Document
from clawd.wire.policy import AddRule
from clawd.wire.turns import SamplingWishes, SendMessage

PRESETS = {
    "deterministic": "the same answer every time",
    "precise": "close to the likeliest words",
    "balanced": "neither dull nor loose",
    "creative": "more surprising",
    "wild": "anything may come",
}
Mode = Literal["", "readonly", "supervised", "edits", "full"]


def answering_options(command: C) -> C:
    """Add --agent, --provider and --model to a command."""
    model = click.option(
        "--model", type=Name("models"), metavar="NAME", default="", help="A model of the provider."
    )
    provider = click.option(
        "--provider",
        type=Name("providers"),
        metavar="NAME",
        default="",
        help="A provider of the config.",
    )
    agent = click.option("--agent", metavar="NAME", default="", help="An agent of the config.")
    return agent(provider(model(command)))


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """What the options of `agent` chose, for one message and for the REPL alike.

    Attributes:
        workspace: absolute folder, or empty for the configured one.
        here: work in the current folder, if the person trusts it.
        resume: go on with the newest conversation of the workspace.
        picks: let the person choose the conversation to go on with.
        interactive: whether a person may be asked.
        hints: what a router is asked for.
        sampling: goes before the preset.
        tools_allow: patterns of the tools that may be used; () is all that are offered.
        tool_mode: how they are offered, "" for the configured way.
        retry: whether incomplete answers are asked for again; None is as configured.
        think: whether the model is to think, or how much; "" is as the conversation has it.
        tool_choice: of the first answer: auto, required or a tool's name.
        url: of an API to ask instead of a configured provider.
        verbose: tell every event in a line.
        mode: how far the model may go without a person; "" as it is.
        log_file: where every event is appended as a line of JSON; "" for nowhere.
        max_rounds: after how many rounds of calls a turn ends; 0 is as configured.
        allow: patterns of shell commands that run unasked in the conversation.
        deny: patterns of shell commands that are refused in it.
        pictures: files that are shown with the message.
        allowed_tools: calls of other tools are asked about; () asks about none for that.
        plan_first: a turn only looks until the person said yes to its plan.
        documents: PDFs that are read with the message.
    """

    conversation_id: str = ""
    workspace: str = ""
    agent: str = ""
    provider: str = ""
    model: str = ""
    preset: str = ""
    here: bool = False
    resume: bool = False
    picks: bool = False
    interactive: bool = True
    progress: bool = True
    quiet: bool = False
    hints: dict[str, str] = {}
    sampling: SamplingWishes | None = None
    tools_allow: tuple[str, ...] = ()
    tool_mode: Literal["", "split", "unified", "both"] = ""
    retry: bool | None = None
    think: Literal["", "auto", "on", "off", "low", "medium", "high"] = ""
    tool_choice: str = "auto"
    url: str = ""
    verbose: bool = False
    log_file: str = ""
    mode: Mode = ""
    max_rounds: int = 0
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    pictures: tuple[bytes, ...] = ()
    plan_first: bool = False
    documents: tuple[Document, ...] = ()
    allowed_tools: tuple[str, ...] = ()

    def message(self, text: str, conversation_id: str, *, interactive: bool) -> SendMessage:
        """Return the request that sends a text."""
        given = {"text": text, "conversation_id": conversation_id, "interactive": interactive}
        unset = {"detach": False, "system": None, "untrusted": (), "files": (), "client": ""}
        return mirror(SendMessage, self, **given, **unset)

    def ruled(self, client: Client, conversation_id: str) -> str:
        """Put the rules of this run in force, each with a receipt; return where they hold.

        A new conversation is opened for them where none is given; the same is returned where there
        are none.

        Raises:
            ClawError: a rule is refused; what was opened for it is gone again.
        """
        rules = [(pattern, "allow") for pattern in self.allow]
        rules += [(pattern, "deny") for pattern in self.deny]
        if not rules:
            return conversation_id
        opened = ""
        if not conversation_id:
            request = OpenConversation(workspace=self.workspace, agent=self.agent)
            opened = client.call(request).id
        try:
            for pattern, verdict in rules:
                rule = {"pattern": pattern, "verdict": verdict}
                rule["conversation_id"] = conversation_id or opened
                client.call(msgspec.convert(rule, AddRule))
        except ClawError:
            if opened:
                client.call(DeleteConversation(conversation_id=opened))
            raise
        return conversation_id or opened

    def resumed(self, client: Client) -> ConversationLine | None:
        """Return the conversation to go on with; None to open a new one."""
        if self.conversation_id:
            return client.call(OpenConversation(conversation_id=self.conversation_id))
        if not self.resume:
            return None
        return client.call(
            OpenConversation(workspace=self.workspace, agent=self.agent, resume=True)
        )
