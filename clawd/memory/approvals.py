"""Calls that waited for an approval and got no answer in time: kept, so that it may come late.

One is held from when it is asked about, so that a crash loses no question, and may be answered late
from when that lapsed. One goes when it is answered, with its conversation, when it is too old, and
when there are too many of its owner's. A newer message of the user in its conversation ends its
time as well; it is kept until then, to say so.
"""

import logging
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from clawd.errors import NotFoundError
from clawd.memory.rows import clean, encode
from clawd.memory.writer import Database
from clawd.providers.base import ToolCall
from clawd.security.principal import Principal
from clawd.wire.events import ApprovalRequested

KEPT_DAYS = 7
MAX_KEPT = 100  # of each owner; the oldest go

_log = logging.getLogger(__name__)

_USER = "SELECT max(id) FROM messages WHERE conversation_id = l.conversation_id AND role = 'user'"
_COLUMNS = f"l.call, l.message_id = ({_USER})"


class LapsedCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call whose question lapsed.

    Attributes:
        shown: the question as it was shown; its arguments are those that would be run.
        tainted_by: the sources of untrusted text that made it ask.
        sources: where all the untrusted text came from that its conversation held.
        receipt_id: of the refusal that the silence was.
        call: as the model made it.
        principal: for whom it was asked.
        sent: how the turn was sent that goes on with it, as JSON-like data.
        is_held: its question is open, or was so when clawd ended.
        asked_at: UTC, ISO 8601.
        lapsed_at: likewise.
    """

    shown: ApprovalRequested
    conversation_id: str
    receipt_id: str
    call: ToolCall
    principal: Principal
    asked_at: str
    lapsed_at: str
    tainted_by: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    sent: dict[str, Any] = {}
    is_held: bool = False

    @property
    def id(self) -> str:
        """The approval's id."""
        return self.shown.approval_id

    @property
    def until(self) -> str:
        """Until when it may be answered."""
        end = datetime.fromisoformat(self.lapsed_at) + timedelta(days=KEPT_DAYS)
        return end.isoformat(timespec="seconds")


class LapsedCalls:
    """Those in memory. Every method raises `StorageError` when the disk fails."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, call: LapsedCall) -> None:
        """Keep a call, durably, as one of its conversation as that stands now."""
        owner = call.principal.uid

        def act(connection: sqlite3.Connection) -> None:
            conversation = clean(call.conversation_id)
            connection.execute("DELETE FROM lapsed_calls WHERE lapsed_at < ?", (_oldest(),))
            connection.execute(
                "DELETE FROM lapsed_calls WHERE conversation_id = ?", (conversation,)
            )
            connection.execute(
                "INSERT INTO lapsed_calls "
                "(approval_id, conversation_id, owner, message_id, lapsed_at, call) "
                "SELECT ?, ?, ?, coalesce(max(id), 0), ?, ? FROM messages "
                "WHERE conversation_id = ? AND role = 'user'",
                (call.id, conversation, owner, call.lapsed_at, encode(call), conversation),
            )
            connection.execute(
                "DELETE FROM lapsed_calls WHERE owner = :owner AND number <= (SELECT number "
                "FROM lapsed_calls WHERE owner = :owner ORDER BY number DESC LIMIT 1 OFFSET :most)",
                {"owner": owner, "most": MAX_KEPT},
            )

        await self._database.write(act)

    async def answerable(self) -> Sequence[LapsedCall]:
        """Return those that may still be answered, oldest first."""
        query = f"SELECT {_COLUMNS} FROM lapsed_calls l WHERE lapsed_at >= ? ORDER BY number"  # noqa: S608
        rows = await self._database.read(lambda c: c.execute(query, (_oldest(),)).fetchall())
        found = [_decoded(text) for text, is_newest in rows if is_newest]
        return [each for each in found if each is not None and not each.is_held]

    async def held(self) -> Sequence[LapsedCall]:
        """Return those whose question is open, oldest first."""
        query = "SELECT call FROM lapsed_calls ORDER BY number"
        rows = await self._database.read(lambda c: c.execute(query).fetchall())
        found = [_decoded(text) for (text,) in rows]
        return [each for each in found if each is not None and each.is_held]

    async def find(self, approval_id: str) -> tuple[LapsedCall, bool] | None:
        """Return a call, and whether its conversation stands where it did; None for none."""
        query = f"SELECT {_COLUMNS} FROM lapsed_calls l WHERE approval_id = ? AND lapsed_at >= ?"  # noqa: S608
        given = (clean(approval_id), _oldest())
        row = await self._database.read(lambda c: c.execute(query, given).fetchone())
        call = None if row is None else _decoded(row[0])
        return None if call is None or call.is_held else (call, bool(row[1]))

    async def drop(self, approval_id: str) -> None:
        """Forget a call that was answered; idempotent."""
        query = "DELETE FROM lapsed_calls WHERE approval_id = ?"
        await self._database.write(lambda c: c.execute(query, (clean(approval_id),)).rowcount)


def take(connection: sqlite3.Connection, approval_id: str) -> None:
    """Forget a call in the write that notes that it is about to run.

    Raises:
        NotFoundError: it is not there any more.
    """
    query = "DELETE FROM lapsed_calls WHERE approval_id = ?"
    if not connection.execute(query, (clean(approval_id),)).rowcount:
        raise NotFoundError(f"approval {approval_id} was answered before")


def _oldest() -> str:
    return (datetime.now(UTC) - timedelta(days=KEPT_DAYS)).isoformat()


def _decoded(text: str) -> LapsedCall | None:
    """Return a call as it was kept; None for what nobody here has written."""
    try:
        return msgspec.json.decode(text, type=LapsedCall)
    except (msgspec.DecodeError, ValueError) as error:
        _log.warning("a call that waits for an approval cannot be read: %s", type(error).__name__)
        return None
