"""The REPL's own commands: lines that begin with a slash."""

import difflib
import re
import sys
from collections.abc import Callable
from typing import Literal, Protocol, TypeVar

import msgspec

from clawctl.client import Client
from clawctl.plan import plan_text
from clawctl.render import Palette, note, say, show_fields, show_table
from clawctl.views import (
    check_arguments,
    estop_line,
    newest_receipts,
    show_compression,
    show_conversations,
    show_explanation,
    show_hits,
    show_notes,
    show_receipts,
    show_session_files,
    show_status,
)
from clawd.wire.conversation_methods import (
    CompressConversation,
    ForkConversation,
    RenameConversation,
)
from clawd.wire.knowledge_methods import ListKnowledge, SearchKnowledge
from clawd.wire.mcp_methods import ListMcpServers
from clawd.wire.method import Method
from clawd.wire.methods import (
    ClearEstop,
    EstopState,
    ListConversations,
    ListRules,
    ListTools,
    RunTool,
    SearchMemory,
    SetEstop,
    Status,
)
from clawd.wire.plan_methods import ShowPlan
from clawd.wire.policy_methods import ExplainPolicy
from clawd.wire.receipt_methods import ListReceipts
from clawd.wire.session_methods import ListSessionFiles

COMPRESS_LIMIT_S = 4_000.0

_COMMAND = re.compile(r"/[a-z]*(\s|$)")

R = TypeVar("R")


class Host(Protocol):
    """What a command may do with the REPL that runs it."""

    @property
    def workspace(self) -> str:
        """The conversation's workspace, empty for the configured one."""
        ...

    conversation_id: str
    is_stopped: bool

    def client(self) -> Client:
        """Return a living connection."""
        ...

    def call(self, params: Method[R]) -> R:
        """Call a method."""
        ...

    def run_tool(self, request: RunTool) -> None:
        """Run a tool in the conversation, if there is one, and show what came of it."""
        ...

    def leave(self) -> None:
        """End after this line."""
        ...

    def go_on_in(self, conversation_id: str) -> None:
        """Let the next message go to this conversation; "" opens a new one."""
        ...


Handler = Callable[[Host, str], None]


class Slash(msgspec.Struct, frozen=True, kw_only=True):
    """One command: what it does, for /help, and the function that does it."""

    usage: str
    help: str
    handler: Handler


def is_command(line: str) -> bool:
    """Tell whether a line is meant for the REPL: `/tools`, but not `/etc/hosts is odd`."""
    return _COMMAND.match(line) is not None


def run_command(host: Host, line: str) -> None:
    """Run a line that `is_command`."""
    name, _, rest = line.partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        note(f"{name} is no command here.{hint} /help lists them; a blank before / sends it.")
        return
    command.handler(host, rest.strip())


def _leave(host: Host, _rest: str) -> None:
    host.leave()


def _help(_host: Host, _rest: str) -> None:
    width = max(len(command.usage) for command in COMMANDS.values())
    for command in COMMANDS.values():
        print(f"{command.usage.ljust(width)}  {command.help}")
    print(
        "\nCtrl-C stops the answer, or clears the line; three in a second leave. Ctrl-D leaves.\n"
        "Ctrl-\\ is the emergency stop. Alt-Enter begins a new line."
    )


def _clear(host: Host, _rest: str) -> None:
    host.go_on_in("")
    say("A new conversation begins with the next message.")


def _tools(host: Host, _rest: str) -> None:
    tools = host.call(ListTools()).items
    show_table(("NAME", "SOURCE", "WHAT IT DOES"), [(t.name, t.source, t.short) for t in tools])


def _memory(host: Host, rest: str) -> None:
    if rest:
        show_hits(host.call(SearchMemory(query=rest)))
    else:
        show_conversations(list(host.call(ListConversations(limit=20)).items))


def _knowledge(host: Host, rest: str) -> None:
    show_notes(host.call(SearchKnowledge(keywords=rest) if rest else ListKnowledge()))


def _files(host: Host, _rest: str) -> None:
    if host.conversation_id:
        show_session_files(host.call(ListSessionFiles(conversation_id=host.conversation_id)))
    else:
        note("The conversation begins with your first message; it has no files yet.")


def _plan(host: Host, _rest: str) -> None:
    conversation_id = host.conversation_id
    plan = host.call(ShowPlan(conversation_id=conversation_id)) if conversation_id else None
    if plan is None or not plan.items:
        say("There is no plan in this conversation.")
    else:
        print(plan_text(plan.markdown, Palette.of(sys.stdout)))


def _policy(host: Host, rest: str) -> None:
    if not rest:
        report = host.call(Status())
        show_fields(
            [
                ("autonomy", report.autonomy),
                ("sandbox", report.sandbox),
                ("estop", "SET" if report.estop else "not set"),
            ]
        )
        rules = host.call(ListRules()).items
        show_table(
            ("RULE", "TOOL", "EXPIRES", "MATCHES"),
            [(rule.id, rule.tool, rule.expires_at, rule.pattern) for rule in rules],
            nothing="No standing rules.",
        )
        return
    tool, _, arguments = rest.partition(" ")
    check_arguments(arguments or "{}", example='/policy shell {"command": "ls"}')
    found = host.call(
        ExplainPolicy(tool=tool, arguments=arguments or "{}", workspace=host.workspace)
    )
    show_explanation(found)


def _receipts(host: Host, _rest: str) -> None:
    show_receipts(newest_receipts(host.client(), 10, ListReceipts()))


def _compress(host: Host, rest: str) -> None:
    known: dict[str, Literal["", "all", "last"]] = {
        "": "",
        "--undo": "all",
        "undo": "all",
        "--undo-last": "last",
    }
    if rest not in known:
        note("/compress takes nothing, --undo or --undo-last")
    elif _has_conversation(host):
        request = CompressConversation(conversation_id=host.conversation_id, undo=known[rest])
        show_compression(host.client().call(request, limit_s=COMPRESS_LIMIT_S))


def _rename(host: Host, rest: str) -> None:
    if not rest:
        note("/rename takes the new title, as in: /rename adapters for the lab")
    elif _has_conversation(host):
        line = host.call(RenameConversation(conversation_id=host.conversation_id, title=rest))
        say(f"This conversation is now called: {line.title}")


def _fork(host: Host, rest: str) -> None:
    if rest and not re.fullmatch("[1-9][0-9]{0,17}", rest):
        note("/fork takes the number of the last message to copy, or nothing")
    elif _has_conversation(host):
        request = ForkConversation(conversation_id=host.conversation_id, message_id=int(rest or 0))
        line = host.call(request)
        host.go_on_in(line.id)
        say(f"You go on in {line.id}, a copy of {line.messages} messages.")


def _has_conversation(host: Host) -> bool:
    if not host.conversation_id:
        note("there is no conversation yet: it begins with your first message")
    return bool(host.conversation_id)


def _estop(host: Host, rest: str) -> None:
    match rest:
        case "clear" | "--clear":
            report = host.call(ClearEstop())
        case "status" | "--status":
            report = host.call(EstopState())
        case _:
            report = host.call(SetEstop(reason=rest))
    host.is_stopped = report.is_set
    say(estop_line(report))


def _undo(host: Host, rest: str) -> None:
    if rest and not re.fullmatch("[1-9][0-9]{0,2}", rest):
        note("/undo takes a number of steps, as in: /undo 2")
        return
    host.run_tool(RunTool(name="undo", arguments=f'{{"steps": {rest or 1}}}'))


def _status(host: Host, _rest: str) -> None:
    show_status(host.call(Status()), host.call(ListMcpServers()).items)


COMMANDS: dict[str, Slash] = {
    "/help": Slash(usage="/help", help="Show this.", handler=_help),
    "/clear": Slash(usage="/clear", help="Begin a new conversation.", handler=_clear),
    "/compress": Slash(
        usage="/compress [--undo]",
        help="Let a summary stand for the beginning of the conversation, or take that back.",
        handler=_compress,
    ),
    "/rename": Slash(
        usage="/rename TITLE", help="Give the conversation another title.", handler=_rename
    ),
    "/title": Slash(usage="/title TITLE", help="The same as /rename.", handler=_rename),
    "/fork": Slash(
        usage="/fork [MESSAGE]", help="Go on in a copy of the conversation.", handler=_fork
    ),
    "/tools": Slash(usage="/tools", help="List the tools.", handler=_tools),
    "/memory": Slash(
        usage="/memory [WORDS]", help="List conversations, or search them.", handler=_memory
    ),
    "/knowledge": Slash(
        usage="/knowledge [WORDS]", help="List the notes, or find some.", handler=_knowledge
    ),
    "/files": Slash(usage="/files", help="List the files of this conversation.", handler=_files),
    "/plan": Slash(usage="/plan", help="Show the plan of this conversation.", handler=_plan),
    "/policy": Slash(
        usage="/policy [TOOL JSON]",
        help="Show autonomy and rules, or what a call would be answered.",
        handler=_policy,
    ),
    "/receipts": Slash(usage="/receipts", help="Show the newest receipts.", handler=_receipts),
    "/undo": Slash(
        usage="/undo [STEPS]", help="Take back what tools changed in files.", handler=_undo
    ),
    "/status": Slash(usage="/status", help="Show what the daemon is and does.", handler=_status),
    "/estop": Slash(
        usage="/estop [clear|status|REASON]", help="Stop every tool at once.", handler=_estop
    ),
    "/exit": Slash(usage="/exit", help="Leave; /quit does the same.", handler=_leave),
    "/quit": Slash(usage="/quit", help="Leave.", handler=_leave),
}
