"""Transcripts of the families with their own markers, fed in every split, and hostile text."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.providers.base import CallAssembler, CallDelta, Reasoning, Text
from clawd.providers.toolcalls import (
    apertus,
    command_r,
    functionary,
    gemma,
    generic_json,
    granite,
    harmony,
    lfm2,
    minicpm,
    nemotron,
    phi4,
)
from clawd.providers.toolcalls.base import (
    ParsedDelta,
    ParserFactory,
    ParserOptions,
    ToolCallParser,
)
from clawd.providers.toolcalls.families_b import CALL_MARKERS_B, FAMILIES_B

# By transcript file and, where a family writes in several ways, the parser a transcript names.
PARSERS: dict[tuple[str, str], ParserFactory] = {
    ("apertus", ""): apertus.make,
    ("command_r", "fenced"): command_r.make_fenced,
    ("command_r", "marked"): command_r.make_marked,
    ("command_r", "thinking"): command_r.make_thinking,
    ("functionary", "v31"): functionary.make_v31,
    ("functionary", "v32"): functionary.make_v32,
    ("gemma", "asked"): gemma.make_asked,
    ("gemma", "function"): gemma.make_function,
    ("gemma", "native"): gemma.make_native,
    ("generic", ""): generic_json.make,
    ("granite", ""): granite.make,
    ("harmony", ""): harmony.make,
    ("lfm2", ""): lfm2.make,
    ("minicpm", ""): minicpm.make,
    ("nemotron", ""): nemotron.make,
    ("phi4", ""): phi4.make,
}
FOLDER = Path(__file__).parents[1] / "transcripts"
Folded = tuple[str, str, list[list[str]]]


def load() -> list[tuple[ParserFactory, dict[str, Any]]]:
    found = []
    for name in sorted({file for file, _ in PARSERS}):
        for transcript in json.loads((FOLDER / f"{name}.json").read_text("utf-8")):
            transcript["name"] = f"{name} {transcript.get('parser', '')}: {transcript['name']}"
            found.append((PARSERS[name, transcript.get("parser", "")], transcript))
    return found


TRANSCRIPTS = load()
EVERY_PARSER = pytest.mark.parametrize(
    "make", PARSERS.values(), ids=[" ".join(key).strip() for key in PARSERS]
)
PIECES = st.lists(
    st.sampled_from(
        [
            *CALL_MARKERS_B,
            *("</TOOLCALL>", "<|/tool_call|>", "functools", "<|tools_suffix|>", "</tool_call>"),
            *("Action:", "```", "```json", "<|END_ACTION|>", "<|START_THINKING|>"),
            *("<|END_THINKING|>", "<|tool_call_end|>", "<tool_call|>", '<|"|>', "<escape>"),
            *("<|channel>thought", "<channel|>", "<end_function_call>", ">>>", "all\n", "f\n"),
            *("</function>", '<param name="a">', "</param>", "<![CDATA[", "]]>", '">'),
            *("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|call|>", "<|constrain|>"),
            *(
                "analysis",
                "final",
                "commentary",
                "assistant",
                " to=functions.f",
                "<|inner_prefix|>",
            ),
            *('{"name": "f", "arguments": {"a": 1}}', '{"f": {}}', "f(a=1)", "f{a:1}", "f>{}"),
            *("<think>", "</think>", "{", "}", "[", "]", "(", ")", '"', "'", "\\", "\n", " "),
            *(",", ":", "=", "True", "-1", "text", "<", "|>", "é🦀"),
        ]
    )
    | st.text(max_size=5),
    max_size=14,
)


def fold(deltas: list[ParsedDelta]) -> Folded:
    calls = CallAssembler()
    for delta in deltas:
        if isinstance(delta, CallDelta):
            assert delta.name
            assert isinstance(json.loads(delta.arguments), dict)
            calls.add(delta)
    return (
        "".join(delta.text for delta in deltas if isinstance(delta, Text)),
        "".join(delta.text for delta in deltas if isinstance(delta, Reasoning)),
        [[call.name, call.arguments] for call in calls.calls()],
    )


def parse(parser: ToolCallParser, pieces: list[str]) -> Folded:
    deltas: list[ParsedDelta] = []
    for piece in pieces:
        new = parser.feed(piece)
        assert all(delta.text for delta in new if isinstance(delta, Text | Reasoning))
        deltas += new
    return fold(deltas + parser.finish())


def options(transcript: dict[str, Any]) -> ParserOptions:
    return ParserOptions(
        calls=transcript.get("offers_tools", True),
        starts_in_reasoning=transcript.get("starts_in_reasoning", False),
        schemas=transcript.get("schemas", {}),
    )


@pytest.mark.parametrize(
    ("make", "transcript"), TRANSCRIPTS, ids=[t["name"] for _, t in TRANSCRIPTS]
)
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
    for cut in range(len(text) + 1):
        assert parse(make(options(transcript)), [text[:cut], text[cut:]]) == expected


def test_each_family_has_at_least_fifteen_transcripts() -> None:
    for name in {file for file, _ in PARSERS}:
        assert len(json.loads((FOLDER / f"{name}.json").read_text("utf-8"))) >= 15, name


@EVERY_PARSER
@settings(max_examples=150)
@given(pieces=PIECES, starts=st.booleans(), calls=st.booleans())
def test_any_text_in_any_pieces_adds_up_to_the_same(
    make: ParserFactory, pieces: list[str], starts: bool, calls: bool
) -> None:
    given_options = ParserOptions(
        calls=calls,
        starts_in_reasoning=starts,
        schemas={"f": {"type": "object", "properties": {"a": {"type": "string"}}}},
    )
    text = "".join(pieces)
    whole = parse(make(given_options), [text])
    assert parse(make(given_options), pieces) == whole
    assert parse(make(given_options), list(text)) == whole
    assert calls or not whole[2]


@EVERY_PARSER
@given(text=st.text(alphabet=st.characters(exclude_characters="<>`[{"), max_size=40))
def test_a_text_without_markers_is_left_as_it_is(make: ParserFactory, text: str) -> None:
    if make is not command_r.make_thinking and not text.strip().startswith(("to=", "assistant")):
        assert parse(make(ParserOptions()), [text]) == (text, "", [])


@EVERY_PARSER
def test_text_is_not_held_back_longer_than_a_marker_may_begin(make: ParserFactory) -> None:
    parser = make(ParserOptions())
    told = "".join(
        delta.text
        for piece in ("Hello wor", "ld, it is <", "b>noon")
        for delta in parser.feed(piece)
        if isinstance(delta, Text | Reasoning)
    )
    assert told == "Hello world, it is <b>noon"


@pytest.mark.parametrize(
    ("make", "whole"),
    [
        (nemotron.make, '<TOOLCALL>[{"name": "f"}]</TOOLCALL>'),
        (granite.make, '<|tool_call|>[{"name": "f"}]'),
        (lfm2.make, "<|tool_call_start|>[f()]<|tool_call_end|>"),
        (gemma.make_native, "<|tool_call>call:f{}<tool_call|>"),
        (harmony.make, "<|channel|>commentary to=functions.f<|message|>{}<|call|>"),
        (functionary.make_v32, "f\n{}"),
    ],
)
def test_a_call_comes_whole_and_as_soon_as_it_is_closed(make: ParserFactory, whole: str) -> None:
    parser = make(ParserOptions())
    assert parser.feed(whole[:-1]) == []
    assert parser.feed(whole[-1]) == [CallDelta(index=0, name="f", arguments="{}")]


def expect_linear(make: ParserFactory, text: str) -> None:
    """Quadratic time would be minutes for the whole text; single characters cost more each."""
    started = time.process_time()
    parse(make(ParserOptions()), [text])
    short = text[:15_000]
    assert parse(make(ParserOptions()), list(short)) == parse(make(ParserOptions()), [short])
    assert time.process_time() - started < 2


HOSTILE = {
    "braces": "{" * 100_000,
    "brackets": "[" * 50_000 + "]" * 50_000,
    "angles": "<" * 100_000,
    "bars": "<|" * 50_000,
    "blanks": " " * 100_000,
    "escapes": '{"a":"' + "\\" * 100_000,
    "quotes": "['" * 30_000,
    "names": "a" * 100_000,
    "ticks": "`" * 100_000,
    "strings": "['" + "x''" * 30_000,
}


@EVERY_PARSER
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_takes_linear_time_and_raises_nothing(make: ParserFactory, text: str) -> None:
    expect_linear(make, text)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (nemotron.make, "<TOOLCALL>" * 10_000),
        (nemotron.make, "<TOOLCALL>[" + "{" * 100_000),
        (nemotron.make, '<TOOLCALL>[{"name": "f"}]' + " " * 100_000),
        (granite.make, '<|tool_call|>[{"name":"f","arguments":' + '{"a":' * 20_000),
        (command_r.make_fenced, "Action:" * 15_000),
        (command_r.make_fenced, "Action:```" + "a" * 100_000),
        (functionary.make_v31, "<function=" * 10_000),
        (functionary.make_v32, "a\n{}>>>" * 15_000),
        (gemma.make_native, '<|tool_call>call:f{a:<|"|>' + '<|"' * 30_000),
        (gemma.make_native, "<|tool_call>call:f{" + "a:{" * 30_000 + "}" * 30_001 + "<tool_call|>"),
        (gemma.make_native, "<|tool_call>call:f{" + '<|"|>a<|"|>' * 10_000 + "}<tool_call|>"),
        (gemma.make_asked, "```tool_code\n" + "f(a=1)\n" * 15_000),
        (lfm2.make, "<|tool_call_start|>[f(a=" + '"x" ' * 25_000 + ")]<|tool_call_end|>"),
        (lfm2.make, "<|tool_call_start|>[f(a=" + "[" * 50_000 + "]" * 50_000 + ")]"),
        (lfm2.make, "<|tool_call_start|>[f(a=" + "-" * 100_000 + ")]"),
        (minicpm.make, '<function name="f">' + '<param name="a"><![CDATA[x</param>' * 3_000),
        (minicpm.make, '<function name="f">' + '<param name="a">x</param>' * 5_000 + "</function>"),
        (harmony.make, "<|channel|>" * 10_000),
        (harmony.make, "<|start|>assistant" * 6_000),
        (harmony.make, "<|channel|>commentary to=f<|message|>" + "{" * 100_000),
        (harmony.make, "<|channel|>commentary to=f<|message|>" + " " * 100_000),
        (generic_json.make, '{"name": "f", "arguments": {}}' * 4_000),
        (generic_json.make, "```json" * 15_000),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, str) else value.__module__[24:],
)
def test_hostile_text_of_a_family_takes_linear_time(make: ParserFactory, text: str) -> None:
    expect_linear(make, text)


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("<|start|>assistant<|channel|>final<|message|>{{ m.content }}<|end|>", "harmony"),
        ("{{ '<|tool_call>call:' + f.name + '{' }}…{{ '}<tool_call|>' }}", "gemma 4"),
        ("<start_of_turn>model <start_function_call>call:{{ f.name }}", "functiongemma"),
        ("<start_of_turn>user\n{{ m.content }}<end_of_turn>", "gemma"),
        (
            "<|START_ACTION|>[…]<|END_ACTION|> <|CHATBOT_TOKEN|><|START_THINKING|>",
            "command, thinking",
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
        ("<tool_call>\n<function={{ n }}>\n<parameter={{ k }}>…</function>", ""),
        ("<|im_start|>… <tool_call>{{ call }}</tool_call>", ""),
        ("", ""),
    ],
)
def test_a_template_tells_its_family(template: str, name: str) -> None:
    found = next((family for family in FAMILIES_B if family.matches(template)), None)
    assert (found.name if found else "") == name


def test_the_found_family_makes_a_parser_that_fits() -> None:
    makes = {family.name: family.make for family in FAMILIES_B}
    assert len(makes) == len(FAMILIES_B)
    assert set(makes.values()) == set(PARSERS.values())
