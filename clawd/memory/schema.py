"""The tables of memory.sqlite and how an older file becomes a current one.

    conversations  one row each                 messages  every message, in order of `id`
    intents        calls without a receipt yet  contents  arguments and results by SHA-256
    head           the chain's last receipt     settings  names and values
    changes        files that tools changed, for undo; the old contents lie in a folder
    untrusted_files  paths whose text came from outside
    checkpoints    what stands for the beginning of a conversation that was compressed
    plans          what is to be done, of a conversation or a workspace
    api_keys       of the HTTP gateway, each as a hash
    session_files  named contents of a conversation; their numbers in session_file_numbers
    points         where conversations stood when a client saw them, by digests of what it saw
    lapsed_calls   calls that waited for an approval, and may be answered late
    schedules      jobs that begin by themselves; each time of one is in schedule_runs, and where
                   its result goes in schedule_deliveries
    pictures       of messages, each once; which message has which is in message_pictures
    sop_runs       runs of procedures, each with how far it is
    embedding_models, message_vectors, note_vectors   for searches by meaning; see vectors.py

`messages_fts` finds words, `messages_trigrams` parts of words of three letters and more; triggers
keep both in step with `messages`. `PRAGMA user_version` says which step a file has reached.

sqlite-utils makes what it can. Its migrations would load it at every start (0.2 s), and note the
steps where an older clawd does not look for them; it knows no AUTOINCREMENT, no CHECK, and one
full-text index for a table.
"""

import logging
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from clawd.errors import StorageError

_log = logging.getLogger(__name__)

Step = Callable[[sqlite3.Connection], None] | str
"""SQL, or what does more than SQL can."""

RESTORE = (
    "End clawd and set the file aside together with its -wal and -shm, which belong to it; then "
    "put a backup in its place (one of `clawctl memory backup`). Without one memory starts empty; "
    "the receipts are in a file of their own and stay."
)

_TRIGRAMS = """
CREATE VIRTUAL TABLE IF NOT EXISTS messages_trigrams USING fts5(
    content, content='messages', content_rowid='id', tokenize='trigram'
);
CREATE TRIGGER IF NOT EXISTS messages_trigrams_insert AFTER INSERT ON messages BEGIN
    INSERT INTO messages_trigrams (rowid, content) VALUES (new.id, new.content);
END;
CREATE TRIGGER IF NOT EXISTS messages_trigrams_delete AFTER DELETE ON messages BEGIN
    INSERT INTO messages_trigrams (messages_trigrams, rowid, content)
        VALUES ('delete', old.id, old.content);
END;
CREATE TRIGGER IF NOT EXISTS messages_trigrams_update AFTER UPDATE OF content ON messages BEGIN
    INSERT INTO messages_trigrams (messages_trigrams, rowid, content)
        VALUES ('delete', old.id, old.content);
    INSERT INTO messages_trigrams (rowid, content) VALUES (new.id, new.content);
END;
"""

_TABLES = """
CREATE TABLE IF NOT EXISTS conversations (
    id TEXT PRIMARY KEY,
    owner INTEGER NOT NULL,
    title TEXT NOT NULL,
    workspace TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    agent TEXT NOT NULL,
    metadata TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS conversations_by_time ON conversations (updated_at, id);
CREATE INDEX IF NOT EXISTS conversations_by_owner ON conversations (owner, updated_at, id);

CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    owner INTEGER NOT NULL,
    turn_id TEXT NOT NULL,
    timestamp TEXT NOT NULL,
    role TEXT NOT NULL,
    content TEXT,
    tool_calls TEXT NOT NULL,
    tool_call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL,
    metadata TEXT NOT NULL,
    is_complete INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS messages_by_conversation ON messages (conversation_id, id);
CREATE INDEX IF NOT EXISTS messages_by_owner ON messages (owner, id);

CREATE TABLE IF NOT EXISTS intents (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    uid INTEGER NOT NULL,
    intent TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS contents (
    hash TEXT PRIMARY KEY,
    content BLOB NOT NULL,
    created_at TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS head (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    seq INTEGER NOT NULL,
    receipt_hash TEXT NOT NULL,
    updated_at TEXT NOT NULL
);

CREATE TABLE IF NOT EXISTS settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
"""


def _create(connection: sqlite3.Connection) -> None:
    """Create everything; running it again after a crash half-way finishes the work."""
    connection.executescript(_TABLES)
    _table(connection, "messages").enable_fts(
        ["content"], tokenize="unicode61 remove_diacritics 2", create_triggers=True, replace=True
    )
    connection.executescript(_TRIGRAMS)


def _table(connection: sqlite3.Connection, name: str) -> Any:
    from sqlite_utils import Database as Tables

    return Tables(connection, execute_plugins=False).table(name)


_CHANGES = """
CREATE TABLE IF NOT EXISTS changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    owner INTEGER NOT NULL,
    conversation_id TEXT NOT NULL,
    workspace TEXT NOT NULL,
    call_id TEXT NOT NULL,
    at TEXT NOT NULL,
    cost INTEGER NOT NULL,
    kept TEXT NOT NULL,
    reverts INTEGER NOT NULL,
    is_undone INTEGER NOT NULL DEFAULT 0,
    change TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS changes_by_owner ON changes (owner, workspace, number);
CREATE INDEX IF NOT EXISTS changes_by_call ON changes (call_id, number);
"""


_UNTRUSTED_FILES = """
CREATE TABLE IF NOT EXISTS untrusted_files (
    path BLOB NOT NULL,
    began_at_ns INTEGER NOT NULL,
    ended_at_ns INTEGER NOT NULL,
    sources TEXT NOT NULL,
    PRIMARY KEY (path, began_at_ns)
);
"""


_PLANS = """
CREATE TABLE IF NOT EXISTS plans (
    conversation_id TEXT UNIQUE REFERENCES conversations (id) ON DELETE CASCADE,
    owner INTEGER NOT NULL,
    workspace TEXT NOT NULL,
    plan TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS plans_by_owner ON plans (owner, workspace);
"""


_CHECKPOINTS = """
CREATE TABLE IF NOT EXISTS checkpoints (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    owner INTEGER NOT NULL,
    timestamp TEXT NOT NULL,
    text TEXT NOT NULL,
    upto INTEGER NOT NULL,
    anchor INTEGER NOT NULL,
    seen INTEGER NOT NULL,
    replaced INTEGER NOT NULL,
    cuts TEXT NOT NULL,
    is_summary INTEGER NOT NULL,
    provider TEXT NOT NULL,
    model TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS checkpoints_by_conversation ON checkpoints (conversation_id, id);
"""


# The content stands last: what lists files need not walk over its pages.
_SESSION_FILES = """
CREATE TABLE IF NOT EXISTS session_files (
    conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    owner INTEGER NOT NULL,
    mime TEXT NOT NULL,
    summary TEXT NOT NULL,
    size INTEGER NOT NULL,
    is_kept INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    content BLOB NOT NULL,
    PRIMARY KEY (conversation_id, name)
);
CREATE TABLE IF NOT EXISTS session_file_numbers (
    conversation_id TEXT PRIMARY KEY REFERENCES conversations (id) ON DELETE CASCADE,
    last INTEGER NOT NULL
);
"""


_POINTS = """
CREATE TABLE IF NOT EXISTS points (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    owner INTEGER NOT NULL,
    history TEXT NOT NULL,
    system TEXT NOT NULL,
    message_id INTEGER NOT NULL,
    sources TEXT NOT NULL,
    UNIQUE (conversation_id, history, system)
);
CREATE INDEX IF NOT EXISTS points_by_history ON points (owner, history);
CREATE INDEX IF NOT EXISTS points_by_owner ON points (owner, number);
"""


_API_KEYS = """
CREATE TABLE IF NOT EXISTS api_keys (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    owner INTEGER NOT NULL,
    name TEXT NOT NULL,
    scopes TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT NOT NULL,
    used_at TEXT NOT NULL
);
"""


# A vector says much of what its text says: it goes with the text, however that is deleted.
_VECTORS = """
CREATE TABLE IF NOT EXISTS embedding_models (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    identity TEXT NOT NULL UNIQUE,
    size INTEGER NOT NULL,
    least REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS message_vectors (
    message_id INTEGER PRIMARY KEY REFERENCES messages (id) ON DELETE CASCADE,
    owner INTEGER NOT NULL,
    model INTEGER NOT NULL,
    vector BLOB NOT NULL
);
CREATE TRIGGER IF NOT EXISTS message_vectors_update AFTER UPDATE OF content ON messages
BEGIN
    DELETE FROM message_vectors WHERE message_id = old.id;
END;
CREATE TABLE IF NOT EXISTS note_vectors (
    owner INTEGER NOT NULL,
    file TEXT NOT NULL,
    hash TEXT NOT NULL,
    size INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    model INTEGER NOT NULL,
    vector BLOB NOT NULL,
    PRIMARY KEY (owner, file)
);
"""


def _add_reasoning(connection: sqlite3.Connection) -> None:
    messages = _table(connection, "messages")
    if "reasoning" not in messages.columns_dict:  # a step that was interrupted is done again
        messages.add_column("reasoning", str, not_null_default="")


_LAPSED_CALLS = """
CREATE TABLE IF NOT EXISTS lapsed_calls (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    approval_id TEXT NOT NULL UNIQUE,
    conversation_id TEXT NOT NULL REFERENCES conversations (id) ON DELETE CASCADE,
    owner INTEGER NOT NULL,
    message_id INTEGER NOT NULL,
    lapsed_at TEXT NOT NULL,
    call TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS lapsed_calls_by_owner ON lapsed_calls (owner, number);
"""


_PICTURES = """
CREATE TABLE IF NOT EXISTS pictures (
    sha256 TEXT PRIMARY KEY,
    media_type TEXT NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS message_pictures (
    message_id INTEGER NOT NULL REFERENCES messages (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    sha256 TEXT NOT NULL REFERENCES pictures (sha256),
    PRIMARY KEY (message_id, place)
);
CREATE INDEX IF NOT EXISTS message_pictures_by_picture ON message_pictures (sha256);
CREATE TRIGGER IF NOT EXISTS message_pictures_delete AFTER DELETE ON message_pictures
WHEN NOT EXISTS (SELECT 1 FROM message_pictures WHERE sha256 = old.sha256)
BEGIN
    DELETE FROM pictures WHERE sha256 = old.sha256;
END;
"""


_SCHEDULES = """
CREATE TABLE IF NOT EXISTS schedules (
    id TEXT PRIMARY KEY,
    owner INTEGER NOT NULL,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    is_paused INTEGER NOT NULL,
    next_at INTEGER,
    job TEXT NOT NULL,
    UNIQUE (owner, name)
);
CREATE TABLE IF NOT EXISTS schedule_runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule_id TEXT NOT NULL REFERENCES schedules (id) ON DELETE CASCADE,
    key TEXT NOT NULL,
    cause TEXT NOT NULL,
    state TEXT NOT NULL,
    due_at INTEGER NOT NULL,
    times INTEGER NOT NULL,
    claimed_by TEXT NOT NULL,
    began_at REAL NOT NULL,
    ended_at REAL NOT NULL,
    conversation_id TEXT NOT NULL,
    detail TEXT NOT NULL,
    input TEXT NOT NULL,
    UNIQUE (schedule_id, key)
);
CREATE INDEX IF NOT EXISTS schedule_runs_by_state ON schedule_runs (state, schedule_id);
CREATE INDEX IF NOT EXISTS schedule_runs_by_time ON schedule_runs (schedule_id, due_at);
"""


_SOP_RUNS = """
CREATE TABLE IF NOT EXISTS sop_runs (
    id TEXT PRIMARY KEY,
    owner INTEGER NOT NULL,
    key TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    is_ended INTEGER NOT NULL,
    run TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS sop_runs_by_owner ON sop_runs (owner, is_ended, id);
"""


_DELIVERIES = """
CREATE TABLE IF NOT EXISTS schedule_deliveries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    schedule_id TEXT NOT NULL,
    run INTEGER NOT NULL REFERENCES schedule_runs (number) ON DELETE CASCADE,
    way TEXT NOT NULL,
    key TEXT NOT NULL,
    result TEXT NOT NULL,
    state TEXT NOT NULL,
    tries INTEGER NOT NULL,
    next_at REAL NOT NULL,
    problem TEXT NOT NULL,
    UNIQUE (run, way)
);
CREATE INDEX IF NOT EXISTS schedule_deliveries_by_state
    ON schedule_deliveries (state, next_at);
CREATE INDEX IF NOT EXISTS schedule_deliveries_by_schedule
    ON schedule_deliveries (schedule_id, way);
"""


STEPS: tuple[Step, ...] = (
    _create,
    _CHANGES,
    _UNTRUSTED_FILES,
    _PLANS,
    _CHECKPOINTS,
    _SESSION_FILES,
    _POINTS,
    _API_KEYS,
    _VECTORS,
    _add_reasoning,
    _LAPSED_CALLS,
    _PICTURES,
    _SCHEDULES,
    _SOP_RUNS,
    _DELIVERIES,
)


def prepare(connection: sqlite3.Connection, path: Path, *, steps: Sequence[Step] = STEPS) -> None:
    """Check the file and bring it to the current schema, keeping a copy of an older one.

    Raises:
        StorageError: it is damaged, or a newer clawd wrote it.
        sqlite3.Error: it cannot be read or written.
    """
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if found != "ok":
        raise StorageError(f"memory {path}: the file is damaged ({found})", hint=RESTORE)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > len(steps):
        raise StorageError(
            f"memory {path} has schema {version}, and this clawd knows schemas up to {len(steps)}",
            hint="A newer clawd wrote it: install that one again, or restore the copy it made.",
        )
    if 0 < version < len(steps):
        _keep_copy(connection, path, version)
    for number in range(version, len(steps)):
        take(steps[number], connection)
        connection.execute(f"PRAGMA user_version = {number + 1}")


def take(step: Step, connection: sqlite3.Connection) -> None:
    """Bring a file from one schema to the next."""
    if isinstance(step, str):
        connection.executescript(step)
    else:
        step(connection)


def _keep_copy(connection: sqlite3.Connection, path: Path, version: int) -> None:
    copy = path.with_name(f"{path.name}.schema-{version}")
    part = copy.with_name(f"{copy.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    try:
        connection.execute("VACUUM INTO ?", (str(part),))
        part.rename(copy)
    except (sqlite3.Error, OSError) as error:
        part.unlink(missing_ok=True)  # half a copy would take the room that is missing
        raise StorageError(
            f"memory {path} has the old schema {version}, and the copy that is kept before it is "
            f"changed cannot be written: {error}",
            hint="Nothing was changed. Free as much room as the file takes and start again, or go "
            "back to the clawd that wrote it.",
        ) from error
    _log.info("memory is migrated; a copy was kept", extra={"copy": str(copy)})
