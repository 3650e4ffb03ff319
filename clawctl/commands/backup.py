"""`clawctl backup`: make, look at, check and put back backups of a home. Needs no daemon."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from clawctl.app import App, Exit, json_command, json_option
from clawctl.backup_archive import ArchivedFile, ArchiveReader, ChainFacts, Manifest
from clawctl.progress import progress_of_command
from clawctl.render import emit_json, note, say, show_fields, size
from clawd.errors import ClawError, ForbiddenError, NotFoundError
from clawd.paths import Layout, layout
from clawd.wire.codec import mirror

if TYPE_CHECKING:
    from clawctl.backup_create import Sources


class BackupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup says of itself; `files` is how many, `schema` is memory's."""

    created_at: str
    version: str
    host: str
    home: str
    with_keys: bool
    schema: int
    receipts: ChainFacts
    files: int
    total_bytes: int
    left_out: tuple[str, ...]


class BackupMade(BackupFacts, frozen=True, kw_only=True):
    """A backup that was written."""

    path: str
    size_bytes: int


class BackupContents(BackupFacts, frozen=True, kw_only=True):
    """A backup and every file in it."""

    contents: tuple[ArchivedFile, ...]


class BackupChecked(BackupFacts, frozen=True, kw_only=True):
    """A backup that holds what it says, and what was found of the chain and of memory."""

    ok: bool
    chain: str
    memory: str


@click.group()
def command() -> None:
    """Make, look at, check and put back backups of a home. Needs no daemon.

    A backup is one .tar.gz for its owner only. It holds conversations, receipts, config,
    knowledge, rules and plugins; private keys, models and the workspace only when asked.
    """


@command.command()
@click.argument("file")
@click.option("--keys", is_flag=True, help="With private keys, so that the chain can go on.")
@click.option("--models", is_flag=True, help="With the models.")
@click.option("--workspace", is_flag=True, help="With the workspace.")
@click.option("--force", is_flag=True, help="Overwrite FILE.")
@json_command(BackupMade)
def create(_app: App, /, file: str, **flags: bool) -> int:
    """Write a backup to FILE, or to stdout for `-`, also while the daemon runs."""
    from clawctl.backup_create import create as create_backup
    from clawctl.backup_create import write

    if file == "-" and flags["as_json"]:
        raise click.UsageError("--json and a backup on stdout exclude each other: name a FILE")
    sources = _sources(**{name: flags[name] for name in ("keys", "models", "workspace")})
    with progress_of_command("backing up", unit="bytes") as bar:
        if file == "-":
            _refuse_terminal()
            room = Path(os.environ.get("TMPDIR", "/var/tmp"))  # noqa: S108 a 0700 folder in it
            write(sources, sys.stdout.buffer, room, bar.show)
            return Exit.DONE
        done = create_backup(sources, Path(file), force=flags["force"], progress=bar.show)
    if flags["as_json"]:
        written = {"path": done.path, "size_bytes": done.size_bytes}
        emit_json(mirror(BackupMade, done.manifest, files=len(done.manifest.files), **written))
        return Exit.DONE
    say(f"✓ {done.path}: {len(done.manifest.files)} files, {size(done.size_bytes)}")
    for line in done.manifest.left_out:
        note(f"  not in it: {line}")
    return Exit.DONE


@command.command("list")
@click.argument("file")
@click.option("--files", "with_files", is_flag=True, help="Name every file.")
@json_option(BackupContents)
def list_(file: str, *, with_files: bool, as_json: bool) -> int:
    """Say what a backup is and holds, by its own words; `verify` checks them."""
    with _opened(file) as stream:
        manifest = ArchiveReader(stream).manifest
    if as_json:
        files = manifest.files
        emit_json(mirror(BackupContents, manifest, files=len(files), contents=files))
        return Exit.DONE
    _show(manifest)
    for entry in manifest.files if with_files else ():
        say(f"{entry.size:>12}  {entry.path}")
    return Exit.DONE


@command.command()
@click.argument("file")
@json_option(BackupChecked)
def verify(file: str, *, as_json: bool) -> int:
    """Read all of a backup: every hash, memory, and the chain of receipts."""
    from clawctl.backup_restore import check

    room = Path(os.environ.get("TMPDIR", "/var/tmp"))  # noqa: S108 a 0700 folder in it
    with _opened(file) as stream, progress_of_command("verifying", unit="bytes") as bar:
        checked = check(stream, room, bar.show)
    if as_json:
        found = {"ok": True, "chain": checked.receipts, "memory": checked.memory}
        files = len(checked.manifest.files)
        emit_json(mirror(BackupChecked, checked.manifest, files=files, **found))
        return Exit.DONE
    _show(checked.manifest)
    say(f"✓ every file is what it was; memory: {checked.memory}; receipts: {checked.receipts}")
    return Exit.DONE


@command.command()
@click.argument("file")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    help="Another home than yours: CLAWD_HOME=DIR uses it.",
)
@click.option("--replace", is_flag=True, help="Move what is there aside first.")
@json_option("clawctl.backup_restore:Restored")
def restore(file: str, into: Path | None, *, replace: bool, as_json: bool) -> int:
    """Put a backup in place of a home whose daemon does not run.

    All of it is checked before anything is changed. What was there is kept, under another name.
    """
    from clawctl.backup_restore import restore as put_back

    target = _target(into)
    with _opened(file) as stream, progress_of_command("restoring", unit="bytes") as bar:
        done = put_back(stream, target, replace=replace, progress=bar.show)
    if as_json:
        emit_json(done)
        return Exit.DONE
    say(f"✓ {done.home}: {done.files} files")
    if done.old_home:
        say(f"  what was there: {done.old_home}")
    say(f"  receipts: {done.receipts}")
    for line in done.notes:
        say(f"  {line}")
    return Exit.DONE


def _sources(*, keys: bool, models: bool, workspace: bool) -> "Sources":
    from clawctl.backup_create import Sources
    from clawctl.daemon import config_values

    where = layout()
    memory, receipts, folder = where.database, where.receipts, where.workspace
    values = config_values()
    if values is None:
        note("The config cannot be read, so everything is looked for where it lies by default.")
    else:
        memory, receipts = Path(values.memory.path), Path(values.receipts.path)
        folder = Path(values.workspace_dir)
    return Sources(
        layout=where,
        memory=memory,
        receipts=receipts,
        workspace=folder,
        with_keys=keys,
        with_models=models,
        with_workspace=workspace,
    )


def _target(into: Path | None) -> Layout:
    if into is None:
        return layout()
    return layout({**os.environ, "CLAWD_HOME": str(into.absolute()), "CLAWD_SOCKET": ""})


@contextlib.contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """Open a backup, unless another user may have put it there: plugins and config run as you."""
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(file).open("rb") as stream:
            about = os.fstat(stream.fileno())
            if about.st_uid not in {os.geteuid(), 0} or about.st_mode & 0o002:
                raise ForbiddenError(
                    f"{file} belongs to uid {about.st_uid} with mode {about.st_mode & 0o777:04o}: "
                    "somebody else may have changed it",
                    hint=f"When you know it is yours: cat {file} | clawctl backup … -",
                )
            yield stream
    except FileNotFoundError as error:
        raise NotFoundError(
            f"there is no file {file}", hint="Make a backup with: clawctl backup create FILE"
        ) from error
    except (PermissionError, IsADirectoryError) as error:
        raise ForbiddenError(f"{file} cannot be read: {error.strerror}") from error


def _refuse_terminal() -> None:
    if sys.stdout.isatty():
        raise ClawError("a backup is not text for a terminal", hint="Redirect it: … - > FILE")


def _show(manifest: Manifest) -> None:
    receipts = manifest.receipts
    show_fields(
        [
            ("made", f"{manifest.created_at} on {manifest.host} by clawd {manifest.version}"),
            ("home", manifest.home),
            ("files", f"{len(manifest.files)}, {size(manifest.total_bytes)}"),
            ("receipts", f"{receipts.seq}, head {receipts.hash[:16]}" if receipts.seq else "none"),
            ("private keys", "in it" if manifest.with_keys else "not in it"),
            ("left out", "\n".join(manifest.left_out) or "nothing"),
        ]
    )
