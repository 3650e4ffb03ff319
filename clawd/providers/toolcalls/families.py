"""The families of models that write calls: their templates, their forms, what opens a call.

The order is that in which they are asked; the last one is for whatever no family knows.
"""

from collections.abc import Callable
from typing import NamedTuple

from clawd.engine.protocol import HERMES, CallFrame, json_call, json_list
from clawd.providers.toolcalls import dialects, forms, framed, harmony, xml_calls
from clawd.providers.toolcalls.base import (
    THINK,
    Frames,
    ParserFactory,
    ParserOptions,
    ToolCallParser,
)
from clawd.providers.toolcalls.literals import KEYWORDS
from clawd.providers.toolcalls.marked import CallForm, marked_parser

ANY: tuple[tuple[str, ...], ...] = ((),)


class Family(NamedTuple):
    """A family's name, and what is known of its templates and its answers.

    Attributes:
        name: the family's name.
        marks: a chat template that holds all texts of one of these is the family's, …
        without: … unless it holds one of these.
        form: how its calls stand in a text, or what makes a parser of its own.
        frames: how calls are written, the usual way first; or what tells that by the template.
        usual: the text that makes the first frame the usual one, where a template without it has
            the frames in reverse; empty where the order is fixed.
        opens: what opens a call: text that holds one and no call was to be one.
        thoughts: the markers around reasoning that may open an answer.
        hides_calls: what looks like a call within reasoning is none.
    """

    name: str
    marks: tuple[tuple[str, ...], ...]
    form: CallForm | ParserFactory
    frames: Frames | Callable[[str], Frames]
    opens: tuple[str, ...]
    without: tuple[str, ...] = ()
    usual: str = ""
    thoughts: tuple[tuple[str, str], ...] = (THINK,)
    hides_calls: bool = True

    def matches(self, template: str) -> bool:
        """Return whether a chat template is one of the family's."""
        is_known = any(all(mark in template for mark in each) for each in self.marks)
        return is_known and not any(mark in template for mark in self.without)

    def make(self, options: ParserOptions) -> ToolCallParser:
        """Return the parser of one answer."""
        if isinstance(self.form, CallForm):
            return marked_parser(options, self.form)
        return self.form(options)

    def frames_of(self, template: str) -> Frames:
        """Return how calls are written under a chat template, the usual way first."""
        if not isinstance(self.frames, tuple):
            return self.frames(template)
        return self.frames if self.usual in template else self.frames[::-1]


FAMILIES: tuple[Family, ...] = (
    Family(
        name="kimi-k3",
        marks=(("<|open|>", "'call'"),),
        form=framed.KIMI_K3,
        # What the model writes by itself has a type beside each key, which no frame can say.
        frames=(
            CallFrame(
                call=f'{framed.KIMI_CALL}%name%" index="%digits%"<|sep|>'
                f'<|open|>json type="object"<|sep|>%arguments%<|close|>json<|sep|>'
                f"{framed.KIMI_CALL_END}",
                opening="<|open|>tools<|sep|>",
                separator="",
                closing="<|close|>tools<|sep|>",
            ),
        ),
        opens=(framed.KIMI_CALL,),
        thoughts=(framed.KIMI_K3_THOUGHTS,),
    ),
    Family(
        name="muse",
        marks=(("<atem:invoke",),),
        form=framed.make_muse,
        frames=(framed.MUSE_FRAME,),
        opens=framed.MUSE.sections,
    ),
    Family(
        name="minimax-m3",
        marks=((framed.NAMESPACE,),),
        form=framed.MINIMAX_M3,
        # A frame cannot close a tag by the name of its key.
        frames=(CallFrame(call=f"<tool_call>%ws%{json_call()}%ws%</tool_call>", separator="%ws%"),),
        opens=(f"{framed.NAMESPACE}<tool_call>",),
        thoughts=(framed.MINIMAX_M3_THOUGHTS,),
    ),
    Family(
        name="solar",
        marks=((forms.SOLAR_OPEN,),),
        form=forms.SOLAR,
        frames=(
            CallFrame(
                call=f"{forms.SOLAR_OPEN}%id%<|tool_call:name|>%name%<|tool_call:args|>%arguments%"
                f"{forms.SOLAR_END}",
                opening="<|tool_calls|>",
                separator="",
                marker="<|tool_calls|>",
            ),
        ),
        opens=(forms.SOLAR_OPEN,),
        thoughts=(("<|think|>", "<|end|>"),),
    ),
    Family(
        name="gigachat",
        marks=(("<|role_sep|>",),),
        form=forms.GIGACHAT,
        frames=tuple(
            CallFrame(call=f"{opening}{json_call()}", marker=opening)
            for opening in forms.GIGACHAT_OPENINGS
        ),
        usual=forms.GIGACHAT_OPENINGS[0],
        opens=forms.GIGACHAT_OPENINGS[:1],
    ),
    Family(
        name="minimax-m1",
        marks=(("<tool_calls>", "<beginning_of_sentence>"),),
        form=forms.MINIMAX_M1,
        frames=(
            CallFrame(
                call=json_call(),
                opening="<tool_calls>%ws%",
                separator="%ws%",
                closing=f"%ws%{forms.ROWS_END}",
                marker="<tool_calls>",
            ),
        ),
        opens=("<tool_calls>",),
    ),
    Family(
        name="olmo 3",
        marks=((forms.FUNCTIONS,),),
        without=("<invoke",),
        form=forms.OLMO3,
        frames=(
            CallFrame(
                call="%name%(%arguments%)",
                opening=f"{forms.FUNCTIONS}%ws%",
                separator="\n",
                closing=f"%ws%{forms.FUNCTIONS_END}",
                marker=forms.FUNCTIONS,
                parameters=KEYWORDS,
            ),
        ),
        opens=(forms.FUNCTIONS,),
    ),
    Family(
        name="llama 4",
        marks=(("<|header_start|>",),),
        form=forms.LLAMA4,
        frames=(
            CallFrame(
                call=json_call("name", "parameters"),
                separator="%ws%",
                marker='{"name": %"name"%',
                at_start=True,
            ),
            CallFrame(
                call="%name%(%arguments%)",
                opening="<|python_start|>[",
                separator=", ",
                closing="]<|python_end|>",
                marker="<|python_start|>",
                parameters=KEYWORDS,
            ),
        ),
        opens=("<|python_start|>",),
    ),
    Family(
        name="ernie",
        marks=(("</response>", forms.HERMES_OPEN),),
        without=("<function=", "<arg_key>", "<invoke", "<tool_response>"),
        form=forms.ERNIE,
        frames=(HERMES,),
        opens=(forms.HERMES_OPEN,),
    ),
    Family(
        name="seed-oss",
        marks=(("<seed:tool_call>",),),
        form=xml_calls.make_seed_oss,
        frames=xml_calls.SEED_OSS_FRAMES,
        opens=xml_calls.SEED_OSS_OPENINGS,
        thoughts=xml_calls.SEED_OSS_THOUGHTS,
    ),
    Family(
        name="minimax-m2",
        marks=(("<minimax:tool_call>",),),
        without=(framed.NAMESPACE,),
        form=xml_calls.make_minimax_m2,
        frames=(xml_calls.MINIMAX_M2_FRAME,),
        opens=xml_calls.MINIMAX_M2_OPENINGS,
    ),
    Family(
        name="deepseek",
        marks=(("<｜tool▁calls▁begin｜>",), ("｜DSML｜",)),
        form=dialects.make_deepseek,
        frames=dialects.deepseek_frames,
        opens=dialects.DEEPSEEK_OPENINGS,
    ),
    Family(
        name="kimi-k2",
        marks=(("<|tool_calls_section_begin|>",), ("<|im_middle|>",)),
        form=dialects.make_kimi_k2,
        frames=dialects.KIMI_K2_FRAMES,
        opens=dialects.KIMI_K2_OPENINGS,
    ),
    Family(
        name="hunyuan",
        marks=(("<tool_sep", "<arg_key"),),
        form=dialects.make_hunyuan,
        frames=(dialects.HUNYUAN_FRAME,),
        opens=dialects.HUNYUAN_OPENINGS,
        thoughts=dialects.HUNYUAN_THOUGHTS,
    ),
    Family(
        name="glm",
        marks=(("<arg_key>", forms.HERMES_OPEN),),
        form=dialects.make_glm,
        frames=(dialects.GLM_FRAME,),
        opens=dialects.GLM_OPENINGS,
    ),
    Family(
        name="qwen3-coder",
        marks=((forms.HERMES_OPEN, "<function=", "<parameter="),),
        form=xml_calls.make_qwen3_coder,
        frames=xml_calls.QWEN3_CODER_FRAMES,
        opens=xml_calls.QWEN3_CODER_OPENINGS,
    ),
    Family(
        name="mistral",
        marks=(("[TOOL_CALLS]",),),
        form=dialects.make_mistral,
        frames=dialects.mistral_frames,
        opens=dialects.MISTRAL_OPENINGS,
        thoughts=dialects.MISTRAL_THOUGHTS,
    ),
    Family(
        name="llama3",
        marks=(("<|python_tag|>",), ("Environment: ipython",)),
        without=(forms.HERMES_OPEN, "<function=", "<TOOLCALL>", ">>>", "<｜tool▁calls▁begin｜>"),
        form=dialects.make_llama3,
        frames=dialects.LLAMA3_FRAMES,
        opens=dialects.LLAMA3_OPENINGS,
    ),
    Family(
        name="harmony",
        marks=((harmony.CHANNEL, "<|message|>", "<|start|>"),),
        form=harmony.make,
        frames=harmony.FRAMES,
        opens=(" to=functions.",),
        thoughts=harmony.THOUGHTS,
    ),
    Family(
        name="gemma 4",
        marks=(("<|tool_call>", "<tool_call|>"),),
        form=forms.GEMMA4,
        frames=(forms.GEMMA4_FRAME,),
        opens=(forms.GEMMA_OPEN,),
        thoughts=forms.GEMMA_THOUGHTS,
    ),
    Family(
        name="functiongemma",
        marks=(("<start_function_call>",),),
        form=forms.FUNCTION_GEMMA,
        frames=(forms.FUNCTION_GEMMA_FRAME,),
        opens=(forms.START_CALL,),
    ),
    Family(
        name="gemma",
        marks=(("<start_of_turn>",),),
        form=forms.GEMMA_ASKED,
        frames=forms.GEMMA_ASKED_FRAMES,
        opens=(forms.TOOL_CODE,),
    ),
    Family(
        name="command",
        marks=((forms.START_ACTION,),),
        form=forms.COMMAND_MARKED,
        frames=(forms.COMMAND_MARKED_FRAME,),
        opens=(forms.START_ACTION,),
        thoughts=forms.COMMAND_THOUGHTS,
    ),
    Family(
        name="command r+",
        marks=(("<|CHATBOT_TOKEN|>",),),
        form=forms.COMMAND_FENCED,
        frames=(forms.COMMAND_FENCED_FRAME,),
        opens=(),
    ),
    Family(
        name="lfm2",
        marks=((forms.LFM2_OPEN,), ("<|tool_list_start|>",), ("List of tools: [",)),
        form=forms.LFM2,
        frames=forms.LFM2_FRAMES,
        opens=(forms.LFM2_OPEN,),
    ),
    Family(
        name="granite",
        marks=(("<|start_of_role|>",),),
        form=forms.GRANITE,
        frames=(json_list("<|tool_call|>", ""), HERMES),
        usual="<|tool_call|>",
        opens=("<|tool_call|>",),
    ),
    Family(
        name="nemotron",
        marks=(("<TOOLCALL>",),),
        form=forms.NEMOTRON,
        frames=(json_list("<TOOLCALL>", "</TOOLCALL>"), json_list("<tool_calls>", "</tool_calls>")),
        opens=("<TOOLCALL>",),
    ),
    Family(
        name="apriel",
        marks=(("<tool_calls>[",),),
        form=forms.APRIEL,
        frames=(json_list("<tool_calls>", "</tool_calls>"),),
        opens=("<tool_calls>",),
        thoughts=forms.APRIEL_THOUGHTS,
    ),
    Family(
        name="phi-4",
        marks=(("<|/tool_call|>",), ("functools",), ("<|assistant|>", "<|tool|>")),
        form=forms.PHI4,
        frames=(
            json_list("functools", "", marker="functools["),
            json_list("<|tool_call|>", "<|/tool_call|>"),
        ),
        usual="functools",
        opens=("<|tool_call|>",),
    ),
    Family(
        name="apertus",
        marks=((forms.APERTUS_OPEN,),),
        form=forms.APERTUS,
        frames=(forms.APERTUS_FRAME,),
        opens=(forms.APERTUS_OPEN,),
        thoughts=forms.APERTUS_THOUGHTS,
        hides_calls=False,
    ),
    Family(
        name="minicpm",
        marks=(("<function name=", "<param name="),),
        form=forms.MINICPM,
        frames=(forms.MINICPM_FRAME,),
        opens=(forms.MINICPM_OPEN,),
    ),
    Family(
        name="functionary 3.2",
        marks=((">>>all", "recipient"),),
        form=forms.FUNCTIONARY32,
        frames=forms.FUNCTIONARY32_FRAMES,
        opens=(),
    ),
    Family(
        name="functionary 3.1",
        marks=((forms.FUNCTIONARY_OPEN, "</function>"),),
        without=("<parameter=",),
        form=forms.FUNCTIONARY31,
        frames=(forms.FUNCTIONARY31_FRAME,),
        opens=(forms.FUNCTIONARY_OPEN,),
    ),
    Family(
        name="hermes",
        marks=((forms.HERMES_OPEN,),),
        form=forms.HERMES_FORM,
        frames=(HERMES,),
        opens=(forms.HERMES_OPEN,),
    ),
    Family(
        name="generic",
        marks=ANY,
        form=forms.GENERIC,
        frames=forms.GENERIC_FRAMES,
        opens=(forms.GENERIC_OPENS[1],),
    ),
)
CALL_MARKERS = tuple(dict.fromkeys(mark for family in FAMILIES for mark in family.opens))
"""What opens a call in any of these formats: text that holds one and no call was to be one."""


def family_for(template: str) -> Family:
    """Return the first family whose chat template this is.

    A model without a template of its own is Hermes: that is what the built-in fallback template
    asks for.
    """
    asked = template or forms.HERMES_OPEN
    return next(family for family in FAMILIES if family.matches(asked))
