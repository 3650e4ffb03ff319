"""Calls that are told while they are written: at every split the same, and cut without markup."""

import json
from typing import Any

from clawd.providers.base import CallAssembler, CallDelta, Reasoning, Text, ToolCall
from clawd.providers.toolcalls import generic_json, harmony, hermes, llama3, mistral
from clawd.providers.toolcalls.base import ParsedDelta, ParserFactory, ParserOptions

SCHEMA: dict[str, Any] = {"type": "object"}
SCHEMAS = {"look": SCHEMA, "write": SCHEMA}
ARGUMENTS = '{"path": "src/ä \\"x\\" </tool_call>", "deep": {"a": [1, {"b": "}"}]}, "e": "\\u20ac"}'
CALL = f'{{"name": "look", "arguments": {ARGUMENTS}}}'
BARE = f'{{"name": "look", "parameters": {ARGUMENTS}}}'
OTHER = '{"name": "write", "arguments": {}}'

# A family, what its model writes, and by which marks a leak is known.
WRITTEN: dict[str, tuple[ParserFactory, str]] = {
    "hermes": (hermes.make, f"Let me look.\n<tool_call>\n{CALL}\n</tool_call>"),
    "hermes, two calls": (
        hermes.make,
        f"<think>so</think>\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{OTHER}</tool_call>\nOk",
    ),
    "generic, bare": (generic_json.make, CALL),
    "generic, in a tag": (generic_json.make, f"I see. <tool_call>{CALL}</tool_call>"),
    "llama": (llama3.make, BARE),
    "llama, tagged": (llama3.make, f"<|python_tag|>{BARE}; {OTHER}<|eom_id|>"),
    "mistral, a list": (mistral.make, f"[TOOL_CALLS][{CALL}, {OTHER}]</s>"),
    "mistral, named": (mistral.make, f"Now: [TOOL_CALLS]look[CALL_ID]a1b2c3d4e[ARGS]{ARGUMENTS}"),
}
MARKS = ("<tool", "[TOOL", '"name"', '"arg', "<|py", "[ARGS", "path")


def told(make: ParserFactory, pieces: list[str], *, is_cut: bool = False) -> list[ParsedDelta]:
    parser = make(ParserOptions(streams=True, schemas=SCHEMAS))
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    return [*deltas, *parser.finish(is_cut=is_cut)]


def folded(deltas: list[ParsedDelta]) -> tuple[str, str, tuple[ToolCall, ...]]:
    calls = CallAssembler()
    for delta in deltas:
        if isinstance(delta, CallDelta):
            calls.add(delta)
    text = "".join(each.text for each in deltas if isinstance(each, Text))
    thought = "".join(each.text for each in deltas if isinstance(each, Reasoning))
    return (
        text,
        thought,
        tuple(ToolCall(id="", name=call.name, arguments=call.arguments) for call in calls.calls()),
    )


def test_h4_deltas_add_up_to_the_whole_answer_at_every_split() -> None:
    wrong = []
    for name, (make, text) in WRITTEN.items():
        parser = make(ParserOptions(schemas=SCHEMAS))
        whole = folded([*parser.feed(text), *parser.finish()])
        assert whole[2][0] == ToolCall(id="", name="look", arguments=ARGUMENTS), name
        splits = [[text[:at], text[at:]] for at in range(len(text) + 1)]
        for pieces in [*splits, list(text)]:
            deltas = told(make, pieces)
            named = [each.index for each in deltas if isinstance(each, CallDelta) and each.name]
            if folded(deltas) != whole or named != list(range(len(whole[2]))):
                wrong.append((name, len(pieces[0]), folded(deltas)))
    assert not wrong, wrong[:3]


def test_h4_the_name_comes_first_and_arguments_while_they_are_written() -> None:
    for name, (make, text) in WRITTEN.items():
        calls = [each for each in told(make, list(text)) if isinstance(each, CallDelta)]
        first = [each for each in calls if not each.index]
        assert first[0].name == "look" and not first[0].arguments, name
        assert len(first) > len(ARGUMENTS) - 5, name
        assert not any(each.name for each in first[1:]), name
        # Before the object is whole, all but its end was told.
        parser = make(ParserOptions(streams=True, schemas=SCHEMAS))
        early = text[: text.index(ARGUMENTS) + len(ARGUMENTS) - 1]
        _, _, (call,) = folded(parser.feed(early))
        assert call.arguments == ARGUMENTS[:-1], name


def test_h4_a_cut_call_is_never_text() -> None:
    wrong = []
    for name, (make, text) in WRITTEN.items():
        parser = make(ParserOptions(schemas=SCHEMAS))
        (said, _, calls) = folded([*parser.feed(text), *parser.finish()])
        for at in range(len(text) + 1):
            cut = folded(told(make, [text[:at]], is_cut=True))
            is_sound = said.startswith((cut[0].rstrip("\n<["), cut[0].strip()))
            for each, whole in zip(cut[2], calls, strict=False):
                is_sound = is_sound and each.name == whole.name
                is_sound = is_sound and whole.arguments.startswith(each.arguments)
            if not is_sound and any(mark in cut[0] for mark in MARKS):
                wrong.append((name, text[:at][-30:], cut))
    assert not wrong, wrong[:5]


def test_h4_a_call_that_turns_out_broken_stays_one_whose_arguments_are_no_json() -> None:
    for body in ('{"name": "look", "arguments": {"path": src}}', '{"name": "look", "arguments": {'):
        text, _, (call,) = folded(told(hermes.make, ["<tool_call>", body, "</tool_call> after"]))
        assert "tool_call" not in text.replace("</tool_call> after", "")
        try:
            json.loads(call.arguments)
        except ValueError:
            continue
        raise AssertionError(call)


def test_h4_what_is_no_call_of_an_offered_tool_is_left_as_it_was() -> None:
    for make, text in (
        (generic_json.make, '{"name": "Anna", "arguments": {"for": "peace"}}'),
        (llama3.make, '{"name": "Anna", "parameters": {"for": "peace"}}'),
        (generic_json.make, '{"answer": 42}'),
        (hermes.make, "a < b and <tool"),
    ):
        for pieces in ([text], list(text)):
            assert folded(told(make, pieces)) == (text, "", ())
    for text in ("I say <", "so [", '{"answer": 4', "x < y"):
        assert folded(told(hermes.make, [text], is_cut=True)) == (text, "", ())
    opened = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>"
    for at in range(len(opened), len(opened) + 9):
        cut = folded(told(harmony.make, [(opened + '{"path": ')[:at]], is_cut=True))
        assert cut == ("", "", ())
