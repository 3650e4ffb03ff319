"""`clawctl receipt export` and `accept`: a log for others, and a log as it stands."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from clawctl.app import App, Exit, json_option, pass_app
from clawctl.progress import Progress
from clawctl.receipt_options import which_receipts
from clawctl.render import Palette, emit_json, note, say
from clawd.errors import ClawError
from clawd.wire.receipt_methods import AcceptReceipts, ListReceipts
from clawd.wire.safe_text import terminal_safe


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--redact", is_flag=True, help="Leave arguments and results out; keep their hashes.")
@which_receipts
@json_option
@pass_app
def export(app: App, folder: Path, *, wanted: ListReceipts, redact: bool, as_json: bool) -> int:
    """Export the receipts into a new folder that anybody can verify without a daemon.

    The log always goes whole, because a part of a chain proves nothing; --conversation, --since
    and --until choose whose arguments and results go with it.
    """
    # Imported here: only this command needs hashing and the receipt's form.
    from clawctl.receipt_bundle import LOG, BundleWriter, Selection, check_bundle
    from clawd.receipts.verify import verify

    selection = Selection(
        conversation_id=wanted.conversation_id, since=wanted.since, until=wanted.until
    )
    bar = Progress("copying receipts", quiet=app.is_quiet)
    with app.client() as client, _made(folder) as part, bar:
        about = BundleWriter(client, part, selection, redact=redact, progress=bar.tick).write()
    found = verify(folder / LOG)
    problem = "" if found.ok else found.message
    problem = problem or check_bundle(folder, head_seq=found.head_seq, head_hash=found.head_hash)
    if as_json:
        emit_json({"folder": str(folder), "ok": not problem, "problem": problem, "about": about})
    else:
        palette = Palette.of(sys.stdout)
        print(
            palette.red("✗") if problem else palette.green("✓"), terminal_safe(about.told(folder))
        )
        if problem:
            note(f"what was exported does not verify: {problem}")
    return Exit.FAILED if problem else Exit.DONE


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_app
def accept(app: App, *, yes: bool, as_json: bool) -> None:
    """Take the receipt log as it stands, after it was cut, moved away or replaced.

    Until then `status` and `receipt verify` say that the log is not the one that the daemon
    remembers. Keep the old log: without it, what it recorded cannot be proved.
    """
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("this forgets the old log's last receipt: say so with --yes")
        click.confirm("Forget the old log's last receipt?", abort=True, err=True)
    with app.client() as client:
        done = client.call(AcceptReceipts())
    if as_json:
        emit_json(done)
    else:
        say(done.message)


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[Path]:
    """Yield an empty folder that becomes this one, whole and on disk, or is gone.

    Raises:
        ClawError: there is something already, or it cannot be made.
    """
    if os.path.lexists(folder):
        raise ClawError(
            f"{folder} is there already and is not overwritten", hint="Name a new folder."
        )
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        part.mkdir(mode=0o700)
        before = os.umask(0o077)
        try:
            yield part
            for path in (*part.iterdir(), part):
                _sync(path)
            part.rename(folder)
        except BaseException:
            _remove(part)
            raise
        finally:
            os.umask(before)
        _sync(folder.parent)
    except OSError as error:
        raise ClawError(
            f"the export {folder} cannot be written: {error.strerror or error}",
            hint="Choose a folder on a disk with room, in a folder that is yours.",
        ) from error


def _remove(part: Path) -> None:
    for path in part.iterdir():
        path.unlink()
    part.rmdir()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
