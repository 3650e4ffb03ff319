"""Tool calls of Nemotron (Nano v2, Super v1.5).

<TOOLCALL>[{"name": "file_list", "arguments": {"path": "src"}}]</TOOLCALL>
"""

from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import json_calls
from clawd.providers.toolcalls.marked import Form, Mark, MarkedParser
from clawd.providers.toolcalls.scanners import JsonBody

OPEN = "<TOOLCALL>"

_FORM = Form(
    marks=(Mark(OPEN, "</TOOLCALL>", JsonBody, json_calls),),
    drops=("<SPECIAL_11>", "<SPECIAL_12>", "<|eot_id|>", "<|im_end|>"),
)


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return MarkedParser(options, _FORM)
