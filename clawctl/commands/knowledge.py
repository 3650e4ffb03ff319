"""`clawctl knowledge`: notes that stay, written by the model or by you."""

import sys
from pathlib import Path

import click

from clawctl.app import App, Exit, Name, json_command
from clawctl.approve import Terminal
from clawctl.render import Palette, emit, emit_json, note, show_table
from clawctl.request_follower import exit_code, follow_calls, show_outcome
from clawctl.turn import ViewOptions
from clawctl.views import show_notes
from clawd.errors import InvalidRequestError
from clawd.wire import memory
from clawd.wire.method import Method
from clawd.wire.safe_text import terminal_safe, visible_line


@click.group()
def command() -> None:
    """Save, find, read and edit what the model knows for you.

    KEYWORDS are words such as: backup server. Together they are the name of a note.
    """


@command.command()
@click.argument("keywords", type=Name("knowledge"))
@click.argument("content")
@click.option("--fix", is_flag=True, help="Nobody may change it from a conversation.")
@json_command(memory.KnowledgeOutcome)
def save(app: App, keywords: str, content: str, *, fix: bool, as_json: bool) -> int:
    """Save CONTENT (- is stdin) under KEYWORDS; a note of that name is replaced."""
    request = memory.SaveKnowledge(keywords=keywords, content=_content(content), fix=fix)
    return _show(_asked(app, request), as_json=as_json)


@command.command()
@click.argument("keywords", type=Name("knowledge"))
@click.argument("content")
@json_command(memory.KnowledgeOutcome)
def append(app: App, keywords: str, content: str, *, as_json: bool) -> int:
    """Add CONTENT (- is stdin) to the end of a note, or begin one."""
    request = memory.AppendKnowledge(keywords=keywords, content=_content(content))
    return _show(_asked(app, request), as_json=as_json)


@command.command()
@click.argument("keywords", type=Name("keywords"), nargs=-1, required=True)
@click.option("--page", type=click.IntRange(1), default=1, show_default=True)
@click.option("--limit", type=click.IntRange(1, 20), default=10, show_default=True)
@json_command(memory.KnowledgeOutcome)
def search(app: App, keywords: tuple[str, ...], page: int, limit: int, *, as_json: bool) -> int:
    """Find the notes with any of the KEYWORDS."""
    request = memory.SearchKnowledge(keywords=" ".join(keywords), page=page, max_results=limit)
    found = app.call(request)
    if as_json or not found.entries:
        return _show(found, as_json=as_json)
    show_notes(found)
    if found.total > page * limit:
        note(f"● {found.total} found; --page {page + 1} shows more")
    return Exit.DONE


@command.command()
@click.argument("keywords", type=Name("keywords"), nargs=-1, required=True)
@json_command(memory.KnowledgeOutcome)
def load(app: App, keywords: tuple[str, ...], *, as_json: bool) -> int:
    """Show the notes with all of the KEYWORDS, at most four."""
    found = app.call(memory.LoadKnowledge(keywords=" ".join(keywords)))
    if as_json or not found.entries:
        return _show(found, as_json=as_json)
    for number, entry in enumerate(found.entries):
        _show_entry(entry, is_first=number == 0)
    if found.total > len(found.entries):
        note(f"● {found.total - len(found.entries)} more notes have these keywords")
    return Exit.DONE


@command.command("list")
@click.argument("prefix", default="")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
@json_command(memory.KnowledgeOutcome)
def list_(app: App, prefix: str, limit: int, *, as_json: bool) -> int:
    """List the notes whose names begin with PREFIX, by name."""
    found = app.call(memory.ListKnowledge(prefix=prefix, max=limit))
    if as_json or not found.entries:
        return _show(found, as_json=as_json)
    show_notes(found)
    if found.total > len(found.entries):
        note(f"● {found.total} in all; name a prefix, or a higher --limit")
    return Exit.DONE


@command.command()
@click.argument("keywords", type=Name("knowledge"), nargs=-1, required=True)
@json_command(memory.KnowledgeOutcome)
def delete(app: App, keywords: tuple[str, ...], *, as_json: bool) -> int:
    """Delete the note of just these KEYWORDS; its text is kept in the trash for a while.

    A fixed note is named with its beginning, as in fix-backup_server, and asks first.
    """
    return _show(_asked(app, memory.DeleteKnowledge(keywords=" ".join(keywords))), as_json=as_json)


@command.command()
@click.option("--min-count", type=click.IntRange(1), default=1, show_default=True)
@click.option("--limit", type=click.IntRange(1, 500), default=200, show_default=True)
@json_command(memory.KnowledgeOutcome)
def keywords(app: App, min_count: int, limit: int, *, as_json: bool) -> int:
    """List the keywords, the most used first."""
    found = app.call(memory.ListKeywords(min_count=min_count, max=limit))
    if as_json or not found.keywords:
        return _show(found, as_json=as_json)
    show_table(("KEYWORD", "NOTES"), [(each.keyword, each.count) for each in found.keywords])
    return Exit.DONE


@command.command()
@click.argument("keywords", type=Name("knowledge"), nargs=-1, required=True)
@json_command(memory.KnowledgeOutcome)
def edit(app: App, keywords: tuple[str, ...], *, as_json: bool) -> int:
    """Edit the note of just these KEYWORDS in $EDITOR; a new one is begun where there is none."""
    wanted = " ".join(keywords)
    found = app.call(memory.LoadKnowledge(keywords=wanted))
    if found.call.status == "denied":
        return _show(found, as_json=as_json)
    entry = next((each for each in found.entries if _is_intended(each, wanted)), None)
    if entry is not None and entry.is_fixed:
        raise InvalidRequestError(
            f"{entry.name} is fixed and cannot be edited",
            hint="Delete it by this name, then save it again with --fix.",
        )
    before = entry.text if entry is not None else ""
    after = click.edit(before, extension=".md")
    if after is None or after.strip() == before.strip():
        emit(found, "Nothing was changed.", as_json=as_json)
        return Exit.DONE
    name = entry.name if entry is not None else wanted
    return _show(_asked(app, memory.SaveKnowledge(keywords=name, content=after)), as_json=as_json)


def _is_intended(entry: memory.KnowledgeEntry, wanted: str) -> bool:
    """Return whether an entry is the one of just these words, and no more."""
    words = Path(wanted).name.removesuffix(".md").removeprefix("fix-")
    for mark in ",/_":
        words = words.replace(mark, " ")
    return set(entry.keywords) == set(words.casefold().split())


def _asked(app: App, request: Method[memory.KnowledgeOutcome]) -> memory.KnowledgeOutcome:
    """Make a call, asking at the terminal where that is needed."""
    options = ViewOptions(text=False, rows=False, calls=False)
    with Terminal.opened() as terminal, app.client() as client:
        return follow_calls(client, request, terminal, options)


def _show(outcome: memory.KnowledgeOutcome, *, as_json: bool) -> int:
    """Print what came of a call and return the exit code."""
    if as_json:
        emit_json(outcome)
    else:
        show_outcome(outcome.call)
    return exit_code(outcome.call)


def _content(given: str) -> str:
    if given != "-":
        return given
    # Bytes that are no UTF-8 would come out as surrogates, which no frame carries.
    return sys.stdin.buffer.read().decode(errors="replace")


def _show_entry(entry: memory.KnowledgeEntry, *, is_first: bool) -> None:
    palette = Palette.of(sys.stdout)
    print("" if is_first else "\n", end="")
    print(palette.bold(visible_line(entry.name)))
    about = f"{entry.size} B  created {entry.created or '?'}  changed {entry.updated or '?'}"
    print(palette.dim(visible_line(about)))
    if entry.untrusted_sources:
        sources = visible_line(", ".join(entry.untrusted_sources))
        print(palette.yellow(f"holds untrusted text from {sources}"))
    print(f"\n{terminal_safe(entry.text)}")
