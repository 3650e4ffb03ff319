"""Puts a backup in place of a home: unpacked and checked beside it, then moved in one step.

A backup without the private keys cannot write its receipt chain on. Its log is kept whole in
`receipts-restored/`, where it verifies as ever, and a new chain with a new first public key begins.
`restored.json` in the home says so, and the daemon tells it in its status.
"""

import contextlib
import os
import shlex
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from clawctl.backup_archive import ArchiveReader, Manifest, Progress
from clawctl.daemon_stop import detached_pid
from clawd.errors import ClawError, ForbiddenError, InvalidRequestError, ReceiptError, StorageError
from clawd.kernel.files import sync_folder
from clawd.paths import Layout, layout
from clawd.receipts.verify import find_receipt, verify

SPARE_BYTES = 64 << 20
LOG = "tool_receipts.log"
NOTE = "restored.json"
ESTOP = "ESTOP"
OLD_LOGS = "receipts-restored"


class CheckedBackup(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in a backup that holds what it says."""

    manifest: Manifest
    receipts: str
    memory: str


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What was put where.

    Attributes:
        old_home: where the home that was there lies now; empty where there was none.
        receipts: how the chain goes on, in words.
    """

    home: str
    old_home: str
    files: int
    receipts: str
    notes: tuple[str, ...]


class _Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What `restored.json` says."""

    created_at: str
    restored_at: str
    host: str
    home: str
    version: str
    receipts: int
    head: str
    first_public_key: str
    old_log: str


def check(stream: BinaryIO, room: Path, progress: Progress) -> CheckedBackup:
    """Unpack a backup into a folder of its own, check all of it, and throw it away.

    Raises:
        ClawError: it is damaged, or was changed.
    """
    with _staging(room) as staging:
        manifest = _unpack(stream, staging, progress)
        memory = _check_memory(staging / "home" / "memory.sqlite")
        return CheckedBackup(
            manifest=manifest, receipts=_check_chain(staging / "home", manifest), memory=memory
        )


def restore(stream: BinaryIO, target: Layout, *, replace: bool, progress: Progress) -> Restored:
    """Put a backup in place of a home that is empty, or moved aside with `replace`.

    Raises:
        ClawError: a daemon runs there, there is something already, or the backup is no good;
            then nothing was changed.
    """
    # A link stands for what it points to: with DynamicUser=yes /var/lib/clawd is one.
    home = target.home.resolve()
    _require_safe(home)
    _require_free(target, home, replace=replace)
    notes: list[str] = []
    try:
        home.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with _staging(home.parent) as staging:
            manifest = _unpack(stream, staging, progress)
            fresh = staging / "home"
            fresh.mkdir(mode=0o700, exist_ok=True)
            _check_memory(fresh / "memory.sqlite")
            outcome = _check_chain(fresh, manifest)
            outcome += "; " + _settle_receipts(fresh, manifest, target.home)
            if (staging / "workspace").exists():
                (staging / "workspace").rename(fresh / "workspace-restored")
                notes.append(f"The workspace lies in {target.home}/workspace-restored.")
            notes += _keep_stop(home, fresh)
            _give_to_owner(staging, home)
            old = _swap(fresh, home, replace=replace)
            notes += _put_config(staging / "config" / "config.toml", target, replace=replace)
    except OSError as error:
        raise StorageError(
            f"the backup cannot be put in {home}: {error.strerror or error}",
            hint="What was there is as it was. Choose another place with --into.",
        ) from error
    if manifest.home != str(target.home):
        notes.append(f"Paths in its config may still name the old home, {manifest.home}.")
    return Restored(
        home=str(target.home),
        old_home=str(old) if old is not None else "",
        files=len(manifest.files),
        receipts=outcome,
        notes=tuple(notes),
    )


def _require_safe(home: Path) -> None:
    """Refuse to write as root below a folder of somebody else, who could swap what is in it."""
    if os.geteuid() != 0:
        return
    for folder in home.parents:
        try:
            about = folder.stat()
        except FileNotFoundError:
            continue
        others_write = about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX
        if about.st_uid != 0 or others_write:
            who = f"uid {about.st_uid}" if about.st_uid else "others"
            raise ForbiddenError(
                f"{folder} can be changed by {who}, so root puts nothing below it",
                hint=f"Restore as its owner: sudo -u '#{about.st_uid or 'UID'}' clawctl backup "
                "restore …",
            )


def _require_free(target: Layout, home: Path, *, replace: bool) -> None:
    pid = detached_pid(target)
    if pid is not None:
        raise ClawError(
            f"a clawd runs in {target.home} (pid {pid or 'unknown'})",
            hint=f"Stop it first: {_stop_line(target)}",
        )
    if not replace and home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise ClawError(
            f"{target.home} is not empty",
            hint="With --replace it is moved aside, whole; with --into DIR the backup goes "
            "elsewhere.",
        )


def _stop_line(target: Layout) -> str:
    """Return the command that ends the daemon of a home, as it can be typed here."""
    named = "" if target.home == layout().home else f"CLAWD_HOME={shlex.quote(str(target.home))} "
    return f"{named}clawctl stop"


@contextlib.contextmanager
def _staging(room: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=".clawd-restore-", dir=room) as folder:
        yield Path(folder)


def _unpack(stream: BinaryIO, staging: Path, progress: Progress) -> Manifest:
    reader = ArchiveReader(stream)
    manifest = reader.manifest
    total, done = manifest.total_bytes, 0
    free = shutil.disk_usage(staging).free
    if total + SPARE_BYTES > free:
        raise StorageError(
            f"the backup holds {total} bytes, and {staging.parent} has room for {free}",
            hint="Free some, or restore elsewhere with --into.",
        )
    for entry, pieces in reader.files():
        path = staging / entry.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = 0o700 if entry.executable else 0o600
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, mode), "wb") as file:
            for piece in pieces:
                file.write(piece)
                done += len(piece)
                progress(done, total)
            file.flush()
            os.utime(file.fileno(), ns=(entry.mtime_ns, entry.mtime_ns))
            os.fsync(file.fileno())
    return manifest


def _check_memory(path: Path) -> str:
    if not path.exists():
        return "none"
    try:
        # As it lies there: nothing beside it is read, nothing is written.
        with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        found = str(error)
    if found != "ok":
        raise InvalidRequestError(
            f"memory in this backup is damaged: {found}", hint="Take an older backup."
        )
    return "whole"


def _check_chain(home: Path, manifest: Manifest) -> str:
    if not (home / LOG).exists():
        return "no receipts"
    facts = manifest.receipts
    anchor = (facts.seq, facts.hash) if facts.seq else None
    try:
        found = verify(home / LOG, anchor=anchor, public_key=facts.first_public_key or None)
    except ReceiptError as error:
        raise InvalidRequestError(f"its receipts cannot be read: {error.message}") from error
    # Evidence of a broken chain is kept, not refused: it is reported.
    return found.message


def _settle_receipts(fresh: Path, manifest: Manifest, final: Path) -> str:
    """Leave a home whose next start is right; return how the chain goes on."""
    has_log, old_log = (fresh / LOG).exists(), ""
    has_key = (fresh / "checkpoint.key").exists()
    if has_log:
        _forget_finished_calls(fresh)
    if has_log and not has_key:
        folder = Path(OLD_LOGS) / manifest.created_at.replace(":", "")
        (fresh / folder).mkdir(mode=0o700, parents=True)
        for file in [*fresh.glob(f"{LOG}*"), *fresh.glob("checkpoint.pub")]:
            file.rename(fresh / folder / file.name)
        _forget_head(fresh / "memory.sqlite")
        old_log = str(final / folder / LOG)
        outcome = f"its log is kept in {old_log}, and a new chain begins"
    else:
        outcome = "the chain goes on with its own key" if has_log else "a new chain begins"
    origin = _Origin(
        created_at=manifest.created_at,
        restored_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        host=manifest.host,
        home=manifest.home,
        version=manifest.version,
        receipts=manifest.receipts.seq,
        head=manifest.receipts.hash,
        first_public_key=manifest.receipts.first_public_key,
        old_log=old_log,
    )
    note = fresh / NOTE
    note.write_bytes(msgspec.json.format(msgspec.json.encode(origin)) + b"\n")
    note.chmod(0o600)
    return outcome


def _forget_finished_calls(fresh: Path) -> None:
    """Remove open intents whose receipt was written between the copies of memory and log."""
    if not (fresh / "memory.sqlite").exists():
        return
    with _opened(fresh / "memory.sqlite") as connection, connection:
        for (call_id,) in connection.execute("SELECT id FROM intents").fetchall():
            if find_receipt(fresh / LOG, call_id) is not None:
                connection.execute("DELETE FROM intents WHERE id = ?", (call_id,))


def _forget_head(memory: Path) -> None:
    """The log that the head stands in is kept elsewhere now."""
    if memory.exists():
        with _opened(memory) as connection, connection:
            connection.execute("DELETE FROM head")


@contextlib.contextmanager
def _opened(memory: Path) -> Iterator[sqlite3.Connection]:
    try:
        with closing(sqlite3.connect(memory)) as connection:
            yield connection
    except sqlite3.Error as error:
        raise StorageError(f"memory of the backup cannot be changed: {error}") from error


def _keep_stop(home: Path, fresh: Path) -> list[str]:
    """Let an emergency stop that is set stay set: only `estop --clear` ends one."""
    if not os.path.lexists(home / ESTOP) or (fresh / ESTOP).exists():
        return []
    (fresh / ESTOP).touch(mode=0o600)
    return ["The emergency stop is still set. Allow tools again with: clawctl estop --clear"]


def _give_to_owner(staging: Path, home: Path) -> None:
    """Where root restores, everything belongs to whom the place belongs."""
    if os.geteuid() != 0:
        return
    about = home.stat() if home.exists() else home.parent.stat()
    for where, folders, names in os.walk(staging):
        for name in (*folders, *names):
            os.chown(Path(where, name), about.st_uid, about.st_gid, follow_symlinks=False)


def _swap(fresh: Path, home: Path, *, replace: bool) -> Path | None:
    """Put the new home in place; return where the old one lies now."""
    old: Path | None = None
    if home.exists() and replace and any(home.iterdir()):
        old = _aside(home)
        home.rename(old)
    try:
        fresh.rename(home)
    except OSError:
        if old is not None:
            old.rename(home)
        raise
    sync_folder(home.parent)
    return old


def _put_config(config: Path, target: Layout, *, replace: bool) -> list[str]:
    """Put a config that lay outside its home where it belongs; never over another one."""
    if not config.exists():
        return []
    place = target.config
    if place.exists() and place.read_bytes() == config.read_bytes():
        return []
    if place.exists() and not replace:
        place = place.with_name(f"{place.name}.restored")
    elif place.exists():
        place.rename(_aside(place))
    place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    shutil.copyfile(config, place)
    place.chmod(0o640)
    return [f"The config lies in {place}."]


def _aside(path: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in range(100):
        tail = f"-{number}" if number else ""
        aside = path.with_name(f"{path.name}.before-restore-{stamp}{tail}")
        if not os.path.lexists(aside):
            return aside
    raise StorageError(f"there is no free name beside {path}")
