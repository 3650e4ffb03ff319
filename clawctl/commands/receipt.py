"""`clawctl receipt`: the record of every tool call."""

import contextlib
import errno
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from clawctl.app import (
    MOMENT_HELP,
    App,
    C,
    Exit,
    Moment,
    Name,
    confirm,
    conversation_option,
    json_command,
)
from clawctl.client import Client
from clawctl.progress import ProgressLine, call, progress_of_command
from clawctl.receipt_bundle import About, remembered_head
from clawctl.render import Palette, emit, emit_json, note, say, show_fields, size
from clawctl.views import newest_receipts, show_receipts
from clawd.errors import ClawError
from clawd.paths import expanded, layout
from clawd.wire import receipts as wire
from clawd.wire.method import Done
from clawd.wire.safe_text import terminal_safe, visible

_APPROVED = {
    "auto": "the policy let it run",
    "rule": "a standing approval let it run",
    "user": "a person let it run",
    "none": "nobody let it run",
}


# Which receipts a command is about: options for a conversation and a span of time.


def which_receipts(command: C) -> Callable[..., Any]:
    """Add --conversation, --since and --until to a command; they arrive as `wanted`."""

    @functools.wraps(command)
    def with_wanted(
        *arguments: Any, conversation: str, since: str, until: str, **options: Any
    ) -> Any:
        wanted = wire.ListReceipts(conversation_id=conversation, since=since, until=until)
        return command(*arguments, wanted=wanted, **options)

    for name, help_text in (("--until", f"Before this. {MOMENT_HELP}"), ("--since", MOMENT_HELP)):
        option = click.option(name, default="", type=Moment(), metavar="TIME", help=help_text)
        with_wanted = option(with_wanted)
    text = "Of this conversation only."
    return conversation_option(help=text)(with_wanted)


class CheckedLog(wire.Verification, frozen=True, kw_only=True):
    """What verification found, of which file or home, and by whom."""

    path: str
    checked_by: str


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller knows from elsewhere: the first public key, a head (seq, hash)."""

    public_key: str | None = None
    anchor: tuple[int, str] | None = None


class ReceiptsExported(msgspec.Struct, frozen=True, kw_only=True):
    """An export of receipts and whether it verifies."""

    folder: str
    ok: bool
    problem: str
    about: About


@click.group()
def command() -> None:
    """List, show and verify the receipts of tool calls."""


@command.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option(
    "--tool",
    type=Name("tools"),
    default="",
    metavar="NAME",
    help="Of this tool only; file_* works too.",
)
@click.option("--status", type=click.Choice(["allowed", "denied", "failed"]))
@click.option("--risk", type=click.Choice(["low", "medium", "high"]))
@click.option("--workspace", metavar="DIR", help="Of this workspace, and folders below it.")
@click.option("--host", metavar="NAME", help="Of calls that reached it or were refused it; *.org.")
@which_receipts
@json_command(list[wire.ReceiptLine])
def list_(
    app: App, limit: int, *, wanted: wire.ListReceipts, as_json: bool, **filters: str | None
) -> None:
    """List receipts, newest first."""
    if filters["workspace"]:  # receipts name folders as they are, without links
        filters["workspace"] = str(expanded(filters["workspace"]).resolve())
    asked = msgspec.structs.replace(wanted, **{each: filters[each] or "" for each in filters})
    with app.client() as client:
        items = newest_receipts(client, limit, asked)
    emit(items, show_receipts, as_json=as_json)


@command.command()
@click.argument("receipt", type=Name("receipts"))
@json_command(wire.ReceiptDetail)
def show(app: App, receipt: str, *, as_json: bool) -> None:
    """Show one receipt: by id, a unique end of it, or its number."""
    detail = app.call(wire.ShowReceipt(receipt_id=receipt))
    emit(detail, _show_receipt, as_json=as_json)


@command.command()
@click.option(
    "--path",
    type=click.Path(path_type=Path),
    help="The chain's file, or an export's folder; then no daemon is asked.",
)
@click.option(
    "--public-key",
    "given_key",
    metavar="HEX|FILE",
    help="The first public key, kept elsewhere: proves the signatures.",
)
@click.option(
    "--anchor",
    "given_anchor",
    metavar="SEQ:HASH",
    help="A head, kept elsewhere: proves that nothing before it was cut or rewritten.",
)
@json_command(CheckedLog)
def verify(
    app: App, path: Path | None, given_key: str | None, given_anchor: str | None, *, as_json: bool
) -> int:
    """Verify the chain: nothing edited, removed, reordered or inserted.

    The file is read here, without the daemon. The head that the daemon remembers shows a cut end:
    it is asked when it runs, and else its memory is read where you may read it.

    The level tells what is proven: chain (the file alone), signed (with --public-key), anchored
    (with a head from elsewhere). A level that was asked for and not reached is a failure.
    """
    known = _known(given_key, given_anchor)
    if path is not None:
        verdicts = [_verify_bundle(path, known) if path.is_dir() else _verify_file(path, known)]
    else:
        verdicts = _verify_all(app, known)
    worst = next((verdict for verdict in verdicts if not _passes(verdict, known)), verdicts[-1])
    if as_json:
        emit_json(worst)
    else:
        for verdict in verdicts:
            _show_verdict(verdict)
        if worst.ok and not _passes(worst, known):
            say("The public key proves nothing yet: no checkpoint signs these receipts.")
    return Exit.DONE if _passes(worst, known) else Exit.FAILED


@command.command()
@json_command(wire.ReceiptHead)
def head(app: App, *, as_json: bool) -> None:
    """Show the end of the chain and its first public key, to keep elsewhere.

    Nothing is verified. `receipt verify --public-key KEY --anchor SEQ:HASH` proves later that
    nothing before this head was changed.
    """
    client = _client_if_running(app)
    if client is None:
        found = _head_of_file()
    else:
        with client:
            found = client.call(wire.HeadOfReceipts())
    if as_json:
        emit_json(found)
        return
    signed = f"up to receipt {found.signed}, {found.signed_at}" if found.signed else "nothing yet"
    fields = {
        "receipts": found.seq,
        "head": f"{found.seq}:{found.receipt_hash}" if found.seq else "",
        "signed": signed,
        "first public key": found.first_public_key,
    }
    show_fields(list(fields.items()))


def _known(given_key: str | None, given_anchor: str | None) -> _Known:
    """Return what the caller knows from elsewhere.

    Raises:
        ReceiptError: it has not the form of a key or a head.
    """
    if given_key is None and given_anchor is None:
        return _Known()
    from clawd.receipts.verify import parse_anchor, parse_public_key

    if given_key is not None:
        given_key = _text_of_key(given_key)
    return _Known(
        public_key=parse_public_key(given_key) if given_key is not None else None,
        anchor=parse_anchor(given_anchor) if given_anchor is not None else None,
    )


def _text_of_key(given: str) -> str:
    """Return a key that is given as it is, or what stands in the file of this name.

    Raises:
        ClawError: the file cannot be read.
    """
    try:
        return Path(given).read_text("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return given
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return given
        raise ClawError(f"{given}: {error.strerror}", hint="Name a file with a key.") from error


def _passes(verdict: CheckedLog, known: _Known) -> bool:
    return verdict.ok and (known.public_key is None or verdict.signed > 0)


def _head_of_file() -> wire.ReceiptHead:
    from clawd.receipts.verify import read_head

    return read_head(_configured()[0], first_public_key_path=layout().checkpoint_public_key)


def _verify_all(app: App, known: _Known) -> list[CheckedLog]:
    client = _client_if_running(app)
    if client is None:
        log, memory = _configured()
        remembered = msgspec.structs.replace(known, anchor=remembered_head(memory))
        given = [known] if known.anchor is not None else []
        return [_verify_file(log, each) for each in (*given, remembered)]
    anchor = ":".join(map(str, known.anchor)) if known.anchor is not None else ""
    with client:
        wanted = wire.VerifyReceipts(public_key=known.public_key or "", anchor=anchor)
        bar = progress_of_command("the daemon verifies its chain")
        report = call(client, wanted, bar, limit_s=600)
        home = Path(client.welcome.home)
    by_daemon = _checked(report, home, by="daemon")
    file = layout().receipts
    if home != layout().home or not file.exists():
        # The chain of another home, or one that [receipts] path puts elsewhere.
        return [by_daemon]
    return [_verify_file(file, known), by_daemon]


def _configured() -> tuple[Path, Path]:
    """Return where chain and memory are by the config; without one, the usual places."""
    where = layout()
    usual = where.receipts, where.database
    if not where.config.exists():
        return usual
    from clawctl.daemon import config_values

    values = config_values()
    if values is None:
        return usual  # the config is wrong, and its own command says how
    return Path(values.receipts.path), Path(values.memory.path)


def _client_if_running(app: App) -> Client | None:
    try:
        return app.running_client()
    except ClawError:
        return None


def _verify_file(path: Path, known: _Known) -> CheckedLog:
    # Imported here: only this command needs hashing and the receipt's form.
    from clawd.receipts.verify import verify as verify_file

    with progress_of_command(f"verifying {path.name}", unit="bytes") as bar:
        total = _bytes_of(path) if bar.is_shown else 0
        found = verify_file(
            path,
            anchor=known.anchor,
            public_key=known.public_key,
            progress=lambda done: bar.show(done, total),
        )
    return _checked(found, path, by="clawctl")


def _checked(found: wire.Verification, path: Path, *, by: str) -> CheckedLog:
    return CheckedLog(**msgspec.structs.asdict(found), path=str(path), checked_by=by)


def _bytes_of(path: Path) -> int:
    """Return the size of a log with its rotated files, as near as progress needs it."""
    try:
        return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    except OSError:
        return 0


def _verify_bundle(folder: Path, known: _Known) -> CheckedLog:
    from clawctl.receipt_bundle import LOG, check_bundle

    verdict = _verify_file(folder / LOG, known)
    problem = ""
    if verdict.ok:
        problem = check_bundle(folder, head_seq=verdict.head_seq, head_hash=verdict.head_hash)
    if problem:
        verdict = msgspec.structs.replace(verdict, ok=False, message=problem, kind="export")
    return msgspec.structs.replace(verdict, path=str(folder))


def _show_verdict(verdict: CheckedLog) -> None:
    palette = Palette.of(sys.stdout)
    mark = palette.green("✓") if verdict.ok else palette.red("✗")
    where = verdict.path if verdict.checked_by == "clawctl" else "the daemon"
    say_line = f"{verdict.message} ({where}, level {verdict.level})"
    print(f"{mark} {terminal_safe(say_line)}")
    if verdict.ok and verdict.receipts:
        say(f"  head: receipt {verdict.head_seq}, {verdict.head_hash}")
        say(f"  signatures: {verdict.signatures}")


# How one receipt is shown: what was done, by whose word, and its place in the chain.


def _show_receipt(detail: wire.ReceiptDetail) -> None:
    """Print a receipt with what it hashed; control and invisible characters are written out."""
    show_fields([(name, visible(str(value))) for name, value in _fields(detail)])
    for title, text, kept in (
        ("arguments", detail.arguments, detail.arguments_bytes),
        ("result", detail.result, detail.result_bytes),
    ):
        _show_content(title, text, kept)


def _fields(detail: wire.ReceiptDetail) -> list[tuple[str, object]]:
    receipt = detail.receipt
    seq: int = receipt["seq"]
    exit_code, ran_in = receipt.get("exit_code"), receipt.get("sandbox")
    before = f"{receipt['previous_hash']} (receipt {seq - 1})"
    after = f"{detail.next_hash} (receipt {seq + 1})"
    return [
        ("receipt", f"{seq} of {max(detail.head_seq, seq)}"),
        ("id", receipt["id"]),
        ("when", receipt["timestamp"]),
        ("tool", receipt["tool"]),
        ("status", receipt["status"]),
        ("reason", receipt.get("reason") or "-"),
        ("risk", receipt["risk"]),
        ("approval", _approval(receipt)),
        ("sandbox", ran_in or "- (starts no process)"),
        *((name, receipt[name]) for name in ("contacted", "refused") if receipt.get(name)),
        ("exit code", "-" if exit_code is None else exit_code),
        ("took", f"{receipt.get('duration_ms', 0)} ms"),
        ("conversation", receipt["conversation_id"] or "- (outside of one)"),
        ("workspace", receipt["workspace"]),
        ("uid", receipt["uid"]),
        ("previous hash", before if seq > 1 else "- (it is the first)"),
        ("its hash", receipt["receipt_hash"]),
        ("next hash", after if detail.next_hash else "- (it is the last)"),
        ("args hash", receipt["args_hash"]),
        ("result hash", receipt["result_hash"]),
    ]


def _approval(receipt: dict[str, Any]) -> str:
    word, by = receipt["approval"], receipt.get("approved_by")
    text = f"{word}: {_APPROVED.get(word, '')}"
    return f"{text} ({by})" if by else text


def _show_content(title: str, text: str, kept: int | None) -> None:
    palette = Palette.of(sys.stdout)
    print(f"\n{palette.bold(title)}")
    if kept is None:
        print(palette.dim("(no longer kept: only its hash is left)"))
        return
    if kept == 0:
        print(palette.dim("(empty)"))
        return
    shown = visible(_pretty(text))
    print(shown.rstrip("\n"))
    shown_bytes = len(text.encode(errors="surrogatepass"))
    if shown_bytes < kept:
        print(palette.dim(f"(cut: {size(kept)} in all)"))


def _pretty(text: str) -> str:
    """Return JSON over several lines; other text as it is."""
    if not text.startswith(("{", "[")):
        return text
    try:
        msgspec.json.decode(text)
        return msgspec.json.format(text, indent=2)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


# `clawctl receipt export` and `accept`: a log for others, and a log as it stands.


@command.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--redact", is_flag=True, help="Leave arguments and results out; keep their hashes.")
@which_receipts
@json_command(ReceiptsExported)
def export(
    app: App, folder: Path, *, wanted: wire.ListReceipts, redact: bool, as_json: bool
) -> int:
    """Export the receipts into a new folder that anybody can verify without a daemon.

    The log always goes whole, because a part of a chain proves nothing; --conversation, --since
    and --until choose whose arguments and results go with it.
    """
    # Imported here: only this command needs hashing and the receipt's form.
    from clawctl.receipt_bundle import LOG, BundleWriter, ExportSelection, check_bundle
    from clawd.receipts.verify import verify

    selection = ExportSelection(
        conversation_id=wanted.conversation_id, since=wanted.since, until=wanted.until
    )
    bar = ProgressLine("copying receipts", quiet=app.is_quiet)
    with app.client() as client, _made(folder) as part, bar:
        about = BundleWriter(client, part, selection, redact=redact, progress=bar.tick).write()
    found = verify(folder / LOG)
    problem = "" if found.ok else found.message
    problem = problem or check_bundle(folder, head_seq=found.head_seq, head_hash=found.head_hash)
    if as_json:
        emit_json(
            ReceiptsExported(folder=str(folder), ok=not problem, problem=problem, about=about)
        )
    else:
        palette = Palette.of(sys.stdout)
        print(
            palette.red("✗") if problem else palette.green("✓"),
            terminal_safe(about.summary(folder)),
        )
        if problem:
            note(f"what was exported does not verify: {problem}")
    return Exit.FAILED if problem else Exit.DONE


@command.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_command(Done)
def accept(app: App, *, yes: bool, as_json: bool) -> None:
    """Take the receipt log as it stands, after it was cut, moved away or replaced.

    Until then `status` and `receipt verify` say that the log is not the one that the daemon
    remembers. Keep the old log: without it, what it recorded cannot be proved.
    """
    confirm("Forget the old log's last receipt?", yes=yes)
    done = app.call(wire.AcceptReceipts())
    emit(done, done.message, as_json=as_json)


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
