"""`clawctl files`: what belongs to a conversation beside its messages."""

import os
import sys
from pathlib import Path

import click
import msgspec

from clawctl.app import App, Name, json_command
from clawctl.client import Client
from clawctl.render import emit, emit_json
from clawctl.views import show_session_files
from clawd.errors import ClawError, InvalidRequestError
from clawd.wire import conversations as wire
from clawd.wire.method import Done
from clawd.wire.references import check_name
from clawd.wire.safe_text import terminal_safe

MAX_BYTES = 8 << 20


class FileText(msgspec.Struct, frozen=True, kw_only=True):
    """A session file and its text."""

    file: wire.SessionFileLine
    text: str


class FileSaved(msgspec.Struct, frozen=True, kw_only=True):
    """A session file and where it was saved."""

    file: wire.SessionFileLine
    path: str


_conversation = click.option(
    "--conversation",
    "-c",
    type=Name("conversations"),
    metavar="ID",
    required=True,
    help="Whose files: an id, or its unique beginning (`clawctl conversation list`).",
)


@click.group()
def command() -> None:
    """List, read, add and delete the files of a conversation.

    Long output and long messages are kept there, and what the model writes to
    file+session://NAME; add a file and the model may read it by that name.
    """


@command.command("list")
@_conversation
@json_command(list[wire.SessionFileLine])
def list_(app: App, conversation: str, *, as_json: bool) -> None:
    """List the files, the last changed first."""
    found = app.call(wire.ListSessionFiles(conversation_id=conversation))
    if as_json:
        emit_json(found.items)
    else:
        show_session_files(found)


@command.command()
@click.argument("name", type=Name("session_files"))
@_conversation
@json_command(FileText)
def show(app: App, name: str, conversation: str, *, as_json: bool) -> None:
    """Print a file; bytes that are no UTF-8 are replaced (`save` keeps them)."""
    with app.client() as client:
        file, data = _content(client, conversation, name)
    if as_json:
        emit_json(FileText(file=file, text=data.decode(errors="replace")))
    else:
        text = terminal_safe(data.decode(errors="replace"))
        print(text, end="" if text.endswith("\n") else "\n")


@command.command()
@click.argument("name", type=Name("session_files"))
@click.argument("path", type=click.Path(path_type=Path))
@_conversation
@json_command(FileSaved)
def save(app: App, name: str, path: Path, conversation: str, *, as_json: bool) -> None:
    """Save a file as PATH, exactly as it is; nothing is replaced."""
    with app.client() as client:
        file, data = _content(client, conversation, name)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as out:
            out.write(data)
    except OSError as error:
        raise ClawError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="Name a new file, as in: clawctl files save NAME PATH --conversation ID",
        ) from error
    saved = FileSaved(file=file, path=str(path.absolute()))
    emit(saved, f"saved {path} ({len(data)} B)", as_json=as_json)


@command.command()
@click.argument("path", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--name", help="What it is called there; by default as it is here.")
@_conversation
@json_command(wire.SessionFileLine)
def add(app: App, path: Path, name: str | None, conversation: str, *, as_json: bool) -> None:
    """Add the file PATH (- is stdin, with --name), or replace the one of its name."""
    is_stdin = str(path) == "-"
    if is_stdin and name is None:
        raise click.UsageError("what comes from stdin needs a name: --name notes.txt")
    called = check_name(path.name if name is None else name)
    request = wire.WriteSessionFile(
        conversation_id=conversation,
        name=called,
        content=_read(None if is_stdin else path),
    )
    file = app.call(request)
    emit(file, f"added {file.name} ({file.mime}, {file.size} B)", as_json=as_json)


@command.command()
@click.argument("name", type=Name("session_files"))
@_conversation
@json_command(Done)
def delete(app: App, name: str, conversation: str, *, as_json: bool) -> None:
    """Delete a file; what refers to it in the conversation stays as it is."""
    done = app.call(wire.DeleteSessionFile(conversation_id=conversation, name=name))
    emit(done, done.message, as_json=as_json)


def _content(client: Client, conversation: str, name: str) -> tuple[wire.SessionFileLine, bytes]:
    """Return a file and all of its bytes.

    Raises:
        ClawError: it cannot be had, or it was changed meanwhile.
    """
    data = b""
    first: wire.SessionFileLine | None = None
    while True:
        request = wire.ReadSessionFile(conversation_id=conversation, name=name, offset=len(data))
        chunk = client.call(request)
        first = first or chunk.file
        if chunk.file != first:
            raise ClawError(f"{name} was changed while it was read", hint="Read it once more.")
        data += chunk.data
        if chunk.is_end or not chunk.data or len(data) > MAX_BYTES:
            return first, data


def _read(path: Path | None) -> bytes:
    try:
        if path is None:
            data = sys.stdin.buffer.read(MAX_BYTES + 1)
        else:
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ClawError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise InvalidRequestError(
            f"{path or 'stdin'} has more than {MAX_BYTES} bytes",
            hint="Put it into the workspace instead.",
        )
    return data
