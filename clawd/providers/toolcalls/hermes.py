"""Tool calls of the Hermes family (Hermes, Qwen, Granite 4, clawd's embedded model).

    Let me look.
    <tool_call>
    {"name": "file_list", "arguments": {"path": "src"}}
    </tool_call>

Any number of calls, text before, between and after. The closing tag may be missing at the end of
the text and before the next call. A call that does not parse stays in the text as it was written.
"""

from functools import partial

from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import json_calls
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import JsonBody

OPEN = "<tool_call>"

MARK = Mark(OPEN, "</tool_call>", partial(JsonBody, "{"), json_calls)
_FORM = Form(marks=(MARK,))


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return marked_parser(options, _FORM)
