"""What a grammar lets a model of each family write, its parser reads: names, and arguments."""

import json
from typing import Any

from clawd.engine.protocol import Grammar
from clawd.engine.worker.frames import calls_rule
from clawd.engine.worker.gbnf import Rules
from clawd.engine.worker.grammar import GrammarPlan, GrammarPlanner
from clawd.engine.worker.trigger import Trigger
from clawd.providers.toolcalls.base import ParserOptions
from clawd.providers.toolcalls.detect import FAMILIES, detect, family_of, habits_of
from tests.providers.toolcalls.feeding import Folded, parse
from tests.support.grammar_sampler import GrammarSampler
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
            "share": {"type": "number"},
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
    "nemotron apriel": "<tool_calls>[",
    "apertus": "<|tools_prefix|>",
    "minicpm": "<function name=<param name=",
    "functionary 3.2": ">>>all recipient",
    "phi-4": "<|/tool_call|>",
    "phi-4 functools": "functools",
    "functionary 3.1": "<function=</function>",
    "generic": "nothing about tools",
}
EVERY = each_row("template", TEMPLATES.values(), ids=TEMPLATES)
IN_PARALLEL = {name for name in TEMPLATES if name != "harmony"}


def test_every_family_is_among_them() -> None:
    assert {family_of(template) for template in TEMPLATES.values()} == {
        family.name for family in FAMILIES
    }
    for name, template in TEMPLATES.items():
        assert name.startswith(family_of(template))


def plan_of(template: str, **wanted: Any) -> GrammarPlan:
    habits = habits_of(template)
    grammar = Grammar(
        kind="tool_call", tools=TOOLS, frames=habits.frames, thoughts=habits.thoughts, **wanted
    )
    plan = GrammarPlanner(lambda _gbnf: True).plan(grammar)
    assert plan is not None
    assert plan.quarantined == {}
    return plan


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
    sampler = GrammarSampler(plan_of(template).gbnf)
    names = set()
    for seed in range(60):
        text = sampler.sample(seed)
        folded = read(template, text)
        check(folded, text, most=1)
        names.add(folded[2][0][0])
    assert names == set(TOOLS)


@EVERY
def test_parallel_calls_are_read_as_several(template: str) -> None:
    sampler = GrammarSampler(plan_of(template, parallel=True).gbnf)
    texts = [sampler.sample(seed) for seed in range(60 if thorough() else 20)]
    counts = {check(read(template, text), text, most=99) for text in texts}
    assert (len(counts) > 1) is (template != TEMPLATES["harmony"])


@EVERY
def test_a_call_that_a_model_begins_is_seen_held_and_read(template: str) -> None:
    plan = plan_of(template, lazy=True)
    names = set()
    for frame in habits_of(template).frames:
        rules = Rules()
        root = calls_rule(rules, frame, list(TOOLS.items()), lazy=True, parallel=True)
        sampler = GrammarSampler(rules.text(root))
        for seed in range(40):
            text = sampler.sample(seed)
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


@EVERY
@each_row("text", PLAIN, ids=range(len(PLAIN)))
def test_a_plain_answer_is_left_alone(template: str, text: str) -> None:
    plan = plan_of(template, lazy=True)
    if text.startswith("time\n") and "recipient" in template:
        return
    trigger = Trigger(plan.markers, plan.starts, thoughts=plan.thoughts)
    assert [trigger.push(char.encode()) for char in text] == [None] * len(text)


@EVERY
def test_a_call_of_a_tool_that_is_not_there_is_only_free_where_the_model_began_it(
    template: str,
) -> None:
    required = GrammarSampler(plan_of(template).gbnf)
    texts = [required.sample(seed) for seed in range(30)]
    assert {name for text in texts for name, _ in read(template, text)[2]} <= set(TOOLS)
