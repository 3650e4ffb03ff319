"""Tool calls of Granite: a list without an end (3.x), and tags like those of Hermes (4.x).

<|tool_call|>[{"name": "file_list", "arguments": {"path": "src"}}]
<tool_call>{"name": "file_list", "arguments": {"path": "src"}}</tool_call>
"""

from clawd.engine.call_frame import HERMES, json_list
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import json_calls
from clawd.providers.toolcalls.family import preferring
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import JsonBody

OPENS = ("<|tool_call|>", "<tool_call>")

_FORM = Form(
    marks=(
        Mark(OPENS[0], "", JsonBody, json_calls),
        Mark(OPENS[1], "</tool_call>", JsonBody, json_calls),
    ),
    drops=("<|end_of_text|>", "<|start_of_role|>assistant<|end_of_role|>"),
)

frames = preferring(OPENS[0], json_list(OPENS[0], ""), HERMES)


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return marked_parser(options, _FORM)
