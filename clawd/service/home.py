"""What a daemon needs of its home before it opens: folders, and what knows its secrets.

Whether the run before this one ended in order, and what a start had to put right after it.

While a daemon runs its home holds `last_run.json`; the end in order removes it:

    {"pid":4711,"started_at":"2026-11-21T08:00:00Z","boot":"1f0c…"}
"""

import asyncio
import contextlib
import logging
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from clawd.config.load import Loaded
from clawd.config.secrets import mcp_client_secret, mcp_token, mcp_variables, provider_key
from clawd.errors import ClawError, ConfigError, ForbiddenError, StorageError
from clawd.kernel.files import sync_folder
from clawd.receipts.chain import ReceiptChain
from clawd.receipts.durable import read_private, write_private
from clawd.security.redact import Redactor, load_or_create_key
from clawd.wire.secrets import is_secret_variable

FILE = "last_run.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MAX_BYTES = 4096


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Which daemon runs, since when (UTC), and in which life of the machine."""

    pid: int
    started_at: str
    boot: str = ""


class LastRun:
    """Finds out at start how the last run ended, and marks this one. One of a daemon.

    Attributes:
        found: what this start found and put right, a sentence each; empty after an end in order.
    """

    def __init__(self, home: Path) -> None:
        self.found: tuple[str, ...] = ()
        self._path = home / FILE
        self._has_begun = False

    async def look(self, loaded: Loaded, stack: AsyncExitStack) -> None:
        """Find out how the last run ended and what is gone; this one ends with the stack."""
        await asyncio.to_thread(self._look, loaded)
        stack.callback(self.end)

    def _look(self, loaded: Loaded) -> None:
        self._look_at_mark()
        for sentence in _what_is_gone(loaded):
            self.tell(sentence)

    def _look_at_mark(self) -> None:
        try:
            data = read_private(self._path, _MAX_BYTES)
        except StorageError as error:
            _log.warning("whether the last run ended in order is not known: %s", error.message)
            return
        if data is not None:
            self.tell(_how_it_ended(data))

    def tell(self, sentence: str) -> None:
        """Add what was found, and log it."""
        self.found = (*self.found, sentence)
        _log.warning(sentence)

    def tell_of_receipts(self, chain: ReceiptChain, *, failed: int, denied: int) -> None:
        """Add what was wrong at the end of the receipt log, and which calls were closed."""
        if chain.torn is not None:
            self.tell(
                f"half a receipt ({chain.torn.length} bytes) at the end of the receipt log was set "
                f"aside in {chain.torn.file}; the chain goes on before it"
            )
        if failed:
            self.tell(
                f"{_counted(failed)} cut off in the middle: the receipt says `failed: "
                "interrupted`, and what the call did until then stays done"
            )
        if denied:
            self.tell(
                f"{_counted(denied)} still waiting for an approval: the receipt says `denied: "
                "interrupted`, and nothing was done"
            )

    def begin(self) -> None:
        """Mark that this daemon runs; a home that takes no mark is no reason not to."""
        mark = _Mark(pid=os.getpid(), started_at=_now(), boot=_boot())
        try:
            write_private(self._path, msgspec.json.encode(mark))
            sync_folder(self._path.parent)
        except OSError as error:
            _log.warning(
                "%s cannot be written (%s): a crash of this run will not be told",
                self._path,
                error.strerror,
            )
        self._has_begun = True

    def end(self) -> None:
        """Take the mark away, if this run has set it; idempotent."""
        if self._has_begun:
            self._has_begun = False
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def _how_it_ended(data: bytes) -> str:
    try:
        mark = msgspec.json.decode(data, type=_Mark)
    except msgspec.DecodeError:  # the machine went down while it was written
        return "the last clawd of this home did not end in order"
    who = f"the last clawd of this home (pid {mark.pid}, started {mark.started_at})"
    if mark.boot and mark.boot != _boot():
        return f"{who} did not end in order: the machine went down with it"
    return f"{who} did not end in order: it was killed or it crashed"


def _what_is_gone(loaded: Loaded) -> Iterator[str]:
    memory, receipts = loaded.config.memory.path, loaded.config.receipts.path
    if _is_empty(memory) and not _is_empty(receipts):
        state = "is empty" if memory.exists() else "is gone"
        yield (
            f"memory {memory} {state}, though there are receipts: it begins anew, without the "
            "conversations of before. To have them back end clawd and put a backup in its place"
        )
    if not loaded.path.exists() and not _is_empty(memory):
        yield (
            f"there is no config file {loaded.path}: built-in values are in force. Put it back, or "
            "write one with: clawctl init"
        )


def _is_empty(path: Path) -> bool:
    try:
        return path.stat().st_size == 0
    except OSError:
        return True


def _counted(calls: int) -> str:
    return "1 call was" if calls == 1 else f"{calls} calls were"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _boot() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


# Whether a home came from a backup, as `clawctl backup restore` left it written there.

_NOTE = "restored.json"
_MAX_MARKER_BYTES = 64 << 10


class _Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a restored home came from; `old_log` is empty where the chain goes on."""

    created_at: str = ""
    restored_at: str = ""
    host: str = ""
    receipts: int = 0
    old_log: str = ""


def restored_from(home: Path) -> str:
    """Return a line that says which backup the home came from; empty for a home that did not."""
    try:
        with (home / _NOTE).open("rb") as file:
            origin = msgspec.json.decode(file.read(_MAX_MARKER_BYTES), type=_Origin)
    except (OSError, msgspec.MsgspecError):
        return ""
    line = f"the backup of {origin.created_at} from {origin.host}, put back {origin.restored_at}"
    if origin.old_log:
        line += f"; its {origin.receipts} receipts are in {origin.old_log}, a new chain began here"
    return line


OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger(__name__)


def make_folders(loaded: Loaded) -> None:
    """Make the home, closed to others, and the workspace; what is there stays as it is.

    Raises:
        ClawError: one cannot be made.
    """
    _make_folder(loaded.layout.home, 0o700)
    _close_home(loaded.layout.home)
    _make_folder(loaded.config.workspace_dir, 0o777)


def redactor_of(loaded: Loaded, environ: Mapping[str, str]) -> Redactor:
    """Return what takes the configured keys out of all that is kept; makes the home's own key."""
    keys: list[str] = []
    for name, section in loaded.config.providers.models.items():
        try:
            keys.append(provider_key(name, section, environ) or "")
        except ConfigError:
            continue  # the provider itself says so when it is built
    for alias, server in loaded.config.mcp.servers.items():
        try:
            keys.append(mcp_token(alias, server, environ))
            keys.append(mcp_client_secret(alias, server, environ))
            variables = mcp_variables(alias, server, environ)
        except ConfigError:
            continue  # the server itself says so where it is listed
        keys += [value for name, value in variables.items() if is_secret_variable(name)]
    return Redactor(filter(None, keys), load_or_create_key(loaded.layout.secret_key))


def _close_home(home: Path) -> None:
    """Make sure that nobody else can put anything into the home, or take anything out of it.

    Raises:
        ClawError: it belongs to somebody else, or cannot be closed.
    """
    try:
        about = home.stat()
        if about.st_uid != os.geteuid():
            raise ForbiddenError(
                f"the home {home} belongs to uid {about.st_uid}, and clawd runs as uid "
                f"{os.geteuid()}: its owner could change what clawd keeps there",
                hint=f"chown -R {os.geteuid()} {home}, run clawd as its owner, or choose another "
                "home with CLAWD_HOME.",
            )
        if about.st_mode & OTHERS_MAY_WRITE:
            home.chmod(stat.S_IMODE(about.st_mode) & ~(stat.S_IRWXG | stat.S_IRWXO))
            _log.warning(
                "the home %s could be written by others (mode %04o): it was closed (0700). Look "
                "at what lies there; somebody may have changed it",
                home,
                stat.S_IMODE(about.st_mode),
            )
    except OSError as error:
        raise ClawError(
            f"the home {home} cannot be closed to others: {error.strerror}",
            hint=f"Close it with: chmod 700 {home}",
        ) from error


def _make_folder(folder: Path, mode: int) -> None:
    try:
        folder.mkdir(mode=mode, parents=True, exist_ok=True)
    except OSError as error:
        raise ClawError(
            f"the folder {folder} cannot be made: {error.strerror}",
            hint="Correct its permissions, choose another home with CLAWD_HOME, or another "
            "workspace_dir in the config.",
        ) from error
