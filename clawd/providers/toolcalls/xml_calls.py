"""Reads calls whose arguments are tags with bare text in them, and the families that write only so.

    <tool_call>
    <function=file_write>
    <parameter=text>
    Hello
    </parameter>
    </function>
    </tool_call>

So write Qwen3-Coder, Qwen3.5, Nemotron 3 and StepFun; Seed-OSS with <seed:tool_call> around it and
thoughts in <seed:think>; MiniMax M2 as

    <minimax:tool_call>
    <invoke name="file_list">
    <parameter name="path">src</parameter>
    </invoke>
    </minimax:tool_call>

A value ends at its closing tag only where another parameter or the call's end follows, and in a
section a call's end is one only before the next call, the section's end or the text's, so that a
text about tags survives. The section's own tags may be missing, a call's may not.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from clawd.engine.protocol import CallFrame, ParameterForm, StringForm
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.literals import Arguments
from clawd.providers.toolcalls.pull_parser import (
    CallDialect,
    Markers,
    PullParser,
    Reading,
    Source,
    is_name,
)

_HEADER_END = Markers(">", "\n", "<")
_ATTRIBUTES = re.compile(r'\s+name="([^"]+)"(?:\s+string="(true|false)")?\s*')


class Tags(NamedTuple):
    """The tags of a family.

    Attributes:
        sections: what opens a section of calls.
        section_ends: what closes it.
        call: opens a call, up to its name; `<function=` or `<invoke`.
        call_end: closes it.
        parameter: opens a parameter, up to its name.
        parameter_end: closes it.
        lines: a value stands on lines of its own, so that one line break goes at either end;
            otherwise both go or none.
    """

    sections: tuple[str, ...]
    section_ends: tuple[str, ...]
    call: str
    call_end: str
    parameter: str
    parameter_end: str
    lines: bool = True


def tag_frame(tags: Tags, section: int | None = 0) -> CallFrame:
    """Return the frame of calls in these tags, in the section of a number or outside of any."""
    has_types = tags.call.startswith("<｜")
    is_short = tags.call.endswith("=")
    name = "%name%" if is_short else ' name="%name%"'
    key, string_key = (
        f"{tags.parameter}%key%>"
        if is_short
        else f'{tags.parameter} name="%key%"' + (f' string="{kind}">' if has_types else ">")
        for kind in ("false", "true")
    )
    opening, closing = "", ""
    if section is not None:
        opening, closing = f"{tags.sections[section]}%ws%", f"%ws%{tags.section_ends[section]}"
    call = f"{tags.call}{name}>%ws%%arguments%%ws%{tags.call_end}"
    # Tags with equal signs come one call to a section.
    is_apart = is_short and section is not None
    return CallFrame(
        call=f"{opening}{call}{closing}" if is_apart else call,
        opening="" if is_apart else opening,
        separator="%ws%",
        closing="" if is_apart else closing,
        marker=tags.call if section is None else tags.sections[section],
        parameters=ParameterForm(
            key=key,
            end=tags.parameter_end,
            strings=(StringForm(key=string_key, stop=tags.parameter_end),),
        ),
    )


class XmlReader:
    """Reads the calls of a section; `schemas` are the offered tools' parameters by name."""

    def __init__(self, tags: Tags, schemas: dict[str, dict[str, Any]]) -> None:
        self._tags = tags
        self._schemas = schemas
        self._call = Markers(tags.call)
        self._value_end = Markers(tags.parameter_end)
        self._inside = Markers(tags.parameter, tags.call_end, *tags.section_ends)
        self._next = Markers(tags.call, *tags.section_ends)
        self._after_call = Markers(tags.call, *tags.section_ends, *tags.sections)

    def read(self, source: Source, marker: str) -> Reading[None]:
        """Read calls until the section ends."""
        in_section = marker in self._tags.sections
        if in_section:
            yield from source.blanks()
            marker = yield from source.one_of(self._call)
        while marker == self._tags.call and (
            yield from self._read_call(source, in_section=in_section)
        ):
            yield from source.blanks()
            marker = yield from source.one_of(self._next)
            if marker in self._tags.section_ends:
                source.claim()

    def _read_call(self, source: Source, *, in_section: bool) -> Reading[bool]:
        """Read and deliver a call; return whether another one may follow."""
        name, _ = yield from self._header(source)
        if not is_name(name):
            return False
        arguments = Arguments(self._schemas.get(name), source.teller(name))
        tag, _ = yield from self._tag(source, in_section=in_section)
        while tag == self._tags.parameter:
            key, is_string = yield from self._header(source)
            if not key:
                return False
            value = PiecedValue(arguments, key, lines=self._tags.lines)
            if is_string == "true" or arguments.tells_pieces(key):
                value.tells = source.teller(name) is not None
            tag = yield from self._value(source, value, in_section=in_section)
            if tag:
                value.add(is_string=is_string == "true")
        if tag:
            source.deliver(name, arguments.text(as_told=not source.out.drafts))
        return tag == self._tags.call_end

    def _header(self, source: Source) -> Reading[tuple[str, str]]:
        """Read a tag's name and its string attribute, "" where there is none."""
        text, end = yield from source.until(_HEADER_END)
        if end != ">":
            return "", ""
        if self._tags.call.endswith("="):
            return text.strip(), ""
        found = _ATTRIBUTES.fullmatch(text)
        return (found[1].strip(), found[2] or "") if found else ("", "")

    def _value(self, source: Source, value: "PiecedValue", *, in_section: bool) -> Reading[str]:
        """Read a value and the tag that follows it; return the tag, "" when none does."""
        while True:
            _, end = yield from source.until(self._value_end, value.take)
            if not end:
                return ""
            tag, text = yield from self._tag(source, in_section=in_section)
            if tag:
                return tag
            value.take(end + text)

    def _tag(self, source: Source, *, in_section: bool) -> Reading[tuple[str, str]]:
        """Read the tag that comes next; without one "" and what was consumed."""
        blanks = yield from source.blanks()
        tag = yield from source.one_of(self._inside)
        if tag != self._tags.call_end:
            return tag, blanks
        more = yield from source.blanks()
        following = yield from source.peek(self._after_call)
        if following or source.ends_in(self._after_call) or not in_section:
            return tag, ""
        return "", blanks + tag + more


class PiecedValue:
    """A bare value that comes in pieces; one that can only be a string is told as it comes.

    Args:
        arguments: what it becomes a part of.
        key: its name.
        lines: one line break at either end is not its own; otherwise both are not, or none.

    Attributes:
        tells: tell its pieces, but not where it may be framed by line breaks.
    """

    def __init__(self, arguments: Arguments, key: str, *, lines: bool) -> None:
        self._arguments = arguments
        self._key = key
        self._lines = lines
        self._pieces: list[str] = []
        self._tell: Callable[[str], None] | None = None
        self._held = ""
        self.tells = False

    def take(self, piece: str) -> None:
        """Take the next piece."""
        if not piece:
            return
        is_first = not self._pieces
        self._pieces.append(piece)
        if not self.tells:
            return
        if is_first and piece.startswith("\n"):
            self.tells = self._lines
            piece = piece[1:]
        if self.tells:
            self._show(piece)

    def add(self, *, is_string: bool = False) -> None:
        """Add the whole value to the arguments; `is_string` where the format itself says so."""
        value = self._trimmed("".join(self._pieces))
        if self._tell is not None:
            self._arguments.end_string(self._key, value)
        elif is_string:
            self._arguments.add_string(self._key, value)
        else:
            self._arguments.add(self._key, value)

    def _show(self, piece: str) -> None:
        """Tell a piece, but for a line break at its end that may be none of the value's."""
        if self._tell is None:
            self._tell = self._arguments.begin_string(self._key)
        piece = self._held + piece
        self._held = "\n" if self._lines and piece.endswith("\n") else ""
        self._tell(piece.removesuffix(self._held))

    def _trimmed(self, value: str) -> str:
        if self._lines:
            return value.removeprefix("\n").removesuffix("\n")
        is_framed = len(value) > 1 and value.startswith("\n") and value.endswith("\n")
        return value[1:-1] if is_framed else value


QWEN3_CODER_TAGS = Tags(
    sections=("<tool_call>",),
    section_ends=("</tool_call>",),
    call="<function=",
    call_end="</function>",
    parameter="<parameter=",
    parameter_end="</parameter>",
)
QWEN3_CODER_OPENINGS = (*QWEN3_CODER_TAGS.sections, QWEN3_CODER_TAGS.call)
QWEN3_CODER_FRAMES = (tag_frame(QWEN3_CODER_TAGS), tag_frame(QWEN3_CODER_TAGS, None))


def make_qwen3_coder(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        CallDialect(
            markers=QWEN3_CODER_OPENINGS,
            read=XmlReader(QWEN3_CODER_TAGS, options.schemas).read,
            ends=("<|im_end|>", "<|endoftext|>"),
        ),
    )


SEED_OSS_TAGS = Tags(
    sections=("<seed:tool_call>",),
    section_ends=("</seed:tool_call>",),
    call="<function=",
    call_end="</function>",
    parameter="<parameter=",
    parameter_end="</parameter>",
    lines=False,
)
SEED_OSS_THOUGHTS = (("<seed:think>", "</seed:think>"),)
SEED_OSS_OPENINGS = (*SEED_OSS_TAGS.sections, SEED_OSS_TAGS.call)
SEED_OSS_FRAMES = (tag_frame(SEED_OSS_TAGS), tag_frame(SEED_OSS_TAGS, None))


def make_seed_oss(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        CallDialect(
            markers=SEED_OSS_OPENINGS,
            read=XmlReader(SEED_OSS_TAGS, options.schemas).read,
            ends=("<seed:eos>",),
            thoughts=SEED_OSS_THOUGHTS,
        ),
    )


MINIMAX_M2_TAGS = Tags(
    sections=("<minimax:tool_call>",),
    section_ends=("</minimax:tool_call>",),
    call="<invoke",
    call_end="</invoke>",
    parameter="<parameter",
    parameter_end="</parameter>",
    lines=False,
)
MINIMAX_M2_OPENINGS = MINIMAX_M2_TAGS.sections
MINIMAX_M2_FRAME = tag_frame(MINIMAX_M2_TAGS)


def make_minimax_m2(options: ParserOptions) -> ToolCallParser:
    """Return a parser for one answer."""
    return PullParser(
        options,
        CallDialect(
            markers=MINIMAX_M2_OPENINGS,
            read=XmlReader(MINIMAX_M2_TAGS, options.schemas).read,
            ends=("[e~[",),
            inner=(MINIMAX_M2_TAGS.call,),
        ),
    )
