"""`clawctl memory`: the stored conversations."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal, TextIO

import click
import msgspec

from clawctl.app import App, Exit, Name, confirm, json_command
from clawctl.client import Client, pages
from clawctl.progress import ProgressLine, call
from clawctl.render import Palette, emit, emit_json, note, say
from clawctl.views import show_conversations, show_hits
from clawd.errors import ClawError
from clawd.wire import conversations, memory
from clawd.wire.method import Done
from clawd.wire.safe_text import ascii_json, shortened, terminal_safe, visible_line

Format = Literal["jsonl", "markdown"]


class ConversationShown(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with its messages, oldest first."""

    conversation: conversations.ConversationLine
    messages: list[conversations.MessageLine]


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations written out."""

    format: str
    text: str


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations written into a file."""

    format: str
    path: str


def all_conversations(client: Client) -> list[conversations.ConversationLine]:
    """Return every conversation that the caller may see, oldest first."""
    found = pages(client.call, conversations.ListConversations(limit=PAGE))
    return [each for page in found for each in page.items][::-1]


def pieces_of_all(client: Client, how: Format) -> Iterator[str]:
    """Yield the text of an export of every conversation, one after the other."""
    for each in all_conversations(client):
        yield from pieces_of(
            client, conversations.ExportConversation(conversation_id=each.id, format=how)
        )


def pieces_of(client: Client, request: conversations.ExportConversation) -> Iterator[str]:
    """Return the text of an export, piece by piece."""
    return (chunk.text for chunk in pages(client.call, request))


def show_pieces(pieces: Iterator[str], how: Format) -> None:
    """Print the text of an export, safe for a terminal and exact for a program."""
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            print(_safe(line, how))
    if rest:
        print(_safe(rest, how))


def _safe(line: str, how: Format) -> str:
    return ascii_json(line) if how == "jsonl" else terminal_safe(line)


def write_pieces(pieces: Iterator[str], path: Path, *, quiet: bool) -> None:
    """Write the text of an export into a new file.

    Raises:
        ClawError: it is there, or cannot be written.
    """
    done = 0
    with (
        ProgressLine(f"writing {path.name}", unit="bytes", quiet=quiet) as bar,
        new_file(path) as file,
    ):
        for piece in pieces:
            done += file.write(piece)
            bar.tick(done)


@contextmanager
def new_file(path: Path) -> Iterator[TextIO]:
    """Open a file of the person's own that is not there yet; one that fails is taken away again.

    Raises:
        ClawError: it is there, or cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
                yield file
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ClawError(
            f"the export {path} cannot be written: {error.strerror or error}",
            hint="Name a file that is not there yet, on a disk with room.",
        ) from error


PAGE = 200
UNREADABLE_SHOWN = 200
BACKUP_LIMIT_S = 3600.0


@click.group()
def command() -> None:
    """List, search, show, export and clear conversations; copy and check what is kept."""


@command.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@json_command(list[conversations.ConversationLine])
def list_(app: App, limit: int, *, as_json: bool) -> None:
    """List conversations, newest first."""
    with app.client() as client:
        found = pages(client.call, conversations.ListConversations(limit=min(PAGE, limit)))
        items = list(islice((each for page in found for each in page.items), limit))
    emit(items, show_conversations, as_json=as_json)


@command.command()
@click.argument("words", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@json_command(list[memory.MemoryHit])
def search(app: App, words: tuple[str, ...], limit: int, *, as_json: bool) -> None:
    """Search the stored messages."""
    hits = app.call(memory.SearchMemory(query=" ".join(words), limit=limit))
    if as_json:
        emit_json(hits.items)
    else:
        show_hits(hits)


@command.command()
@click.argument("conversation", type=Name("conversations"))
@json_command(ConversationShown)
def show(app: App, conversation: str, *, as_json: bool) -> None:
    """Show a conversation, by its id or a unique beginning of it."""
    with app.client() as client:
        request = conversations.ShowConversation(conversation_id=conversation, limit=PAGE)
        found = list(pages(client.call, request))
    messages = [each for page in found for each in page.messages]
    shown = ConversationShown(conversation=found[-1].conversation, messages=messages)
    emit(shown, _show_messages, as_json=as_json)


@command.command()
@click.argument("conversation", type=Name("conversations"), default="")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_command(Done)
def clear(app: App, conversation: str, *, yes: bool, as_json: bool) -> None:
    """Delete your conversations: the one named, or all of them."""
    what = f"conversation {conversation}" if conversation else "ALL your conversations"
    confirm(f"Delete {what}?", yes=yes)
    done = app.call(memory.ClearMemory(conversation_id=conversation))
    emit(done, done.message or "done", as_json=as_json)


@command.command()
@click.option(
    "--format",
    "how",
    type=click.Choice(["jsonl", "markdown"]),
    default="jsonl",
    show_default=True,
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A file; not there yet.")
@json_command(Export | Exported)
def export(app: App, how: Format, output: Path | None, *, as_json: bool) -> None:
    """Write every conversation out, oldest first: as JSON lines, or as Markdown to read.

    `clawctl conversation export` writes one of them.
    """
    with app.client() as client:
        written_out(app, pieces_of_all(client, how), how, output, as_json=as_json)


def written_out(
    app: App, pieces: Iterator[str], how: Format, output: Path | None, *, as_json: bool
) -> None:
    """Write an export into a new file, or print it.

    Raises:
        ClawError: the file is there, or cannot be written.
    """
    if output is not None:
        write_pieces(pieces, output, quiet=app.is_quiet)
        exported = Exported(format=how, path=str(output.absolute()))
        emit(exported, lambda _: note(f"wrote {output}"), as_json=as_json)
    elif as_json:
        emit_json(Export(format=how, text="".join(pieces)))
    else:
        show_pieces(pieces, how)


@command.command()
@click.argument("file", type=click.Path(path_type=Path))
@json_command(Done)
def backup(app: App, file: Path, *, as_json: bool) -> None:
    """Write a copy of memory to FILE, while the daemon runs.

    To restore it, end the daemon and put the copy in the place of memory.sqlite.
    """
    with app.client() as client:
        bar = ProgressLine(f"copying memory to {file.name}", quiet=app.is_quiet)
        request = memory.BackUpMemory(path=str(file.absolute()))
        done = call(client, request, bar, limit_s=BACKUP_LIMIT_S)
    emit(done, f"wrote {done.message}", as_json=as_json)


@command.command()
@click.option("--repair", is_flag=True, help="Make bad search indexes anew.")
@json_command(memory.MemoryCheck)
def check(app: App, *, repair: bool, as_json: bool) -> Exit:
    """Check the file of memory and its search indexes; exit code 1 when something is wrong."""
    with app.client() as client:
        bar = ProgressLine("checking memory", quiet=app.is_quiet)
        found = call(client, memory.CheckMemory(repair=repair), bar, limit_s=BACKUP_LIMIT_S)
    if as_json:
        emit_json(found)
    else:
        for problem in found.problems:
            say(problem)
        state = "repaired" if found.is_repaired else "bad" if found.problems else "good"
        say(f"{found.path} ({found.used_bytes / 2**20:.1f} MB) is {state}")
        if found.problems and not repair:
            say("`clawctl memory check --repair` makes the search indexes anew.")
    return Exit.FAILED if found.problems else Exit.DONE


def _show_messages(shown: ConversationShown) -> None:
    palette = Palette.of(sys.stdout)
    conversation = shown.conversation
    print(palette.bold(visible_line(conversation.title or conversation.id)))
    print(palette.dim(visible_line(f"{conversation.id}  {conversation.workspace}")))
    if conversation.untrusted_sources:
        sources = visible_line(", ".join(conversation.untrusted_sources))
        print(palette.yellow(f"holds untrusted text from {sources}"))
    if conversation.replaced:
        count = f"the model is shown a summary of the first {conversation.replaced} messages"
        print(palette.dim(count))
    for message in shown.messages:
        _show_message(message, palette)


def _show_message(message: conversations.MessageLine, palette: Palette) -> None:
    name = f" {message.name}" if message.name else ""
    head = f"{message.role}{name}  {message.timestamp}  {message.id}"
    print(f"\n{palette.cyan(visible_line(head))}")
    for text in message.unreadable:
        shown = visible_line(shortened(" ".join(text.split()), UNREADABLE_SHOWN))
        print(palette.yellow(f"could not be read as a call, and was not run: {shown}"))
    if message.reasoning:
        print(palette.dim(f"{terminal_safe(message.reasoning)}\n"))
    for picture in message.pictures:
        print(palette.dim(visible_line(f"({picture.label})")))
    if message.content:
        print(terminal_safe(message.content))
    for claim in message.claims:
        if claim.problem:
            print(palette.yellow(visible_line(claim.problem)))
    if message.tool_calls:
        print(palette.dim(f"→ {visible_line(message.tool_calls)}"))
