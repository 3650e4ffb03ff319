"""Installed plugins: put in, listed, approved again, taken out; and which of them may run.

A plugin may run while its files are those that were approved, by hash. Every method blocks.
"""

import os
import re
import secrets
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from clawd.errors import ClawError, InvalidRequestError, NotFoundError, StorageError
from clawd.kernel.files import replace_file, sync_folder
from clawd.plugins.files import FRESH, OLD, PluginFile, PluginTree, put_tree, read_tree
from clawd.plugins.manifest import PluginManifest, manifest_of
from clawd.receipts.durable import read_private
from clawd.wire.policy import ANY_HOST
from clawd.wire.secrets import find_secrets

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


def pin_of(tree: PluginTree, by: int, version: str = "") -> Pin:
    """Return the approval of a tree as it is, by this uid, now."""
    return Pin(
        digest=tree.digest,
        version=version,
        files={each.path: each.digest for each in tree.files},
        approved_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        approved_by=by,
    )


class _PinFile(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    plugins: dict[str, Pin]


class PluginPins:
    """The approvals of plugins, or of skills, of one home. Every method blocks.

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
            raise StorageError(f"{self._path} holds no approvals: {error}") from error
        if found.version != 1:
            raise StorageError(f"{self._path} is of version {found.version}, expected 1")
        return found.plugins

    def save(self, pins: dict[str, Pin]) -> None:
        """Write the approvals beside the file and rename.

        Raises:
            StorageError: the disk refused; the old file is still there.
        """
        ordered = dict(sorted(pins.items()))
        data = msgspec.json.encode(_PinFile(version=1, plugins=ordered))
        try:
            replace_file(self._path, msgspec.json.format(data, indent=1))
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}") from error

    def known(self) -> dict[str, Pin]:
        """Return the approvals, none where they cannot be read; to approve reports why."""
        try:
            return self.load()
        except StorageError:
            return {}

    def put(self, name: str, pin: Pin) -> None:
        """Approve one (raises as `load` and `save` do)."""
        self.save({**self.load(), name: pin})

    def forget(self, name: str) -> None:
        """Take an approval back, if there is one (raises as `load` and `save` do)."""
        pins = self.load()
        if pins.pop(name, None) is not None:
            self.save(pins)


MAX_PLUGINS = 64

State = Literal["ready", "changed", "unapproved", "broken"]

_REMOVED = ".removed-"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}")


class InstalledPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin in its place.

    Attributes:
        name: its folder.
        state: ready, changed (since it was approved), unapproved, or broken.
        reason: why it does not run; "" when it does.
        folder: where it lies.
        digest: the hash of what lies there; "" when it cannot be read.
        manifest: what it says of itself; None when that cannot be read.
        approved_at: when it was approved, or "".
    """

    name: str
    state: State
    reason: str = ""
    folder: Path
    digest: str = ""
    manifest: PluginManifest | None = None
    approved_at: str = ""


class Review(msgspec.Struct, frozen=True, kw_only=True):
    """What a person sees before they say yes.

    Attributes:
        manifest: what the plugin says of itself.
        digest: what they say yes to.
        files: path, bytes and whether it is a program, of each file.
        reach: what it may do, in sentences.
        secrets: where it holds what looks like a secret.
        replaces: the version of this name that is installed, or "".
        changes: what differs from what was approved before.
    """

    manifest: PluginManifest
    digest: str
    files: tuple[tuple[str, int, bool], ...]
    reach: tuple[str, ...]
    secrets: tuple[str, ...]
    replaces: str = ""
    changes: tuple[str, ...] = ()


class PluginStore:
    """The plugins of one home. Safe to use from several threads.

    Args:
        folder: where they lie, a folder each.
        pins: what was approved.
    """

    def __init__(self, folder: Path, pins: PluginPins) -> None:
        self._folder = folder
        self._pins = pins
        self._changing = threading.Lock()

    def installed(self) -> list[InstalledPlugin]:
        """Return every plugin, by name, whether it may run or not.

        Raises:
            StorageError: the folder cannot be read.
        """
        try:
            names = sorted(os.listdir(self._folder))  # noqa: PTH208 - names are wanted
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"{self._folder} cannot be read: {error}") from error
        names = [name for name in names if not name.startswith(".")]
        try:
            pins, problem = self._pins.load(), ""
        except StorageError as error:
            pins, problem = {}, error.message
        return [self._look(name, pins.get(name), problem) for name in names[:MAX_PLUGINS]]

    def inspect(self, source: Path) -> Review:
        """Return what would be installed from a folder.

        Raises:
            InvalidRequestError: it is no plugin that could be.
        """
        return self._review(read_tree(source.resolve(), is_installed=False))

    def review(self, name: str) -> Review:
        """Return what approving an installed plugin again would say yes to.

        Raises:
            NotFoundError, InvalidRequestError: there is none, or it is broken.
        """
        tree = read_tree(self._place(name), is_installed=True)
        found = self._review(tree)
        if found.manifest.name != name:
            raise InvalidRequestError(
                f"the plugin in {name} calls itself {found.manifest.name}; they must be the same"
            )
        return found

    def install(self, source: Path, *, digest: str, by: int) -> Review:
        """Copy a plugin into its place and approve it, if it is still what was reviewed.

        Raises:
            InvalidRequestError: it is another one by now, or none.
            StorageError: the disk refused; what was there before is still there.
        """
        with self._changing:
            self._sweep()
            tree = read_tree(source.resolve(), is_installed=False)
            found = self._review(tree)
            _check_digest(found, digest)
            self._pins.load()  # first: what could not be approved must replace nothing
            if not found.replaces and len(self.installed()) >= MAX_PLUGINS:
                raise InvalidRequestError(f"there are {MAX_PLUGINS} plugins already")
            try:
                put_tree(tree, self._folder / found.manifest.name)
            except OSError as error:
                raise StorageError(f"the plugin cannot be written: {error}") from error
            self._pins.put(found.manifest.name, pin_of(tree, by, found.manifest.version))
            return found

    def approve(self, name: str, *, digest: str, by: int) -> Review:
        """Approve what lies in a plugin's place, if it is still what was reviewed.

        Raises:
            NotFoundError, InvalidRequestError: there is none, or it is another one by now.
            StorageError: the disk refused.
        """
        with self._changing:
            found = self.review(name)
            _check_digest(found, digest)
            tree = read_tree(self._place(name), is_installed=True)
            if tree.digest != digest:
                raise InvalidRequestError(f"{name} is being changed right now")
            self._pins.put(found.manifest.name, pin_of(tree, by, found.manifest.version))
            return found

    def remove(self, name: str) -> None:
        """Take a plugin and its approval away.

        Raises:
            NotFoundError: there is none of this name.
            StorageError: the disk refused.
        """
        with self._changing:
            place = self._place(name)
            if name in self._pins.known():
                self._pins.forget(name)  # first: what is left of it must not run
            try:
                doomed = self._folder / f"{_REMOVED}{secrets.token_hex(4)}"
                place.rename(doomed)
                sync_folder(doomed.parent)
                _delete(doomed)
            except OSError as error:
                raise StorageError(f"{place} cannot be removed: {error}") from error

    def _look(self, name: str, pin: Pin | None, problem: str) -> InstalledPlugin:
        folder = self._folder / name
        try:
            if not _NAME.fullmatch(name) or folder.is_symlink():
                raise InvalidRequestError("a plugin lies in a plain folder of its own name")
            tree = read_tree(folder, is_installed=True)
            manifest = manifest_of(tree)
            if manifest.name != name:
                raise InvalidRequestError(f"it calls itself {manifest.name}, not {name}")
        except ClawError as error:
            return InstalledPlugin(name=name, state="broken", reason=error.message, folder=folder)
        state, reason = _state_of(tree, pin)
        return InstalledPlugin(
            name=name,
            state=state,
            reason=problem or reason,
            folder=folder,
            digest=tree.digest,
            manifest=manifest,
            approved_at=pin.approved_at if pin is not None else "",
        )

    def _review(self, tree: PluginTree) -> Review:
        manifest = manifest_of(tree)
        try:
            pin = self._pins.load().get(manifest.name)
        except StorageError:
            pin = None
        return Review(
            manifest=manifest,
            digest=tree.digest,
            files=tuple(
                (each.path, len(each.data), each.is_program)
                for each in tree.files
                if each.data is not None
            ),
            reach=reach_of(manifest),
            secrets=secrets_in(tree),
            replaces=pin.version if pin is not None else "",
            changes=tuple(changes_since(pin, tree)) if pin is not None else (),
        )

    def _sweep(self) -> None:
        """Delete what an end in the middle of an installation or a removal left behind."""
        for prefix in (FRESH, OLD, _REMOVED):
            for left in self._folder.glob(f"{prefix}*"):
                _delete(left)

    def _place(self, name: str) -> Path:
        place = self._folder / name
        if not _NAME.fullmatch(name) or not place.is_dir() or place.is_symlink():
            raise NotFoundError(
                f"there is no plugin {name[:64]!r}", hint="clawctl plugin list shows them."
            )
        return place


def changes_since(pin: Pin, tree: PluginTree) -> Iterator[str]:
    """Yield what differs from what was approved, a file each."""
    now = {each.path: each.digest for each in tree.files}
    for path in sorted(now.keys() | pin.files.keys()):
        if path not in pin.files:
            yield f"new: {path}"
        elif path not in now:
            yield f"gone: {path}"
        elif now[path] != pin.files[path]:
            yield f"changed: {path}"


def _state_of(tree: PluginTree, pin: Pin | None) -> tuple[State, str]:
    if pin is None:
        return "unapproved", "nobody has approved it"
    if pin.digest == tree.digest:
        return "ready", ""
    changes = list(changes_since(pin, tree))
    rest = f" and {len(changes) - 3} more" if len(changes) > 3 else ""
    return "changed", f"it was changed since it was approved ({'; '.join(changes[:3])}{rest})"


def _check_digest(found: Review, digest: str) -> None:
    if found.digest != digest:
        raise InvalidRequestError(
            f"the plugin {found.manifest.name} is not what was reviewed: its hash is "
            f"{found.digest[:16]}…, not {digest[:16]}…",
            hint="Look at it again.",
        )


def _delete(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


MAX_FINDINGS = 50

_SECRET_FILES = re.compile(
    r"(?i)(.*/)?(\.env(\..*)?|\.netrc|\.pgpass|\.npmrc|\.pypirc|id_(rsa|dsa|ecdsa|ed25519)"
    r"|.*\.(pem|key|p12|pfx|kdbx|keystore)|credentials(\..*)?|secrets?\..*)"
)
_REACH = {
    "workspace-read": "it reads all files of the workspace of a call",
    "workspace-write": "it reads and changes all files of the workspace of a call",
}


def secrets_in(tree: PluginTree) -> tuple[str, ...]:
    """Return where the files hold what looks like a secret; never the secret itself."""
    found = []
    for each in tree.files:
        for finding in _secrets_of(each):
            found.append(finding)
            if len(found) >= MAX_FINDINGS:
                return (*found, "and perhaps more")
    return tuple(found)


def reach_of(manifest: PluginManifest) -> tuple[str, ...]:
    """Say what a plugin may do, a sentence for each capability."""
    told = [_REACH[each] for each in manifest.capabilities if each in _REACH]
    reached = manifest.reached
    if ANY_HOST in reached:
        told.append("it reaches every public host, by name and through the egress proxy")
    elif reached:
        told.append(f"it reaches {', '.join(reached)} and no other host unasked")
    else:
        told.append("it has no network")
    if not {"workspace-read", "workspace-write"} & set(manifest.capabilities):
        told.append("it sees no file of yours")
    low = [each.name for each in manifest.tools if each.risk == "low"]
    if low:
        told.append(f"unasked, as low risk, runs: {', '.join(low)}")
    return tuple(told)


def _secrets_of(file: PluginFile) -> Iterator[str]:
    if file.data is None:
        return
    if _SECRET_FILES.fullmatch(file.path):
        yield f"{file.path}: is named like a file of secrets"
    text = file.data.decode("utf-8", "replace")
    line, counted = 1, 0
    for secret in find_secrets(text):
        line, counted = line + text.count("\n", counted, secret.start), secret.start
        yield f"{file.path}:{line}: looks like {secret.kind}"
