"""What every channel can do: begin, and bring something to a person who did not ask just now.

The doors (`rpc`, `http`) take messages in and answer them; what only pushes (`notify`) takes none.
A further channel implements `Channel`, hands what it takes in to `runtime.inbox`, and follows
`runtime.hub` for what happens.
"""

from typing import Any, ClassVar, Literal, Protocol

import msgspec

from clawd.wire.events import Notice

Kind = Literal["approval", "turn", "message"]


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """Something for a person.

    Attributes:
        kind: an approval that waits, a turn that ended, or a message.
        title: a few words.
        text: a sentence or two, without secrets and without text of a model or a tool.
        conversation_id: what it is about, "" for none.
        owner: uid of whom it is for; None is whoever owns the daemon.
        draft_id: what is sent under the same id later takes its place, where a channel can do
            that; "" is never replaced.
    """

    kind: Kind
    title: str
    text: str
    conversation_id: str = ""
    owner: int | None = None
    draft_id: str = ""

    def notice(self) -> Notice:
        """Return it as the followers of a door are told."""
        return Notice(level="info", text=f"{self.title}: {self.text}")


class Channel(Protocol):
    """A way to people.

    Attributes:
        name: what the log and the config call it.
        supports_draft_updates: an `Outgoing` takes the place of an earlier one of its draft id.
    """

    name: ClassVar[str]
    supports_draft_updates: ClassVar[bool]

    async def start(self, *args: Any, **kwargs: Any) -> None:
        """Begin; a door takes what it listens on.

        Raises:
            ClawError: it cannot begin; the message says what is missing.
        """
        ...

    async def send(self, outgoing: Outgoing) -> bool:
        """Bring it to its person; tell whether anybody was reached. Never raises a ClawError."""
        ...

    async def close(self) -> None:
        """End; idempotent."""
        ...
