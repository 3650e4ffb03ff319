"""Tool calls of MiniCPM5: XML with bare values, in CDATA where they need it.

<function name="file_list"><param name="path">src</param></function>
"""

import re
from functools import partial

from clawd.engine.call_frame import CallFrame, ParameterForm, StringForm
from clawd.providers.toolcalls.bare_values import Arguments
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import Call
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import XmlBody

OPEN = '<function name="'

_CLOSE = "</function>"
_NAME = re.compile(r'([^"<>]+)">')
_PARAM = re.compile(r'\s*+<param name="([^"]*+)">')
_DATA = re.compile(r"\s*+<!\[CDATA\[")
_END = "</param>"
_DATA_END = re.compile(r"\]\]>\s*+</param>")


def _decode(text: str, options: ParserOptions) -> list[Call] | None:
    text = text.removesuffix(_CLOSE).rstrip()
    head = _NAME.match(text)
    if head is None:
        return None
    name, at = head[1], head.end()
    arguments = Arguments(options.schemas.get(name))
    while at < len(text):
        param = _PARAM.match(text, at)
        written = _written(text, param.end()) if param else None
        if param is None or written is None:
            return None
        argument, at = written
        arguments.add_loosely(param[1], argument)
    return [Call(name, arguments.text())]


def _written(text: str, at: int) -> tuple[str, int] | None:
    """Return a parameter's value and the place after it."""
    data = _DATA.match(text, at)
    if data is None:
        end = text.find(_END, at)
        return (text[at:end], end + len(_END)) if end >= 0 else None
    found = _DATA_END.search(text, data.end())
    return (text[data.end() : found.start()], found.end()) if found else None


_PARAM_OPEN = '<param name="%key%">'
FRAME = CallFrame(
    call=f'{OPEN}%name%">%ws%%arguments%%ws%{_CLOSE}',
    separator="%ws%",
    marker=OPEN,
    parameters=ParameterForm(
        key=_PARAM_OPEN,
        end=_END,
        strings=(
            StringForm(key=_PARAM_OPEN, stop=_END, excludes="<"),
            StringForm(key=f"{_PARAM_OPEN}<![CDATA[", stop="]]>", end=_END),
        ),
    ),
)

_FORM = Form(
    marks=(Mark(OPEN, "", partial(XmlBody, _CLOSE), _decode),),
    drops=("<|im_end|>", "</s>"),
)


def make(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer."""
    return marked_parser(options, _FORM)
