"""Tool calls of Seed-OSS.

<seed:think>I should look.</seed:think>
<seed:tool_call>
<function=file_list>
<parameter=path>src</parameter>
</function>
</seed:tool_call>
"""

from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.pull_parser import Dialect, PullParser
from clawd.providers.toolcalls.xml_calls import Tags, XmlReader, tag_frame

TAGS = Tags(
    sections=("<seed:tool_call>",),
    section_ends=("</seed:tool_call>",),
    call="<function=",
    call_end="</function>",
    parameter="<parameter=",
    parameter_end="</parameter>",
    lines=False,
)
THOUGHTS = (("<seed:think>", "</seed:think>"),)
OPENINGS = (*TAGS.sections, TAGS.call)
FRAMES = (tag_frame(TAGS), tag_frame(TAGS, None))


def matches(template: str) -> bool:
    """Say whether a chat template asks for this format."""
    return "<seed:tool_call>" in template


def make(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        Dialect(
            markers=OPENINGS,
            read=XmlReader(TAGS, options.schemas).read,
            ends=("<seed:eos>",),
            thoughts=THOUGHTS,
        ),
    )
