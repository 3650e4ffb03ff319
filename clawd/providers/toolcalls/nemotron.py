"""Tool calls of Nemotron (Nano v2, Super v1.5), and of Apriel with a tag of its own.

<TOOLCALL>[{"name": "file_list", "arguments": {"path": "src"}}]</TOOLCALL>
    <tool_calls>[{"name": "file_list", "arguments": {"path": "src"}}]</tool_calls>
"""

from clawd.engine.call_frame import json_list
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import json_calls
from clawd.providers.toolcalls.family import preferring
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import JsonBody

OPENS = ("<TOOLCALL>", "<tool_calls>")

_FORM = Form(
    marks=(
        Mark(OPENS[0], "</TOOLCALL>", JsonBody, json_calls),
        Mark(OPENS[1], "</tool_calls>", JsonBody, json_calls),
    ),
    drops=("<SPECIAL_11>", "<SPECIAL_12>", "<|eot_id|>", "<|im_end|>"),
)

frames = preferring(
    OPENS[0], json_list(OPENS[0], "</TOOLCALL>"), json_list(OPENS[1], "</tool_calls>")
)


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return marked_parser(options, _FORM)
