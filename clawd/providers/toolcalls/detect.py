"""Chooses the parser for a model by its chat template, and reads a call that is the whole answer.

The table says which template belongs to which family, in the order in which it is asked; Hermes is
for those that no family knows. Whatever its family's form is, a model may write bare JSON, or JSON
in a fence, as its whole answer:

    {"name": "file_list", "arguments": {"path": "src"}}

Small models and tuned ones write so under templates that ask for a tag. JSON may be the answer as
well, so it is a call only when nothing else stands beside it and it names an offered tool. Text
that may still become such an answer is held back, all other text passes at once.
"""

import json
import re
from functools import lru_cache
from typing import NamedTuple

import msgspec

from clawd.engine.call_frame import HERMES
from clawd.providers.base import EFFORT, SWITCHES, CallDelta, Text
from clawd.providers.toolcalls import (
    dialect_families,
    framed,
    harmony,
    json_families,
    xml_calls,
)
from clawd.providers.toolcalls.base import (
    Family,
    Frames,
    ParsedCall,
    ParsedDelta,
    ParserFactory,
    ParserOptions,
    ToolCallParser,
    always,
    answer_calls,
)

_HERMES = "<tool_call>"


def _is_harmony(template: str) -> bool:
    return harmony.CHANNEL in template and "<|message|>" in template and "<|start|>" in template


def _is_gemma4(template: str) -> bool:
    return "<|tool_call>" in template and "<tool_call|>" in template


def _is_function_gemma(template: str) -> bool:
    return "<start_function_call>" in template


def _is_gemma(template: str) -> bool:
    return "<start_of_turn>" in template


def _is_command_marked(template: str) -> bool:
    return json_families.START_ACTION in template


def _is_command_fenced(template: str) -> bool:
    return "<|CHATBOT_TOKEN|>" in template


def _is_lfm2(template: str) -> bool:
    lists = ("<|tool_list_start|>", "List of tools: [")
    return json_families.LFM2_OPEN in template or any(start in template for start in lists)


def _is_functionary32(template: str) -> bool:
    return ">>>all" in template and "recipient" in template


def _is_functionary31(template: str) -> bool:
    is_call = json_families.FUNCTIONARY_OPEN in template and "</function>" in template
    return is_call and "<parameter=" not in template


def _is_apertus(template: str) -> bool:
    return json_families.APERTUS_OPEN in template


def _is_minicpm(template: str) -> bool:
    return "<function name=" in template and "<param name=" in template


def _is_other(template: str) -> bool:
    return bool(template) and _HERMES not in template


FAMILIES: tuple[Family, ...] = (
    *framed.FRAMED,
    *json_families.EARLY,
    Family(
        "seed-oss",
        xml_calls.matches_seed_oss,
        xml_calls.make_seed_oss,
        always(*xml_calls.SEED_OSS_FRAMES),
        xml_calls.SEED_OSS_THOUGHTS,
    ),
    Family(
        "minimax-m2",
        xml_calls.matches_minimax_m2,
        xml_calls.make_minimax_m2,
        always(xml_calls.MINIMAX_M2_FRAME),
    ),
    Family(
        "deepseek",
        dialect_families.matches_deepseek,
        dialect_families.make_deepseek,
        dialect_families.deepseek_frames,
    ),
    Family(
        "kimi-k2",
        dialect_families.matches_kimi_k2,
        dialect_families.make_kimi_k2,
        always(*dialect_families.KIMI_K2_FRAMES),
    ),
    Family(
        "hunyuan",
        dialect_families.matches_hunyuan,
        dialect_families.make_hunyuan,
        always(dialect_families.HUNYUAN_FRAME),
        dialect_families.HUNYUAN_THOUGHTS,
    ),
    Family(
        "glm",
        dialect_families.matches_glm,
        dialect_families.make_glm,
        always(dialect_families.GLM_FRAME),
    ),
    Family(
        "qwen3-coder",
        xml_calls.matches_qwen3_coder,
        xml_calls.make_qwen3_coder,
        always(*xml_calls.QWEN3_CODER_FRAMES),
    ),
    Family(
        "mistral",
        dialect_families.matches_mistral,
        dialect_families.make_mistral,
        dialect_families.mistral_frames,
        dialect_families.MISTRAL_THOUGHTS,
    ),
    Family(
        "llama3",
        dialect_families.matches_llama3,
        dialect_families.make_llama3,
        always(*dialect_families.LLAMA3_FRAMES),
    ),
    Family("harmony", _is_harmony, harmony.make, always(*harmony.FRAMES), harmony.THOUGHTS),
    Family(
        "gemma 4",
        _is_gemma4,
        json_families.make_gemma4,
        always(json_families.GEMMA4_FRAME),
        json_families.GEMMA_THOUGHTS,
    ),
    Family(
        "functiongemma",
        _is_function_gemma,
        json_families.make_function_gemma,
        always(json_families.FUNCTION_GEMMA_FRAME),
    ),
    Family(
        "gemma",
        _is_gemma,
        json_families.make_gemma_asked,
        always(*json_families.GEMMA_ASKED_FRAMES),
    ),
    Family(
        "command",
        _is_command_marked,
        json_families.make_command_marked,
        always(json_families.COMMAND_MARKED_FRAME),
        json_families.COMMAND_R_THOUGHTS,
    ),
    Family(
        "command r+",
        _is_command_fenced,
        json_families.make_command_fenced,
        always(json_families.COMMAND_FENCED_FRAME),
    ),
    Family("lfm2", _is_lfm2, json_families.make_lfm2, always(*json_families.LFM2_FRAMES)),
    *json_families.LATE,
    Family(
        "apertus",
        _is_apertus,
        json_families.make_apertus,
        always(json_families.APERTUS_FRAME),
        json_families.APERTUS_THOUGHTS,
        hides_calls=False,
    ),
    Family("minicpm", _is_minicpm, json_families.make_minicpm, always(json_families.MINICPM_FRAME)),
    Family(
        "functionary 3.2",
        _is_functionary32,
        json_families.make_functionary32,
        always(*json_families.FUNCTIONARY32_FRAMES),
    ),
    Family(
        "functionary 3.1",
        _is_functionary31,
        json_families.make_functionary31,
        always(json_families.FUNCTIONARY31_FRAME),
    ),
    Family(
        "generic",
        _is_other,
        json_families.make_generic_json,
        always(*json_families.GENERIC_JSON_FRAMES),
    ),
    Family("hermes", lambda _template: True, json_families.make_hermes, always(HERMES)),
)
CALL_MARKERS: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            json_families.HERMES_OPEN,
            *xml_calls.SEED_OSS_OPENINGS,
            *xml_calls.MINIMAX_M2_OPENINGS,
            *dialect_families.DEEPSEEK_OPENINGS,
            *dialect_families.KIMI_K2_OPENINGS,
            *dialect_families.GLM_OPENINGS,
            *xml_calls.QWEN3_CODER_OPENINGS,
            *dialect_families.MISTRAL_OPENINGS,
            *dialect_families.LLAMA3_OPENINGS,
            *json_families.CALL_MARKERS,
            *framed.CALL_MARKERS,
            json_families.APERTUS_OPEN,
            json_families.START_ACTION,
            json_families.FUNCTIONARY_OPEN,
            json_families.GEMMA_OPEN,
            json_families.START_CALL,
            json_families.TOOL_CODE,
            json_families.GENERIC_OPENS[1],
            json_families.LFM2_OPEN,
            json_families.MINICPM_OPEN,
            " to=functions.",
        )
    )
)
"""What opens a call in any of these formats: text that holds one and no call was to be one."""


_MODELS = 16
_ENDS_OF_MESSAGES = frozenset({"<|end|>", "<|eom|>", "<|close|>think<|sep|>"})


class Habits(NamedTuple):
    """How a model answers.

    Attributes:
        frames: how it writes calls, the usual way first.
        thoughts: the markers around reasoning at the start of an answer that hides calls.
        starts_in_reasoning: its prompts end within reasoning.
    """

    frames: Frames
    thoughts: tuple[tuple[str, str], ...]
    starts_in_reasoning: bool


def detect(template: str) -> ParserFactory:
    """Return what makes the parser for the answers of a model with this chat template.

    A model without a template of its own is parsed as Hermes: that is what the built-in fallback
    template asks for.
    """
    family = _family(template)
    starts_in_reasoning = habits_of(template).starts_in_reasoning

    def make(options: ParserOptions) -> ToolCallParser:
        if starts_in_reasoning:
            options = msgspec.structs.replace(options, starts_in_reasoning=True)
        return family.make(options)

    return make


@lru_cache(maxsize=_MODELS)
def habits_of(template: str) -> Habits:
    """Return how a model with this chat template answers."""
    from clawd.providers.toolcalls.prompt_end import prompt_end  # a template engine, with a model

    family = _family(template)
    is_open = prompt_end(template).endswith(tuple(opening for opening, _ in family.thoughts))
    thoughts = family.thoughts if family.hides_calls else ()
    return Habits(family.frames(template), thoughts, is_open)


def habits_after(template: str, begun: str) -> Habits:
    """Return how a model goes on with an answer that began with this text."""
    habits = habits_of(template)
    if not begun:
        return habits
    thoughts = _family(template).thoughts
    opened = max((begun.rfind(opening) for opening, _ in thoughts), default=-1)
    closed = max((begun.rfind(closing) for _, closing in thoughts), default=-1)
    return habits._replace(starts_in_reasoning=opened > closed)


def habits_behind(template: str, end: str) -> Habits:
    """Return how a model answers a prompt that ends so, which its variables may have changed."""
    openings = tuple(opening for opening, _ in _family(template).thoughts)
    return habits_of(template)._replace(starts_in_reasoning=end.rstrip().endswith(openings))


def out_of_reasoning(template: str, begun: str) -> str:
    """Return the beginning of an answer so that it stands behind the reasoning that prompts open.

    A beginning that ends reasoning by itself is left alone, and so is an empty one.
    """
    from clawd.providers.toolcalls.prompt_end import prompt_end

    family = _family(template)
    end = prompt_end(template) if begun and habits_of(template).starts_in_reasoning else ""
    for opening, closing in family.thoughts:
        if end.endswith(opening) and closing not in begun:
            return f"{closing}\n\n{begun}"
    return begun


def parser_of(template: str, options: ParserOptions, habits: Habits) -> ToolCallParser:
    """Return the parser of one answer of a model with these habits.

    In every family an answer that is a call of an offered tool and nothing else is that call.
    """
    starts = habits.starts_in_reasoning
    parser = _family(template).make(msgspec.structs.replace(options, starts_in_reasoning=starts))
    return _WholeAnswer(parser, options) if options.calls and options.schemas else parser


def also_in_tags(parser: ToolCallParser, options: ParserOptions) -> ToolCallParser:
    """Return a parser that reads calls in `<tool_call>` tags, too, in what another takes for text.

    For prompts that ask for them because the chat template could not be used.
    """
    return _Chained(parser, json_families.make_hermes(options))


class _Chained:
    """Two parsers: what the first takes for text goes through the second."""

    def __init__(self, first: ToolCallParser, second: ToolCallParser) -> None:
        self._first = first
        self._second = second
        self._calls = -1

    def feed(self, text: str) -> list[ParsedDelta]:
        return self._numbered(self._through(self._first.feed(text)))

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        last = self._through(self._first.finish(is_cut=is_cut))
        return self._numbered([*last, *self._second.finish(is_cut=is_cut)])

    def _through(self, deltas: list[ParsedDelta]) -> list[ParsedDelta]:
        passed: list[ParsedDelta] = []
        for delta in deltas:
            passed += self._second.feed(delta.text) if isinstance(delta, Text) else [delta]
        return passed

    def _numbered(self, deltas: list[ParsedDelta]) -> list[ParsedDelta]:
        """Return the deltas with the calls of both counted as one row; a name begins a call."""
        numbered: list[ParsedDelta] = []
        for delta in deltas:
            if isinstance(delta, CallDelta):
                self._calls += bool(delta.name)
                delta = msgspec.structs.replace(delta, index=self._calls)
            numbered.append(delta)
        return numbered


def family_of(template: str) -> str:
    """Return the name of the first family whose template this is; `hermes` for none of them."""
    return _family(template).name


def thoughts_of(template: str) -> tuple[tuple[str, str], ...]:
    """Return the markers around reasoning in answers under a chat template."""
    return _family(template).thoughts


@lru_cache(maxsize=_MODELS)
def thinking_variables(template: str) -> frozenset[str]:
    """Return which of the variables about thinking a chat template reads."""
    from clawd.providers.toolcalls.prompt_end import variables_of  # a template engine

    return variables_of(template) & (SWITCHES | {EFFORT})


def end_of_thought(template: str, prompt_end: str, written: str) -> str:
    """Return the marker that ends the reasoning an answer is in, "" for none.

    Of families that begin another message behind it there is none: what follows is the model's.
    """
    text = prompt_end.rstrip() + written
    for opening, closing in thoughts_of(template):
        at = text.rfind(opening)
        if at >= 0 and closing not in text[at:] and closing not in _ENDS_OF_MESSAGES:
            return closing
    return ""


def looks_like_call(text: str) -> bool:
    """Say whether an answer's text holds a call that could not be parsed."""
    return any(marker in text for marker in CALL_MARKERS)


def _family(template: str) -> Family:
    return next(family for family in FAMILIES if family.matches(template))


_LANGUAGES = ("json", "tool_call", "tool_code", "")
_FENCED = re.compile(r"```(?:json|tool_call|tool_code)?\s*(?P<body>.*?)\s*(?:```)?", re.DOTALL)
_BETWEEN = re.compile(r"[\s;,]*")
_NAMES = ('"name":"', '"tool_name":"', '"function":"')
# What a call may begin with besides its name; what follows says whether it is one.
_OTHERS = ('"id":"', '"type":"function"', '"function":{', '"arguments":{', '"parameters":{')
_SEEN_CHARACTERS = 300
_JSON = json.JSONDecoder()


class _WholeAnswer:
    """Reads what another parser took for text, where that is all of the answer."""

    def __init__(self, inner: ToolCallParser, options: ParserOptions) -> None:
        self._inner = inner
        self._options = options
        self._held: list[str] | None = []  # None: nothing more is held back
        self._head = ""
        self._is_one = True  # as far as its head tells

    def feed(self, text: str) -> list[ParsedDelta]:
        """Take the next text of the model."""
        return self._passed(self._inner.feed(text))

    def finish(self, *, is_cut: bool = False) -> list[ParsedDelta]:
        """Take the end of the text."""
        deltas = self._passed(self._inner.finish(is_cut=is_cut))
        if not self._held:
            return deltas
        text, self._held = "".join(self._held), None
        if is_cut:  # the beginning of a call is no text, and what only looks like one still is
            return deltas if _names_a_tool(text, self._options) else [*deltas, Text(text=text)]
        calls = _calls(text, self._options)
        if not calls:
            return [*deltas, Text(text=text)]
        told = (
            CallDelta(index=index, name=call.name, arguments=call.arguments)
            for index, call in enumerate(calls)
        )
        return [*deltas, *told]

    def _passed(self, deltas: list[ParsedDelta]) -> list[ParsedDelta]:
        """Return the deltas that are not held back, in their order."""
        if self._held is None:
            return deltas
        passed: list[ParsedDelta] = []
        for delta in deltas:
            if self._held is None or not isinstance(delta, Text | CallDelta):
                passed.append(delta)
            elif isinstance(delta, Text) and self._may_begin(delta.text):
                self._held.append(delta.text)
            else:
                held, self._held = "".join(self._held), None
                passed += [Text(text=held)] if held else []
                passed.append(delta)
        return passed

    def _may_begin(self, more: str) -> bool:
        """Return whether the text so far, with this behind it, may be a call and nothing else."""
        if len(self._head) < _SEEN_CHARACTERS:
            self._head += more[:_SEEN_CHARACTERS]
            self._is_one = _may_be_call(self._head, self._options)
        return self._is_one


def _may_be_call(head: str, options: ParserOptions) -> bool:
    """Return whether a text that begins so may be a call of an offered tool."""
    seen = "".join(head.split())
    for language in _LANGUAGES:
        fence = f"```{language}"
        if fence.startswith(seen):
            return True
        if seen.startswith(fence) and seen[len(fence) :].startswith(("{", "[")):
            seen = seen[len(fence) :]
            break
    seen = seen.removeprefix("[")
    if not seen.startswith("{"):
        return not seen
    key = seen[1:]
    for named in _NAMES:
        if named.startswith(key):
            return True
        if key.startswith(named):
            said, quote, _ = key.removeprefix(named).partition('"')
            return any(name == said if quote else name.startswith(said) for name in options.schemas)
    return any(other.startswith(key) or key.startswith(other) for other in _OTHERS)


def _names_a_tool(text: str, options: ParserOptions) -> bool:
    """Return whether the beginning of a call got as far as the whole name of an offered tool."""
    named = re.search(r'"(?:name|tool_name|function)"\s*:\s*"([^"]+)"', text[:_SEEN_CHARACTERS])
    return named is not None and named[1] in options.schemas


def _calls(text: str, options: ParserOptions) -> list[ParsedCall]:
    """Return the calls that the text is, one after the other or in a list; none for all else."""
    fenced = _FENCED.fullmatch(text.strip())
    body = fenced["body"] if fenced else text.strip()
    found: list[ParsedCall] = []
    at = 0
    while at < len(body):
        try:
            _, end = _JSON.raw_decode(body, at)
        except (ValueError, RecursionError):
            return []
        calls = answer_calls(body[at:end], options)
        if calls is None:
            return []
        found += calls
        between = _BETWEEN.match(body, end)
        at = between.end() if between else end
    return found
