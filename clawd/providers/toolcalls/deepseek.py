"""Tool calls of DeepSeek: R1, V3.1, and the tags of V3.2 and V4.

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>file_list
    ```json
    {"path": "src"}
    ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>file_list<｜tool▁sep｜>{"path": "src"}
    <｜tool▁call▁end｜><｜tool▁calls▁end｜>

    <｜DSML｜function_calls>
    <｜DSML｜invoke name="file_list">
    <｜DSML｜parameter name="path" string="true">src</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜function_calls>

(the second in one line). R1 spells the section's opening in several ways, and leaves tags out.
"""

from collections.abc import Callable

from clawd.engine.call_frame import CallFrame
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.json_calls import is_name, read_object
from clawd.providers.toolcalls.pull import Markers, Reading, Source
from clawd.providers.toolcalls.pull_parser import Dialect, PullParser
from clawd.providers.toolcalls.xml_calls import Tags, XmlReader, tag_frame

TAGS = Tags(
    sections=("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
    section_ends=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
    call="<｜DSML｜invoke",
    call_end="</｜DSML｜invoke>",
    parameter="<｜DSML｜parameter",
    parameter_end="</｜DSML｜parameter>",
    lines=False,
)
_SECTIONS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool_calls_begin｜>",
    "<｜tool calls begin｜>",
    "<｜tool\\_calls\\_begin｜>",
    "<｜tool▁calls｜>",
)
_CALL = "<｜tool▁call▁begin｜>"
_CALL_END = "<｜tool▁call▁end｜>"
_SECTION_END = "<｜tool▁calls▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_FENCE = Markers("```")
_LANGUAGE = Markers("json")
_HEADER_END = Markers(_SEPARATOR, "\n", _CALL_END, _SECTION_END)
_NAME_END = Markers("\n", "<")
_BRACE = Markers("{")
_OPENING = Markers(_CALL, _SECTION_END)
_CLOSING = Markers(_CALL_END, _CALL, _SECTION_END)

OPENINGS = (*TAGS.sections, TAGS.call, *_SECTIONS, _CALL)

_FENCED, _PLAIN = (
    CallFrame(
        call=f"{_CALL}{call}{_CALL_END}",
        opening=_SECTIONS[0],
        separator="%ws%",
        closing=_SECTION_END,
        marker=_SECTIONS[0],
    )
    for call in (
        f"function{_SEPARATOR}%name%\n```json\n%arguments%\n```",
        f"%name%{_SEPARATOR}%arguments%",
    )
)


def matches(template: str) -> bool:
    """Say whether a chat template asks for one of these formats."""
    return any(mark in template for mark in ("<｜tool▁calls▁begin｜>", "｜DSML｜"))


def frames(template: str) -> tuple[CallFrame, ...]:
    """Return how calls are written: as tags, in a fence (R1), or plainly."""
    if "｜DSML｜" in template:
        section = next((each for each in TAGS.sections if each in template), TAGS.sections[0])
        return (tag_frame(TAGS, TAGS.sections.index(section)),)
    return (_FENCED,) if "```json" in template else (_PLAIN,)


def make(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        Dialect(
            markers=OPENINGS,
            read=_reader(XmlReader(TAGS, options.schemas)),
            ends=("<｜end▁of▁sentence｜>",),
        ),
    )


def _reader(tagged: XmlReader) -> Callable[[Source, str], Reading[None]]:
    def read(source: Source, marker: str) -> Reading[None]:
        is_tagged = marker in TAGS.sections or marker == TAGS.call
        yield from tagged.read(source, marker) if is_tagged else _read_section(source, marker)

    return read


def _read_section(source: Source, marker: str) -> Reading[None]:
    """Read calls until the section ends; the first one's opening may be missing."""
    if marker != _CALL:
        yield from source.blanks()
        if (yield from source.one_of(_OPENING)) == _SECTION_END:
            source.claim()
            return
    is_open = True
    while is_open:
        is_open = yield from _read_call(source)


def _read_call(source: Source) -> Reading[bool]:
    """Read a call and what closes it; say whether another one follows."""
    name, end = yield from source.until(_HEADER_END)
    if end != _SEPARATOR:
        return False
    yield from source.blanks()
    if (yield from source.peek(_BRACE)):
        arguments = yield from read_object(source)
    else:
        name, _ = yield from source.until(_NAME_END)
        arguments = yield from _read_fenced(source)
    yield from source.blanks()
    closing = yield from source.one_of(_CLOSING)
    if not arguments or not is_name(name.strip()) or not (closing or source.ends_in(_CLOSING)):
        return False
    source.deliver(name.strip(), arguments)
    if closing == _CALL_END:
        yield from source.blanks()
        closing = yield from source.one_of(_OPENING)
    if closing == _SECTION_END or (not closing and source.ends_in(_OPENING)):
        source.claim()
    return closing == _CALL


def _read_fenced(source: Source) -> Reading[str]:
    yield from source.blanks()
    fence = yield from source.one_of(_FENCE)
    yield from source.one_of(_LANGUAGE)
    arguments = yield from read_object(source)
    if fence:
        yield from source.blanks()
        yield from source.one_of(_FENCE)
    return arguments
