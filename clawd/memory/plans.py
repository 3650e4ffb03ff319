"""Plans in memory: one of each conversation, gone with it, and one of each owner and workspace."""

import sqlite3
from collections.abc import Callable

import msgspec

from clawd.errors import NotFoundError
from clawd.memory.rows import clean, encode, timestamp_now
from clawd.memory.writer import Database
from clawd.tools.plans import Plan, PlanKey

_plan: msgspec.json.Decoder[Plan] = msgspec.json.Decoder(Plan)

_OF_CONVERSATION = "conversation_id = :conversation"
_OF_WORKSPACE = "conversation_id IS NULL AND owner = :owner AND workspace = :workspace"


class Plans:
    """`clawd.tools.plans.PlanStore` in memory.sqlite."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, key: PlanKey) -> Plan:
        """Return a plan; an empty one when there is none."""
        return await self._database.read(lambda c: _load(c, key))

    async def change(self, key: PlanKey, act: Callable[[Plan], Plan]) -> Plan:
        """Put what `act` makes of a plan in its place, durably, and return it."""

        def write(connection: sqlite3.Connection) -> Plan:
            plan = act(_load(connection, key))
            owner = _owner(connection, key)
            where, values = _where(key)
            connection.execute(f"DELETE FROM plans WHERE {where}", values)  # noqa: S608
            connection.execute(
                "INSERT INTO plans (conversation_id, owner, workspace, plan, updated_at) "
                "VALUES (?, ?, ?, ?, ?)",
                (
                    clean(key.conversation_id) or None,
                    owner,
                    clean(key.workspace),
                    encode(plan),
                    timestamp_now(),
                ),
            )
            return plan

        return await self._database.write(write)


def copy_plan(connection: sqlite3.Connection, from_id: str, to_id: str) -> None:
    """Give a conversation that has no plan a copy of another's, if that one has any."""
    connection.execute(
        "INSERT INTO plans (conversation_id, owner, workspace, plan, updated_at) "
        "SELECT ?, owner, workspace, plan, ? FROM plans WHERE conversation_id = ?",
        (to_id, timestamp_now(), from_id),
    )


def _where(key: PlanKey) -> tuple[str, dict[str, object]]:
    """Return a condition made of constants, and its values."""
    values: dict[str, object] = {
        "conversation": clean(key.conversation_id),
        "owner": key.owner,
        "workspace": clean(key.workspace),
    }
    return (_OF_CONVERSATION if key.conversation_id else _OF_WORKSPACE), values


def _load(connection: sqlite3.Connection, key: PlanKey) -> Plan:
    where, values = _where(key)
    row = connection.execute(f"SELECT plan FROM plans WHERE {where}", values).fetchone()  # noqa: S608
    return Plan() if row is None else _plan.decode(row[0])


def _owner(connection: sqlite3.Connection, key: PlanKey) -> int:
    """Return whom the plan belongs to: the conversation's owner, whoever acts in it."""
    if not key.conversation_id:
        return key.owner
    row = connection.execute(
        "SELECT owner FROM conversations WHERE id = ?", (clean(key.conversation_id),)
    ).fetchone()
    if row is None:
        raise NotFoundError(f"there is no conversation {key.conversation_id!r}")
    return int(row[0])
