"""Tool calls of a model that was never told how: JSON at the start, in a fence or in a tag.

    {"name": "file_list", "arguments": {"path": "src"}}

JSON may be the answer as well, so only what has a name and arguments is a call, and only of a tool
that is offered where these are known.
"""

from clawd.engine.call_frame import HERMES, CallFrame, json_call
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import answer_calls, json_calls
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import JsonBody

OPENS = ("```json", "```tool_call", "<tool_call>")

MARKS = (
    Mark(OPENS[0], "```", JsonBody, answer_calls),
    Mark(OPENS[1], "```", JsonBody, json_calls),
    Mark(OPENS[2], "</tool_call>", JsonBody, json_calls),
)

_FORM = Form(
    marks=(Mark("", "", JsonBody, answer_calls, repeats=True), *MARKS),
    drops=("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"),
)

BARE_FRAME = CallFrame(
    call=json_call(), separator="%ws%", marker='{"name": %"name"%', at_start=True
)
FRAMES = (
    BARE_FRAME,
    HERMES,
    CallFrame(call=f"{OPENS[1]}%ws%{json_call()}%ws%```", separator="%ws%", marker=OPENS[1]),
)


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return marked_parser(options, _FORM)
