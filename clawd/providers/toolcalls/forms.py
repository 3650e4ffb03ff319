"""Families whose calls stand behind a marker as JSON, as Python calls or in tags: a form for each.

    hermes        <tool_call>
                  {"name": "file_list", "arguments": {"path": "src"}}
                  </tool_call>
    generic       {"name": …, "arguments": …} at the start, in a fence or in a tag
    granite       <|tool_call|>[{"name": "file_list", "arguments": {"path": "src"}}]
                  <tool_call>{"name": "file_list", "arguments": {"path": "src"}}</tool_call>
    phi-4         <|tool_call|>[{"name": …}]<|/tool_call|>, or functools[{"name": …}]
    nemotron      <TOOLCALL>[{"name": …}]</TOOLCALL>; Apriel's tag is <tool_calls>
    gigachat      <|function_call|>{"name": …}, before 3.1 a turn of the role `function call`
    minimax-m1    <tool_calls>{"name": …} {"name": …}</tool_calls>
    ernie         <tool_call>{"name": …}</tool_call>, text in <response> tags
    solar         <|tool_call:begin|>ID<|tool_call:name|>file_list<|tool_call:args|>{…}
                  <|tool_call:end|> in one line
    olmo 3        <function_calls>file_list(path="src")</function_calls>
    llama 4       [file_list(path="src")] or {"name": …, "parameters": …} as the answer's beginning
    apertus       <|tools_prefix|>[{"file_list": {"path": "src"}}]<|tools_suffix|>
    command r+    Action: ```json
                  [{"tool_name": "file_list", "parameters": {"path": "src"}}]
                  ```
    command       <|START_THINKING|>…<|END_THINKING|><|START_ACTION|>[{"tool_call_id": "0",
                  "tool_name": "file_list", "parameters": {"path": "src"}}]<|END_ACTION|>
    functionary   3.1: <function=file_list>{"path": "src"}</function>
                  3.2: >>>all
                       Let me look.>>>file_list
                       {"path": "src"}
    lfm2          <|tool_call_start|>[file_list(path="src", depth=2), time()]<|tool_call_end|>
    gemma 4       <|tool_call>call:file_list{path:<|"|>src<|"|>,depth:2}<tool_call|>
    functiongemma <start_function_call>call:file_list{path:<escape>src<escape>}<end_function_call>
    gemma         ```tool_code
                  file_list(path="src", depth=2)
                  ```
    minicpm       <function name="file_list"><param name="path">src</param></function>

Hermes is also Qwen's form, Granite 4's and the embedded model's. It takes any number of calls, text
before, between and after; the closing tag may be missing at the end of the text and before the next
call; a call that does not parse stays in the text as it was written. Where a model was never told
how, JSON may be the answer as well, so only what has a name and arguments is a call, and only of a
tool that is offered where these are known. Apertus thinks between markers of its own, and calls
from within. A prompt of Functionary 3.2 ends with the first `>>>`, so the answer begins with a
recipient's name. LFM2 writes JSON where the prompt asks for it; only what stands behind its marker
is a call: `[text](url)` is a link. Gemma 2 and 3 have no format of their own: JSON (alone or
fenced) and a list of Python calls are what Google's guides ask for. MiniCPM's values stand in CDATA
where they need it.
"""

import json
import re
from functools import partial

from clawd.engine.protocol import HERMES, CallFrame, ParameterForm, StringForm, json_call, json_list
from clawd.providers.toolcalls.base import (
    THINK,
    ParsedCall,
    ParserOptions,
    action_calls,
    answer_calls,
    json_calls,
    keyed_calls,
    object_arguments,
)
from clawd.providers.toolcalls.literals import KEYWORDS, Arguments, gemma_calls, python_calls
from clawd.providers.toolcalls.marked import CallForm, Mark
from clawd.providers.toolcalls.scanners import (
    FencedJson,
    JsonBody,
    NamedJson,
    PythonBody,
    QuotedBody,
    XmlBody,
)

HERMES_OPEN = "<tool_call>"
MARK = Mark(HERMES_OPEN, "</tool_call>", partial(JsonBody, "{"), json_calls)
HERMES_FORM = CallForm(marks=(MARK,))


GENERIC_OPENS = ("```json", "```tool_call", "<tool_call>")
_GENERIC_MARKS = (
    Mark(GENERIC_OPENS[0], "```", JsonBody, answer_calls),
    Mark(GENERIC_OPENS[1], "```", JsonBody, json_calls),
    Mark(GENERIC_OPENS[2], "</tool_call>", JsonBody, json_calls),
)
GENERIC = CallForm(
    marks=(Mark("", "", JsonBody, answer_calls, repeats=True), *_GENERIC_MARKS),
    drops=("<|im_end|>", "<|eot_id|>", "<|end_of_text|>", "<|endoftext|>"),
)
BARE_FRAME = CallFrame(
    call=json_call(), separator="%ws%", marker='{"name": %"name"%', at_start=True
)
GENERIC_FRAMES = (
    BARE_FRAME,
    HERMES,
    CallFrame(
        call=f"{GENERIC_OPENS[1]}%ws%{json_call()}%ws%```",
        separator="%ws%",
        marker=GENERIC_OPENS[1],
    ),
)


APERTUS_OPEN = "<|tools_prefix|>"
APERTUS_THOUGHTS = (("<|inner_prefix|>", "<|inner_suffix|>"),)
APERTUS = CallForm(
    marks=(Mark(APERTUS_OPEN, "<|tools_suffix|>", JsonBody, keyed_calls),),
    drops=("<|assistant_end|>", "<|inner_suffix|>"),
    thoughts=APERTUS_THOUGHTS[0],
    calls_end_thoughts=True,
)
APERTUS_FRAME = json_list(APERTUS_OPEN, "<|tools_suffix|>", '{%ws%%"name"%:%ws%%arguments%%ws%}')


ACTION = "Action:"
START_ACTION = "<|START_ACTION|>"
START_THINKING = "<|START_THINKING|>"
END_THINKING = "<|END_THINKING|>"
COMMAND_THOUGHTS = ((START_THINKING, END_THINKING),)
_COMMAND_R_FENCE = re.compile(r"\s*+(?:```\w*+)?")
_ENDS = ("<|END_OF_TURN_TOKEN|>", "<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>")


def _fenced(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    return action_calls(_COMMAND_R_FENCE.sub("", text, count=1), options)


COMMAND_FENCED = CallForm(marks=(Mark(ACTION, "```", FencedJson, _fenced),), drops=_ENDS)
COMMAND_MARKED = CallForm(
    marks=(Mark(START_ACTION, "<|END_ACTION|>", JsonBody, action_calls),),
    drops=(
        *_ENDS,
        "<|START_RESPONSE|>",
        "<|END_RESPONSE|>",
        "<|START_TEXT|>",
        "<|END_TEXT|>",
        END_THINKING,
    ),
    thoughts=COMMAND_THOUGHTS[0],
)
COMMAND_FENCED_FRAME = CallFrame(
    call=json_call("tool_name", "parameters"),
    opening="Action:%ws%```json%ws%[%ws%",
    separator=",%ws%",
    closing="%ws%]%ws%```",
    marker="Action: ```json",
)
COMMAND_MARKED_FRAME = json_list(
    START_ACTION,
    "<|END_ACTION|>",
    json_call("tool_name", "parameters", before='"tool_call_id":%ws%"%digits%",%ws%'),
)


FUNCTIONARY_OPEN = "<function="
RECIPIENT = ">>>"
_EVERYBODY = "all"
_DROPS = ("<|eot_id|>", "<|eom_id|>", "<|end_of_text|>")


def _tagged(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    del options
    return _call(*text.split(">", 1))


def _addressed(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    name, line_break, body = text.partition("\n")
    if name == _EVERYBODY and line_break:
        return []
    return _call(name, body) if options.calls else None


def _call(name: str, body: str = "") -> list[ParsedCall] | None:
    arguments = object_arguments(body.encode("utf-8", "surrogatepass"))
    return [ParsedCall(name, arguments)] if body.strip() and arguments is not None else None


_NAMED = partial(NamedJson, "\n", _EVERYBODY)
FUNCTIONARY31 = CallForm(
    marks=(Mark(FUNCTIONARY_OPEN, "</function>", partial(NamedJson, ">"), _tagged),), drops=_DROPS
)
FUNCTIONARY32 = CallForm(
    marks=(Mark("", "", _NAMED, _addressed), Mark(RECIPIENT, "", _NAMED, _addressed)),
    drops=_DROPS,
    is_framed=True,
    names=(_EVERYBODY,),
)
FUNCTIONARY31_FRAME = CallFrame(
    call=f"{FUNCTIONARY_OPEN}%name%>%arguments%</function>",
    separator="%ws%",
    marker=FUNCTIONARY_OPEN,
)
_ADDRESSED = "%name%\n%arguments%"
FUNCTIONARY32_FRAMES = (
    CallFrame(call=_ADDRESSED, separator=RECIPIENT, marker="%name%\n", at_start=True),
    CallFrame(
        call=_ADDRESSED, opening=RECIPIENT, separator=RECIPIENT, marker=f"{RECIPIENT}%name%\n"
    ),
)


LFM2_OPEN = "<|tool_call_start|>"
_LFM2_JSON = re.compile(r"\s*+(?:\[\s*+)?\{")


def _python_or_json_calls(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    """Return the calls of a list in either notation."""
    decode = json_calls if _LFM2_JSON.match(text) else python_calls
    return decode(text, options)


LFM2 = CallForm(
    marks=(Mark(LFM2_OPEN, "<|tool_call_end|>", PythonBody, _python_or_json_calls),),
    drops=("<|im_end|>", "<|endoftext|>"),
)
_LFM2_CLOSE = "<|tool_call_end|>"
LFM2_FRAMES = (
    CallFrame(
        call="%name%(%arguments%)",
        opening=f"{LFM2_OPEN}[",
        separator=", ",
        closing=f"]{_LFM2_CLOSE}",
        marker=LFM2_OPEN,
        parameters=KEYWORDS,
    ),
    json_list(LFM2_OPEN, _LFM2_CLOSE),
)


TOOL_CODE = "```tool_code"
GEMMA_OPEN = "<|tool_call>call:"
START_CALL = "<start_function_call>call:"
GEMMA_THOUGHTS = (("<|channel>thought", "<channel|>"),)
_GEMMA_FENCE = "```"
_QUOTE = '<|"|>'
_ESCAPE = "<escape>"
_GEMMA_JSON = re.compile(r"\s*+(?:\[\s*+)?\{")
_PRINTED = re.compile(r"print\((.*)\)", re.DOTALL)


def _code(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    text = text.removesuffix(_GEMMA_FENCE).strip()
    printed = _PRINTED.fullmatch(text)
    return python_calls(printed[1] if printed else text, options)


def _gemma_asked_calls(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    """Return calls of offered tools in JSON or as Python calls, where nothing marks them."""
    if _GEMMA_JSON.match(text):
        return answer_calls(text, options)
    calls = python_calls(text, options)
    if calls and options.schemas and not all(call.name in options.schemas for call in calls):
        return None
    return calls


GEMMA_ASKED = CallForm(
    marks=(
        Mark("", "", PythonBody, _gemma_asked_calls, repeats=True),
        Mark(TOOL_CODE, "", partial(PythonBody, _GEMMA_FENCE), _code),
        *_GENERIC_MARKS,
    ),
    drops=("<end_of_turn>", "<start_of_turn>model"),
)
FUNCTION_GEMMA = CallForm(
    marks=(
        Mark(START_CALL, "<end_function_call>", partial(QuotedBody, _ESCAPE), gemma_calls(_ESCAPE)),
    ),
    drops=("<end_of_turn>", "<start_function_response>"),
)
GEMMA4 = CallForm(
    marks=(Mark(GEMMA_OPEN, "<tool_call|>", partial(QuotedBody, _QUOTE), gemma_calls(_QUOTE)),),
    drops=("<turn|>", "<|turn>model", "<|tool_response>", "<channel|>"),
    thoughts=GEMMA_THOUGHTS[0],
    openings=("<|channel><|channel>thought",),
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


GEMMA4_FRAME = _braced_frame(GEMMA_OPEN, "<tool_call|>", _QUOTE)
FUNCTION_GEMMA_FRAME = _braced_frame(START_CALL, "<end_function_call>", _ESCAPE)
GEMMA_ASKED_FRAMES = (
    *GENERIC_FRAMES,
    CallFrame(
        call=f"{TOOL_CODE}\n%name%(%arguments%)\n{_GEMMA_FENCE}",
        marker=f"{TOOL_CODE}\n%name%(",
        parameters=KEYWORDS,
    ),
)


MINICPM_OPEN = '<function name="'
_MINICPM_CLOSE = "</function>"
_NAME = re.compile(r'([^"<>]+)">')
_PARAM = re.compile(r'\s*+<param name="([^"]*+)">')
_DATA = re.compile(r"\s*+<!\[CDATA\[")
_END = "</param>"
_DATA_END = re.compile(r"\]\]>\s*+</param>")


def _decode(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    if not text.endswith(_MINICPM_CLOSE):
        return None  # without its end it may lack arguments: nothing else tells that it is whole
    text = text.removesuffix(_MINICPM_CLOSE).rstrip()
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
    return [ParsedCall(name, arguments.text())]


def _written(text: str, at: int) -> tuple[str, int] | None:
    """Return a parameter's value and the place after it."""
    data = _DATA.match(text, at)
    if data is None:
        end = text.find(_END, at)
        return (text[at:end], end + len(_END)) if end >= 0 else None
    found = _DATA_END.search(text, data.end())
    return (text[data.end() : found.start()], found.end()) if found else None


_PARAM_OPEN = '<param name="%key%">'
MINICPM_FRAME = CallFrame(
    call=f'{MINICPM_OPEN}%name%">%ws%%arguments%%ws%{_MINICPM_CLOSE}',
    separator="%ws%",
    marker=MINICPM_OPEN,
    parameters=ParameterForm(
        key=_PARAM_OPEN,
        end=_END,
        strings=(
            StringForm(key=_PARAM_OPEN, stop=_END, excludes="<"),
            StringForm(key=f"{_PARAM_OPEN}<![CDATA[", stop="]]>", end=_END),
        ),
    ),
)
MINICPM = CallForm(
    marks=(Mark(MINICPM_OPEN, "", partial(XmlBody, _MINICPM_CLOSE), _decode),),
    drops=("<|im_end|>", "</s>"),
)


GIGACHAT_OPENINGS = ("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n")
ROWS_END = "</tool_calls>"
FUNCTIONS, FUNCTIONS_END = "<function_calls>", "</function_calls>"
SOLAR_OPEN, SOLAR_END = "<|tool_call:begin|>", "<|tool_call:end|>"
_SOLAR_BODY = re.compile(
    r"[^<]*<\|tool_call:name\|>\s*([\w.:/-]+)\s*<\|tool_call:args\|>(.*)", re.DOTALL
)
_DECODER = json.JSONDecoder()


def _rows(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    """Return calls that stand one behind the other, up to a closing tag."""
    text = text.removesuffix(ROWS_END).strip()
    calls: list[ParsedCall] = []
    at = 0
    while at < len(text):
        try:
            _, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            return None
        found = json_calls(text[at:end], options)
        if found is None:
            return None
        calls += found
        at = end + len(text[end:]) - len(text[end:].lstrip(" \t\r\n,"))
    return calls or None


def _functions(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    return python_calls(text.removesuffix(FUNCTIONS_END), options)


def _solar_call(text: str, options: ParserOptions) -> list[ParsedCall] | None:
    del options
    is_whole = text.endswith((SOLAR_END, "}"))  # else the arguments may be to come yet
    found = _SOLAR_BODY.fullmatch(text.removesuffix(SOLAR_END)) if is_whole else None
    arguments = object_arguments(found[2].encode("utf-8", "surrogatepass")) if found else None
    return [ParsedCall(found[1], arguments)] if found and arguments is not None else None


GRANITE = CallForm(
    marks=(
        Mark("<|tool_call|>", "", JsonBody, json_calls),
        Mark(HERMES_OPEN, "</tool_call>", JsonBody, json_calls),
    ),
    drops=("<|end_of_text|>", "<|start_of_role|>assistant<|end_of_role|>"),
)
PHI4 = CallForm(
    marks=(
        Mark("<|tool_call|>", "<|/tool_call|>", JsonBody, json_calls),
        Mark("functools", "", partial(JsonBody, "["), json_calls),
    ),
    drops=("<|end|>", "<|endoftext|>", "<|im_end|>", "<|eot_id|>"),
)
NEMOTRON = CallForm(
    marks=(
        Mark("<TOOLCALL>", "</TOOLCALL>", JsonBody, json_calls),
        Mark("<tool_calls>", "</tool_calls>", JsonBody, json_calls),
    ),
    drops=("<SPECIAL_11>", "<SPECIAL_12>", "<|eot_id|>", "<|im_end|>"),
)
APRIEL_THOUGHTS = (("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"), THINK)
APRIEL = CallForm(
    marks=NEMOTRON.marks,
    drops=("[BEGIN FINAL RESPONSE]", "\n[END FINAL RESPONSE]", "<|end|>"),
    leading=APRIEL_THOUGHTS,
)
GIGACHAT = CallForm(
    marks=tuple(
        Mark(opening, "", partial(JsonBody, "{"), json_calls) for opening in GIGACHAT_OPENINGS
    )
)
MINIMAX_M1 = CallForm(
    marks=(Mark("<tool_calls>", "", partial(XmlBody, ROWS_END), _rows),),
    drops=("<end_of_sentence>",),
)
ERNIE = CallForm(
    marks=(Mark(HERMES_OPEN, "</tool_call>", JsonBody, json_calls),),
    drops=("<response>\n", "\n</response>", "<|im_end|>"),
)
SOLAR = CallForm(
    marks=(Mark(SOLAR_OPEN, "", partial(XmlBody, SOLAR_END), _solar_call),),
    drops=("<|tool_calls|>", "<|calls|>", "<|content|>", "<|begin|>assistant", "<|end|>"),
    thoughts=("<|think|>", "<|end|>"),
)
OLMO3 = CallForm(
    marks=(Mark(FUNCTIONS, "", partial(XmlBody, FUNCTIONS_END), _functions),),
    drops=("<|im_end|>", "<|endoftext|>"),
)
LLAMA4 = CallForm(
    marks=(
        Mark("", "", PythonBody, _gemma_asked_calls, repeats=True),
        Mark("<|python_start|>", "<|python_end|>", PythonBody, _python_or_json_calls),
    ),
    drops=("<|eot|>", "<|eom|>", "<|header_start|>assistant<|header_end|>"),
)
