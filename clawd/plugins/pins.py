"""What was approved of each plugin: a private JSON file beside the plugins, replaced as a whole."""

import os
import secrets
from pathlib import Path

import msgspec

from clawd.errors import StorageError
from clawd.receipts.durable import read_private, sync_folder, write_private

_MAX_BYTES = 64 << 20


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """One approval.

    Attributes:
        digest: the hash of the whole plugin.
        version: what it called itself.
        files: the hash of each of its files, by path.
        approved_at: when (UTC).
        approved_by: the uid of who said so.
    """

    digest: str
    version: str
    files: dict[str, str]
    approved_at: str
    approved_by: int


class _PinFile(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    plugins: dict[str, Pin]


class Pins:
    """The approvals of one home. Every method blocks.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, Pin]:
        """Return the approvals by plugin; a missing file has none.

        Raises:
            StorageError: unreadable, of another form, or somebody else could have written it.
        """
        data = read_private(self._path, _MAX_BYTES)
        if data is None:
            return {}
        try:
            found = msgspec.json.decode(data, type=_PinFile)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StorageError(f"{self._path} holds no approvals of plugins: {error}") from error
        if found.version != 1:
            raise StorageError(f"{self._path} is of version {found.version}, expected 1")
        return found.plugins

    def save(self, pins: dict[str, Pin]) -> None:
        """Write the approvals beside the file and rename.

        Raises:
            StorageError: the disk refused; the old file is still there.
        """
        partial = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        ordered = dict(sorted(pins.items()))
        data = msgspec.json.encode(_PinFile(version=1, plugins=ordered))
        try:
            write_private(partial, msgspec.json.format(data, indent=1), os.O_EXCL)
            partial.replace(self._path)
            sync_folder(self._path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StorageError(f"{self._path} cannot be written: {error}") from error
