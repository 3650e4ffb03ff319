"""Memory as the rest of clawd holds it: one SQLite file and what is kept in it."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

from clawd.memory.changes import ChangeLimits, Changes
from clawd.memory.checkpoints import Checkpoints
from clawd.memory.conversations import Conversations
from clawd.memory.forks import Forks
from clawd.memory.keys import MemoryKeys
from clawd.memory.ledger import MemoryLedger
from clawd.memory.messages import Messages
from clawd.memory.origins import MemoryOrigins
from clawd.memory.plans import Plans
from clawd.memory.points import Points
from clawd.memory.search import Search
from clawd.memory.session_files import SessionFiles
from clawd.memory.upkeep import Upkeep
from clawd.memory.writer import Database


class Memory:
    """An open memory.

    Every method of its parts returns when what it did is on disk, and raises `StorageError` when
    it is not.

    Attributes:
        conversations: who talks about what, where.
        messages: what was said.
        checkpoints: what stands for messages that a model is no longer shown.
        forks: copies of conversations.
        search: finding it again.
        ledger: what receipts need beside their chain.
        origins: which files hold untrusted text.
        session_files: what belongs to a conversation beside its messages.
        upkeep: backups, checks, and what goes in the end.
        plans: what is to be done.
        points: where conversations stood when a client saw them.
        keys: what is kept of the keys of the HTTP gateway.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.conversations = Conversations(database)
        self.messages = Messages(database)
        self.checkpoints = Checkpoints(database)
        self.forks = Forks(database)
        self.search = Search(database)
        self.ledger = MemoryLedger(database)
        self.origins = MemoryOrigins(database)
        self.session_files = SessionFiles(database)
        self.upkeep = Upkeep(database)
        self.plans = Plans(database)
        self.points = Points(database)
        self.keys = MemoryKeys(database)

    @classmethod
    async def open(cls, path: Path) -> "Memory":
        """Open the file, creating it where it is missing; check and migrate it.

        Raises:
            StorageError: it cannot be opened, is damaged, or a newer clawd wrote it.
        """
        database = Database(path)
        await database.open()
        return cls(database)

    @property
    def path(self) -> Path:
        """The SQLite file."""
        return self._database.path

    @property
    def failure(self) -> str:
        """Why nothing can be written any more, whatever room there is; empty while all is well."""
        return self._database.failure

    async def changes(self, folder: Path, limits: Callable[[], ChangeLimits]) -> Changes:
        """Return what is kept for undo: rows here, old contents in the folder.

        Raises:
            StorageError: the folder cannot be had.
        """
        changes = Changes(self._database, folder, limits)
        await changes.open()
        return changes

    async def setting(self, name: str) -> str | None:
        """Return a value that was kept under the name, or None."""
        row = await self._database.read(
            lambda c: c.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        )
        return None if row is None else str(row[0])

    async def set_setting(self, name: str, value: str) -> None:
        """Keep a value under the name."""

        def act(connection: sqlite3.Connection) -> None:
            connection.execute("REPLACE INTO settings (name, value) VALUES (?, ?)", (name, value))

        await self._database.write(act)

    async def close(self) -> None:
        """Finish what waits and close the file; idempotent."""
        await self._database.close()
