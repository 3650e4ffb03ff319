"""Hostile text, fed to the families with their own markers: nothing raises, all adds up."""

from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.providers.toolcalls import (
    harmony,
)
from clawd.providers.toolcalls.base import ParserFactory, ParserOptions
from clawd.providers.toolcalls.families import CALL_MARKERS
from tests.providers.toolcalls.feeding import EVERY_PARSER, MAKE, expect_linear, parse
from tests.support.rows import each_row

PIECES = st.lists(
    st.sampled_from(
        [
            *CALL_MARKERS,
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


@EVERY_PARSER
@settings(max_examples=80)
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
    if not text.strip().startswith(("to=", "assistant")):
        assert parse(make(ParserOptions()), [text]) == (text, "", [])


HOSTILE = {
    "braces": "{" * 50_000,
    "brackets": "[" * 25_000 + "]" * 25_000,
    "angles": "<" * 50_000,
    "bars": "<|" * 25_000,
    "blanks": " " * 50_000,
    "escapes": '{"a":"' + "\\" * 50_000,
    "quotes": "['" * 15_000,
    "names": "a" * 50_000,
    "ticks": "`" * 50_000,
    "strings": "['" + "x''" * 15_000,
}


@EVERY_PARSER
@each_row("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_takes_linear_time_and_raises_nothing(make: ParserFactory, text: str) -> None:
    expect_linear(lambda: make(ParserOptions()), text)


@each_row(
    ("make", "text"),
    [
        (MAKE["nemotron"], "<TOOLCALL>" * 5_000),
        (MAKE["nemotron"], "<TOOLCALL>[" + "{" * 50_000),
        (MAKE["nemotron"], '<TOOLCALL>[{"name": "f"}]' + " " * 50_000),
        (MAKE["granite"], '<|tool_call|>[{"name":"f","arguments":' + '{"a":' * 20_000),
        (MAKE["command r+"], "Action:" * 15_000),
        (MAKE["command r+"], "Action:```" + "a" * 50_000),
        (MAKE["functionary 3.1"], "<function=" * 5_000),
        (MAKE["functionary 3.2"], "a\n{}>>>" * 15_000),
        (MAKE["gemma 4"], '<|tool_call>call:f{a:<|"|>' + '<|"' * 15_000),
        (
            MAKE["gemma 4"],
            "<|tool_call>call:f{" + "a:{" * 15_000 + "}" * 15_001 + "<tool_call|>",
        ),
        (
            MAKE["gemma 4"],
            "<|tool_call>call:f{" + '<|"|>a<|"|>' * 5_000 + "}<tool_call|>",
        ),
        (MAKE["gemma"], "```tool_code\n" + "f(a=1)\n" * 15_000),
        (
            MAKE["lfm2"],
            "<|tool_call_start|>[f(a=" + '"x" ' * 25_000 + ")]<|tool_call_end|>",
        ),
        (MAKE["lfm2"], "<|tool_call_start|>[f(a=" + "[" * 50_000 + "]" * 50_000 + ")]"),
        (MAKE["lfm2"], "<|tool_call_start|>[f(a=" + "-" * 50_000 + ")]"),
        (
            MAKE["minicpm"],
            '<function name="f">' + '<param name="a"><![CDATA[x</param>' * 3_000,
        ),
        (
            MAKE["minicpm"],
            '<function name="f">' + '<param name="a">x</param>' * 5_000 + "</function>",
        ),
        (harmony.make, "<|channel|>" * 5_000),
        (harmony.make, "<|start|>assistant" * 6_000),
        (harmony.make, "<|channel|>commentary to=f<|message|>" + "{" * 50_000),
        (harmony.make, "<|channel|>commentary to=f<|message|>" + " " * 50_000),
        (MAKE["generic"], '{"name": "f", "arguments": {}}' * 4_000),
        (MAKE["generic"], "```json" * 15_000),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, str) else value.__module__[24:],
)
def test_hostile_text_of_a_family_takes_linear_time(make: ParserFactory, text: str) -> None:
    expect_linear(lambda: make(ParserOptions()), text)
