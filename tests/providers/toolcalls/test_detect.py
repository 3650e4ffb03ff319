"""Which parser a chat template gets, and where its answers begin."""

import time

from clawd.engine.embedded import embedded_model_path
from clawd.providers.toolcalls.base import ParserOptions
from clawd.providers.toolcalls.detect import (
    habits_of,
    looks_like_call,
    prompt_end,
    thinking_variables,
)
from clawd.providers.toolcalls.families import FAMILIES, family_for
from clawd.wire.events import ReasoningDelta, TextDelta
from tests.providers.toolcalls.feeding import detect, parse
from tests.support.rows import each_row

GENERATION = "{%- if add_generation_prompt %}"


def test_every_family_has_a_name_of_its_own() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)


@each_row(
    ("template", "family"),
    [
        ("", "hermes"),
        ("{{ '<tool_call>' }}", "hermes"),
        ("{{ '<tool_call>\\n<function=' + name + '>\\n<parameter=' }}", "qwen3-coder"),
        ("{{ '[TOOL_CALLS]' }}", "mistral"),
        ("<|start|>assistant<|channel|>final<|message|>", "harmony"),
        ("nothing about tools", "generic"),
    ],
)
def test_a_template_is_known_by_its_markers(template: str, family: str) -> None:
    assert family_for(template).name == family


def test_the_embedded_model_is_parsed_as_hermes() -> None:
    data = embedded_model_path().read_bytes()[:2_000_000]
    start = data.index(b"tokenizer.chat_template")
    template = data[start : start + 4_000].decode(errors="replace")
    assert family_for(template).name == "hermes"


@each_row(
    ("end", "begins_in_reasoning"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n", False),
        ("{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}", False),
        ("{% if enable_thinking %}<think>{% endif %}", False),
        ("{{ '<think>' if enable_thinking else '<think>\\n\\n</think>' }}", False),
        (
            "{{ '</think>' if (thinking is defined and not thinking) else '<think>' }}",
            True,
        ),
        ("{% if thinking %}<think>{% else %}</think>{% endif %}", False),
        ("<think>{% if not thinking %}</think>{% endif %}", False),
        ("{% if option == 'on' %}<think>{% elif option != 'off' %}<think>\n{% endif %}", True),
        ("{% if option | default('on') == 'on' %}<think>{% endif %}", True),
        ("{% if user %}<think>{% endif %}{% if not user %}<think>{% endif %}", True),
        ("{% set mark = '<think>' %}{{ mark + '\\n' }}", True),
        ("{% generation %}<think>{% endgeneration %}", True),
        ("{% if messages[-1].role != 'assistant' %}<think>{% endif %}", True),
        ("<think>{% for m in messages %}{{ m }}{% endfor %}", True),
    ],
)
def test_an_answer_begins_in_reasoning_only_where_the_prompt_opens_it(
    end: str, begins_in_reasoning: bool
) -> None:
    make = detect(f"<tool_call>{GENERATION}{end}{{% endif %}}")
    parser = make(ParserOptions(calls=True))
    (first, *_) = [*parser.feed("so</think>yes"), *parser.finish()]
    assert isinstance(first, ReasoningDelta if begins_in_reasoning else TextDelta)


@each_row(
    ("before", "begins_in_reasoning"),
    [
        ("{% set enable_thinking = enable_thinking | default(true) %}", True),
        ("{% if not enable_thinking is defined %}{% set enable_thinking = false %}{% endif %}",
         False),
        ("{% set ns = namespace(on=true) %}{% for m in messages %}{% if '/no' in m.content %}"
         "{% set ns.on = false %}{% endif %}{% endfor %}{% set enable_thinking = ns.on %}", True),
        ("{% set ns = namespace(out='') %}{% set ns.out = ns.out ~ 'user: ' %}"
         "{% set enable_thinking = ns.out == '' %}", False),
    ],
)  # fmt: skip
def test_what_the_template_sets_is_known_at_its_end(before: str, begins_in_reasoning: bool) -> None:
    end = "{% if add_generation_prompt %}{{ '<think>' if enable_thinking else '' }}{% endif %}"
    assert habits_of(f"{before}<tool_call>{end}").starts_in_reasoning is begins_in_reasoning


@each_row(
    ("template", "opening", "closing"),
    [
        ("[TOOL_CALLS]", "[THINK]", "[/THINK]"),
        ("[TOOL_CALLS]", "<think>", "</think>"),
        ("<seed:tool_call>", "<seed:think>", "</seed:think>"),
        (
            "<|start|><|channel|><|message|>",
            "<|channel|>analysis<|message|>",
            "<|end|><|start|>assistant<|channel|>final<|message|>",
        ),
        ("<|START_ACTION|>", "<|START_THINKING|>", "<|END_THINKING|>"),
        ("<|tool_call><tool_call|>", "<|channel>thought", "<channel|>"),
        ("<|tools_prefix|>", "<|inner_prefix|>", "<|inner_suffix|>"),
        ("<tool_call><arg_key>", "<think>", "</think>"),
        ("nothing about tools", "<think>", "</think>"),
    ],
)
def test_reasoning_that_the_prompt_opens_is_split_off_whatever_its_markers(
    template: str, opening: str, closing: str
) -> None:
    opens = f"{{# {template} #}}assistant\n{opening}\n"
    for text in (f"hm{closing}It is noon.", f"\nhm\n{closing}\n\nIt is noon."):
        for pieces in ([text], list(text)):
            parser = detect(opens)(ParserOptions())
            assert parse(parser, pieces) == ("It is noon.", "hm", [])
    closes = detect(f"{opens}{closing}")(ParserOptions())
    assert parse(closes, ["It is noon."]) == ("It is noon.", "", [])


@each_row(
    "template",
    [
        "{% if %}",
        "{{ " + "(" * 5000 + ")" * 5000 + " }}<think>",
        "{% if a %}" * 3000 + "{% endif %}" * 3000 + "<think>",
        "<think>" * 100_000,
        "{{ 'x' * 1000000000 }}{{ 10 ** 10 ** 10 }}{% for x in range(10 ** 9) %}{% endfor %}",
        "{{ ''.__class__.__mro__ }}",
        "\0",
    ],
    ids=["broken", "nested", "deep", "long", "costly", "reaching", "odd"],
)
def test_a_hostile_template_costs_nothing_and_is_not_run(template: str) -> None:
    started = time.process_time()
    assert not prompt_end(template).endswith("<think>")
    assert time.process_time() - started < 5


@each_row("text", ['<tool_call>{"name"', "[TOOL_CALLS]x", "<|python_tag|>{"])
def test_a_call_that_could_not_be_parsed_is_seen(text: str) -> None:
    assert looks_like_call(text)


def test_plain_words_are_no_call() -> None:
    assert not looks_like_call("I would call a tool, but none fits.")


@each_row(
    ("template", "expected"),
    [
        (
            "{% if enable_thinking is defined and not enable_thinking %}x{% endif %}",
            "enable_thinking",
        ),
        ("{{ 'Reasoning: ' ~ reasoning_effort | default('medium') }}", "reasoning_effort"),
        ("{% if thinking %}x{% endif %}{{ reasoning_effort }}", "reasoning_effort thinking"),
        ("{% set enable_thinking = true %}{{ enable_thinking }}{{ m.thinking }}", ""),
        ("enable_thinking", ""),
        ("{% if thinking %}", ""),
    ],
)
def test_r5_what_a_template_reads_of_thinking_is_seen_without_running_it(
    template: str, expected: str
) -> None:
    assert thinking_variables(template) == frozenset(expected.split())
