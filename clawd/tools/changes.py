"""What undo needs to know of every change of a file, and the log that keeps it.

file_write → Workspace → ChangeKeeper.keep → ChangeLog (memory): old content, then a row
undo       → ChangeLog.newest → Workspace → ChangeKeeper.keep (so undo can be undone as well)
"""

import threading
from typing import BinaryIO, Protocol

import msgspec
from typing_extensions import override

from clawd.errors import BusyError, CancelledByUserError
from clawd.security.file_content import FileChange, Keeper
from clawd.tools.base import ToolContext
from clawd.tools.preview import Preview, is_as_shown


class CallFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Whose call changes files, and where.

    Attributes:
        call_id: of the receipt; what one call changes is undone as a whole.
        conversation_id: empty for a call outside a conversation.
    """

    owner: int
    conversation_id: str
    workspace: str
    call_id: str
    tool: str


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change that was kept.

    Attributes:
        number: grows with time, unique in one home.
        file: what changed, and how.
        at: UTC, as `2026-11-21T08:00:00.000000Z`.
        kept: where the log keeps the old content; empty when there was no file.
        reverts: number of the change that this one took back, or 0.
    """

    number: int
    call: CallFacts
    file: FileChange
    at: str
    kept: str = ""
    reverts: int = 0


class ChangeScope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose changes are meant, in which workspace; with a conversation only those made in it."""

    owner: int
    workspace: str
    conversation_id: str = ""


class Undoing(msgspec.Struct, frozen=True, kw_only=True):
    """What is being taken back while a change is kept.

    Attributes:
        number: the change whose content is needed no more when this one is made.
        calls: ids of the calls that must not be dropped to make room.
    """

    number: int = 0
    calls: tuple[str, ...] = ()


NOT_UNDOING = Undoing()


class ChangeLog(Protocol):
    """Keeps changes. Methods block, and are called from a thread other than the loop's.

    All of them raise `StorageError` when the disk fails. What belongs to another owner is never
    returned and never dropped to make room.
    """

    def keep(
        self,
        call: CallFacts,
        change: FileChange,
        old: int,
        *,
        reverts: int = 0,
        undoing: Undoing = NOT_UNDOING,
    ) -> int:
        """Keep the content of the open file `old` (-1: there is none) and the change; durable.

        Returns the change's number. `reverts` is the number of a change that this one takes back.

        Raises:
            InvalidRequestError: there is no room for the content; the change must not be made.
        """
        ...

    def drop(self, number: int) -> None:
        """Forget a change that was not made, or was taken back."""
        ...

    def newest(self, scope: ChangeScope, *, calls: int, reverting: bool) -> list[list[Change]]:
        """Return what the newest calls changed, newest first, where it is not undone already.

        `reverting` chooses between what undo did and what other tools did.
        """
        ...

    def peek(self, scope: ChangeScope, *, calls: int, reverting: bool) -> list[list[Change]]:
        """Do what `newest` does, quickly; unlike the others it is called from the loop's thread."""
        ...

    def content(self, change: Change) -> BinaryIO:
        """Open the content that a change replaced."""
        ...


class ChangeKeeper(Keeper):
    """Keeps what one call changes.

    Args:
        log: keeps the changes for undo; None keeps none.
        call: whose changes they are.
        preview: what was shown of them; None where nothing was.

    Attributes:
        is_cancelled: set when nobody wants the call's changes any more.
        reverts: number of the change that is being taken back, or 0.
        undoing: what must not be dropped meanwhile.
    """

    def __init__(
        self, log: ChangeLog | None, call: CallFacts, preview: Preview | None = None
    ) -> None:
        self._log = log
        self._shown = None if preview is None else list(preview.writes)
        self._call = call
        self._last = 0
        self.is_cancelled = threading.Event()
        self.reverts = 0
        self.undoing = NOT_UNDOING

    @override
    def keep(self, change: FileChange, old: int) -> None:
        self._last = 0
        self._check_shown(change)
        if self._log is not None and not _is_nothing(change):
            self._last = self._log.keep(
                self._call, change, old, reverts=self.reverts, undoing=self.undoing
            )
        if self.is_cancelled.is_set():
            self.drop()
            raise CancelledByUserError("the call was cancelled; nothing was changed")

    def _check_shown(self, change: FileChange) -> None:
        """Refuse a change that is not the next of those that were shown, or one after it."""
        if self._shown is None:
            return
        while self._shown:
            if is_as_shown(change, self._shown.pop(0)):
                return
        raise BusyError(
            f"{change.path} is not what it was when this change was shown, or would become "
            "something else; it is left as it is",
            retry_after_s=0.1,
            hint="Look at it again, and make the call anew.",
        )

    @override
    def drop(self) -> None:
        if self._log is not None and self._last:
            self._log.drop(self._last)
            self._last = 0


def call_facts(context: ToolContext, tool: str) -> CallFacts:
    """Return the facts of the call that the context belongs to."""
    return CallFacts(
        owner=context.principal.uid,
        conversation_id=context.conversation_id,
        workspace=str(context.workspace),
        call_id=context.receipt_id or context.call_id,
        tool=tool,
    )


def _is_nothing(change: FileChange) -> bool:
    before, after = change.before, change.after
    return before is not None and after is not None and before == after
