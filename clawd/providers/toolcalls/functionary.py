"""Tool calls of Functionary 3.1 (and of Llama when asked so), and those of 3.2.

    <function=file_list>{"path": "src"}</function>

    >>>all
    Let me look.>>>file_list
    {"path": "src"}

A prompt of 3.2 ends with the first `>>>`, so the answer begins with a recipient's name.
"""

from functools import partial

from clawd.engine.call_frame import CallFrame
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import Call, object_arguments
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import NamedJson

OPEN = "<function="
RECIPIENT = ">>>"

_EVERYBODY = "all"
_DROPS = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")


def _tagged(text: str, options: ParserOptions) -> list[Call] | None:
    del options
    return _call(*text.split(">", 1))


def _addressed(text: str, options: ParserOptions) -> list[Call] | None:
    name, line_break, body = text.partition("\n")
    if name == _EVERYBODY and line_break:
        return []
    return _call(name, body) if options.calls else None


def _call(name: str, body: str = "") -> list[Call] | None:
    arguments = object_arguments(body.encode("utf-8", "surrogatepass"))
    return [Call(name, arguments)] if body.strip() and arguments is not None else None


_NAMED = partial(NamedJson, "\n", _EVERYBODY)
_TAGS = Form(
    marks=(Mark(OPEN, "</function>", partial(NamedJson, ">"), _tagged),),
    drops=_DROPS,
)
_RECIPIENTS = Form(
    marks=(Mark("", "", _NAMED, _addressed), Mark(RECIPIENT, "", _NAMED, _addressed)),
    drops=_DROPS,
    is_framed=True,
)

TAGGED_FRAME = CallFrame(call=f"{OPEN}%name%>%arguments%</function>", separator="%ws%", marker=OPEN)
_ADDRESSED = "%name%\n%arguments%"
ADDRESSED_FRAMES = (
    CallFrame(call=_ADDRESSED, separator=RECIPIENT, marker="%name%\n", at_start=True),
    CallFrame(
        call=_ADDRESSED,
        opening=RECIPIENT,
        separator=RECIPIENT,
        marker=f"{RECIPIENT}%name%\n",
    ),
)


def make_v31(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer of version 3.1."""
    return marked_parser(options, _TAGS)


def make_v32(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer of version 3.2."""
    return marked_parser(options, _RECIPIENTS)
