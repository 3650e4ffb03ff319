"""Tool calls of Gemma: 4 with markers of its own, FunctionGemma, and 2 and 3 as they are asked.

    <|tool_call>call:file_list{path:<|"|>src<|"|>,depth:2}<tool_call|>
    <start_function_call>call:file_list{path:<escape>src<escape>}<end_function_call>

    ```tool_code
    file_list(path="src", depth=2)
    ```

Gemma 2 and 3 have no format of their own: JSON (alone or fenced) and a list of Python calls are
what Google's guides ask for.
"""

import re
from functools import partial

from clawd.engine.call_frame import CallFrame, ParameterForm, StringForm
from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.call_objects import Call, answer_calls
from clawd.providers.toolcalls.generic_json import FRAMES, MARKS
from clawd.providers.toolcalls.literals import KEYWORDS, gemma_calls, python_calls
from clawd.providers.toolcalls.marked import Form, Mark, marked_parser
from clawd.providers.toolcalls.scanners import PythonBody, QuotedBody

TOOL_CODE = "```tool_code"
OPEN = "<|tool_call>call:"
START_CALL = "<start_function_call>call:"

THOUGHTS = (("<|channel>thought", "<channel|>"),)

_FENCE = "```"
_QUOTE = '<|"|>'
_ESCAPE = "<escape>"
_JSON = re.compile(r"\s*+(?:\[\s*+)?\{")
_PRINTED = re.compile(r"print\((.*)\)", re.DOTALL)


def _code(text: str, options: ParserOptions) -> list[Call] | None:
    text = text.removesuffix(_FENCE).strip()
    printed = _PRINTED.fullmatch(text)
    return python_calls(printed[1] if printed else text, options)


def _answer(text: str, options: ParserOptions) -> list[Call] | None:
    if _JSON.match(text):
        return answer_calls(text, options)
    calls = python_calls(text, options)
    if calls and options.schemas and not all(call.name in options.schemas for call in calls):
        return None
    return calls


_ASKED = Form(
    marks=(
        Mark("", "", PythonBody, _answer, repeats=True),
        Mark(TOOL_CODE, "", partial(PythonBody, _FENCE), _code),
        *MARKS,
    ),
    drops=("<end_of_turn>", "<start_of_turn>model"),
)
_FUNCTION = Form(
    marks=(
        Mark(
            START_CALL,
            "<end_function_call>",
            partial(QuotedBody, _ESCAPE),
            gemma_calls(_ESCAPE),
        ),
    ),
    drops=("<end_of_turn>", "<start_function_response>"),
)
_NATIVE = Form(
    marks=(Mark(OPEN, "<tool_call|>", partial(QuotedBody, _QUOTE), gemma_calls(_QUOTE)),),
    drops=("<turn|>", "<|turn>model", "<|tool_response>", "<channel|>"),
    thoughts=THOUGHTS[0],
)


def _braced_frame(opening: str, closing: str, quote: str) -> CallFrame:
    return CallFrame(
        call=f"{opening}%name%{{%arguments%}}{closing}",
        separator="",
        marker=opening,
        parameters=ParameterForm(
            key="%key%:",
            separator=",",
            strings=(StringForm(key=f"%key%:{quote}", stop=quote),),
            nests=True,
        ),
    )


NATIVE_FRAME = _braced_frame(OPEN, "<tool_call|>", _QUOTE)
FUNCTION_FRAME = _braced_frame(START_CALL, "<end_function_call>", _ESCAPE)
ASKED_FRAMES = (
    *FRAMES,
    CallFrame(
        call=f"{TOOL_CODE}\n%name%(%arguments%)\n{_FENCE}",
        marker=f"{TOOL_CODE}\n%name%(",
        parameters=KEYWORDS,
    ),
)


def make_asked(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer of Gemma 2 and 3."""
    return marked_parser(options, _ASKED)


def make_function(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer of FunctionGemma."""
    return marked_parser(options, _FUNCTION)


def make_native(options: ParserOptions) -> ToolCallParser:
    """Return the parser of one answer of Gemma 4."""
    return marked_parser(options, _NATIVE)
