"""The commands of REPL and shell: lines that begin with a slash; `repl.acts` does them."""

import difflib
import importlib
import re
import shutil
import textwrap
from collections.abc import Callable

import msgspec

from clawctl.render import note, say
from clawctl.repl.host import Host
from clawd.wire.safe_text import visible_line
from clawd.wire.skills import ListSkills, SkillLine

HELP_COLUMNS = 40

_COMMAND = re.compile(r"(/(?:[a-z][a-z0-9_-]*)?)(?:\s+(.*)|$)", re.DOTALL)

Handler = Callable[[Host, str], None]


class Slash(msgspec.Struct, frozen=True, kw_only=True):
    """One command.

    Attributes:
        usage: how it is written.
        help: what it does, for /help.
        group: under which heading /help lists it.
        act: module of `repl.acts` and function, loaded when it is run; or `show_help`.
        arguments: what completion offers, place by place: a kind of live value, or `=a|b`.
        more: what `/help COMMAND` adds.
    """

    usage: str
    help: str
    group: str
    act: str
    arguments: tuple[str, ...] = ()
    more: str = ""


def is_command(line: str) -> bool:
    """Return whether a line is meant for the REPL: `/tools`, but not `/etc/hosts is odd`."""
    return _COMMAND.match(line) is not None


def own_commands(host: Host) -> list[SkillLine]:
    """Return the commands of the person and of the workspace, that clawd has none of that name."""
    found = host.call(ListSkills(workspace=host.workspace, kind="command")).items
    return [each for each in found if not each.shadowed_by and f"/{each.name}" not in COMMANDS]


def own_command(host: Host, line: str) -> SkillLine | None:
    """Return the one of them that a line calls, None where it calls none."""
    name = line.split(maxsplit=1)[0]
    if not is_command(line) or name in COMMANDS:
        return None
    return next((each for each in own_commands(host) if f"/{each.name}" == name), None)


def run_command(host: Host, line: str) -> None:
    """Run a line that `is_command`."""
    name, rest = _COMMAND.match(line).groups("")  # type: ignore[union-attr]  # it is one
    command = COMMANDS.get(name)
    if command is None:
        note(
            f"{name} is not a command here.{nearest(name)} /help lists them; "
            "a blank before / sends it."
        )
        return
    if name in host.absent:
        note(f"{name} is not in the shell: {host.absent[name]}")
        return
    handler(command)(host, rest.strip())


def nearest(name: str) -> str:
    """Return a question that names the command that was meant, "" when none is near."""
    close = difflib.get_close_matches(name, COMMANDS, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def handler(command: Slash) -> Handler:
    """Return the function that does a command."""
    if command.act == show_help.__name__:
        return show_help
    module, _, function = command.act.partition(":")
    found: Handler = getattr(importlib.import_module(f"clawctl.repl.acts.{module}"), function)
    return found


def show_help(host: Host, rest: str) -> None:
    """List the commands, or tell more of one."""
    if rest:
        name = f"/{rest.removeprefix('/')}"
        command = COMMANDS.get(name)
        if command is None and (found := own_command(host, name)) is not None:
            say(f"{_usage(found)}\n{visible_line(found.description)}")
            return
        if command is None:
            note(f"{name} is not a command here.{nearest(name)}")
            return
        say(f"{command.usage}\n{command.help}")
        if command.more:
            say(command.more)
        return
    present = [command for name, command in COMMANDS.items() if name not in host.absent]
    columns = shutil.get_terminal_size().columns
    width = max(len(command.usage) for command in present if len(command.usage) < 30)
    group = ""
    for command in present:
        if command.group != group:
            print(f"{'' if not group else chr(10)}{command.group}")
            group = command.group
        print("\n".join(_entry(command, width, columns)))
    ready = [] if host.absent else [each for each in own_commands(host) if each.state == "ready"]
    for number, own in enumerate(ready):
        about = _slash("", _usage(own), "", visible_line(own.description) or "-")
        print("\n".join((*([] if number else ["\nYour own"]), *_entry(about, width, columns))))
    print(f"\n{host.keys}")


def _usage(command: SkillLine) -> str:
    return visible_line(f"/{command.name} {command.hint}".rstrip())


def _entry(command: Slash, width: int, columns: int) -> list[str]:
    """Return the rows of a command: what it does beside it, or below where that is too narrow."""
    left = width + 4 if columns >= width + 4 + HELP_COLUMNS else 6
    text = textwrap.wrap(command.help, max(columns - left, 10))
    usage = f"  {command.usage}"
    if len(usage) + 2 > left:
        return [usage, *(" " * left + row for row in text)]
    return [usage.ljust(left) + text[0], *(" " * left + row for row in text[1:])]


TALK, CONTEXT, TOOLS, MODEL, SAFETY, HERE = (
    "The conversation",
    "What the model knows",
    "Tools and files",
    "The model",
    "Safety and records",
    "This terminal",
)


def _slash(group: str, usage: str, act: str, text: str, *arguments: str, more: str = "") -> Slash:
    return Slash(usage=usage, help=text, group=group, act=act, arguments=arguments, more=more)


_LIST = (
    _slash(TALK, "/clear", "talk:clear", "Begin a new conversation; /reset does the same."),
    _slash(TALK, "/reset", "talk:clear", "Begin a new conversation."),
    _slash(
        TALK,
        "/continue [ID]",
        "talk:go_on",
        "Go on with the newest conversation, or this one, and show its end.",
        "conversations",
    ),
    _slash(
        TALK,
        "/resume [WORDS]",
        "talk:resume",
        "Choose the conversation to go on with, those of this folder first.",
        more="As clawctl agent --resume: what you type filters by title, folder and last words, "
        "Enter goes on in the one that is marked, Escape leaves you where you are. With words only "
        "those that have them are offered.",
    ),
    _slash(TALK, "/retry", "talk:retry", "Ask the last message again, without its answer."),
    _slash(
        TALK,
        "/refine [TEXT]",
        "talk:refine",
        "Let the model word a message; it comes into the prompt and is not sent.",
        more="Off until client.toml in the home of clawd says refine = true. The model gets your "
        "words alone, in a conversation that is deleted again, and no tools.",
    ),
    _slash(
        TALK,
        "/plan-first [TEXT | on | off]",
        "talk:plan_first",
        "Let the model only look and write a plan, and ask you before it works on it.",
        "=on|off",
        more="With a text it holds for that message, with on for all until off. While it plans the "
        "model is in mode readonly. Then you choose: work on the plan, in this mode or another, "
        "leave it at the plan, or say what to change. Without words it says how it stands.",
    ),
    _slash(TALK, "/rename TITLE", "talk:rename", "Give the conversation another title."),
    _slash(TALK, "/title TITLE", "talk:rename", "The same as /rename."),
    _slash(TALK, "/fork [MESSAGE]", "talk:fork", "Go on in a copy of the conversation."),
    _slash(
        TALK,
        "/rewind [MESSAGE]",
        "talk:rewind",
        "List your messages, or take files and conversation back to before one.",
        more="What tools and commands changed since is taken back, after you saw the diff and said "
        "yes; then you go on in a copy of the conversation that ends before the message. The old "
        "one stays, and clawctl undo --redo brings the files back.",
    ),
    _slash(
        TALK,
        "/compress [--undo]",
        "talk:compress",
        "Let a summary stand for the beginning of the conversation, or take that back.",
        "=--undo|--undo-last",
    ),
    _slash(TALK, "/copy", "keeping:copy", "Copy the last answer to the clipboard."),
    _slash(
        TALK,
        "/paste",
        "keeping:paste",
        "Have the picture in the clipboard go with the next message.",
        more="wl-paste or xclip reads it, a PNG or JPEG of at most 20 MiB.",
    ),
    _slash(TALK, "/save FILE", "keeping:save", "Write the conversation to a file, as Markdown."),
    _slash(
        CONTEXT,
        "/system [TEXT | off]",
        "model:system",
        "Show the system prompt, or talk with another one.",
        "=off",
        more="The text goes in place of clawd's own, from the next message on, until /system off "
        "or the end of this REPL.",
    ),
    _slash(CONTEXT, "/cost", "keeping:cost", "Show what fills the context, and what was spent."),
    _slash(CONTEXT, "/memory [WORDS]", "know:memory", "List conversations, or search them."),
    _slash(CONTEXT, "/knowledge [WORDS]", "know:knowledge", "List the notes, or find some."),
    _slash(
        CONTEXT,
        "/files [NAME]",
        "know:files",
        "List the files of this conversation, or show one.",
        "session_files",
    ),
    _slash(CONTEXT, "/plan", "know:plan", "Show the plan of this conversation."),
    _slash(TOOLS, "/tools", "know:tools", "List the tools."),
    _slash(
        TOOLS,
        "/tool NAME [JSON]",
        "know:tool",
        "Run a tool in this conversation, or show what it takes.",
        "tools",
        more='As in: /tool file_list {"path": "."}. It goes through the same gate as a call of '
        "the model and leaves a receipt. Without JSON the tool is shown and not run.",
    ),
    _slash(
        TOOLS,
        "/undo [STEPS | RECEIPT | turn]",
        "know:undo",
        "Take back what tools and commands changed in files.",
        "=turn",
        more="Without words the newest call, with a number so many, with a receipt that one, and "
        "/undo turn all of the newest turn. You see what would change before you say yes.",
    ),
    _slash(
        TOOLS,
        "/jobs [show|output|stop ID]",
        "daemon:jobs",
        "List the commands that go on after their call; or show, read or stop one.",
        "=list|show|output|stop",
        "jobs",
    ),
    _slash(
        TOOLS,
        "/mcp [list|tools|tool|connect|disconnect …]",
        "daemon:mcp",
        "List, connect and disconnect MCP servers, and see their tools.",
        "=list|tools|tool|connect|disconnect",
        "aliases",
    ),
    _slash(
        TOOLS,
        "/skill [list|show|trust|add|lint …]",
        "daemon:skill",
        "List the skills of this folder, look at one, trust, add or check one.",
        "=list|show|trust|add|lint",
        "skills",
    ),
    _slash(
        TOOLS,
        "/sop [list|show|run|status|approve|resume|cancel|history …]",
        "daemon:sop",
        "List the procedures of this folder, look at one, run it, answer or end a run.",
        "=list|show|validate|enable|dry-run|run|status|approve|resume|cancel|history",
        "sops",
    ),
    _slash(
        MODEL,
        "/model [NAME]",
        "model:model",
        "List the models, or go on with another one.",
        "models",
    ),
    _slash(
        MODEL,
        "/provider [NAME]",
        "model:provider",
        "List the providers, or go on with another one.",
        "providers",
    ),
    _slash(
        MODEL,
        "/preset [NAME | off]",
        "model:preset",
        "Choose how the model samples, from deterministic to wild.",
        "presets",
    ),
    _slash(
        MODEL,
        "/sampling [NAME=VALUE … | off]",
        "model:sampling",
        "Show how the model samples, or set it: temperature, top_p, top_k, min_p, seed, penalties.",
        "=temperature=|top_p=|top_k=|min_p=|repeat_penalty=|frequency_penalty=|presence_penalty="
        "|seed=|max_tokens=|off",
    ),
    _slash(
        MODEL,
        "/think [on|off|low|medium|high|auto]",
        "model:think",
        "Say whether the model is to think, or how much; or show how it stands.",
        "=on|off|low|medium|high|auto",
        more="The conversation keeps it. It goes to the chat template of a local model; with one "
        "that cannot be told so, a notice comes with the next answer. auto leaves it to the model.",
    ),
    _slash(
        MODEL, "/agent [NAME | off]", "model:agent", "Let an agent of the config answer.", "agents"
    ),
    _slash(
        SAFETY,
        "/mode [readonly|supervised|edits|full]",
        "daemon:mode",
        "Show how far the model may go without asking, or set it for this conversation.",
        "=readonly|supervised|edits|full",
        more="readonly: low risk runs, nothing else. supervised: medium risk asks. edits: changes "
        "to files of the workspace run, too; /undo takes them back. full: all runs that is not "
        "blocked. Shift-Tab goes through the first three. Each change leaves a receipt.",
    ),
    _slash(
        SAFETY,
        "/estop [clear|status|REASON]",
        "daemon:estop",
        "Stop every tool at once.",
        "=clear|status",
    ),
    _slash(
        SAFETY,
        "/approvals [allow|deny ID]",
        "daemon:approvals",
        "List what waits for an approval, and the rules; or answer.",
        "=allow|deny|rules",
        "approvals",
    ),
    _slash(
        SAFETY,
        "/policy [TOOL JSON]",
        "daemon:policy",
        "Show the boundary and the rules, or what a call would be answered.",
        "tools",
    ),
    _slash(SAFETY, "/receipts", "daemon:receipts", "Show the newest receipts."),
    _slash(SAFETY, "/status", "daemon:status", "Show what the daemon is and does."),
    _slash(SAFETY, "/doctor", "daemon:doctor", "Say what protects this machine and what does not."),
    _slash(
        HERE,
        "/reasoning [whole|folded]",
        "keeping:reasoning",
        "Show the model's reasoning whole, or folded.",
        "=whole|folded",
    ),
    _slash(HERE, "/theme [NAME]", "keeping:theme", "Choose the colours.", "themes"),
    _slash(HERE, "/editor [TEXT]", "keeping:editor", "Write the next message in $EDITOR."),
    _slash(HERE, "/help [COMMAND]", "show_help", "Show this, or more about one.", "commands"),
    _slash(HERE, "/exit", "keeping:leave", "Leave; /quit and Ctrl-D do the same."),
    _slash(HERE, "/quit", "keeping:leave", "Leave."),
)

COMMANDS: dict[str, Slash] = {each.usage.split(" ")[0]: each for each in _LIST}
