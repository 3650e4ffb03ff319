"""Tool calls of LFM2: a Python list of calls, or JSON where the prompt asks for it.

    <|tool_call_start|>[file_list(path="src", depth=2), time()]<|tool_call_end|>

Only what stands behind the marker is a call: `[text](url)` is a link.
"""

import re

from clawd.engine.call_frame import CallFrame, json_list
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import Call, json_calls
from clawd.providers.toolcalls.literals import KEYWORDS, python_calls
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import PythonBody

OPEN = "<|tool_call_start|>"

_JSON = re.compile(r"\s*+(?:\[\s*+)?\{")


def python_or_json_calls(text: str, options: ParserOptions) -> list[Call] | None:
    """Return the calls of a list in either notation."""
    decode = json_calls if _JSON.match(text) else python_calls
    return decode(text, options)


_FORM = Form(
    marks=(Mark(OPEN, "<|tool_call_end|>", PythonBody, python_or_json_calls),),
    drops=("<|im_end|>", "<|endoftext|>"),
)

_CLOSE = "<|tool_call_end|>"
FRAMES = (
    CallFrame(
        call="%name%(%arguments%)",
        opening=f"{OPEN}[",
        separator=", ",
        closing=f"]{_CLOSE}",
        marker=OPEN,
        parameters=KEYWORDS,
    ),
    json_list(OPEN, _CLOSE),
)


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return marked_parser(options, _FORM)
