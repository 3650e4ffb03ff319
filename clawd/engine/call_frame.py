"""How models write tool calls, as data: what the daemon's parsers read and a grammar is made of.

A call is a text with holes between percent signs; the rest stands for itself:

    <tool_call>%ws%{%ws%"name":%ws%%"name"%,%ws%"arguments":%ws%%arguments%%ws%}%ws%</tool_call>

    %name%       the tool's name
    %"name"%     the same as a JSON string
    %arguments%  a JSON object by the tool's schema, or what a ParameterForm makes of it
    %ws%         blanks, or none
    %digits%     one to three digits
    %id%         nine letters and digits
    %?text%      the text, or nothing
"""

import msgspec


class StringForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a string stands bare: any text but `stop` behind `key`, then `stop` and `end`.

    With `excludes`, none of these characters may be in it either.
    """

    key: str
    stop: str
    end: str = ""
    excludes: str = ""


class ParameterForm(msgspec.Struct, frozen=True, kw_only=True):
    """How arguments are written one by one rather than as a JSON object.

    Attributes:
        key: stands before a value; `%key%` is the argument's name.
        end: stands behind it.
        separator: stands between two.
        strings: the ways to write a value that may be a string; none where strings are JSON too.
        nests: lists and objects within hold strings, and objects keys, in the same way.
    """

    key: str
    end: str = ""
    separator: str = "%ws%"
    strings: tuple[StringForm, ...] = ()
    nests: bool = False


class CallFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a model writes its calls.

    Attributes:
        call: one call.
        opening: stands before the first one.
        separator: stands between two; None where an answer holds one call only.
        closing: stands behind the last one.
        marker: the beginning of `opening` and `call` by which a call that a model writes by itself
            is told, up to `%name%` or `%"name"%` at most; empty where none can be told.
        at_start: the marker counts as the first thing of an answer only.
        parameters: the form of the arguments; None for a JSON object.
    """

    call: str
    opening: str = ""
    separator: str | None = None
    closing: str = ""
    marker: str = ""
    at_start: bool = False
    parameters: ParameterForm | None = None


def json_call(name: str = "name", arguments: str = "arguments", *, before: str = "") -> str:
    """Return a call that is a JSON object with these keys, and with members `before` them."""
    return f'{{%ws%{before}"{name}":%ws%%"name"%,%ws%"{arguments}":%ws%%arguments%%ws%}}'


def json_list(
    opening: str, closing: str, call: str | None = None, *, marker: str = ""
) -> CallFrame:
    """Return the frame of a JSON list of calls; the opening marks it unless another text does."""
    return CallFrame(
        call=call or json_call(),
        opening=f"{opening}%ws%[%ws%",
        separator=",%ws%",
        closing=f"%ws%]%ws%{closing}" if closing else "%ws%]",
        marker=marker or opening,
    )


HERMES = CallFrame(
    call=f"<tool_call>%ws%{json_call()}%ws%</tool_call>", separator="%ws%", marker="<tool_call>"
)
