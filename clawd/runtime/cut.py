"""A cut through a conversation: which of its stored messages go, and the checkpoint that is left.

Pure. Places are indexes into the stored messages that are shown; a checkpoint has their ids.
"""

from collections.abc import Sequence

import msgspec

from clawd.memory.checkpoints import Checkpoint, Shown
from clawd.providers.base import Message
from clawd.runtime.compression import Choice


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """What of the stored messages goes and what stays."""

    found: Shown
    kept: Sequence[Message]
    tokens: Sequence[int]
    choice: Choice

    @property
    def earlier(self) -> str:
        """The checkpoint message in force so far, "" for none."""
        return self.found.checkpoint.text if self.found.checkpoint is not None else ""

    @property
    def gone(self) -> list[Message]:
        """The messages that go."""
        choice = self.choice
        return [self.kept[i] for i in range(choice.start) if i != choice.anchor]

    @property
    def replaced(self) -> int:
        """How many messages the checkpoint will stand for."""
        before = self.found.checkpoint.replaced if self.found.checkpoint is not None else 0
        return before + len(self.gone)

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint, without its text."""
        rows, choice, before = self.found.messages, self.choice, self.found.checkpoint
        upto = before.upto if before is not None else 0
        anchor = rows[choice.anchor].id if choice.anchor is not None else 0
        if choice.start:
            upto = max(upto, rows[choice.start - 1].id)
        elif before is not None:
            anchor = before.anchor  # nothing goes, so what was kept of the replaced stays as well
        kept = {stored.id for stored in rows[choice.start :]}
        earlier = before.cuts if before is not None else {}
        cuts = {key: cut for key, cut in earlier.items() if key in kept}
        for index, limit in choice.cuts.items():
            length = len(self.kept[index].content or "")
            cuts[rows[index].id] = length * limit // max(self.tokens[index], 1)
        return Checkpoint(
            text="",
            upto=upto,
            anchor=anchor,
            seen=rows[-1].id,
            replaced=self.replaced,
            cuts=cuts,
        )
