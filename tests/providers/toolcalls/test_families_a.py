"""Transcripts of the families of the first half, fed in every split, and hostile text."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.providers.base import CallDelta
from clawd.providers.toolcalls.base import ParsedDelta, ParserFactory, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.families import CALL_MARKERS, FAMILIES
from clawd.wire.events import ReasoningDelta, TextDelta
from tests.providers.toolcalls.feeding import expect_linear
from tests.support.rows import each_row, thorough

FOLDER = Path(__file__).parents[1] / "transcripts"
TOOLS: dict[str, dict[str, Any]] = json.loads((FOLDER / "tools.json").read_text("utf-8"))
TAGGED = (
    "seed-oss",
    "minimax-m2",
    "deepseek",
    "kimi-k2",
    "glm",
    "qwen3-coder",
    "mistral",
    "llama3",
)
FAMILIES_A = tuple(family for family in FAMILIES if family.name in TAGGED)
MAKE: dict[str, ParserFactory] = {family.name: family.make for family in FAMILIES_A}
Folded = tuple[str, str, list[list[str]]]


def transcripts() -> list[tuple[str, dict[str, Any]]]:
    rows: list[tuple[str, dict[str, Any]]] = []
    for name in MAKE:
        path = FOLDER / f"{name.replace('-', '_')}.json"
        rows += [(name, row) for row in json.loads(path.read_text("utf-8"))]
    return rows


TRANSCRIPTS = transcripts()
TEXTS = {name: [row["text"] for one, row in TRANSCRIPTS if one == name] for name in MAKE}


def fold(deltas: list[ParsedDelta]) -> Folded:
    return (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)),
        "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
        [
            [delta.name, delta.arguments, delta.id]
            for delta in deltas
            if isinstance(delta, CallDelta)
        ],
    )


def parse(parser: ToolCallParser, pieces: list[str]) -> Folded:
    deltas: list[ParsedDelta] = []
    for piece in pieces:
        new = parser.feed(piece)
        assert all(delta.text for delta in new if isinstance(delta, TextDelta | ReasoningDelta))
        deltas += new
    deltas += parser.finish()
    calls = [delta for delta in deltas if isinstance(delta, CallDelta)]
    assert [call.index for call in calls] == list(range(len(calls)))
    assert all(isinstance(json.loads(call.arguments), dict) for call in calls)
    return fold(deltas)


@each_row(
    ("family", "transcript"), TRANSCRIPTS, ids=[f"{name}: {t['name']}" for name, t in TRANSCRIPTS]
)
def test_a_transcript_gives_the_same_message_in_every_split(
    family: str, transcript: dict[str, Any]
) -> None:
    text = transcript["text"]
    options = ParserOptions(
        starts_in_reasoning=transcript.get("starts_in_reasoning", False), schemas=TOOLS
    )
    expected = (
        transcript.get("content", ""),
        transcript.get("reasoning", ""),
        [[*call, ""][:3] for call in transcript.get("calls", [])],
    )
    make = MAKE[family]
    assert parse(make(options), [text]) == expected
    assert parse(make(options), list(text)) == expected
    for cut in range(0, len(text) + 1, 1 if thorough() else 3):
        assert parse(make(options), [text[:cut], text[cut:]]) == expected


def test_every_family_has_transcripts_enough() -> None:
    assert {name for name, texts in TEXTS.items() if len(texts) < 15} == set()


def pieces(family: str) -> st.SearchStrategy[list[str]]:
    """Texts made of a family's own pieces: its transcripts, cut anywhere, and their fragments."""
    cut = st.tuples(st.sampled_from(TEXTS[family]), st.integers(0, 200), st.integers(0, 60)).map(
        lambda one: one[0][one[1] : one[1] + one[2]]
    )
    whole = st.sampled_from(TEXTS[family])
    odd = st.sampled_from(["{", "}", "[", '"', "\\", "\n", " ", "<", "|", "5", "é🦀", "</think>"])
    return st.lists(whole | cut | odd | st.text(max_size=5), max_size=10)


@pytest.mark.parametrize("family", MAKE)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_text_in_any_pieces_adds_up_to_the_same(family: str, data: st.DataObject) -> None:
    parts = data.draw(pieces(family))
    options = ParserOptions(
        calls=data.draw(st.booleans()),
        starts_in_reasoning=data.draw(st.booleans()),
        schemas=data.draw(st.sampled_from([{}, TOOLS])),
    )
    make, text = MAKE[family], "".join(parts)
    whole = parse(make(options), [text])
    assert parse(make(options), parts) == whole
    assert parse(make(options), list(text)) == whole
    assert options.calls or not whole[2]


@pytest.mark.parametrize("family", MAKE)
@settings(max_examples=40, deadline=None)
@given(text=st.text(st.characters(exclude_characters="<[{", codec="utf-8"), max_size=80))
def test_a_text_without_markers_is_left_as_it_is(family: str, text: str) -> None:
    assert parse(MAKE[family](ParserOptions()), [text]) == (text, "", [])


def hostile() -> list[tuple[str, str, str]]:
    repeated = {
        "seed-oss": ("<seed:tool_call>", "<function=f>", "<parameter=a>", "</parameter>"),
        "minimax-m2": ('<minimax:tool_call><invoke name="f">', '<parameter name="a">', "</inv"),
        "deepseek": ("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>f<｜tool▁sep｜>", "```json"),
        "kimi-k2": ("<|tool_calls_section_begin|>", "<|tool_call_begin|>f:0", "<|im_end|>"),
        "glm": ("<tool_call>", "<tool_call>f<arg_key>a</arg_key><arg_value>", "</arg_value>"),
        "qwen3-coder": ("<tool_call>", "<function=f>", "<function=f><parameter=a>", "</parameter>"),
        "mistral": ("[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS][", "</s>", "[TOOL_CALLS]"),
        "llama3": ("<|python_tag|>", '{"name":', "<|python_tag|>f.call(a=", '{"name":"f"};'),
    }
    after = ("{", "<", "\\", " ", ":0")
    rows: list[tuple[str, str, str]] = []
    for family, starts in repeated.items():
        rows += [(family, start, "") for start in starts]
        rows += [(family, "".join(starts), unit) for unit in after]
        rows += [(family, "<think>", " "), (family, "", "<")]
    return rows


@each_row(("family", "start", "unit"), hostile())
def test_hostile_text_takes_linear_time_and_raises_nothing(
    family: str, start: str, unit: str
) -> None:
    text = start + unit * (60_000 // len(unit)) if unit else start * (60_000 // len(start))
    expect_linear(lambda: MAKE[family](ParserOptions(schemas=TOOLS)), text)


@each_row(
    ("family", "call"),
    [
        ("mistral", "[TOOL_CALLS]f[ARGS]{}"),
        ("mistral", '[TOOL_CALLS][{{"name":"f","arguments":{}}}]'),
        ("llama3", '{{"name":"f","parameters":{}}}'),
        ("kimi-k2", "<|tool_call_begin|>f:0<|tool_call_argument_begin|>{}"),
    ],
)
def test_arguments_nested_too_deeply_are_text(family: str, call: str) -> None:
    text = call.replace("{}", '{"a":' + "[" * 100_000 + "]" * 100_000 + "}")
    text = text.replace("{{", "{").replace("}}", "}")
    assert parse(MAKE[family](ParserOptions()), [text]) == (text, "", [])


@each_row("family", MAKE)
def test_a_lone_surrogate_raises_nothing(family: str) -> None:
    for text in TEXTS[family]:
        parser = MAKE[family](ParserOptions(schemas=TOOLS))
        for char in text.replace("Paris", "\ud800"):
            parser.feed(char)
        parser.finish()


@each_row("family", MAKE)
def test_text_flows_while_no_marker_may_begin(family: str) -> None:
    parser = MAKE[family](ParserOptions())
    assert fold(parser.feed("Hello wor")) == ("Hello wor", "", [])
    assert fold(parser.feed("ld")) == ("ld", "", [])


def test_a_call_is_delivered_as_soon_as_it_is_whole() -> None:
    parser = MAKE["kimi-k2"](ParserOptions())
    begun = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
    assert parser.feed(begun + '<|tool_call_argument_begin|>{"a": 1}') == []
    assert parser.feed("<|tool_call_end|>") == [
        CallDelta(index=0, id="functions.f:0", name="f", arguments='{"a": 1}')
    ]


@each_row("family", MAKE)
def test_without_tools_a_call_is_text_and_reasoning_is_still_split(family: str) -> None:
    opening, closing = {
        "seed-oss": ("<seed:think>", "</seed:think>"),
        "mistral": ("[THINK]", "[/THINK]"),
    }.get(family, ("<think>", "</think>"))
    call = next(row["text"] for name, row in TRANSCRIPTS if name == family and row.get("calls"))
    content, reasoning, calls = parse(
        MAKE[family](ParserOptions(calls=False)), [f"{opening}hm{closing}So: {call}"]
    )
    assert (content.startswith("So: "), reasoning, calls) == (True, "hm", [])
    assert content == f"So: {call}" or call.startswith(content.removeprefix("So: "))


def test_without_schemas_bare_values_are_guessed() -> None:
    text = _call("count", "5") + _call("zip", "0123") + _call("ok", "true")
    calls = parse(MAKE["qwen3-coder"](ParserOptions()), [text])[2]
    assert [call[1] for call in calls] == ['{"count": 5}', '{"zip": "0123"}', '{"ok": true}']


def _call(key: str, value: str) -> str:
    return f"<tool_call><function=f><parameter={key}>\n{value}\n</parameter></function></tool_call>"


def test_an_unparsed_call_can_be_told_by_its_opening() -> None:
    assert {"<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function="} <= set(CALL_MARKERS)


EXCERPTS = {
    "seed-oss": "{{ '<seed:tool_call>\\n<function=' + name + '>\\n<parameter=' + key + '>' }}",
    "minimax-m2": '{%- set begin = \'<minimax:tool_call>\' %}<invoke name="x"><parameter name="y">',
    "deepseek": "{{'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool.type + '<｜tool▁sep｜>'}}",
    "kimi-k2": "{{ '<|im_middle|>' }}<|tool_calls_section_begin|>{{ call['id'] }}",
    "glm": "<tool_call>{function-name}\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>",
    "qwen3-coder": "<tool_call>\n<function=example>\n<parameter=one>\nvalue\n</parameter>",
    "mistral": '{{- "[TOOL_CALLS]" + name + "[ARGS]" + arguments }}',
    "llama3": '{{- "<|python_tag|>" + call.name + ".call(" }}{"name": name, "parameters": {}}',
}


@each_row(("family", "template"), EXCERPTS.items())
def test_a_template_belongs_to_one_family(family: str, template: str) -> None:
    assert [one.name for one in FAMILIES_A if one.matches(template)] == [family]


@each_row(
    ("family", "template"),
    [
        ("deepseek", "{%- set dsml_token = '｜DSML｜' %}<{{ dsml_token }}invoke name=\"x\">"),
        ("kimi-k2", "{{ '<|im_system|>system<|im_middle|>' }}"),
        ("llama3", '{{- "<|start_header_id|>system<|end_header_id|>\\n\\nEnvironment: ipython" }}'),
        ("mistral", "{{- '[TOOL_CALLS] [' }}{{ call.function | tojson }}"),
    ],
)
def test_variants_of_a_family_are_known(family: str, template: str) -> None:
    assert [one.name for one in FAMILIES_A if one.matches(template)] == [family]


@each_row(
    "template",
    [
        "",
        "{{ '<|im_start|>assistant\\n' }}",
        '<tool_call>\n{"name": name, "arguments": arguments}\n</tool_call>',
        "<|start_header_id|>assistant<|end_header_id|>",
        "<|python_tag|> or <function=name>{...}</function>",
        "{%- set begin = ']<]minimax[>[<minimax:tool_call>' %}",
    ],
)
def test_a_template_of_no_family_here_is_left_to_others(template: str) -> None:
    assert [one.name for one in FAMILIES_A if one.matches(template)] == []
