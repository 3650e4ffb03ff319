"""Text of a model that was to be a tool call and is none: how it is told, and what is asked. Pure.

What stands in backticks or in a code fence is quoted, not called: a model may explain a format.
"""

import re

import msgspec

from clawd.providers.base import ChatRequest, Message
from clawd.providers.toolcalls.detect import looks_like_call

SHOWN_CHARS = 8 * 1024

REMARK = """\
Your last message was to be a tool call, but it could not be read, so nothing was run. Write the \
call again, complete and alone: the name of one tool that you are offered, and its arguments as \
one JSON object. If you meant no call, answer in plain words."""

_QUOTED = re.compile(r"```(?!tool_c).*?(?:```|\Z)|(?<!`)`(?!`)[^`\n]+`(?!`)", re.DOTALL)
_HEAD_CHARS = 400
_BARE = re.compile(r'\s*(?:```(?:json)?\s*)?\[?\s*\{\s*"(?:name|function|tool)"\s*:\s*"([^"]*)"')
_ARGUMENTS = re.compile(r'"(?:arguments|parameters|args)"\s*:')


def was_to_be_a_call(text: str, request: ChatRequest) -> bool:
    """Say whether text that came as no call was meant as one, of a request that offers tools."""
    if not request.tools:
        return False
    bare = _BARE.match(text[:_HEAD_CHARS])
    if bare and bare[1] in {tool.name for tool in request.tools} and _ARGUMENTS.search(text):
        return True
    return looks_like_call(_QUOTED.sub("", text))


def asking_to_repair(request: ChatRequest, text: str) -> ChatRequest:
    """Return the request with the text and a remark on it; an extension of the one before."""
    again = (
        Message(role="assistant", content=text[:SHOWN_CHARS]),
        Message(role="user", content=REMARK),
    )
    return msgspec.structs.replace(request, messages=(*request.messages, *again))
