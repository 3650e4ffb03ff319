"""Commands in the text of a model that can call no tools: `CMD: ` lines, as calls of `shell`. Pure.

    I look at the folder.
    CMD: ls -l
    CMD: wc -l notes.md

They are calls like any other: same policy, same approvals, same receipts. A line counts when it
begins with `CMD: ` in the first column, outside of code fences; what stands in a fence is quoted.
The model is shown its own text and, as the next user message, what came of its commands.
"""

import json
import re
from collections.abc import Iterable

import msgspec

from clawd.providers.base import Message, ToolCall, calls_as_text, without_tool_role
from clawd.tools.base import Tool

SHELL = "shell"
MAX_COMMANDS = 8
MAX_COMMAND_CHARS = 4096

_ID = "cmd_"
_LINE = re.compile(r"CMD:[ \t]+(\S.*)")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")

INSTRUCTIONS = """\
[commands]
To run a shell command in the workspace, write a line of its own that begins with "CMD: ", outside \
of code fences, and end your answer there. Each line is one command. What it printed comes back as \
the next message, after "[tool: shell]". For example:
CMD: ls -l"""


def commands_in(text: str) -> tuple[str, ...]:
    """Return the commands of a text, in order; longer ones than 4,096 characters are none."""
    found: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark:
            fence = mark[1]
        elif (command := _LINE.fullmatch(line)) and len(command[1]) <= MAX_COMMAND_CHARS:
            found.append(command[1].strip())
    return tuple(found)


def command_calls(commands: Iterable[str]) -> tuple[ToolCall, ...]:
    """Return the calls that commands stand for."""
    return tuple(
        ToolCall(
            id=f"{_ID}{number}",
            name=SHELL,
            arguments=json.dumps({"command": command}, ensure_ascii=False),
        )
        for number, command in enumerate(commands)
    )


def as_plain_history(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return messages as a model without tools is shown them: no calls, no role of tools.

    Each message becomes the same whatever follows it, so that a longer history extends a shorter.
    """
    return without_tool_role(tuple(messages), calls=_without_commands)


def with_instructions(system: str, tools: Iterable[Tool]) -> str:
    """Return a system prompt that says how to write commands, where `shell` is offered."""
    if all(tool.name != SHELL for tool in tools):
        return system
    return f"{system}\n\n{INSTRUCTIONS}" if system else INSTRUCTIONS


def _without_commands(message: Message) -> Message:
    """Return an assistant's message without calls: commands are in its text already."""
    if message.tool_calls and all(call.id.startswith(_ID) for call in message.tool_calls):
        return msgspec.structs.replace(message, tool_calls=())
    return calls_as_text(message)
