"""`clawctl conversation`: list, show, rename, fork, compress, export and delete conversations."""

import json
from pathlib import Path
from typing import Literal

import click

from clawctl.app import App, Name, confirm, json_command
from clawctl.approve import Terminal
from clawctl.client import Client, pages
from clawctl.commands.memory import Export, Exported, Format, list_, pieces_of, show, written_out
from clawctl.progress import ProgressLine, call
from clawctl.render import emit, emit_json, note, say
from clawctl.request_follower import Rewound, exit_code, run_tool, show_outcome
from clawctl.views import show_compression
from clawd.errors import InvalidRequestError
from clawd.wire import conversations as wire
from clawd.wire.method import Done
from clawd.wire.tools import RunTool

COMPRESS_LIMIT_S = 4_000.0
PAGE = 1_000


@click.group()
def command() -> None:
    """List, show, rename, fork, compress, export and delete conversations."""


command.add_command(list_)
command.add_command(show)


@command.command()
@click.argument("conversation", type=Name("conversations"))
@click.argument("title", nargs=-1, required=True)
@json_command(wire.ConversationLine)
def rename(app: App, conversation: str, title: tuple[str, ...], *, as_json: bool) -> None:
    """Give a conversation another title."""
    line = app.call(wire.RenameConversation(conversation_id=conversation, title=" ".join(title)))
    emit(line, f"{line.id} is now called: {line.title}", as_json=as_json)


@command.command()
@click.argument("conversation", type=Name("conversations"))
@click.option(
    "--at",
    "message_id",
    type=click.IntRange(1),
    default=None,
    metavar="MESSAGE",
    help="The last message to copy, by the number that `show` gives it; all without.",
)
@json_command(wire.ConversationLine)
def fork(app: App, conversation: str, message_id: int | None, *, as_json: bool) -> None:
    """Copy a conversation, or its beginning, into a new one."""
    with app.client() as client:
        request = wire.ForkConversation(conversation_id=conversation, message_id=message_id or 0)
        line = client.call(request)
    emit(
        line,
        f"{line.id} has {line.messages} messages of {line.forked_from}: {line.title}",
        as_json=as_json,
    )


@command.command()
@click.argument("conversation", type=Name("conversations"))
@click.option(
    "--to",
    "message_id",
    type=click.IntRange(1),
    required=True,
    metavar="MESSAGE",
    help="The message to go back to before, by the number that `show` gives it.",
)
@click.option("--preview", is_flag=True, help="Show what would become of files, and do nothing.")
@click.option("--no-input", is_flag=True, help="Ask nothing; what needs an approval is denied.")
@json_command(Rewound)
def rewind(
    app: App, conversation: str, message_id: int, *, preview: bool, no_input: bool, as_json: bool
) -> int:
    """Take files and conversation back to before a message.

    What tools and commands changed since is taken back by one call of undo, with its receipt; then
    the conversation goes on in a copy that ends before the message. The old one stays.
    """
    app.wants_json = as_json
    with Terminal.opened(wanted=not no_input) as terminal, app.client() as client:
        line, before = _before(client, conversation, message_id)
        arguments = {"since": message_id} | ({"preview": True} if preview else {})
        call = RunTool(name="undo", arguments=json.dumps(arguments), conversation_id=line.id)
        outcome = run_tool(client, call, terminal, shows_rows=not as_json)
        goes_on = outcome.status == "allowed" and not preview and before > 0
        request = wire.ForkConversation(conversation_id=line.id, message_id=before)
        made = client.call(request) if goes_on else None
    if as_json:
        emit_json(Rewound(files=outcome, conversation=made))
        return exit_code(outcome)
    show_outcome(outcome)
    if made is not None:
        say(f"{made.id} has the {made.messages} messages before it; {line.id} stays")
    elif outcome.status == "allowed" and not preview:
        note("it is the first message: begin a new conversation")
    return exit_code(outcome)


def _before(
    client: Client, conversation: str, message_id: int
) -> tuple[wire.ConversationLine, int]:
    """Return a conversation, and its last message before this one of the person's; 0 for none.

    Raises:
        InvalidRequestError: the message is none of theirs.
    """
    before = 0
    request = wire.ShowConversation(conversation_id=conversation, limit=PAGE)
    for page in pages(client.call, request):
        for message in page.messages:
            if message.id == message_id and message.role == "user":
                return page.conversation, before
            before = message.id
    raise InvalidRequestError(
        f"message {message_id} is none that a person wrote in {conversation}",
        hint="`clawctl conversation show ID` numbers its messages.",
    )


@command.command()
@click.argument("conversation", type=Name("conversations"))
@click.option("--undo", is_flag=True, help="Show the model every message again.")
@click.option("--undo-last", is_flag=True, help="Take back the newest compression only.")
@json_command(wire.CompressionReport)
def compress(app: App, conversation: str, *, undo: bool, undo_last: bool, as_json: bool) -> None:
    """Let a summary stand for the beginning of a conversation; memory keeps every message.

    The model that the conversation is held with writes the summary.
    """
    if undo and undo_last:
        raise click.UsageError("--undo and --undo-last exclude each other")
    what: Literal["", "all", "last"] = "all" if undo else "last" if undo_last else ""
    with app.client() as client:
        request = wire.CompressConversation(conversation_id=conversation, undo=what)
        bar = ProgressLine("summarising", quiet=app.is_quiet)
        report = call(client, request, bar, limit_s=COMPRESS_LIMIT_S)
    emit(report, show_compression, as_json=as_json)


@command.command()
@click.argument("conversation", type=Name("conversations"))
@click.option(
    "--format", "how", type=click.Choice(["jsonl", "markdown"]), default="jsonl", show_default=True
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="A file; not there yet."
)
@json_command(Export | Exported)
def export(app: App, conversation: str, how: Format, output: Path | None, *, as_json: bool) -> None:
    """Write a conversation out, every message of it: as JSON lines, or as Markdown to read.

    A file gets the exact text. On standard output, what a terminal would act on is written out in
    Markdown and escaped in JSON lines. --json puts all of it into one JSON document.
    """
    with app.client() as client:
        request = wire.ExportConversation(conversation_id=conversation, format=how)
        written_out(app, pieces_of(client, request), how, output, as_json=as_json)


@command.command()
@click.argument("conversation", type=Name("conversations"))
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_command(Done)
def delete(app: App, conversation: str, *, yes: bool, as_json: bool) -> None:
    """Delete a conversation with all its messages."""
    confirm(f"Delete conversation {conversation}?", yes=yes)
    done = app.call(wire.DeleteConversation(conversation_id=conversation))
    emit(done, done.message or "done", as_json=as_json)
