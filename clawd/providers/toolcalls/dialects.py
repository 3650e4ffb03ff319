"""Families with a dialect of their own, which the shared parser reads: a reader for each.

DeepSeek: R1, V3.1, and the tags of V3.2 and V4 (the second in one line). R1 spells the section's
opening in several ways, and leaves tags out.

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

GLM 4.5 to 4.7, with line breaks between the tags or without. Hunyuan: its tags end with a mark
of the release (`<tool_call:opensource>`); one stands behind the name, and another pair around all.

    <tool_call>file_list
    <arg_key>path</arg_key>
    <arg_value>src</arg_value>
    </tool_call>

Kimi K2 (in one line). A call's id is part of the text, and the model expects it back. The section's
tags may be missing, and what follows the last object.

    <|tool_calls_section_begin|><|tool_call_begin|>functions.file_list:0
    <|tool_call_argument_begin|>{"path": "src"}<|tool_call_end|><|tool_calls_section_end|>

Llama 3.1 to 3.3: an object at the start of the answer, or after a tag. Without the tag it is a call
only with both keys, and when its name is that of a tool.

    {"name": "file_list", "parameters": {"path": "src"}}
    <|python_tag|>{"name": "file_list", "parameters": {}}; {"name": "time", "parameters": {}}
    <|python_tag|>brave_search.call(query="clawd")

Mistral, Ministral, Magistral and Devstral, old and new. Old arrays are taken whole or not at all.

    [TOOL_CALLS][{"name": "file_list", "arguments": {"path": "src"}, "id": "a1b2c3d4e"}]
    [TOOL_CALLS]file_list[CALL_ID]a1b2c3d4e[ARGS]{"path": "src"}
    [THINK]I should look.[/THINK][TOOL_CALLS]file_list[ARGS]{"path": "src"}
"""

import re
from collections.abc import Callable
from typing import Any

from clawd.engine.protocol import CallFrame, ParameterForm, StringForm, json_call, json_list
from clawd.providers.toolcalls.base import THINK, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.literals import Arguments
from clawd.providers.toolcalls.pull_parser import (
    CallDialect,
    JsonCall,
    Markers,
    PullParser,
    Reading,
    Source,
    decode,
    decode_calls,
    is_name,
    object_text,
    read_object,
)
from clawd.providers.toolcalls.xml_calls import Tags, XmlReader, tag_frame

DEEPSEEK_TAGS = Tags(
    sections=("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
    section_ends=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
    call="<｜DSML｜invoke",
    call_end="</｜DSML｜invoke>",
    parameter="<｜DSML｜parameter",
    parameter_end="</｜DSML｜parameter>",
    lines=False,
)
_DEEPSEEK_SECTIONS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool_calls_begin｜>",
    "<｜tool calls begin｜>",
    "<｜tool\\_calls\\_begin｜>",
    "<｜tool▁calls｜>",
)
_DEEPSEEK_CALL = "<｜tool▁call▁begin｜>"
_DEEPSEEK_CALL_END = "<｜tool▁call▁end｜>"
_SECTION_END = "<｜tool▁calls▁end｜>"
_SEPARATOR = "<｜tool▁sep｜>"
_FENCE = Markers("```")
_LANGUAGE = Markers("json")
_DEEPSEEK_HEADER_END = Markers(_SEPARATOR, "\n", _DEEPSEEK_CALL_END, _SECTION_END)
_NAME_END = Markers("\n", "<")
_BRACE = Markers("{")
_DEEPSEEK_OPENING = Markers(_DEEPSEEK_CALL, _SECTION_END)
_DEEPSEEK_CLOSING = Markers(_DEEPSEEK_CALL_END, _DEEPSEEK_CALL, _SECTION_END)
DEEPSEEK_OPENINGS = (
    *DEEPSEEK_TAGS.sections,
    DEEPSEEK_TAGS.call,
    *_DEEPSEEK_SECTIONS,
    _DEEPSEEK_CALL,
)
_FENCED, _PLAIN = (
    CallFrame(
        call=f"{_DEEPSEEK_CALL}{call}{_DEEPSEEK_CALL_END}",
        opening=_DEEPSEEK_SECTIONS[0],
        separator="%ws%",
        closing=_SECTION_END,
        marker=_DEEPSEEK_SECTIONS[0],
    )
    for call in (
        f"function{_SEPARATOR}%name%\n```json\n%arguments%\n```",
        f"%name%{_SEPARATOR}%arguments%",
    )
)


def deepseek_frames(template: str) -> tuple[CallFrame, ...]:
    """Return how calls are written: as tags, in a fence (R1), or plainly."""
    if "｜DSML｜" in template:
        section = next(
            (each for each in DEEPSEEK_TAGS.sections if each in template), DEEPSEEK_TAGS.sections[0]
        )
        return (tag_frame(DEEPSEEK_TAGS, DEEPSEEK_TAGS.sections.index(section)),)
    return (_FENCED,) if "```json" in template else (_PLAIN,)


def make_deepseek(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        CallDialect(
            markers=DEEPSEEK_OPENINGS,
            read=_deepseek_reader(XmlReader(DEEPSEEK_TAGS, options.schemas)),
            ends=("<｜end▁of▁sentence｜>",),
        ),
    )


def _deepseek_reader(tagged: XmlReader) -> Callable[[Source, str], Reading[None]]:
    def read(source: Source, marker: str) -> Reading[None]:
        is_tagged = marker in DEEPSEEK_TAGS.sections or marker == DEEPSEEK_TAGS.call
        yield from (
            tagged.read(source, marker) if is_tagged else _read_deepseek_section(source, marker)
        )

    return read


def _read_deepseek_section(source: Source, marker: str) -> Reading[None]:
    """Read calls until the section ends; the first one's opening may be missing."""
    if marker != _DEEPSEEK_CALL:
        yield from source.blanks()
        if (yield from source.one_of(_DEEPSEEK_OPENING)) == _SECTION_END:
            source.claim()
            return
    is_open = True
    while is_open:
        is_open = yield from _read_deepseek_call(source)


def _read_deepseek_call(source: Source) -> Reading[bool]:
    """Read a call and what closes it; return whether another one follows."""
    name, end = yield from source.until(_DEEPSEEK_HEADER_END)
    if end != _SEPARATOR:
        return False
    yield from source.blanks()
    if (yield from source.peek(_BRACE)):
        arguments = yield from read_object(source)
    else:
        name, _ = yield from source.until(_NAME_END)
        arguments = yield from _read_fenced(source)
    yield from source.blanks()
    closing = yield from source.one_of(_DEEPSEEK_CLOSING)
    if (
        not arguments
        or not is_name(name.strip())
        or not (closing or source.ends_in(_DEEPSEEK_CLOSING))
    ):
        return False
    source.deliver(name.strip(), arguments)
    if closing == _DEEPSEEK_CALL_END:
        yield from source.blanks()
        closing = yield from source.one_of(_DEEPSEEK_OPENING)
    if closing == _SECTION_END or (not closing and source.ends_in(_DEEPSEEK_OPENING)):
        source.claim()
    return closing == _DEEPSEEK_CALL


def _read_fenced(source: Source) -> Reading[str]:
    yield from source.blanks()
    fence = yield from source.one_of(_FENCE)
    yield from source.one_of(_LANGUAGE)
    arguments = yield from read_object(source)
    if fence:
        yield from source.blanks()
        yield from source.one_of(_FENCE)
    return arguments


_TOOL_NAME = re.compile(r"[\w.:/-]*")


class _Tags:
    """The tags of a release; `mark` ends their names."""

    def __init__(self, mark: str = "") -> None:
        self.call = f"<tool_call{mark}>"
        self.key = f"<arg_key{mark}>"
        self.sections = (f"<tool_calls{mark}>",) if mark else ()
        self.call_end, self.value_stop = f"</tool_call{mark}>", f"</arg_value{mark}>"
        self.following = Markers(self.key, self.call_end, self.call)
        self.key_end = Markers(f"</arg_key{mark}>", "\n")
        self.value = Markers(f"<arg_value{mark}>")
        self.value_end = Markers(self.value_stop)
        self.separator = f"<tool_sep{mark}>" if mark else ""
        self.after_name = Markers(self.separator)
        self.opening = Markers(self.call)
        self.closing = Markers(f"</tool_calls{mark}>" if mark else "")

    def frame(self) -> CallFrame:
        pair = f"{self.key}%key%</{self.key[1:]}%ws%{self.value.texts[0]}"
        (opening,), (closing,) = self.sections or ("",), self.closing.texts or ("",)
        return CallFrame(
            call=f"{self.call}%name%{self.separator}%ws%%arguments%%ws%{self.call_end}",
            opening=f"{opening}%ws%" if opening else "",
            separator="%ws%",
            closing=f"%ws%{closing}" if closing else "",
            marker=opening or self.call,
            parameters=ParameterForm(
                key=pair, end=self.value_stop, strings=(StringForm(key=pair, stop=self.value_stop),)
            ),
        )


_GLM, _HUNYUAN = _Tags(), _Tags(":opensource")
GLM_OPENINGS, HUNYUAN_OPENINGS = (_GLM.call,), _HUNYUAN.sections
GLM_FRAME, HUNYUAN_FRAME = _GLM.frame(), _HUNYUAN.frame()
HUNYUAN_THOUGHTS = (("<think:opensource>", "</think:opensource>"), THINK)


def make_glm(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        CallDialect(
            markers=(_GLM.call,),
            read=_glm_reader(_GLM, options.schemas),
            ends=("<|observation|>", "<|user|>", "<|endoftext|>", "<|role_end|>"),
        ),
    )


def make_hunyuan(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer of Hunyuan."""
    return PullParser(
        options,
        CallDialect(
            markers=(*_HUNYUAN.sections, _HUNYUAN.call),
            read=_glm_reader(_HUNYUAN, options.schemas),
            ends=("<｜hy_eos:opensource｜>",),
            thoughts=HUNYUAN_THOUGHTS,
        ),
    )


def _glm_reader(
    tags: _Tags, schemas: dict[str, dict[str, Any]]
) -> Callable[[Source, str], Reading[None]]:
    def read(source: Source, marker: str) -> Reading[None]:
        """Read a call, and those that follow one whose closing tag is missing."""
        if marker in tags.sections:
            yield from source.blanks()
            marker = yield from source.one_of(tags.opening)
        while marker == tags.call:
            yield from source.blanks()
            name = yield from source.span(_TOOL_NAME)
            if not is_name(name):
                return
            yield from source.one_of(tags.after_name)
            yield from source.blanks()
            marker = yield from source.one_of(tags.following)
            arguments = Arguments(schemas.get(name), source.teller(name) if marker else None)
            while marker == tags.key:
                marker = yield from _read_argument(source, tags, arguments)
            if marker:
                source.deliver(name, arguments.text(as_told=not source.out.drafts))
            if marker == tags.call_end and tags.sections:
                yield from source.blanks()
                marker = yield from source.one_of(tags.opening)
                if not marker and (yield from source.one_of(tags.closing)):
                    source.claim()
                source.drop_cut(*tags.closing.texts, tags.call)

    return read


def _read_argument(source: Source, tags: _Tags, arguments: Arguments) -> Reading[str]:
    """Read a key and its value; return the tag that follows, "" when the call is malformed."""
    key, end = yield from source.until(tags.key_end)
    yield from source.blanks()
    opening = yield from source.one_of(tags.value)
    if not key.strip() or end == "\n" or not opening:
        return ""
    key = key.strip()
    pieces: list[str] = []
    tell = arguments.begin_string(key) if arguments.tells_pieces(key) else None

    def take(piece: str) -> None:
        pieces.append(piece)
        if tell is not None:
            tell(piece)

    while True:
        _, end = yield from source.until(tags.value_end, take)
        if not end:
            return ""
        blanks = yield from source.blanks()
        marker = yield from source.one_of(tags.following)
        if marker:
            if tell is not None:
                arguments.end_string(key, "".join(pieces))
            else:
                arguments.add(key, "".join(pieces))
            return marker
        if source.is_at_end():
            return ""
        take(end + blanks)


_KIMI_K2_SECTIONS = ("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>")
_SECTION_ENDS = ("<|tool_calls_section_end|>", "<|tool_call_section_end|>")
_KIMI_K2_CALL = "<|tool_call_begin|>"
_KIMI_K2_CALL_END = "<|tool_call_end|>"
_ARGUMENTS = "<|tool_call_argument_begin|>"
_KIMI_K2_HEADER_END = Markers(_ARGUMENTS, _KIMI_K2_CALL_END, *_SECTION_ENDS)
_KIMI_K2_BRACE = Markers("{")
_KIMI_K2_OPENING = Markers(_KIMI_K2_CALL, *_SECTION_ENDS)
_KIMI_K2_CLOSING = Markers(_KIMI_K2_CALL_END, _KIMI_K2_CALL, *_SECTION_ENDS)
_INDEX = re.compile(r":\d+\Z")
KIMI_K2_OPENINGS = (*_KIMI_K2_SECTIONS, _KIMI_K2_CALL)
_KIMI_K2_FRAME = (
    f"{_KIMI_K2_CALL}functions.%name%:%digits%{_ARGUMENTS}%arguments%{_KIMI_K2_CALL_END}"
)
KIMI_K2_FRAMES = (
    CallFrame(
        call=_KIMI_K2_FRAME,
        opening=_KIMI_K2_SECTIONS[0],
        separator="",
        closing=_SECTION_ENDS[0],
        marker=_KIMI_K2_SECTIONS[0],
    ),
    CallFrame(call=_KIMI_K2_FRAME, separator="", marker=_KIMI_K2_CALL),
)


def make_kimi_k2(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        CallDialect(
            markers=KIMI_K2_OPENINGS,
            read=_read_kimi_k2_section,
            ends=("<|im_end|>", "[EOS]", "[EOT]"),
        ),
    )


def _read_kimi_k2_section(source: Source, marker: str) -> Reading[None]:
    if marker != _KIMI_K2_CALL:
        yield from source.blanks()
        marker = yield from source.one_of(_KIMI_K2_OPENING)
    while marker == _KIMI_K2_CALL:
        marker = yield from _read_kimi_k2_call(source)
    if marker in _SECTION_ENDS:
        source.claim()


def _read_kimi_k2_call(source: Source) -> Reading[str]:
    """Read a call and what closes it; return the marker after that, "" for another text."""
    header, end = yield from source.until(_KIMI_K2_HEADER_END)
    call_id = header.strip()
    name = _INDEX.sub("", call_id.removeprefix("functions."))
    if end != _ARGUMENTS or not is_name(name):
        return ""
    yield from source.blanks()
    begun = yield from source.one_of(_KIMI_K2_BRACE)
    arguments = object_text((yield from source.json(begun, name))) if begun else ""
    yield from source.blanks()
    closing = yield from source.one_of(_KIMI_K2_CLOSING)
    if not arguments or not (closing or source.ends_in(_KIMI_K2_CLOSING)):
        return ""
    source.deliver(name, arguments, call_id)
    if closing != _KIMI_K2_CALL_END:
        return closing
    yield from source.blanks()
    closing = yield from source.one_of(_KIMI_K2_OPENING)
    if not closing and source.ends_in(_KIMI_K2_OPENING):
        source.claim()
    return closing


_TAG = "<|python_tag|>"
_LLAMA3_BRACE = Markers("{")
_KEYS = Markers('"name"', '"parameters"', '"arguments"', '"type"')
_SEMICOLON = Markers(";")
_NEXT = Markers("{", _TAG)
_WORD = re.compile(r"[\w.-]*")
_SCALAR = re.compile(r"[\w.+-]*")
_PARENTHESIS = Markers("(")
_EQUALS = Markers("=")
_VALUE = Markers('"', "{", "[")
_STRING = Markers('"', "\\")
_AFTER_VALUE = Markers(",", ")")
_END = Markers(")")
_WORDS = frozenset({"null", "None", "True", "False"})
LLAMA3_OPENINGS = (_TAG,)
_LLAMA3_FRAME = json_call("name", "parameters")
_TYPED = json_call("name", "parameters", before='"type":%ws%"function",%ws%')
LLAMA3_FRAMES = (
    CallFrame(call=_LLAMA3_FRAME, separator="; ", marker='{"name": %"name"%', at_start=True),
    CallFrame(
        call=_TYPED, separator="; ", marker='{"type": "function", "name": %"name"%', at_start=True
    ),
    CallFrame(call=_LLAMA3_FRAME, opening=_TAG, separator="; ", marker=f"{_TAG}{{"),
)
"""What stands behind the tag and is no object, a built-in tool's call, is left free."""


def make_llama3(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        CallDialect(
            markers=LLAMA3_OPENINGS,
            read=_llama3_reader(options.schemas),
            starts=_LLAMA3_BRACE.texts,
            ends=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>", "<|eom|>", "<|eot|>"),
        ),
    )


def _llama3_reader(schemas: dict[str, dict[str, Any]]) -> Callable[[Source, str], Reading[None]]:
    def read(source: Source, marker: str) -> Reading[None]:
        """Read calls as long as one follows the other."""
        is_tagged = False
        while marker:
            if marker == _TAG:
                is_tagged = True
                yield from source.blanks()
                if not (yield from source.one_of(_LLAMA3_BRACE)):
                    yield from _read_builtin(source, schemas)
                    return
            call = yield from _read_object(source)
            if call is None or not (is_tagged or _is_offered(call, schemas)):
                return
            source.deliver(call.name, call.argument_text())
            yield from source.blanks()
            yield from source.one_of(_SEMICOLON)
            yield from source.blanks()
            marker = yield from source.one_of(_NEXT)
            if source.is_at_end():
                source.claim()

    return read


def _is_offered(call: JsonCall, schemas: dict[str, dict[str, Any]]) -> bool:
    has_arguments = bool(call.arguments or call.parameters)
    return has_arguments and (not schemas or call.name in schemas)


def _read_object(source: Source) -> Reading[JsonCall | None]:
    """Read an object whose bracket is consumed, unless its first key is not one of a call."""
    blanks = yield from source.blanks()
    key = yield from source.one_of(_KEYS)
    if not key:
        return None
    calls = decode_calls((yield from source.json("{" + blanks + key, "")))
    return calls[0] if calls else None


def _read_builtin(source: Source, schemas: dict[str, dict[str, Any]]) -> Reading[None]:
    """Read `name.call(key="value", …)`."""
    method = yield from source.span(_WORD)
    opening = yield from source.one_of(_PARENTHESIS)
    name = method.removesuffix(".call")
    if not opening or name == method:
        return
    arguments = Arguments(schemas.get(name))
    yield from source.blanks()
    closing = yield from source.one_of(_END)
    while closing != ")":
        is_whole = yield from _read_keyword(source, arguments)
        yield from source.blanks()
        closing = yield from source.one_of(_AFTER_VALUE)
        if not is_whole or not closing:
            return
    source.deliver(name, arguments.text())


def _read_keyword(source: Source, arguments: Arguments) -> Reading[bool]:
    """Read `key=value`; return whether it is whole."""
    yield from source.blanks()
    key = yield from source.span(_WORD)
    equals = yield from source.one_of(_EQUALS)
    begun = yield from source.one_of(_VALUE)
    if begun:
        value = yield from (_read_string(source) if begun == '"' else source.json(begun))
        arguments.add_json(key, value)
    else:
        value = yield from source.span(_SCALAR)
        arguments.add(key, value)
    is_value = decode(value) is not None or (not begun and value in _WORDS)
    return bool(key and equals and is_value)


def _read_string(source: Source) -> Reading[str]:
    pieces = ['"']
    while True:
        piece, end = yield from source.until(_STRING)
        pieces += (piece, end)
        if end != "\\":
            return "".join(pieces)
        pieces.append((yield from source.char()))


_ARGS = "[ARGS]"
_CALL_ID = "[CALL_ID]"
_JSON = Markers("[", "{")
_AFTER_NAME = Markers(_CALL_ID, _ARGS, "{")
_ID_END = Markers(_ARGS, "\n")
MISTRAL_THOUGHTS = (("[THINK]", "[/THINK]"), THINK)
MISTRAL_OPENINGS = ("[TOOL_CALLS]",)
_LISTED = json_list(MISTRAL_OPENINGS[0], "")
_NAMED, _WITH_ID = (
    CallFrame(
        call=f"{MISTRAL_OPENINGS[0]}%name%{call_id}{_ARGS}%arguments%",
        separator="",
        marker=MISTRAL_OPENINGS[0],
    )
    for call_id in ("", f"{_CALL_ID}%id%")
)


def mistral_frames(template: str) -> tuple[CallFrame, ...]:
    """Return how calls are written: a list in the old format, one by one in the new ones."""
    if _ARGS not in template:
        return (_LISTED,)
    return (_WITH_ID, _NAMED) if _CALL_ID in template else (_NAMED, _WITH_ID)


def make_mistral(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        CallDialect(
            markers=MISTRAL_OPENINGS, read=_read_mistral, ends=("</s>",), thoughts=MISTRAL_THOUGHTS
        ),
    )


def _read_mistral(source: Source, _marker: str) -> Reading[None]:
    yield from source.blanks()
    begun = yield from source.one_of(_JSON)
    if not begun:
        yield from _read_named(source)
        return
    for call in decode_calls((yield from source.json(begun, ""))):
        call_id = call.id if isinstance(call.id, str) else ""
        source.deliver(call.name, call.argument_text(), call_id)


def _read_named(source: Source) -> Reading[None]:
    name = yield from source.span(_TOOL_NAME)
    begun = yield from source.one_of(_AFTER_NAME)
    call_id = ""
    if begun == _CALL_ID:
        call_id, begun = yield from source.until(_ID_END)
    if begun == _ARGS:
        yield from source.blanks()
        begun = yield from source.one_of(_BRACE)
    if begun != "{":
        return
    arguments = object_text((yield from source.json(begun, name)))
    if arguments and is_name(name):
        source.deliver(name, arguments, call_id.strip())
