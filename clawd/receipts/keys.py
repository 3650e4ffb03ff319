"""The private key that signs the next checkpoint: made, replaced and destroyed on disk.

Beside `checkpoint.key` (32 bytes, 0600) there are `checkpoint.pub` (the chain's first public key in
hex, for people to copy) and, while a checkpoint is being written, `checkpoint.key.next`. One
replacement is these steps, each on disk before the next begins:

    1. write checkpoint.key.next            the chain still names the public half of checkpoint.key
    2. append the checkpoint to the log     now it names the public half of checkpoint.key.next
    3. overwrite checkpoint.key with zeros
    4. rename checkpoint.key.next over it

The last checkpoint in the log alone decides which of the two keys is valid, so there is never more
than one. After a crash between 1 and 2 `open` destroys the new key, between 2 and 4 the old one.
Overwriting reaches the same blocks on ext4 and xfs; a file system that copies on write, a flash
disk or a backup may keep what was there before.
"""

import os
import secrets
import stat
from pathlib import Path

from clawd.errors import ReceiptError
from clawd.kernel.files import sync_folder
from clawd.receipts.durable import write_private
from clawd.receipts.record import KEY_BYTES, ReceiptCheckpoint, public_key_of, signed

_DESTROYED = bytes(KEY_BYTES)


class CheckpointKey:
    """The one valid private key of a chain. Its owner holds the chain's lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next_path = path.with_name(path.name + ".next")
        self._private = b""
        self._next = b""

    @classmethod
    def open(cls, path: Path, *, promised: str | None) -> "CheckpointKey":
        """Finish or undo what a crash left, and return the key that is valid.

        Args:
            path: of the private key.
            promised: the public key that the chain's last checkpoint names; None for a chain
                without checkpoints, which takes the first key that is there or a new one.

        Raises:
            ReceiptError: the promised key is not there, or others may read or write its file.
            OSError: a file cannot be read or written.
        """
        key = cls(path)
        current, following = _read_key(path), _read_key(key._next_path)
        if promised is None and not current and not following:
            _create(path)
            current = _read_key(path)
        elif promised is None:
            _check_first(path, {public_key_of(each) for each in (current, following) if each})
        is_current = bool(current) and promised in {None, public_key_of(current)}
        if is_current:
            key._private = current
            _destroy(key._next_path)
        elif following and promised in {None, public_key_of(following)}:
            key._next = following
            key.replace()
        else:
            names = f"the last checkpoint names {promised}" if promised else "it holds no key"
            raise ReceiptError(
                f"{path} is not the key that signs the next checkpoint: {names}",
                hint="Restore the key together with the log. Without it this chain cannot go on: "
                "move the log, its rotated files and the key away and keep them; a new chain "
                "begins at the next start.",
            )
        if promised is None:
            _publish(path, key.public_key)
        return key

    @property
    def public_key(self) -> str:
        """The public half in hex."""
        return public_key_of(self._private)

    def sign(self, seq: int, head_hash: str) -> ReceiptCheckpoint:
        """Make the next key, have it on disk, and return a checkpoint that names it.

        Call `replace` when the checkpoint is on disk. Until then this key stays the valid one.

        Raises:
            OSError: the next key is not on disk.
        """
        self._next = secrets.token_bytes(KEY_BYTES)
        write_private(self._next_path, self._next)
        sync_folder(self._next_path.parent)
        return signed(
            self._private, seq=seq, head_hash=head_hash, next_public_key=public_key_of(self._next)
        )

    def replace(self) -> None:
        """Destroy the key that signed and put the next one in its place.

        Raises:
            OSError: that is not on disk; `open` finishes it.
        """
        self._private = self._next
        self._next = b""
        _overwrite(self._path)
        self._next_path.replace(self._path)
        sync_folder(self._path.parent)


def first_public_key(path: Path) -> str:
    """Return the first public key of a chain without checkpoints, making its key if need be.

    Raises:
        ReceiptError: the key cannot be made or read, or belongs to a log that is missing.
    """
    try:
        is_new = not path.exists()
        if is_new:
            _create(path)
        public_key = public_key_of(_read_key(path))
        if not is_new:
            _check_first(path, {public_key})
        _publish(path, public_key)
    except (OSError, ValueError) as error:
        raise ReceiptError(
            f"the key of the checkpoints cannot be made at {path}: {error}",
            hint="Its folder must be there and belong to the daemon's user.",
        ) from error
    return public_key


def _read_key(path: Path) -> bytes:
    """Return the private key; none when it is missing, destroyed or half written."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        content = file.read(KEY_BYTES + 1) if stat.S_ISREG(facts.st_mode) else b""
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid != os.geteuid() or mode & 0o077:
        raise ReceiptError(
            f"{path} must belong to uid {os.geteuid()} with mode 0600: it has uid "
            f"{facts.st_uid}, mode {mode:04o}",
            hint=f"chmod 600 {path}, and think about who may have read it",
        )
    return content if len(content) == KEY_BYTES and content != _DESTROYED else b""


def _create(path: Path) -> None:
    path.with_suffix(".pub").unlink(missing_ok=True)  # of a chain whose key was moved away
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        write_private(partial, secrets.token_bytes(KEY_BYTES), os.O_EXCL)
        # link, not rename: of two that make the key at once the first one wins.
        path.hardlink_to(partial)
    except FileExistsError:
        _overwrite(partial)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)


def _check_first(path: Path, keys: set[str]) -> None:
    """Refuse a key that signs no first checkpoint: the log that it belongs to is missing.

    A new chain would destroy it, and the old one could never go on.
    """
    first = _published(path)
    if first and first not in keys:
        raise ReceiptError(
            f"{path} belongs to a receipt log that began with the public key {first}, and that log "
            "is not there or lost its end",
            hint="Put the log back (is its disk mounted?). To begin a new chain, move the key away "
            "and keep it together with the old log.",
        )


def _destroy(path: Path) -> None:
    if path.exists():
        _overwrite(path)
        path.unlink()
        sync_folder(path.parent)


def _overwrite(path: Path) -> None:
    write_private(path, _DESTROYED, 0)


def _publish(path: Path, public_key: str) -> None:
    if _published(path) == public_key:
        return
    public = path.with_suffix(".pub")
    partial = public.with_name(public.name + ".new")
    write_private(partial, f"{public_key}\n".encode())
    partial.replace(public)
    sync_folder(public.parent)


def _published(path: Path) -> str:
    try:
        return path.with_suffix(".pub").read_text("ascii").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return ""
