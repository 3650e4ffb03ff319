"""Which parser a chat template gets, and where its answers begin."""

import pytest

from clawd.engine.embedded import embedded_model_path
from clawd.providers.base import Reasoning, Text
from clawd.providers.toolcalls.base import ParserOptions
from clawd.providers.toolcalls.detect import FAMILIES, detect, family_of, looks_like_call

GENERATION = "{%- if add_generation_prompt %}"


def test_every_family_has_a_name_of_its_own() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
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
    assert family_of(template) == family


def test_the_embedded_model_is_parsed_as_hermes() -> None:
    data = embedded_model_path().read_bytes()[:2_000_000]
    start = data.index(b"tokenizer.chat_template")
    template = data[start : start + 4_000].decode(errors="replace")
    assert family_of(template) == "hermes"


@pytest.mark.parametrize(
    ("end", "begins_in_reasoning"),
    [
        ("<|im_start|>assistant\n<think>\n", True),
        ("<|im_start|>assistant\n", False),
        ("{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}", False),
        ("{% if thinking %}<think>{% else %}</think>{% endif %}", False),
    ],
)
def test_an_answer_begins_in_reasoning_only_where_the_prompt_always_opens_it(
    end: str, begins_in_reasoning: bool
) -> None:
    make = detect(f"<tool_call>{GENERATION}{end}{{% endif %}}")
    parser = make(ParserOptions(calls=True))
    (first, *_) = [*parser.feed("so</think>yes"), *parser.finish()]
    assert isinstance(first, Reasoning if begins_in_reasoning else Text)


@pytest.mark.parametrize("text", ['<tool_call>{"name"', "[TOOL_CALLS]x", "<|python_tag|>{"])
def test_a_call_that_could_not_be_parsed_is_seen(text: str) -> None:
    assert looks_like_call(text)


def test_plain_words_are_no_call() -> None:
    assert not looks_like_call("I would call a tool, but none fits.")
