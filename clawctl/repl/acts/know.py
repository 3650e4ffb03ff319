"""Commands about what the model knows and can use: memory, notes, files, plan, tools."""

import re
import sys

import msgspec

from clawctl.call_text import plan_text
from clawctl.render import Palette, note, say, show_fields, show_table
from clawctl.repl.host import Host
from clawctl.views import (
    check_arguments,
    show_conversations,
    show_hits,
    show_notes,
    show_session_files,
)
from clawd.errors import NotFoundError
from clawd.wire.conversations import ListConversations, ListSessionFiles, ReadSessionFile, ShowPlan
from clawd.wire.memory import ListKnowledge, SearchKnowledge, SearchMemory
from clawd.wire.tools import ListTools, RunTool, ToolLine

FILE_LINES_SHOWN = 200


def memory(host: Host, rest: str) -> None:
    """List conversations, or search them."""
    if rest:
        show_hits(host.call(SearchMemory(query=rest)))
    else:
        show_conversations(list(host.call(ListConversations(limit=20)).items))


def knowledge(host: Host, rest: str) -> None:
    """List the notes, or find some."""
    show_notes(host.call(SearchKnowledge(keywords=rest) if rest else ListKnowledge()))


def files(host: Host, rest: str) -> None:
    """List the files of the conversation, or show the beginning of one."""
    if not host.conversation_id:
        note("The conversation begins with your first message; it has no files yet.")
        return
    if not rest:
        show_session_files(host.call(ListSessionFiles(conversation_id=host.conversation_id)))
        return
    found = host.call(ReadSessionFile(conversation_id=host.conversation_id, name=rest))
    if not found.file.mime.startswith("text/") and b"\0" in found.data:
        note(
            f"{rest} is not text. Write it to a file with: "
            f"clawctl files save NAME PATH --conversation {host.conversation_id}"
        )
        return
    lines = found.data.decode(errors="replace").split("\n")
    say("\n".join(lines[:FILE_LINES_SHOWN]))
    if len(lines) > FILE_LINES_SHOWN or not found.is_end:
        note(f"● the first {FILE_LINES_SHOWN} lines of {found.file.size} bytes")


def plan(host: Host, _rest: str) -> None:
    """Show the plan of the conversation."""
    conversation_id = host.conversation_id
    found = host.call(ShowPlan(conversation_id=conversation_id)) if conversation_id else None
    if found is None or not found.items:
        say("There is no plan in this conversation.")
    else:
        print(plan_text(found.markdown, Palette.of(sys.stdout)))


def tools(host: Host, _rest: str) -> None:
    """List the tools."""
    found = host.call(ListTools()).items
    show_table(("NAME", "SOURCE", "WHAT IT DOES"), [(t.name, t.source, t.short) for t in found])


def tool(host: Host, rest: str) -> None:
    """Run a tool through the gate, or show it."""
    name, _, arguments = rest.partition(" ")
    if not name:
        note('/tool takes a name and arguments, as in: /tool file_list {"path": "."}')
        return
    if not arguments.strip():
        _show_tool(_find(host, name))
        return
    check_arguments(arguments, example='/tool file_list {"path": "."}')
    host.run_tool(RunTool(name=name, arguments=arguments))


def undo(host: Host, rest: str) -> None:
    """Take back what tools and commands changed."""
    if rest == "turn":
        arguments = '{"turn": true}'
    elif re.fullmatch("[0-9A-Za-z]+-[0-9A-Za-z]+", rest):
        arguments = msgspec.json.encode({"call": rest}).decode()
    elif not rest or re.fullmatch("[1-9][0-9]{0,2}", rest):
        arguments = f'{{"steps": {rest or 1}}}'
    else:
        note("/undo takes a number of steps, the id of a receipt, or turn, as in: /undo 2")
        return
    host.run_tool(RunTool(name="undo", arguments=arguments))


def _find(host: Host, name: str) -> ToolLine:
    known = host.call(ListTools()).items
    for line in known:
        if name == line.name or name in line.aliases:
            return line
    raise NotFoundError(f"there is no tool {name}", hint="See them with: /tools")


def _show_tool(line: ToolLine) -> None:
    say(f"{line.name}: {line.description}")
    properties = line.parameters.get("properties", {})
    required = line.parameters.get("required", ())
    fields = [
        (f"{key}{'' if key in required else '?'}", str(about.get("description", "")))
        for key, about in properties.items()
        if isinstance(about, dict)
    ]
    show_fields(fields)
    example = msgspec.json.encode(line.example).decode() if line.example else "{}"
    say(f"Run it with: /tool {line.name} {example}")
