"""The parsers of the families with their own markers by their transcripts, and how one is fed."""

import json
from pathlib import Path
from typing import Any

import pytest

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

# By transcript file and, where a family writes in several ways, the parser a transcript names.
PARSERS: dict[tuple[str, str], ParserFactory] = {
    ("apertus", ""): apertus.make,
    ("command_r", "fenced"): command_r.make_fenced,
    ("command_r", "marked"): command_r.make_marked,
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
