"""Text of a model that poses as something else: how it is told, and what is asked. Pure.

It was to be a tool call and is none, or has the form of what others say: a tool's result, a notice.

What stands in backticks or in a code fence is quoted, not called: a model may explain a format.
"""

import re

import msgspec

from clawd.providers.base import CONTEXT_OPEN, ChatRequest, Message
from clawd.providers.toolcalls.detect import looks_like_call
from clawd.runtime.context import UNSAID

SHOWN_CHARS = 8 * 1024
TOLD_CHARS = 200

STOPPED = "I stopped: "
"""How the words begin with which a turn ends that clawd gave up."""

REMARK = """\
Your last message was to be a tool call, but it could not be read, so nothing was run. Write the \
call again, complete and alone: the name of one tool that you are offered, and its arguments as \
one JSON object. If you meant no call, answer in plain words."""

_QUOTED = re.compile(r"```(?!tool_c).*?(?:```|\Z)|(?<!`)`(?!`)[^`\n]+`(?!`)", re.DOTALL)
_RESULT = "<tool_response>"
_HEAD_CHARS = 400
_BARE = re.compile(r'\s*(?:```(?:json)?\s*)?\[?\s*\{\s*"(?:name|function|tool)"\s*:\s*"([^"]*)"')
_FREE = frozenset({"auto", "none"})
_BEGUN = re.compile(r"\s*(?:```(?:json)?\s*)?[\[{<]")  # as an answer begins that must be a call
_ARGUMENTS = re.compile(r'"(?:arguments|parameters|args)"\s*:')


def was_to_be_a_call(text: str, request: ChatRequest) -> bool:
    """Say whether text that came as no call was meant as one, of a request that offers tools."""
    if not request.tools:
        return False
    if request.tool_choice not in _FREE and _BEGUN.match(text):
        return True
    bare = _BARE.match(text[:_HEAD_CHARS])
    if bare and bare[1] in {tool.name for tool in request.tools} and _ARGUMENTS.search(text):
        return True
    return looks_like_call(_QUOTED.sub("", text))


def posing(text: str) -> str:
    """Return what to tell a person of an answer in which a model repeats what others say.

    Small models go on in the form of what they read last; a person could take it for the truth.
    """
    plain = _QUOTED.sub("", text)
    if _RESULT in plain:
        return "the answer has the form of a tool's result; no tool gave it, the model wrote it"
    if plain.lstrip().startswith(CONTEXT_OPEN):
        return "the answer repeats the facts that clawd puts before a message"
    if plain.lstrip().startswith(STOPPED) or plain.strip() == UNSAID:
        return "the model repeats a notice of clawd in its own words; nothing was stopped this time"
    return ""


def head(text: str) -> str:
    """Return the beginning of such a text in one line, as a person is told it."""
    line = " ".join(text.split())
    return line if len(line) <= TOLD_CHARS else f"{line[:TOLD_CHARS]}… ({len(text)} characters)"


def kept(text: str) -> str:
    """Return as much of such a text as a log takes."""
    return text[:SHOWN_CHARS]


def asking_to_repair(request: ChatRequest, text: str) -> ChatRequest:
    """Return the request with the text and a remark on it; an extension of the one before."""
    again = (
        Message(role="assistant", content=text[:SHOWN_CHARS]),
        Message(role="user", content=REMARK),
    )
    return msgspec.structs.replace(request, messages=(*request.messages, *again))
