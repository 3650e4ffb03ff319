"""Tool calls of MiniMax M2.

<minimax:tool_call>
<invoke name="file_list">
<parameter name="path">src</parameter>
</invoke>
</minimax:tool_call>
"""

from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.pull_parser import Dialect, PullParser
from clawd.providers.toolcalls.xml_calls import Tags, XmlReader, tag_frame

TAGS = Tags(
    sections=("<minimax:tool_call>",),
    section_ends=("</minimax:tool_call>",),
    call="<invoke",
    call_end="</invoke>",
    parameter="<parameter",
    parameter_end="</parameter>",
    lines=False,
)
OPENINGS = TAGS.sections
FRAME = tag_frame(TAGS)
_NEXT_GENERATION = "]<]minimax[>["


def matches(template: str) -> bool:
    """Say whether a chat template asks for this format."""
    return "<minimax:tool_call>" in template and _NEXT_GENERATION not in template


def make(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        Dialect(markers=OPENINGS, read=XmlReader(TAGS, options.schemas).read, ends=("[e~[",)),
    )
