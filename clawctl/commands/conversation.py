"""`clawctl conversation`: list, show, rename, fork, compress, export and delete conversations."""

import sys
from pathlib import Path
from typing import Literal

import click

from clawctl.app import App, json_option, pass_app
from clawctl.commands.memory import list_, show
from clawctl.exporting import Format, pieces_of, show_pieces, write_pieces
from clawctl.progress import Progress, call
from clawctl.render import emit_json, note, say
from clawctl.views import show_compression
from clawd.wire.conversation_methods import (
    CompressConversation,
    DeleteConversation,
    ExportConversation,
    ForkConversation,
    RenameConversation,
)
from clawd.wire.safe_text import terminal_safe

COMPRESS_LIMIT_S = 4_000.0


@click.group()
def command() -> None:
    """List, show, rename, fork, compress, export and delete conversations."""


command.add_command(list_)
command.add_command(show)


@command.command()
@click.argument("conversation")
@click.argument("title", nargs=-1, required=True)
@json_option
@pass_app
def rename(app: App, conversation: str, title: tuple[str, ...], *, as_json: bool) -> None:
    """Give a conversation another title."""
    with app.client() as client:
        line = client.call(RenameConversation(conversation_id=conversation, title=" ".join(title)))
    if as_json:
        emit_json(line)
    else:
        say(f"{line.id} is now called: {line.title}")


@command.command()
@click.argument("conversation")
@click.option(
    "--at",
    "message_id",
    type=click.IntRange(1),
    default=None,
    metavar="MESSAGE",
    help="The last message to copy, by the number that `show` gives it; all without.",
)
@json_option
@pass_app
def fork(app: App, conversation: str, message_id: int | None, *, as_json: bool) -> None:
    """Copy a conversation, or its beginning, into a new one."""
    with app.client() as client:
        request = ForkConversation(conversation_id=conversation, message_id=message_id or 0)
        line = client.call(request)
    if as_json:
        emit_json(line)
    else:
        say(f"{line.id} has {line.messages} messages of {line.forked_from}: {line.title}")


@command.command()
@click.argument("conversation")
@click.option("--undo", is_flag=True, help="Show the model every message again.")
@click.option("--undo-last", is_flag=True, help="Take back the newest compression only.")
@json_option
@pass_app
def compress(app: App, conversation: str, *, undo: bool, undo_last: bool, as_json: bool) -> None:
    """Let a summary stand for the beginning of a conversation; memory keeps every message.

    The model that the conversation is held with writes the summary.
    """
    if undo and undo_last:
        raise click.UsageError("--undo and --undo-last exclude each other")
    what: Literal["", "all", "last"] = "all" if undo else "last" if undo_last else ""
    with app.client() as client:
        request = CompressConversation(conversation_id=conversation, undo=what)
        bar = Progress("summarising", quiet=app.is_quiet)
        report = call(client, request, bar, limit_s=COMPRESS_LIMIT_S)
    if as_json:
        emit_json(report)
    else:
        show_compression(report)


@command.command()
@click.argument("conversation")
@click.option(
    "--format", "how", type=click.Choice(["jsonl", "markdown"]), default="jsonl", show_default=True
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file; not there yet."
)
@json_option
@pass_app
def export(app: App, conversation: str, how: Format, output: Path | None, *, as_json: bool) -> None:
    """Write a conversation out, every message of it: as JSON lines, or as Markdown to read.

    A file gets the exact text. On standard output, what a terminal would act on is written out in
    Markdown and escaped in JSON lines. --json puts all of it into one JSON document.
    """
    with app.client() as client:
        pieces = pieces_of(client, ExportConversation(conversation_id=conversation, format=how))
        if output is not None:
            write_pieces(pieces, output, quiet=app.is_quiet)
        elif as_json:
            emit_json({"format": how, "text": "".join(pieces)})
        else:
            show_pieces(pieces, how)
    if output is not None and as_json:
        emit_json({"format": how, "path": str(output.absolute())})
    elif output is not None:
        note(f"wrote {output}")


@command.command()
@click.argument("conversation")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@pass_app
def delete(app: App, conversation: str, *, yes: bool, as_json: bool) -> None:
    """Delete a conversation with all its messages."""
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"this deletes conversation {conversation}: say so with --yes")
        click.confirm(terminal_safe(f"Delete conversation {conversation}?"), abort=True, err=True)
    with app.client() as client:
        done = client.call(DeleteConversation(conversation_id=conversation))
    if as_json:
        emit_json(done)
    else:
        say(done.message or "done")
