"""What a slash command may do with the REPL that runs it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from clawctl.agent_options import Choice, Mode
from clawctl.app import App
from clawctl.client import Client
from clawd.wire.conversations import ConversationLine
from clawd.wire.events import TurnFinished, TurnUsage
from clawd.wire.method import Method
from clawd.wire.tools import RunTool, ToolOutcome

R = TypeVar("R")


class Spent(msgspec.Struct, frozen=True, kw_only=True):
    """What the session has cost so far."""

    turns: int = 0
    seconds: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def after(self, usage: TurnUsage, seconds: float) -> "Spent":
        """Return the account with one more turn."""
        return Spent(
            turns=self.turns + 1,
            seconds=self.seconds + seconds,
            prompt_tokens=self.prompt_tokens + usage.prompt_tokens,
            completion_tokens=self.completion_tokens + usage.completion_tokens,
        )


class Host(Protocol):
    """The REPL or the shell as its commands see it.

    Attributes:
        keys: what /help says of the keys.
        absent: commands that make no sense here, each with what to do instead.
        conversation_id: where the next message goes, empty for a new conversation.
        is_stopped: whether the emergency stop was set when we last heard.
        system: text that goes in place of clawd's own system prompt; None for that one.
        shows_reasoning: whether a model's reasoning is shown whole.
        spent: what the session has cost.
    """

    keys: str
    absent: Mapping[str, str]
    conversation_id: str
    is_stopped: bool
    system: str | None
    shows_reasoning: bool
    spent: Spent

    @property
    def last(self) -> TurnFinished | None:
        """The last turn, None before the first of this conversation."""
        ...

    @property
    def last_text(self) -> str:
        """The last message that was sent, "" before the first."""
        ...

    @property
    def directory(self) -> Path:
        """The person's folder: names of files begin there."""
        ...

    @property
    def app(self) -> App:
        """What this run of clawctl was started with."""
        ...

    @property
    def choice(self) -> Choice:
        """What the next message is sent with."""
        ...

    @property
    def mode(self) -> Mode:
        """How far the model may go without a person, "" for as configured."""
        ...

    @property
    def workspace(self) -> str:
        """The conversation's workspace, empty for the configured one."""
        ...

    def choose(self, **changes: object) -> None:
        """Change what the next message is sent with."""
        ...

    def client(self) -> Client:
        """Return a living connection."""
        ...

    def call(self, params: Method[R]) -> R:
        """Call a method."""
        ...

    def wait_for(self, params: Method[R], what: str) -> R:
        """Call a method that may take long, and show that it goes on."""
        ...

    def run_tool(self, request: RunTool) -> ToolOutcome:
        """Run a tool in the conversation, if there is one, show and return what came of it."""
        ...

    def send(self, text: str) -> None:
        """Send a message as if it had been typed; the last one goes with what it brought."""
        ...

    def offer(self, text: str, *, is_typed: bool = False) -> None:
        """Put a text into the next prompt, to be edited."""
        ...

    def leave(self) -> None:
        """End after this line."""
        ...

    def go_on_in(self, conversation: ConversationLine | None) -> None:
        """Let the next message go to this conversation; None opens a new one."""
        ...

    def set_mode(self, mode: Mode) -> None:
        """Let the model go that far in this conversation, or in the one that begins next."""
        ...
