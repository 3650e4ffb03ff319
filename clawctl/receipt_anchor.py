"""The head of the receipt log that the daemon's memory remembers, read while no daemon runs."""

from pathlib import Path


def remembered_head(memory: Path) -> tuple[int, str] | None:
    """Return the head (seq, hash) of a memory file; None where there is none to be read."""
    # Imported here: only verifying without a daemon needs it.
    import sqlite3

    try:
        connection = sqlite3.connect(memory.absolute().as_uri() + "?mode=ro", uri=True)
    except sqlite3.Error:
        return None
    try:
        row = connection.execute("SELECT seq, receipt_hash FROM head").fetchone()
    except sqlite3.Error:
        return None
    finally:
        connection.close()
    return None if row is None else (int(row[0]), str(row[1]))
