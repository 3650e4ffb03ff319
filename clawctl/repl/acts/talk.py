"""Commands about the conversation: leave it, go on with another, copy, compress, ask again."""

import re
import sys
from typing import Literal

import msgspec

from clawctl.client import pages
from clawctl.render import Palette, note, say
from clawctl.repl.host import Host
from clawctl.settings import read_settings
from clawctl.views import show_compression
from clawctl.workspace_trust import real_folder
from clawd.wire import conversations as wire
from clawd.wire.daemon import Status
from clawd.wire.safe_text import shortened, terminal_safe, visible_line
from clawd.wire.tools import RunTool

MESSAGES_SHOWN = 6
REFINE = (
    "You word requests to an assistant. Rewrite the user's message so that it says the goal, what "
    "is given, the limits and what the result looks like. Keep their language and every fact, name "
    "and path as it stands; add no fact and no wish. Answer with the new message alone."
)
LINES_SHOWN = 12
PAGE = 1_000


def clear(host: Host, _rest: str) -> None:
    """Begin a new conversation."""
    host.go_on_in(None)
    say("A new conversation begins with the next message.")


def go_on(host: Host, rest: str) -> None:
    """Go on with another conversation and show its end."""
    if rest:
        request = wire.OpenConversation(conversation_id=rest)
        line = host.call(wire.ShowConversation(conversation_id=rest, limit=1)).conversation
        line = host.call(wire.OpenConversation(conversation_id=line.id))
    else:
        request = wire.OpenConversation(
            workspace=host.workspace, agent=host.choice.agent, resume=True
        )
        line = host.call(request)
    _enter(host, line)


def plan_first(host: Host, rest: str) -> None:
    """Send a message whose turn plans first, or let all do so."""
    before = host.choice.plan_first
    if rest in {"", "on", "off"}:
        host.choose(plan_first=rest == "on" if rest else before)
        say(f"Messages are {'' if host.choice.plan_first else 'not '}planned first.")
        return
    host.choose(plan_first=True)
    try:
        host.send(rest)
    finally:
        host.choose(plan_first=before)


def resume(host: Host, rest: str) -> None:
    """Let the person choose another conversation, and go on with it."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        note("/resume needs a terminal to choose at; /memory lists conversations, /continue ID")
        return
    from clawctl.repl import conversation_picker

    folder = real_folder(host.workspace or host.call(Status()).workspace)
    offered = [talk for talk in conversation_picker.talks(host.client(), folder) if talk.has(rest)]
    if not offered:
        note(f"No conversation has {visible_line(rest)}." if rest else "There is none to go on in.")
    elif chosen := conversation_picker.choose(offered):
        _enter(host, host.call(wire.OpenConversation(conversation_id=chosen)))


def _enter(host: Host, line: wire.ConversationLine) -> None:
    host.choose(think="")  # each conversation has its own
    host.go_on_in(line)
    show_end(host, line)


def show_end(host: Host, line: wire.ConversationLine) -> None:
    """Show what a conversation is and its last messages."""
    title = line.title or "no title yet"
    say(f"You go on in {line.id}: {visible_line(title)} ({line.messages} messages)")
    spoken = [each for each in messages(host, line.id) if each.role in {"user", "assistant"}]
    palette = Palette.of(sys.stdout)
    for message in [each for each in spoken if each.content.strip()][-MESSAGES_SHOWN:]:
        lines = terminal_safe(message.content.strip()).split("\n")
        hidden = len(lines) - LINES_SHOWN
        shown = lines[:LINES_SHOWN] + ([f"… {hidden} more lines"] if hidden > 0 else [])
        mark = palette.cyan("> ") if message.role == "user" else "  "
        print(mark + "\n  ".join(shown))


def retry(host: Host, _rest: str) -> None:
    """Ask the last message again, in a copy of the conversation that ends before it."""
    if not host.conversation_id:
        note("There is nothing to ask again: the conversation begins with your first message.")
        return
    found = messages(host, host.conversation_id)
    asked = [index for index, message in enumerate(found) if message.role == "user"]
    text = host.last_text
    if not asked:
        note("No message of this conversation was kept; what you sent last is in the prompt.")
        host.offer(text)
        return
    if not text:
        note("What you sent before this REPL began is not known word by word: write it again.")
        return
    if asked[-1] == 0:
        host.go_on_in(None)
    else:
        upto = found[asked[-1] - 1].id
        request = wire.ForkConversation(conversation_id=host.conversation_id, message_id=upto)
        host.go_on_in(host.call(request))
    say(f"Asked again: {visible_line(shortened(text, 60))}")
    host.send(text)


def compress(host: Host, rest: str) -> None:
    """Compress the conversation, or take that back."""
    known: dict[str, Literal["", "all", "last"]] = {
        "": "",
        "--undo": "all",
        "undo": "all",
        "--undo-last": "last",
    }
    if rest not in known:
        note("/compress takes nothing, --undo or --undo-last")
    elif has_conversation(host):
        request = wire.CompressConversation(conversation_id=host.conversation_id, undo=known[rest])
        show_compression(host.wait_for(request, "compressing"))


def rename(host: Host, rest: str) -> None:
    """Give the conversation another title."""
    if not rest:
        note("/rename takes the new title, as in: /rename adapters for the lab")
    elif has_conversation(host):
        line = host.call(wire.RenameConversation(conversation_id=host.conversation_id, title=rest))
        say(f"This conversation is now called: {line.title}")


def fork(host: Host, rest: str) -> None:
    """Go on in a copy."""
    if rest and not re.fullmatch("[1-9][0-9]{0,17}", rest):
        note("/fork takes the number of the last message to copy, or nothing")
    elif has_conversation(host):
        request = wire.ForkConversation(
            conversation_id=host.conversation_id, message_id=int(rest or 0)
        )
        line = host.call(request)
        host.go_on_in(line)
        say(f"You go on in {line.id}, a copy of {line.messages} messages.")


def rewind(host: Host, rest: str) -> None:
    """Take files and conversation back to before a message, or list the messages."""
    if not has_conversation(host):
        return
    found = messages(host, host.conversation_id)
    asked = [message for message in found if message.role == "user"]
    if not rest:
        for message in asked:
            say(f"{message.id:>8}  {visible_line(shortened(message.content, 70))}")
        note("/rewind NUMBER takes files and conversation back to before that message")
        return
    chosen = [message for message in asked if str(message.id) == rest]
    if not chosen:
        note(f"{rest} is not a message of yours in this conversation; /rewind lists them")
        return
    outcome = host.run_tool(RunTool(name="undo", arguments=f'{{"since": {rest}}}'))
    if outcome.status != "allowed":
        note("The conversation stays where it is.")
        return
    before = [message.id for message in found if message.id < chosen[0].id]
    made: wire.ConversationLine | None = None
    if before:
        request = wire.ForkConversation(conversation_id=host.conversation_id, message_id=before[-1])
        made = host.call(request)
    old = host.conversation_id
    host.go_on_in(made)
    say(f"You go on before that message; all of it stays in {old}, and it is in the prompt.")
    host.offer(chosen[0].content)


def has_conversation(host: Host) -> bool:
    """Return whether there is a conversation; when not, say so."""
    if not host.conversation_id:
        note("there is no conversation yet: it begins with your first message")
    return bool(host.conversation_id)


def messages(host: Host, conversation_id: str) -> list[wire.MessageLine]:
    """Return the stored messages of a conversation, oldest first."""
    request = wire.ShowConversation(conversation_id=conversation_id, limit=PAGE)
    return [each for page in pages(host.call, request) for each in page.messages]


def refine(host: Host, rest: str) -> None:
    """Let the model word a message, and put that into the prompt; nothing of it is sent on."""
    if read_settings().get("refine") is not True:
        note("/refine is off. To have it: refine = true in client.toml of the home of clawd.")
        return
    text = rest.strip() or host.last_text
    if not text:
        note("/refine takes a message: /refine TEXT; without one it takes your last.")
        return
    opened = host.call(wire.OpenConversation(workspace=host.workspace, agent=host.choice.agent))
    asked = host.choice.message(text, opened.id, interactive=False)
    try:
        # No tool: what it wants to know is the person's to say.
        request = msgspec.structs.replace(asked, system=REFINE, tools_allow=("-*",), hints={})
        words = host.wait_for(request, "refining").text.strip()
    finally:
        host.call(wire.DeleteConversation(conversation_id=opened.id))
    if not words:
        note("The model said nothing; your words are in the prompt.")
    host.offer(words or text)
