"""Transcripts of the Hermes family, fed in every split, and hostile text."""

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clawd.providers.base import CallAssembler, CallDelta
from clawd.providers.toolcalls.base import ParsedDelta, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.detect import looks_like_call
from clawd.wire.events import ReasoningDelta, TextDelta
from tests.providers.toolcalls.feeding import MAKE, detect, expect_linear
from tests.support.rows import each_row, thorough

TRANSCRIPTS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "transcripts" / "hermes.json").read_text("utf-8")
)
Folded = tuple[str, str, list[list[str]]]

PIECES = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            "<think>",
            "</think>",
            '{"name": "f", "arguments": {"a": "<tool_call>"}}',
            '{"name": "f"',
            "{",
            "}",
            "[",
            "]",
            '"',
            "\\",
            "\n",
            " ",
            "text",
            "<",
            "é🦀",
            "<tool",
        ]
    )
    | st.text(max_size=5),
    max_size=12,
)


def fold(deltas: list[ParsedDelta]) -> Folded:
    calls = CallAssembler()
    for delta in deltas:
        if isinstance(delta, CallDelta):
            calls.add(delta)
    return (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)),
        "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
        [[call.name, call.arguments] for call in calls.calls()],
    )


def parse(parser: ToolCallParser, pieces: list[str]) -> Folded:
    deltas: list[ParsedDelta] = []
    for piece in pieces:
        new = parser.feed(piece)
        assert all(delta.text for delta in new if isinstance(delta, TextDelta | ReasoningDelta))
        deltas += new
    return fold(deltas + parser.finish())


def parser_of(transcript: dict[str, Any]) -> ToolCallParser:
    starts = transcript.get("starts_in_reasoning", False)
    return MAKE["hermes"](ParserOptions(starts_in_reasoning=starts))


@each_row("transcript", TRANSCRIPTS, ids=lambda t: t["name"])
def test_a_transcript_gives_the_same_message_in_every_split(transcript: dict[str, Any]) -> None:
    text = transcript["text"]
    expected = (
        transcript.get("content", ""),
        transcript.get("reasoning", ""),
        transcript.get("calls", []),
    )
    assert parse(parser_of(transcript), [text]) == expected
    assert parse(parser_of(transcript), list(text)) == expected
    for cut in range(0, len(text) + 1, 1 if thorough() else 3):
        assert parse(parser_of(transcript), [text[:cut], text[cut:]]) == expected


@given(pieces=PIECES, starts=st.booleans(), calls=st.booleans())
def test_any_text_in_any_pieces_adds_up_to_the_same(
    pieces: list[str], starts: bool, calls: bool
) -> None:
    options = ParserOptions(calls=calls, starts_in_reasoning=starts)
    text = "".join(pieces)
    whole = parse(MAKE["hermes"](options), [text])
    assert parse(MAKE["hermes"](options), pieces) == whole
    assert parse(MAKE["hermes"](options), list(text)) == whole


@given(pieces=PIECES)
def test_a_text_without_calls_and_reasoning_is_left_as_it_is(pieces: list[str]) -> None:
    text = "".join(pieces)
    content, reasoning, calls = parse(MAKE["hermes"](ParserOptions()), pieces)
    if not calls and "<think>" not in text:
        assert (content, reasoning) == (text, "")


def test_text_is_not_held_back_longer_than_a_marker_may_begin() -> None:
    parser = MAKE["hermes"](ParserOptions())
    assert fold(parser.feed("Hello wor")) == ("Hello wor", "", [])
    assert fold(parser.feed("ld <")) == ("ld", "", [])
    assert fold(parser.feed("b> ")) == (" <b>", "", [])


def test_a_call_comes_whole_and_as_soon_as_its_tag_is_closed() -> None:
    parser = MAKE["hermes"](ParserOptions())
    assert parser.feed('<tool_call>{"name": "f", "arguments": {"a": 1}}') == []
    assert parser.feed("</tool_call>") == [CallDelta(index=0, name="f", arguments='{"a": 1}')]


@each_row(
    "text",
    [
        "<tool_call>" + "{" * 100_000,
        "<tool_call>" * 20_000,
        '<tool_call>{"name":"f","arguments":' + "[" * 50_000 + "]" * 50_000 + "}</tool_call>",
        "<" * 100_000,
        " " * 100_000,
        "<think>" + " " * 100_000,
        '<tool_call>{"name":"f"}' + " " * 100_000,
        '<tool_call>{"a":"' + "\\" * 100_000,
    ],
    ids=["braces", "markers", "nesting", "angles", "blanks", "thoughts", "closing", "escapes"],
)
def test_hostile_text_takes_linear_time_and_raises_nothing(text: str) -> None:
    expect_linear(lambda: MAKE["hermes"](ParserOptions()), text)


def test_without_tools_a_call_is_text_and_reasoning_is_still_split() -> None:
    text = '<think>hm</think><tool_call>{"name":"f"}</tool_call>'
    parser = detect("<tool_call>")(ParserOptions(calls=False))
    assert parse(parser, [text]) == ('<tool_call>{"name":"f"}</tool_call>', "hm", [])


@each_row(
    ("template", "starts"),
    [
        ("", False),
        ("{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}", False),
        ("<think></think>{% if add_generation_prompt %}assistant\n<think>\n{% endif %}", True),
        (
            "{% if add_generation_prompt %}{% if not enable_thinking %}<think>\n\n</think>"
            "{% endif %}{% endif %}",
            False,
        ),
        (
            "{% if add_generation_prompt %}{% if off %}<think></think>{% else %}<think>"
            "{% endif %}{% endif %}",
            True,
        ),
    ],
)
def test_a_template_tells_whether_the_answer_begins_in_reasoning(
    template: str, starts: bool
) -> None:
    parser = detect(template)(ParserOptions())
    assert parse(parser, ["so</think>x"]) == (
        ("x", "so", []) if starts else ("so</think>x", "", [])
    )


def test_an_unparsed_call_is_told_from_an_answer() -> None:
    assert looks_like_call('<tool_call>{"name": f}</tool_call>')
    assert not looks_like_call("It is noon.")
