"""Session files: named contents that belong to a conversation, and go with it.

They are rows of memory.sqlite, so that a backup, a quota or a deletion of the conversation takes
them along. Numbers of kept output are never given twice: what an old message refers to is that or
nothing.
"""

import mimetypes
import sqlite3
from collections.abc import Callable

import msgspec

from clawd.config.sections import SessionFilesSection
from clawd.errors import InvalidRequestError, NotFoundError
from clawd.memory.conversations import find_conversation
from clawd.memory.rows import Conversation, timestamp_now
from clawd.memory.writer import Database
from clawd.tools.session_files import TEXT_SUFFIX, SessionFile
from clawd.wire.references import check_name
from clawd.wire.safe_text import shortened, single_line

SUMMARY_LIMIT = 120
MERMAID = "text/vnd.mermaid"
_SUMMED_CHARACTERS = 2_000
_COLUMNS = "name, mime, summary, size, is_kept, created_at, updated_at"
_ONE = "conversation_id = ? AND name = ?"

# Every f-string of SQL here is made of constants; values go in as parameters.
# ruff: noqa: S608


class FileNews(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a session file.

    Attributes:
        file: as it is now; None when it is gone.
        is_by_model: a model wrote its summary.
    """

    conversation_id: str
    owner: int
    name: str
    file: SessionFile | None = None
    is_by_model: bool = False


def _tell_nobody(_news: FileNews) -> None:
    """Tell nobody."""


class _Put(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was put down, and the names of those that went to make room."""

    conversation: Conversation
    file: SessionFile
    dropped: tuple[str, ...]


class SessionFiles:
    """The session files in memory: `clawd.tools.session_files.SessionStore`, and what clients need.

    Attributes:
        limits: those in force; another value may be put in their place.
        tell: is told of every change once it is on disk, on the loop; never blocks and never
            raises. Files that go with their whole conversation are not told.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.limits = SessionFilesSection()
        self.tell: Callable[[FileNews], None] = _tell_nobody

    async def list(self, conversation_id: str, *, owner: int | None) -> tuple[SessionFile, ...]:
        """Return the session files, the last changed first."""

        def act(connection: sqlite3.Connection) -> tuple[SessionFile, ...]:
            found = find_conversation(connection, conversation_id, owner)
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM session_files WHERE conversation_id = ? "
                "ORDER BY updated_at DESC, rowid DESC",
                (found.id,),
            )
            return tuple(map(_file_of, rows))

        return await self._database.read(act)

    async def load(
        self, conversation_id: str, name: str, *, owner: int | None
    ) -> tuple[SessionFile, bytes]:
        """Return a session file and its content.

        Raises:
            NotFoundError: there is none of this name, or no conversation that the owner may see.
        """
        return await self.part(conversation_id, name, owner=owner)

    async def part(
        self,
        conversation_id: str,
        name: str,
        *,
        owner: int | None,
        offset: int = 0,
        length: int = -1,
    ) -> tuple[SessionFile, bytes]:
        """Return a session file and its bytes from `offset` on, at most `length` if it is not -1.

        Raises:
            NotFoundError: there is none of this name, or no conversation that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> tuple[SessionFile, bytes]:
            found = find_conversation(connection, conversation_id, owner)
            file = _found(connection, found.id, name)
            count = file.size if length < 0 else length
            (content,) = connection.execute(
                f"SELECT substr(content, ?, ?) FROM session_files WHERE {_ONE}",
                (offset + 1, count, found.id, name),
            ).fetchone()
            return file, bytes(content)

        return await self._database.read(act)

    async def save(
        self, conversation_id: str, name: str, content: bytes, *, owner: int | None
    ) -> SessionFile:
        """Create or replace a session file; from now on it is one that was written by name.

        Raises:
            InvalidRequestError: the name is none, or there is no room for the content.
            NotFoundError: there is no such conversation that the owner may see.
        """
        check_name(name)

        def act(connection: sqlite3.Connection) -> _Put:
            found = find_conversation(connection, conversation_id, owner)
            return self._put(connection, found, name, content, is_kept=False)

        return self._told(await self._database.write(act))

    async def append(
        self, conversation_id: str, name: str, content: bytes, *, owner: int | None
    ) -> SessionFile:
        """Add to a session file, creating it when it is missing.

        Raises:
            InvalidRequestError: the name is none, or there is no room for the whole.
            NotFoundError: there is no such conversation that the owner may see.
        """
        check_name(name)

        def act(connection: sqlite3.Connection) -> _Put:
            found = find_conversation(connection, conversation_id, owner)
            row = connection.execute(
                f"SELECT content FROM session_files WHERE {_ONE}", (found.id, name)
            ).fetchone()
            before = b"" if row is None else bytes(row[0])
            return self._put(connection, found, name, before + content, is_kept=False)

        return self._told(await self._database.write(act))

    async def keep(
        self,
        conversation_id: str,
        stem: str,
        content: bytes,
        *,
        owner: int | None,
        suffix: str = TEXT_SUFFIX,
    ) -> SessionFile:
        """Keep something under a new name, `<stem>-<number>.txt`, that was never given before.

        Raises:
            InvalidRequestError: the stem is none, or there is no room for the content.
            NotFoundError: there is no such conversation that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> _Put:
            found = find_conversation(connection, conversation_id, owner)
            name = _new_name(connection, found.id, stem, suffix)
            return self._put(connection, found, name, content, is_kept=True)

        return self._told(await self._database.write(act))

    async def summarise(
        self, conversation_id: str, file: SessionFile, summary: str, *, owner: int | None
    ) -> bool:
        """Give a file the summary that a model wrote of it; return whether it is still that file.

        Raises:
            NotFoundError: there is no such conversation that the owner may see.
        """
        text = shortened(" ".join(single_line(summary, _SUMMED_CHARACTERS).split()), SUMMARY_LIMIT)

        def act(connection: sqlite3.Connection) -> _Put | None:
            found = find_conversation(connection, conversation_id, owner)
            changed = connection.execute(
                f"UPDATE session_files SET summary = ? WHERE {_ONE} AND updated_at = ?",
                (text, found.id, file.name, file.updated_at),
            ).rowcount
            if not changed:
                return None
            return _Put(
                conversation=found, file=_found(connection, found.id, file.name), dropped=()
            )

        put = await self._database.write(act)
        if put is not None:
            self._told(put, is_by_model=True)
        return put is not None

    async def delete(self, conversation_id: str, name: str, *, owner: int | None) -> None:
        """Forget a session file.

        Raises:
            NotFoundError: there is none of this name, or no conversation that the owner may see.
        """

        def act(connection: sqlite3.Connection) -> Conversation:
            found = find_conversation(connection, conversation_id, owner)
            _found(connection, found.id, name)
            connection.execute(f"DELETE FROM session_files WHERE {_ONE}", (found.id, name))
            return found

        found = await self._database.write(act)
        self.tell(FileNews(conversation_id=found.id, owner=found.owner, name=name))

    async def copy(self, from_id: str, to_id: str, *, owner: int | None) -> int:
        """Give a conversation what another one has, with its numbers; returns how many files.

        What the other has of the same name already stays. For a fork, which begins with none.

        Raises:
            NotFoundError: one of them is not there, or not for the owner to see.
        """
        return await self._database.write(lambda c: copy_files(c, from_id, to_id, owner))

    def _told(self, put: _Put, *, is_by_model: bool = False) -> SessionFile:
        """Tell what a change did, and return the file."""
        conversation_id, owner = put.conversation.id, put.conversation.owner
        for name in put.dropped:
            self.tell(FileNews(conversation_id=conversation_id, owner=owner, name=name))
        self.tell(
            FileNews(
                conversation_id=conversation_id,
                owner=owner,
                name=put.file.name,
                file=put.file,
                is_by_model=is_by_model,
            )
        )
        return put.file

    def _put(
        self,
        connection: sqlite3.Connection,
        conversation: Conversation,
        name: str,
        content: bytes,
        *,
        is_kept: bool,
    ) -> _Put:
        dropped = self._make_room(connection, conversation.id, name, len(content))
        now = timestamp_now()
        mime, summary = described(name, content, is_text=is_kept and name.endswith(TEXT_SUFFIX))
        connection.execute(
            "INSERT INTO session_files (conversation_id, owner, mime, summary, size, is_kept, "
            "created_at, updated_at, content, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (conversation_id, name) DO UPDATE SET mime = excluded.mime, "
            "summary = excluded.summary, size = excluded.size, is_kept = excluded.is_kept, "
            "updated_at = excluded.updated_at, content = excluded.content",
            (
                conversation.id,
                conversation.owner,
                mime,
                summary,
                len(content),
                is_kept,
                now,
                now,
                content,
                name,
            ),
        )
        file = _found(connection, conversation.id, name)
        return _Put(conversation=conversation, file=file, dropped=dropped)

    def _make_room(
        self, connection: sqlite3.Connection, conversation_id: str, name: str, size: int
    ) -> tuple[str, ...]:
        """Drop the oldest of what the daemon kept until there is room; return their names.

        Raises:
            InvalidRequestError: there is none, even without all of that.
        """
        limits = self.limits
        if size > limits.max_file_bytes:
            raise InvalidRequestError(
                f"session file {name} would have {size} bytes; the limit is "
                f"{limits.max_file_bytes}",
                hint="Keep it in a file of the workspace, or in several session files.",
            )
        others = "conversation_id = ? AND name != ?"
        count, used = connection.execute(
            f"SELECT count(*), total(size) FROM session_files WHERE {others}",
            (conversation_id, name),
        ).fetchone()
        going = []
        for old, freed in connection.execute(
            f"SELECT name, size FROM session_files WHERE {others} AND is_kept = 1 "
            "ORDER BY created_at, rowid",
            (conversation_id, name),
        ).fetchall():
            if count < limits.max_files and used + size <= limits.max_conversation_bytes:
                break
            going.append((conversation_id, old))
            count, used = count - 1, used - freed
        if count >= limits.max_files or used + size > limits.max_conversation_bytes:
            raise InvalidRequestError(
                f"there is no room for session file {name}: {count} files written by name have "
                f"{int(used)} bytes; the limits are {limits.max_files} files and "
                f"{limits.max_conversation_bytes} bytes",
                hint="`clawctl files delete` makes room; [session_files] of the config has the "
                "limits.",
            )
        connection.executemany(f"DELETE FROM session_files WHERE {_ONE}", going)
        return tuple(old for _, old in going)


def copy_files(connection: sqlite3.Connection, from_id: str, to_id: str, owner: int | None) -> int:
    """Do what `SessionFiles.copy` does, within a transaction of the caller's.

    Raises:
        NotFoundError: one of the conversations is not there, or not for the owner to see.
    """
    source = find_conversation(connection, from_id, owner)
    target = find_conversation(connection, to_id, owner)
    copied = connection.execute(
        "INSERT OR IGNORE INTO session_files (conversation_id, owner, content, "
        f"{_COLUMNS}) SELECT ?, ?, content, {_COLUMNS} FROM session_files "
        "WHERE conversation_id = ? ORDER BY rowid",
        (target.id, target.owner, source.id),
    ).rowcount
    connection.execute(
        "INSERT INTO session_file_numbers (conversation_id, last) "
        "SELECT ?, last FROM session_file_numbers WHERE conversation_id = ? "
        "ON CONFLICT (conversation_id) DO UPDATE SET last = max(last, excluded.last)",
        (target.id, source.id),
    )
    return copied


def described(name: str, content: bytes, *, is_text: bool = False) -> tuple[str, str]:
    """Return type and summary of a content: what its name says, how many lines, how it begins.

    Args:
        name: of the file.
        content: all of it.
        is_text: it is text although NUL characters stand in it.
    """
    guessed = MERMAID if name.endswith(".mmd") else mimetypes.guess_type(name)[0]
    try:
        text = None if b"\0" in content and not is_text else content.decode()
    except UnicodeDecodeError:
        text = None
    if text is None:
        is_claimed = guessed is not None and not guessed.startswith("text/")
        return (guessed if is_claimed and guessed else "application/octet-stream"), "not text"
    lines = content.count(b"\n") + (not content.endswith(b"\n") and bool(content))
    counted = f"{lines} line{'' if lines == 1 else 's'}"
    begin = " ".join(single_line(text[:_SUMMED_CHARACTERS], _SUMMED_CHARACTERS).split())
    summary = f"{counted}: {begin}" if begin else counted
    return guessed or "text/plain", shortened(summary, SUMMARY_LIMIT)


def _new_name(connection: sqlite3.Connection, conversation_id: str, stem: str, suffix: str) -> str:
    while True:
        (number,) = connection.execute(
            "INSERT INTO session_file_numbers (conversation_id, last) VALUES (?, 1) "
            "ON CONFLICT (conversation_id) DO UPDATE SET last = last + 1 RETURNING last",
            (conversation_id,),
        ).fetchone()
        name = check_name(f"{stem}-{number}{suffix}")
        if not connection.execute(
            f"SELECT 1 FROM session_files WHERE {_ONE}", (conversation_id, name)
        ).fetchone():
            return name


def _found(connection: sqlite3.Connection, conversation_id: str, name: str) -> SessionFile:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM session_files WHERE {_ONE}", (conversation_id, name)
    ).fetchone()
    if row is None:
        raise NotFoundError(
            f"there is no session file {name[:100]!r} in this conversation; file_list with path "
            '"file+session://" lists those that there are'
        )
    return _file_of(row)


def _file_of(row: tuple[str, str, str, int, int, str, str]) -> SessionFile:
    name, mime, summary, size, is_kept, created_at, updated_at = row
    return SessionFile(
        name=name,
        mime=mime,
        summary=summary,
        size=size,
        is_kept=bool(is_kept),
        created_at=created_at,
        updated_at=updated_at,
    )
