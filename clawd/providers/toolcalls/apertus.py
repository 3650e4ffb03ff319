"""Tool calls of Apertus: a list of objects whose key is the tool's name.

    <|tools_prefix|>[{"file_list": {"path": "src"}}]<|tools_suffix|>

It thinks between markers of its own, and calls from within.
"""

from clawd.engine.call_frame import json_list
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import keyed_calls
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import JsonBody

OPEN = "<|tools_prefix|>"
THOUGHTS = (("<|inner_prefix|>", "<|inner_suffix|>"),)

_FORM = Form(
    marks=(Mark(OPEN, "<|tools_suffix|>", JsonBody, keyed_calls),),
    drops=("<|assistant_end|>", "<|inner_suffix|>"),
    thoughts=THOUGHTS[0],
    calls_end_thoughts=True,
)

FRAME = json_list(OPEN, "<|tools_suffix|>", '{%ws%%"name"%:%ws%%arguments%%ws%}')


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return marked_parser(options, _FORM)
