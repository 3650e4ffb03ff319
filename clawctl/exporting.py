"""Conversations written out: pieces of text from the daemon to a file or the terminal."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TextIO

import msgspec

from clawctl.client import Client
from clawctl.progress import ProgressLine
from clawd.errors import ClawError
from clawd.wire.conversations import ConversationLine, ExportConversation, ListConversations
from clawd.wire.safe_text import ascii_json, terminal_safe

PAGE = 200

Format = Literal["jsonl", "markdown"]


def all_conversations(client: Client) -> list[ConversationLine]:
    """Return every conversation that the caller may see, oldest first."""
    items: list[ConversationLine] = []
    cursor = ""
    while True:
        page = client.call(ListConversations(cursor=cursor, limit=PAGE))
        items += page.items
        cursor = page.cursor
        if not cursor:
            return items[::-1]


def pieces_of_all(client: Client, how: Format) -> Iterator[str]:
    """Yield the text of an export of every conversation, one after the other."""
    for each in all_conversations(client):
        yield from pieces_of(client, ExportConversation(conversation_id=each.id, format=how))


def pieces_of(client: Client, request: ExportConversation) -> Iterator[str]:
    """Yield the text of an export, piece by piece."""
    while True:
        chunk = client.call(request)
        yield chunk.text
        if not chunk.cursor:
            return
        request = msgspec.structs.replace(request, cursor=chunk.cursor)


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
