"""Tool calls of Qwen3-Coder, Qwen3.5, Nemotron 3 and StepFun.

<tool_call>
<function=file_list>
<parameter=path>
src
</parameter>
</function>
</tool_call>
"""

from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.pull_parser import Dialect, PullParser
from clawd.providers.toolcalls.xml_calls import Tags, XmlReader, tag_frame

TAGS = Tags(
    sections=("<tool_call>",),
    section_ends=("</tool_call>",),
    call="<function=",
    call_end="</function>",
    parameter="<parameter=",
    parameter_end="</parameter>",
)
OPENINGS = (*TAGS.sections, TAGS.call)
FRAMES = (tag_frame(TAGS), tag_frame(TAGS, None))


def matches(template: str) -> bool:
    """Say whether a chat template asks for this format."""
    return all(tag in template for tag in ("<tool_call>", "<function=", "<parameter="))


def make(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        Dialect(
            markers=OPENINGS,
            read=XmlReader(TAGS, options.schemas).read,
            ends=("<|im_end|>", "<|endoftext|>"),
        ),
    )
