"""Families that frame all they write, text as well: Kimi K3, Muse and MiniMax M3.

    kimi-k3     …<|close|>think<|sep|><|open|>response<|sep|>Let me look.<|close|>response<|sep|>
                <|open|>tools<|sep|><|open|>call tool="file_list" index="1"<|sep|>
                <|open|>argument key="path" type="string"<|sep|>src<|close|>argument<|sep|>
                <|close|>call<|sep|><|close|>tools<|sep|> in one line
    muse         to=self<|message|>I should look.<|eom|><|start|>assistant to=file_list<|message|>
                <atem:function_calls><atem:invoke name="file_list">
                <atem:parameter name="path">src</atem:parameter></atem:invoke>
                </atem:function_calls> in one line
    minimax-m3  <mm:think>…</mm:think>N<tool_call>N<invoke name="file_list">N<path>srcN</path>
                N<where>N<line>1N</line>N</where>N</invoke>N</tool_call>, with N for ]<]minimax[>[

(the first and the last may have blanks between their tags). Values of MiniMax M3 nest.
"""

import html
import json
import re
from functools import partial
from typing import Any

from clawd.engine.protocol import CallFrame, ParameterForm, StringForm
from clawd.providers.toolcalls.base import (
    THINK,
    ParsedCall,
    ParserOptions,
    ToolCallParser,
    json_calls,
    object_arguments,
)
from clawd.providers.toolcalls.literals import Arguments, accepted_by, typed
from clawd.providers.toolcalls.marked import CallForm, Mark
from clawd.providers.toolcalls.pull_parser import (
    CallDialect,
    Markers,
    PullParser,
    Reading,
    Source,
    is_name,
)
from clawd.providers.toolcalls.scanners import JsonBody, XmlBody
from clawd.providers.toolcalls.xml_calls import Tags, XmlReader

# --- Kimi K3

KIMI_CALL, KIMI_CALL_END = '<|open|>call tool="', "<|close|>call<|sep|>"
_CALL_HEAD = re.compile(r'([^"]+)"[^<]*<\|sep\|>')
_ARGUMENT = re.compile(
    r'\s*<\|open\|>argument key="([^"]*)"(?: type="(\w*)")?<\|sep\|>'
    r"(.*?)<\|close\|>argument<\|sep\|>",
    re.DOTALL,
)
_OBJECT = re.compile(r"\s*<\|open\|>json[^<]*<\|sep\|>(.*?)<\|close\|>json<\|sep\|>\s*", re.DOTALL)
KIMI_K3_THOUGHTS = ("<|open|>think<|sep|>", "<|close|>think<|sep|>")


def _kimi_call(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    head = _CALL_HEAD.match(text)
    name = html.unescape(head[1]) if head else ""
    # Without its end a call may lack arguments: nothing else tells that it is whole.
    if head is None or not is_name(name) or not text.endswith(KIMI_CALL_END):
        return None
    body = text[head.end() :].removesuffix(KIMI_CALL_END)
    if whole := _OBJECT.fullmatch(body):
        written = object_arguments(whole[1].encode("utf-8", "surrogatepass"))
        return [ParsedCall(name, written)] if written is not None else None
    arguments, at = Arguments(options.schemas.get(name)), 0
    while found := _ARGUMENT.match(body, at):
        at = found.end()
        key = html.unescape(found[1])
        if found[2] == "string":
            arguments.add_string(key, found[3])
        else:
            arguments.add(key, found[3])
    return None if body[at:].strip() else [ParsedCall(name, arguments.text())]


KIMI_K3 = CallForm(
    marks=(Mark(KIMI_CALL, "", partial(XmlBody, KIMI_CALL_END), _kimi_call),),
    drops=(
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|open|>tools<|sep|>",
        "<|close|>tools<|sep|>",
        "<|close|>message<|sep|>",
        "<|end_of_msg|>",
    ),
    thoughts=KIMI_K3_THOUGHTS,
    endings=("<|open|>response<|sep|>", "<|open|>tools<|sep|>"),
)

# --- Muse

MUSE = Tags(
    sections=("<atem:function_calls>",),
    section_ends=("</atem:function_calls>",),
    call="<atem:invoke",
    call_end="</atem:invoke>",
    parameter="<atem:parameter",
    parameter_end="</atem:parameter>",
    lines=False,
)
_TURN = Markers("<|start|>assistant")
_TO = Markers("to=")
_MESSAGE = Markers("<|message|>")
_ENDS = Markers("<|eom|>", "<|eot|>")
_SECTION = Markers(*MUSE.sections)


def make_muse(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer of Muse."""
    tagged = XmlReader(MUSE, options.schemas)

    def read(source: Source, _marker: str) -> Reading[None]:
        """Read messages, each to a recipient; what has none is text."""
        end = "begun"
        while end:
            yield from source.blanks()
            yield from source.one_of(_TURN)
            yield from source.blanks()
            if not (yield from source.one_of(_TO)):
                return
            recipient, end = yield from source.until(_MESSAGE)
            if not end:
                source.drop_cut(*_TO.texts)
                return
            source.claim()
            source.out.part()
            is_thought = recipient.strip() == "self"
            if options.calls and not is_thought and recipient.strip() != "user":
                section = yield from source.one_of(_SECTION)
                yield from tagged.read(source, section)
                source.drop_cut(*MUSE.sections, MUSE.call)
            take = source.out.add_reasoning if is_thought else source.out.add_text
            take(source.unclaimed())
            end = yield from source.pour(_ENDS, take)
            source.claim()
            source.out.part()

    return PullParser(options, CallDialect(markers=(), read=read, begins=True, thoughts=()))


_MUSE_KEY = '<atem:parameter name="%key%">'
# What the model writes by itself names the tool before the text as well, which no frame can say.
MUSE_FRAME = CallFrame(
    call='<atem:invoke name="%name%">%ws%%arguments%%ws%</atem:invoke>',
    opening=" to=functions<|message|><atem:function_calls>%ws%",
    separator="%ws%",
    closing="%ws%</atem:function_calls>",
    parameters=ParameterForm(
        key=_MUSE_KEY,
        end="</atem:parameter>",
        strings=(StringForm(key=_MUSE_KEY, stop="</atem:parameter>"),),
    ),
)

# --- MiniMax M3

NAMESPACE = "]<]minimax[>["
_INVOKE = re.compile(r'invoke name="([^"]+)"')
_ITEM = "item"
_MAX_DEPTH = 32
MINIMAX_M3_THOUGHTS = ("<mm:think>", "</mm:think>")


class _Tag:
    """A tag of MiniMax M3: what stands before the first tag in it, and those tags."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.inner: list[_Tag] = []

    def value(self, schema: Any, root: dict[str, Any]) -> Any:
        """Return what the tag holds: a list of items, an object, or a bare value by its schema."""
        if not self.inner:
            accepted = accepted_by({"properties": {"v": schema}, **_definitions(root)}, "v")
            return json.loads(typed(self.text, accepted))
        if all(tag.name == _ITEM for tag in self.inner):
            return [tag.value(_part(schema, "items"), root) for tag in self.inner]
        properties = _part(schema, "properties") or {}
        return {tag.name: tag.value(properties.get(tag.name, {}), root) for tag in self.inner}


def _definitions(root: dict[str, Any]) -> dict[str, Any]:
    return {key: root[key] for key in ("$defs", "definitions") if key in root}


def _part(schema: Any, word: str) -> dict[str, Any]:
    """Return `items` or `properties` of a schema, or of what it is a union of."""
    if not isinstance(schema, dict):
        return {}
    found = schema.get(word)
    if isinstance(found, dict):
        return found
    for union in ("anyOf", "oneOf"):
        for one in schema.get(union) or ():
            if isinstance(one, dict) and isinstance(one.get(word), dict):
                return dict(one[word])
    return {}


def _minimax_calls(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    """Return the calls of a section, whose tags begin with the separator."""
    calls = [_minimax_call(tag, options) for tag in _minimax_tags(text)]
    good = [call for call in calls if call is not None]
    return good if good and len(good) == len(calls) else None


def _minimax_tags(text: str) -> list[_Tag]:
    """Return the `invoke` tags of a section, none where any tag in it is malformed."""
    found: list[_Tag] = []
    top: list[_Tag] = []
    for piece in text.split(NAMESPACE)[1:]:
        name, is_tag, after = piece.removeprefix("<").partition(">")
        is_end = name.startswith("/")
        if not is_tag or not piece.startswith("<") or len(top) > _MAX_DEPTH:
            return []
        if is_end and not top:
            return found if name == "/tool_call" else []
        if is_end and (name[1:] != top[-1].name or after.strip()):
            return []
        if is_end:
            done = top.pop()
            (top[-1].inner if top else found).append(done)
        elif top:
            top.append(_Tag(name, after))
        elif invoked := _INVOKE.fullmatch(name):
            top.append(_Tag("invoke", invoked[1]))
        else:
            return []
    return []


def _minimax_call(tag: _Tag, options: ParserOptions) -> ParsedCall | None:
    schema = options.schemas.get(tag.text) or {}
    properties = _part(schema, "properties")
    values = {one.name: one.value(properties.get(one.name, {}), schema) for one in tag.inner}
    return (
        ParsedCall(tag.text, json.dumps(values, ensure_ascii=False)) if is_name(tag.text) else None
    )


MINIMAX_M3 = CallForm(
    marks=(
        Mark(
            f"{NAMESPACE}<tool_call>",
            "",
            partial(XmlBody, f"{NAMESPACE}</tool_call>"),
            _minimax_calls,
        ),
        Mark("<tool_call>", "</tool_call>", JsonBody, json_calls),
    ),
    drops=("[e~[", "</mm:think>"),
    leading=(MINIMAX_M3_THOUGHTS, THINK),
)
