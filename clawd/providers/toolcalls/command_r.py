"""Tool calls of Cohere's Command: R+ and R with a fence, R7B, A and North with markers.

Action: ```json
[{"tool_name": "file_list", "parameters": {"path": "src"}}]
```

<|START_THINKING|>…<|END_THINKING|><|START_ACTION|>
[{"tool_call_id": "0", "tool_name": "file_list", "parameters": {"path": "src"}}]<|END_ACTION|>
"""

import re

from clawd.engine.call_frame import CallFrame, json_call, json_list
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import Call, action_calls
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import FencedJson, JsonBody

ACTION = "Action:"
START_ACTION = "<|START_ACTION|>"
START_THINKING = "<|START_THINKING|>"
END_THINKING = "<|END_THINKING|>"
THOUGHTS = ((START_THINKING, END_THINKING),)

_FENCE = re.compile(r"\s*+(?:```\w*+)?")
_ENDS = ("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>")


def _fenced(text: str, options: ParserOptions) -> list[Call] | None:
    return action_calls(_FENCE.sub("", text, count=1), options)


_FENCED = Form(marks=(Mark(ACTION, "```", FencedJson, _fenced),), drops=_ENDS)
_MARKED = Form(
    marks=(Mark(START_ACTION, "<|END_ACTION|>", JsonBody, action_calls),),
    drops=(
        *_ENDS,
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        END_THINKING,
    ),
    thoughts=THOUGHTS[0],
)

FENCED_FRAME = CallFrame(
    call=json_call("tool_name", "parameters"),
    opening="Action:%ws%```json%ws%[%ws%",
    separator=",%ws%",
    closing="%ws%]%ws%```",
    marker="Action: ```json",
)
MARKED_FRAME = json_list(
    START_ACTION,
    "<|END_ACTION|>",
    json_call("tool_name", "parameters", before='"tool_call_id":%ws%"%digits%",%ws%'),
)


def make_fenced(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer of Command R+ and R."""
    return marked_parser(options, _FENCED)


def make_marked(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer of Command R7B and A."""
    return marked_parser(options, _MARKED)
