"""Reads calls whose arguments are tags with bare text in them; four families differ in the tags.

    <tool_call>
    <function=file_write>
    <parameter=text>
    Hello
    </parameter>
    </function>
    </tool_call>

A value ends at its closing tag only where another parameter or the call's end follows, and in a
section a call's end is one only before the next call, the section's end or the text's, so that a
text about tags survives. The section's own tags may be missing, a call's may not.
"""

import re
from typing import Any, NamedTuple

from clawd.engine.call_frame import CallFrame, ParameterForm, StringForm
from clawd.providers.toolcalls.bare_values import Arguments
from clawd.providers.toolcalls.json_calls import is_name
from clawd.providers.toolcalls.pull import Markers, Reading, Source

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
        """Read and deliver a call; say whether another one may follow."""
        name, _ = yield from self._header(source)
        if not is_name(name):
            return False
        arguments = Arguments(self._schemas.get(name))
        tag, _ = yield from self._tag(source, in_section=in_section)
        while tag == self._tags.parameter:
            key, is_string = yield from self._header(source)
            if not key:
                return False
            value, tag = yield from self._value(source, in_section=in_section)
            if is_string == "true":
                arguments.add_string(key, value)
            else:
                arguments.add(key, value)
        if tag:
            source.deliver(name, arguments.text())
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

    def _value(self, source: Source, *, in_section: bool) -> Reading[tuple[str, str]]:
        """Read a value and the tag that follows it, "" when none does."""
        pieces: list[str] = []
        while True:
            piece, end = yield from source.until(self._value_end)
            if not end:
                return "", ""
            tag, text = yield from self._tag(source, in_section=in_section)
            pieces.append(piece)
            if tag:
                return self._trimmed("".join(pieces)), tag
            pieces += (end, text)

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

    def _trimmed(self, value: str) -> str:
        if self._tags.lines:
            return value.removeprefix("\n").removesuffix("\n")
        is_framed = len(value) > 1 and value.startswith("\n") and value.endswith("\n")
        return value[1:-1] if is_framed else value
