"""Whether a home came from a backup, as `clawctl backup restore` left it written there."""

from pathlib import Path

import msgspec

NOTE = "restored.json"
MAX_BYTES = 64 << 10


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a restored home came from; `old_log` is empty where the chain goes on."""

    created_at: str = ""
    restored_at: str = ""
    host: str = ""
    receipts: int = 0
    old_log: str = ""


def restored_from(home: Path) -> str:
    """Return a line that says which backup the home came from; empty for a home that did not."""
    try:
        with (home / NOTE).open("rb") as file:
            origin = msgspec.json.decode(file.read(MAX_BYTES), type=Origin)
    except (OSError, msgspec.MsgspecError):
        return ""
    line = f"the backup of {origin.created_at} from {origin.host}, put back {origin.restored_at}"
    if origin.old_log:
        line += f"; its {origin.receipts} receipts are in {origin.old_log}, a new chain began here"
    return line
