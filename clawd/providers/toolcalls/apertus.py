"""Tool calls of Apertus: a list of objects whose key is the tool's name.

    <|tools_prefix|>[{"file_list": {"path": "src"}}]<|tools_suffix|>

It thinks between markers of its own, and calls from within.
"""

from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import keyed_calls
from clawd.providers.toolcalls.marked import Form, Mark, MarkedParser
from clawd.providers.toolcalls.scanners import JsonBody

OPEN = "<|tools_prefix|>"

_FORM = Form(
    marks=(Mark(OPEN, "<|tools_suffix|>", JsonBody, keyed_calls),),
    drops=("<|assistant_end|>", "<|inner_suffix|>"),
    thoughts=("<|inner_prefix|>", "<|inner_suffix|>"),
    calls_end_thoughts=True,
)


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return MarkedParser(options, _FORM)
