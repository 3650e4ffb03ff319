"""What undo needs to know of every change of a file, and the log that keeps it.

file_write → Workspace → ChangeKeeper.keep → ChangeLog (memory): old content, then a row
a command  → CommandLog.enter → … → CommandLog.leave: a row for each difference
undo       → ChangeLog.newest → Workspace → ChangeKeeper.keep (so undo can be undone as well)
"""

import threading
from collections.abc import Sequence
from typing import Any, BinaryIO, Protocol

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
        is_of_many: it is one of those of a command, kept by what stood there before and after.
    """

    number: int
    call: CallFacts
    file: FileChange
    at: str
    kept: str = ""
    reverts: int = 0
    is_of_many: bool = False


class ChangeScope(msgspec.Struct, frozen=True, kw_only=True):
    """Whose changes are meant, in which workspace; with a conversation only those made in it."""

    owner: int
    workspace: str
    conversation_id: str = ""


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which calls of a scope are meant, where it is not the newest ones.

    Attributes:
        call: the call with this id, or the one whose id begins so.
        is_turn: those of the newest turn that changed anything.
        since: those that were made after this message of the scope's conversation.
    """

    call: str = ""
    is_turn: bool = False
    since: int = 0


NEWEST = Which()


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

    def keep_all(
        self,
        call: CallFacts,
        changes: Sequence[FileChange],
        *,
        reverts: int = 0,
        undoing: Undoing = NOT_UNDOING,
        is_whole: bool = False,
    ) -> list[int]:
        """Keep the changes that a command made, or that undo is about to make of many files.

        The content that they replace is kept already, by its hash; `reverts` is as of
        `keep`. Returns their numbers; none where nothing is kept for undo and `is_whole`.

        Raises:
            InvalidRequestError: `is_whole`, and there was no room for some of the content.
        """
        ...

    def keep_content(self, old: int, size: int) -> str:
        """Keep the content of an open file as far as there is room; returns its SHA-256."""
        ...

    def drop(self, *numbers: int) -> None:
        """Forget changes that were not made, or were taken back."""
        ...

    def newest(
        self, scope: ChangeScope, *, calls: int, reverting: bool, which: Which = NEWEST
    ) -> list[list[Change]]:
        """Return what the newest calls changed, newest first, where it is not undone already.

        `reverting` chooses between what undo did and what other tools did.

        Raises:
            InvalidRequestError: `which` fits more than one call, or names no message.
        """
        ...

    def peek(
        self, scope: ChangeScope, *, calls: int, reverting: bool, which: Which = NEWEST
    ) -> list[list[Change]]:
        """Do what `newest` does, quickly; unlike the others it is called from the loop's thread."""
        ...

    def content(self, change: Change) -> BinaryIO:
        """Open the content that a change replaced."""
        ...


class CommandChanges(msgspec.Struct, kw_only=True):
    """A command's stay in a workspace.

    Attributes:
        before: what stood there, as the log knows it; None where it could not be kept.
        problem: why not.
    """

    call: CallFacts
    before: Any = None
    problem: str = ""


class Aftermath(msgspec.Struct, frozen=True, kw_only=True):
    """What a command did that undo covers, and what it does not cover.

    Attributes:
        changed: how many files and folders undo takes back.
        uncovered: what of it undo cannot bring back, and why, for people.
    """

    changed: int = 0
    uncovered: tuple[str, ...] = ()


class CommandLog(Protocol):
    """Keeps what commands change. Never raises: what is not covered is said."""

    async def prepare(self, workspace: str) -> None:
        """Look at a workspace that is not known yet, which can take seconds."""
        ...

    async def enter(self, call: CallFacts) -> CommandChanges | None:
        """Keep what stands in the workspace, before a command runs; None where it cannot."""
        ...

    async def leave(self, visit: CommandChanges) -> Aftermath:
        """Find out what the command changed and keep that; called once, when it has ended."""
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
        self.call = call
        self._last = 0
        self.is_cancelled = threading.Event()
        self.reverts = 0
        self.undoing = NOT_UNDOING

    @override
    def keep(self, change: FileChange, old: int) -> None:
        self._last = 0
        self.check_shown(change)
        if self._log is not None and not _is_nothing(change):
            self._last = self._log.keep(
                self.call, change, old, reverts=self.reverts, undoing=self.undoing
            )
        if self.is_cancelled.is_set():
            self.drop()
            raise CancelledByUserError("the call was cancelled; nothing was changed")

    def check_shown(self, change: FileChange) -> None:
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
