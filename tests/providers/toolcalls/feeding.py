"""The parsers of the families with their own markers by their transcripts, and how one is fed."""

import gc
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clawd.providers.base import CallAssembler, CallDelta
from clawd.providers.toolcalls import (
    harmony,
)
from clawd.providers.toolcalls.base import (
    ParsedDelta,
    ParserFactory,
    ParserOptions,
    ToolCallParser,
)
from clawd.providers.toolcalls.detect import habits_of
from clawd.providers.toolcalls.families import FAMILIES, family_for
from clawd.wire.events import ReasoningDelta, TextDelta
from tests.support.rows import thorough

MAKE: dict[str, ParserFactory] = {family.name: family.make for family in FAMILIES}
NEWER = (
    "apriel",
    "ernie",
    "gigachat",
    "hunyuan",
    "kimi-k3",
    "llama 4",
    "minimax-m1",
    "minimax-m3",
    "muse",
    "olmo 3",
    "solar",
)
# By transcript file and, where a family writes in several ways, the parser a transcript names.
PARSERS: dict[tuple[str, str], ParserFactory] = {
    ("apertus", ""): MAKE["apertus"],
    ("command_r", "fenced"): MAKE["command r+"],
    ("command_r", "marked"): MAKE["command"],
    ("functionary", "v31"): MAKE["functionary 3.1"],
    ("functionary", "v32"): MAKE["functionary 3.2"],
    ("gemma", "asked"): MAKE["gemma"],
    ("gemma", "function"): MAKE["functiongemma"],
    ("gemma", "native"): MAKE["gemma 4"],
    ("generic", ""): MAKE["generic"],
    ("granite", ""): MAKE["granite"],
    ("harmony", ""): harmony.make,
    ("lfm2", ""): MAKE["lfm2"],
    ("minicpm", ""): MAKE["minicpm"],
    ("nemotron", ""): MAKE["nemotron"],
    ("phi4", ""): MAKE["phi-4"],
    **{("newer", name): MAKE[name] for name in NEWER},
}
FOLDER = Path(__file__).parents[1] / "transcripts"
Folded = tuple[str, str, list[list[str]]]

EVERY_PARSER = pytest.mark.parametrize(
    "make", PARSERS.values(), ids=[" ".join(key).strip() for key in PARSERS]
)


def fold(deltas: list[ParsedDelta]) -> Folded:
    calls = CallAssembler()
    for delta in deltas:
        if isinstance(delta, CallDelta):
            assert delta.name
            assert isinstance(json.loads(delta.arguments), dict)
            calls.add(delta)
    return (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)),
        "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
        [[call.name, call.arguments] for call in calls.calls()],
    )


def detect(template: str) -> ParserFactory:
    """Return what makes the parser of a family, for prompts that end as this template's do."""
    starts_in_reasoning = habits_of(template).starts_in_reasoning

    def make(options: ParserOptions) -> ToolCallParser:
        if starts_in_reasoning:
            options = msgspec.structs.replace(options, starts_in_reasoning=True)
        return family_for(template).make(options)

    return make


def parse(parser: ToolCallParser, pieces: list[str]) -> Folded:
    deltas: list[ParsedDelta] = []
    for piece in pieces:
        new = parser.feed(piece)
        assert all(delta.text for delta in new if isinstance(delta, TextDelta | ReasoningDelta))
        deltas += new
    return fold(deltas + parser.finish())


def options(transcript: dict[str, Any]) -> ParserOptions:
    return ParserOptions(
        calls=transcript.get("offers_tools", True),
        starts_in_reasoning=transcript.get("starts_in_reasoning", False),
        schemas=transcript.get("schemas", {}),
    )


# One character at a time costs more than all at once, and shows sooner what is read anew each time.
IN_CHARACTERS = 16_000 if thorough() else 2_000


def expect_linear(make: Callable[[], ToolCallParser], text: str) -> None:
    """Check that a text four times as long takes four times as long, not sixteen times."""
    _, quarter_s = timed(make, [text[: len(text) // 4]])
    _, whole_s = timed(make, [text])
    assert whole_s < 8 * quarter_s + 0.5
    short = text[:IN_CHARACTERS]
    _, quarter_s = timed(make, short[: len(short) // 4])
    folded, whole_s = timed(make, short)
    assert whole_s < 8 * quarter_s + 0.1
    assert folded == parse(make(), [short])


def timed(make: Callable[[], ToolCallParser], pieces: Sequence[str]) -> tuple[Folded, float]:
    """Return what is read of these pieces, and how long a processor reads."""
    gc.disable()  # a collection of all that other tests left is none of the parser's time
    try:
        began = time.process_time()
        folded = parse(make(), list(pieces))
        return folded, time.process_time() - began
    finally:
        gc.enable()
