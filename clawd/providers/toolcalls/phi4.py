"""Tool calls of Phi-4, and of others that write `functools`.

<|tool_call|>[{"name": "file_list", "arguments": {"path": "src"}}]<|/tool_call|>
functools[{"name": "file_list", "arguments": {"path": "src"}}]
"""

from functools import partial

from clawd.engine.call_frame import json_list
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import json_calls
from clawd.providers.toolcalls.family import preferring
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import JsonBody

OPENS = ("<|tool_call|>", "functools")

_FORM = Form(
    marks=(
        Mark(OPENS[0], "<|/tool_call|>", JsonBody, json_calls),
        Mark(OPENS[1], "", partial(JsonBody, "["), json_calls),
    ),
    drops=("<|end|>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>"),
)

frames = preferring(
    OPENS[1], json_list(OPENS[1], "", marker=f"{OPENS[1]}["), json_list(OPENS[0], "<|/tool_call|>")
)


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return marked_parser(options, _FORM)
