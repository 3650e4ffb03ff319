"""`clawctl receipt`: the record of every tool call."""

import sys
from pathlib import Path

import click
import msgspec

from clawctl.app import App, Exit, json_option, pass_app
from clawctl.client import Client
from clawctl.progress import call, progress_of_command
from clawctl.receipt_anchor import remembered_head
from clawctl.receipt_export import accept, export
from clawctl.receipt_options import which_receipts
from clawctl.receipt_view import show_receipt
from clawctl.render import Palette, emit_json, say, show_fields
from clawctl.views import newest_receipts, show_receipts
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.wire.receipt_methods import HeadOfReceipts, ListReceipts, ShowReceipt, VerifyReceipts
from clawd.wire.reports import ReceiptHead
from clawd.wire.safe_text import terminal_safe


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What verification found, of the file or by the daemon."""

    ok: bool
    level: str
    receipts: int
    message: str
    head_seq: int
    head_hash: str
    first_bad: int | None
    kind: str
    signed: int
    signatures: str
    path: str
    checked_by: str


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the caller knows from elsewhere: the first public key, a head (seq, hash)."""

    public_key: str | None = None
    anchor: tuple[int, str] | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    path: str


class _Values(msgspec.Struct, frozen=True, kw_only=True):
    receipts: _File
    memory: _File


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    values: _Values


@click.group()
def command() -> None:
    """List, show and verify the receipts of tool calls."""


@command.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--tool", default="", metavar="NAME", help="Of this tool only; file_* works too.")
@click.option("--status", type=click.Choice(["allowed", "denied", "failed"]))
@which_receipts
@json_option
@pass_app
def list_(
    app: App, limit: int, tool: str, status: str | None, *, wanted: ListReceipts, as_json: bool
) -> None:
    """List receipts, newest first."""
    asked = msgspec.structs.replace(wanted, tool=tool, status=status or "")
    with app.client() as client:
        items = newest_receipts(client, limit, asked)
    if as_json:
        emit_json(items)
    else:
        show_receipts(items)


@command.command()
@click.argument("receipt")
@json_option
@pass_app
def show(app: App, receipt: str, *, as_json: bool) -> None:
    """Show one receipt: by id, a unique end of it, or its number."""
    with app.client() as client:
        detail = client.call(ShowReceipt(receipt_id=receipt))
    if as_json:
        emit_json(detail)
    else:
        show_receipt(detail)


command.add_command(accept)
command.add_command(export)


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
@json_option
@pass_app
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
@json_option
@pass_app
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
            found = client.call(HeadOfReceipts())
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

    if given_key is not None and Path(given_key).is_file():
        given_key = Path(given_key).read_text("utf-8", "replace")
    return _Known(
        public_key=parse_public_key(given_key) if given_key is not None else None,
        anchor=parse_anchor(given_anchor) if given_anchor is not None else None,
    )


def _passes(verdict: Verdict, known: _Known) -> bool:
    return verdict.ok and (known.public_key is None or verdict.signed > 0)


def _head_of_file() -> ReceiptHead:
    from clawd.receipts.verify import read_head

    found = read_head(_configured_path(), first_public_key_path=layout().checkpoint_public_key)
    return ReceiptHead(
        seq=found.seq,
        receipt_hash=found.receipt_hash,
        first_public_key=found.first_public_key,
        signed=found.signed,
        signed_at=found.signed_at,
    )


def _verify_all(app: App, known: _Known) -> list[Verdict]:
    client = _client_if_running(app)
    if client is None:
        log, memory = _configured()
        remembered = msgspec.structs.replace(known, anchor=remembered_head(memory))
        given = [known] if known.anchor is not None else []
        return [_verify_file(log, each) for each in (*given, remembered)]
    anchor = ":".join(map(str, known.anchor)) if known.anchor is not None else ""
    with client:
        wanted = VerifyReceipts(public_key=known.public_key or "", anchor=anchor)
        bar = progress_of_command("the daemon verifies its chain")
        report = call(client, wanted, bar, limit_s=600)
        home = Path(client.welcome.home)
    by_daemon = Verdict(
        ok=report.ok,
        level=report.level,
        receipts=report.receipts,
        message=report.message,
        head_seq=report.head_seq,
        head_hash=report.head_hash,
        first_bad=report.first_bad,
        kind=report.kind,
        signed=report.signed,
        signatures=report.signatures,
        path=str(home),
        checked_by="daemon",
    )
    file = layout().receipts
    if home != layout().home or not file.exists():
        # The chain of another home, or one that [receipts] path puts elsewhere.
        return [by_daemon]
    return [_verify_file(file, known), by_daemon]


def _configured_path() -> Path:
    return _configured()[0]


def _configured() -> tuple[Path, Path]:
    """Return where chain and memory are by the config; without one, the usual places."""
    where = layout()
    usual = where.receipts, where.database
    if not where.config.exists():
        return usual
    from clawctl.daemon import run_clawd

    shown = run_clawd(["--show-config", "--json"], capture=True)
    try:
        values = msgspec.json.decode(shown.stdout, type=_Shown).values
    except msgspec.DecodeError:
        return usual  # the config is wrong, and its own command says how
    return Path(values.receipts.path), Path(values.memory.path)


def _client_if_running(app: App) -> Client | None:
    try:
        return app.running_client()
    except ClawError:
        return None


def _verify_file(path: Path, known: _Known) -> Verdict:
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
    return Verdict(
        ok=found.ok,
        level=found.level,
        receipts=found.receipts,
        message=found.message,
        head_seq=found.head_seq,
        head_hash=found.head_hash,
        first_bad=found.first_bad,
        kind=found.kind or "",
        signed=found.signed,
        signatures=found.signatures,
        path=str(path),
        checked_by="clawctl",
    )


def _bytes_of(path: Path) -> int:
    """Return the size of a log with its rotated files, as near as progress needs it."""
    try:
        return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*"))
    except OSError:
        return 0


def _verify_bundle(folder: Path, known: _Known) -> Verdict:
    from clawctl.receipt_bundle import LOG, check_bundle

    verdict = _verify_file(folder / LOG, known)
    problem = ""
    if verdict.ok:
        problem = check_bundle(folder, head_seq=verdict.head_seq, head_hash=verdict.head_hash)
    if problem:
        verdict = msgspec.structs.replace(verdict, ok=False, message=problem, kind="export")
    return msgspec.structs.replace(verdict, path=str(folder))


def _show_verdict(verdict: Verdict) -> None:
    palette = Palette.of(sys.stdout)
    mark = palette.green("✓") if verdict.ok else palette.red("✗")
    where = verdict.path if verdict.checked_by == "clawctl" else "the daemon"
    say_line = f"{verdict.message} ({where}, level {verdict.level})"
    print(f"{mark} {terminal_safe(say_line)}")
    if verdict.ok and verdict.receipts:
        say(f"  head: receipt {verdict.head_seq}, {verdict.head_hash}")
        say(f"  signatures: {verdict.signatures}")
