"""What a grammar lets a model of each family write, its parser reads: names, and arguments."""

import json
from typing import Any

from clawd.engine.protocol import ChatCall, Grammar
from clawd.engine.worker.chat_fallback import calls_in_frame
from clawd.engine.worker.constraint import Trigger
from clawd.engine.worker.grammar import GrammarPlan, GrammarPlanner, Rules, calls_rule
from clawd.providers.toolcalls.base import ParserOptions
from clawd.providers.toolcalls.detect import habits_of, parser_of
from clawd.providers.toolcalls.families import FAMILIES, family_for
from tests.providers.toolcalls.feeding import Folded, detect, parse
from tests.support.grammar_text import GrammarText, compiled
from tests.support.rows import each_row, thorough
from tests.support.schema_check import is_valid

SHORT = {"type": "string", "maxLength": 8}
TOOLS: dict[str, Any] = {
    "file_write": {
        "type": "object",
        "properties": {"path": SHORT, "text": {"type": "string"}},
        "required": ["path", "text"],
        "additionalProperties": False,
    },
    "calc": {
        "type": "object",
        "properties": {
            "count": {"type": "integer", "minimum": -3, "maximum": 120},
            "share": {"type": "number", "minimum": -1e6, "maximum": 1e6},
            "on": {"type": "boolean"},
            "mode": {"enum": ["fast", "slow", "5"]},
            "level": {"enum": [1, 2, None]},
            "note": {"type": ["string", "null"]},
        },
        "required": ["mode", "count"],
        "additionalProperties": False,
    },
    "deep": {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": SHORT, "minItems": 1, "maxItems": 3},
            "where": {
                "type": "object",
                "properties": {"line": {"type": "integer"}, "file": SHORT},
                "required": ["line"],
            },
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            "pair": {"$ref": "#/$defs/pair"},
        },
        "required": ["tags"],
        "$defs": {"pair": {"type": "array", "items": {"type": "integer"}, "maxItems": 2}},
    },
    "time": {"type": "object"},
    "stop_now": {"type": "object", "properties": {}, "additionalProperties": False},
}
TEMPLATES = {
    "hermes": "<tool_call>",
    "seed-oss": "<seed:tool_call>",
    "minimax-m2": "<minimax:tool_call>",
    "deepseek r1": "<｜tool▁calls▁begin｜> ```json",
    "deepseek v3.1": "<｜tool▁calls▁begin｜>",
    "deepseek v3.2": "<｜DSML｜function_calls>",
    "deepseek v4": "<｜DSML｜tool_calls>",
    "kimi-k2": "<|tool_calls_section_begin|>",
    "glm": "<tool_call><arg_key>",
    "qwen3-coder": "<tool_call><function=<parameter=",
    "mistral old": "[TOOL_CALLS]",
    "mistral new": "[TOOL_CALLS][ARGS]",
    "mistral id": "[TOOL_CALLS][CALL_ID][ARGS]",
    "llama3": "<|python_tag|>",
    "harmony": "<|start|><|channel|><|message|>",
    "gemma 4": "<|tool_call><tool_call|>",
    "functiongemma": "<start_function_call>",
    "gemma": "<start_of_turn>",
    "command": "<|START_ACTION|>",
    "command r+": "<|CHATBOT_TOKEN|>",
    "granite 3": "<|start_of_role|><|tool_call|>",
    "granite 4": "<|start_of_role|><tool_call>",
    "lfm2": "<|tool_call_start|>",
    "nemotron": "<TOOLCALL>",
    "apriel": "<tool_calls>[",
    "kimi-k3": "<|open|>'call'",
    "muse": "<atem:invoke",
    "minimax-m3": "]<]minimax[>[",
    "solar": "<|tool_call:begin|>",
    "gigachat 3.1": "<|role_sep|><|function_call|>",
    "gigachat": "<|role_sep|>",
    "minimax-m1": "<tool_calls><beginning_of_sentence>",
    "olmo 3": "<function_calls>",
    "llama 4": "<|header_start|>",
    "ernie": "</response><tool_call>",
    "hunyuan": "<tool_sep:opensource><arg_key:opensource>",
    "apertus": "<|tools_prefix|>",
    "minicpm": "<function name=<param name=",
    "functionary 3.2": ">>>all recipient",
    "phi-4": "<|/tool_call|>",
    "phi-4 functools": "functools",
    "functionary 3.1": "<function=</function>",
    "generic": "nothing about tools",
}
EVERY = each_row("template", TEMPLATES.values(), ids=TEMPLATES)
# Calls of the others begin in no way that a frame can tell.
HELD = {
    name: one for name, one in TEMPLATES.items() if any(f.marker for f in habits_of(one).frames)
}
EVERY_HELD = each_row("template", HELD.values(), ids=HELD)
# Here nothing but a call's own marker tells it from what is thought.
THOUGHTFUL = {
    name: one
    for name, one in HELD.items()
    if habits_of(one).thoughts
    and name not in {"harmony", "muse", "kimi-k3", "command r+", "functionary 3.2"}
}
SINGLE = {TEMPLATES[name] for name in ("harmony", "gigachat", "gigachat 3.1")}


def test_every_family_is_among_them() -> None:
    assert {family_for(template).name for template in TEMPLATES.values()} == {
        family.name for family in FAMILIES
    }
    for name, template in TEMPLATES.items():
        assert name.startswith(family_for(template).name)


def plan_of(template: str, **wanted: Any) -> GrammarPlan:
    habits = habits_of(template)
    grammar = Grammar(
        kind="tool_call", tools=TOOLS, frames=habits.frames, thoughts=habits.thoughts, **wanted
    )
    plan = GrammarPlanner(compiled).plan(grammar)
    assert plan is not None
    assert plan.quarantined == {}
    return plan


def endings_of(template: str) -> list[str]:
    """Return what closes the bare strings of a family."""
    forms = [frame.parameters for frame in habits_of(template).frames if frame.parameters]
    return [string.stop for form in forms for string in form.strings]


def read(template: str, text: str) -> Folded:
    options = ParserOptions(schemas=TOOLS)
    whole = parse(detect(template)(options), [text])
    assert parse(detect(template)(options), list(text)) == whole
    return whole


def check(folded: Folded, text: str, *, most: int) -> int:
    content, reasoning, calls = folded
    assert (content, reasoning) == ("", ""), text
    assert 1 <= len(calls) <= most, text
    for name, arguments in calls:
        decoded = json.loads(arguments)
        if name in TOOLS:
            assert is_valid(decoded, TOOLS[name]), text
        assert isinstance(decoded, dict)
    return len(calls)


@EVERY
def test_a_required_call_is_read_as_one_call_that_validates(template: str) -> None:
    sampler = GrammarText(plan_of(template).matcher)
    names: set[str] = set()
    for seed in range(60):
        if names == set(TOOLS) and seed > 6 and not thorough():
            break
        text = sampler.sample(seed, endings_of(template))
        folded = read(template, text)
        check(folded, text, most=1)
        names.add(folded[2][0][0])
    assert names == set(TOOLS)


@EVERY
def test_parallel_calls_are_read_as_several(template: str) -> None:
    sampler = GrammarText(plan_of(template, parallel=True).matcher)
    counts: set[int] = set()
    for seed in range(60):
        if not thorough() and seed > (6 if len(counts) > 1 else 16):
            break
        text = sampler.sample(seed, endings_of(template))
        counts.add(check(read(template, text), text, most=99))
    assert (len(counts) > 1) is (template not in SINGLE)


@EVERY_HELD
def test_a_call_that_a_model_begins_is_seen_held_and_read(template: str) -> None:
    plan = plan_of(template, lazy=True)
    names: set[str] = set()
    for frame in habits_of(template).frames:
        rules = Rules()
        root = calls_rule(rules, frame, list(TOOLS.items()), parallel=True)
        sampler = GrammarText(compiled(rules.text(root)))
        for seed in range(60):
            if names >= set(TOOLS) and seed > 4 and not thorough():
                break
            text = sampler.sample(seed, endings_of(template))
            if not text.encode().startswith((*plan.markers, *plan.starts)):
                continue  # Blanks that the family's models do not write.
            trigger = Trigger(plan.markers, plan.starts, thoughts=plan.thoughts)
            told = "" if frame.at_start else "So: "
            assert trigger.push(f"{told}{text}".encode()) == text.encode()
            folded = read(template, text)
            check(folded, text, most=99)
            names |= {name for name, _ in folded[2]}
    assert names >= set(TOOLS)


PLAIN = [
    "It is noon.",
    'Call it like this: `time()` or {"name": "time"}, and [1](there).',
    '{"name": "Ann", "age": 7}',
    '{"name": "file", "parameters": "none"}',
    '```json\n{"name": "time", "arguments": {}}\n```',
    "Action: take the [train] to=functions >>> all\nthen <b>walk</b>",
    "time\nis money; function=time <tool> <call>",
    "[time] is what functools has not; <|x|> ```python\nprint(1)\n```",
]


@EVERY_HELD
def test_a_plain_answer_is_left_alone(template: str) -> None:
    plan = plan_of(template, lazy=True)
    for text in PLAIN:
        if text.startswith("time\n") and "recipient" in template:
            continue
        trigger = Trigger(plan.markers, plan.starts, thoughts=plan.thoughts)
        assert [trigger.push(char.encode()) for char in text] == [None] * len(text), text


@each_row("template", THOUGHTFUL.values(), ids=THOUGHTFUL)
def test_r5_a_call_in_reasoning_counts_where_that_is_never_closed_and_only_there(
    template: str,
) -> None:
    habits = habits_of(template)
    arguments = '{"path": "a.txt", "text": "hello"}'
    call = ChatCall(id="c1", name="file_write", arguments=arguments)
    tried = 0
    for frame in habits.frames:
        written = calls_in_frame([call], frame)
        if not frame.marker or not written.startswith(frame.marker):
            continue  # nothing tells it from what is thought
        for opening, closing in habits.thoughts:
            tried += 1
            options = ParserOptions(schemas=TOOLS)
            text, thought, calls = parse(
                parser_of(template, options, habits), [f"{opening}I plan this. {written}"]
            )
            assert (text, thought.split(" <|")[0]) == ("", "I plan this.")
            assert [(name, json.loads(given)) for name, given in calls] == [
                ("file_write", json.loads(arguments))
            ]
            text, thought, calls = parse(
                parser_of(template, options, habits), [f"{opening}Not {written} now.{closing}No."]
            )
            assert (text, calls) == ("No.", [])
    assert tried
