"""Transcripts of the families with their own markers, fed in every split; their templates."""

import json
from typing import Any

from clawd.providers.base import CallDelta
from clawd.providers.toolcalls import harmony
from clawd.providers.toolcalls.base import ParserFactory, ParserOptions
from clawd.providers.toolcalls.families import CALL_MARKERS, family_for
from clawd.wire.events import ReasoningDelta, TextDelta
from tests.providers.toolcalls.feeding import EVERY_PARSER, FOLDER, MAKE, PARSERS, options, parse
from tests.support.rows import each_row, thorough


def load() -> list[tuple[ParserFactory, dict[str, Any]]]:
    found = []
    for name in sorted({file for file, _ in PARSERS}):
        for transcript in json.loads((FOLDER / f"{name}.json").read_text("utf-8")):
            transcript["name"] = f"{name} {transcript.get('parser', '')}: {transcript['name']}"
            found.append((PARSERS[name, transcript.get("parser", "")], transcript))
    return found


TRANSCRIPTS = load()


@each_row(("make", "transcript"), TRANSCRIPTS, ids=[t["name"] for _, t in TRANSCRIPTS])
def test_a_transcript_gives_the_same_message_in_every_split(
    make: ParserFactory, transcript: dict[str, Any]
) -> None:
    text = transcript["text"]
    expected = (
        transcript.get("content", ""),
        transcript.get("reasoning", ""),
        transcript.get("calls", []),
    )
    assert parse(make(options(transcript)), [text]) == expected
    assert parse(make(options(transcript)), list(text)) == expected
    for cut in range(0, len(text) + 1, 1 if thorough() else 3):
        assert parse(make(options(transcript)), [text[:cut], text[cut:]]) == expected


def test_a_call_that_could_not_be_parsed_is_told_by_its_marker() -> None:
    failed = [
        transcript
        for _, transcript in TRANSCRIPTS
        if transcript["name"].endswith((": not JSON", "arguments that are no JSON"))
        and not transcript["name"].startswith(("command_r fenced", "functionary v32", "generic"))
    ]
    assert len(failed) > 5
    for transcript in failed:
        assert any(mark in transcript["content"] for mark in CALL_MARKERS), transcript["name"]


@EVERY_PARSER
def test_text_is_not_held_back_longer_than_a_marker_may_begin(make: ParserFactory) -> None:
    parser = make(ParserOptions())
    told = "".join(
        delta.text
        for piece in ("Hello wor", "ld, it is <", "b>noon")
        for delta in parser.feed(piece)
        if isinstance(delta, TextDelta | ReasoningDelta)
    )
    assert told == "Hello world, it is <b>noon"


@each_row(
    ("make", "whole"),
    [
        (MAKE["nemotron"], '<TOOLCALL>[{"name": "f"}]</TOOLCALL>'),
        (MAKE["granite"], '<|tool_call|>[{"name": "f"}]'),
        (MAKE["lfm2"], "<|tool_call_start|>[f()]<|tool_call_end|>"),
        (MAKE["gemma 4"], "<|tool_call>call:f{}<tool_call|>"),
        (harmony.make, "<|channel|>commentary to=functions.f<|message|>{}<|call|>"),
        (MAKE["functionary 3.2"], "f\n{}"),
    ],
)
def test_a_call_comes_whole_and_as_soon_as_it_is_closed(make: ParserFactory, whole: str) -> None:
    parser = make(ParserOptions())
    assert parser.feed(whole[:-1]) == []
    assert parser.feed(whole[-1]) == [CallDelta(index=0, name="f", arguments="{}")]


@each_row(
    ("template", "name"),
    [
        ("<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>", "harmony"),
        ("{{ '<|tool_call>call:' + f.name + '{' }}…{{ '}<tool_call|>' }}", "gemma 4"),
        ("<start_of_turn>model <start_function_call>call:{{ f.name }}", "functiongemma"),
        ("<start_of_turn>user\n{{ m.content }}<end_of_turn>", "gemma"),
        (
            "<|START_ACTION|>[…]<|END_ACTION|> <|CHATBOT_TOKEN|><|START_THINKING|>",
            "command",
        ),
        (
            "<|START_ACTION|>[…]<|END_ACTION|><|CHATBOT_TOKEN|>{% if not enable_thinking %}"
            "<|START_THINKING|><|END_THINKING|>{% endif %}",
            "command",
        ),
        ("Write 'Action:' followed by a list … <|CHATBOT_TOKEN|>", "command r+"),
        ("<|start_of_role|>assistant<|end_of_role|> respond with <|tool_call|>", "granite"),
        ("<|start_of_role|>assistant<|end_of_role|><tool_call>{…}</tool_call>", "granite"),
        ("List of tools: <|tool_list_start|>[{{ tool }}]<|tool_list_end|>", "lfm2"),
        ("<|tool_call_start|>[{{ calls }}]<|tool_call_end|><|im_end|>", "lfm2"),
        ("use this format: <TOOLCALL>[{{ call }}]</TOOLCALL>", "nemotron"),
        ("{{ '<tool_calls>[' }}{{ ']</tool_calls>' }}", "apriel"),
        ("List of tools: [{{ tools }}]<|im_end|>", "lfm2"),
        (
            "<|START_ACTION|>…<|CHATBOT_TOKEN|>{% if reasoning %}<|START_THINKING|>{% else %}"
            "<|START_THINKING|><|END_THINKING|>{% endif %}",
            "command",
        ),
        ("{{ '<|tools_prefix|>[' }}{{ '<|tools_suffix|>' }}", "apertus"),
        ('<function name="{{ n }}"><param name="{{ k }}">{{ v }}</param></function>', "minicpm"),
        (
            "Respond to:\n>>>${recipient}\n${content} {{ '>>>all\n' + m.content }}",
            "functionary 3.2",
        ),
        ("{{ '<|tool|>' + tool + '<|/tool|>' }}<|assistant|>", "phi-4"),
        ("<|tool_call|>{{ call }}<|/tool_call|>", "phi-4"),
        ("prefix calls with functools", "phi-4"),
        ("{{ '<function=' + f.name + '>' + f.arguments + '</function>' }}", "functionary 3.1"),
        ("<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>", "generic"),
        ("<tool_call>\n<function={{ n }}>\n<parameter={{ k }}>…</function>", "qwen3-coder"),
        ("<|im_start|>… <tool_call>{{ call }}</tool_call>", "hermes"),
        ("", "hermes"),
        ("{{ open_tag('call', attributes) }}<|open|>", "kimi-k3"),
        ('<atem:invoke name="{{ n }}">', "muse"),
        ("{%- set ns_token = ']<]minimax[>[' %}<tool_call>", "minimax-m3"),
        ("{{ '<|tool_calls|><|tool_call:begin|>' + call.id }}", "solar"),
        ("{{ role + '<|role_sep|>' + content }}", "gigachat"),
        ("<beginning_of_sentence>ai\n<tool_calls>\n{{ call }}", "minimax-m1"),
        ("<|im_start|><function_calls>{{ calls }}</function_calls>", "olmo 3"),
        ("<|header_start|>{{ role }}<|header_end|>", "llama 4"),
        ("<response>\n{{ content }}</response><tool_call>{{ call }}</tool_call>", "ernie"),
        ("<tool_call{}>{{ name }}<tool_sep{}><arg_key{}>", "hunyuan"),
    ],
)
def test_a_template_tells_its_family(template: str, name: str) -> None:
    assert family_for(template).name == name
