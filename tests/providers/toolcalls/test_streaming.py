"""Calls that are told while they are written: at every split the same, and cut without markup."""

import json
from typing import Any

from clawd.engine.protocol import ChatCall
from clawd.engine.worker.chat_fallback import calls_in_frame
from clawd.providers.base import CallAssembler, CallDelta, ToolCall
from clawd.providers.toolcalls import (
    dialects,
    harmony,
    xml_calls,
)
from clawd.providers.toolcalls.base import ParsedDelta, ParserFactory, ParserOptions
from clawd.providers.toolcalls.detect import habits_of
from clawd.wire.events import ReasoningDelta, TextDelta, ToolDraft
from tests.providers.toolcalls.feeding import MAKE, detect
from tests.providers.toolcalls.test_frames import SINGLE, TEMPLATES

SCHEMA: dict[str, Any] = {"type": "object"}
SCHEMAS = {"look": SCHEMA, "write": SCHEMA}
ARGUMENTS = '{"path": "src/ä \\"x\\" </tool_call>", "deep": {"a": [1, {"b": "}"}]}, "e": "\\u20ac"}'
CALL = f'{{"name": "look", "arguments": {ARGUMENTS}}}'
BARE = f'{{"name": "look", "parameters": {ARGUMENTS}}}'
OTHER = '{"name": "write", "arguments": {}}'

# A family, what its model writes, and by which marks a leak is known.
WRITTEN: dict[str, tuple[ParserFactory, str]] = {
    "hermes": (MAKE["hermes"], f"Let me look.\n<tool_call>\n{CALL}\n</tool_call>"),
    "hermes, two calls": (
        MAKE["hermes"],
        f"<think>so</think>\n<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{OTHER}</tool_call>\nOk",
    ),
    "generic, bare": (MAKE["generic"], CALL),
    "generic, in a tag": (MAKE["generic"], f"I see. <tool_call>{CALL}</tool_call>"),
    "llama": (dialects.make_llama3, BARE),
    "llama, tagged": (dialects.make_llama3, f"<|python_tag|>{BARE}; {OTHER}<|eom_id|>"),
    "mistral, a list": (dialects.make_mistral, f"[TOOL_CALLS][{CALL}, {OTHER}]</s>"),
    "mistral, named": (
        dialects.make_mistral,
        f"Now: [TOOL_CALLS]look[CALL_ID]a1b2c3d4e[ARGS]{ARGUMENTS}",
    ),
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
    text = "".join(each.text for each in deltas if isinstance(each, TextDelta))
    thought = "".join(each.text for each in deltas if isinstance(each, ReasoningDelta))
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


ONE = ChatCall(id="call_0123456789ab", name="look", arguments='{"path": "ä/b", "deep": {"n": 2}}')
TWO = ChatCall(id="call_abcdef012345", name="write", arguments='{"path": "a"}')
LEAST_LEAK = 4  # a blank, and as much of a marker as may be text


def cuts_of(family: str, template: str, calls: tuple[ChatCall, ...]) -> list[str]:
    """Return what comes of an answer in the form of a family that is cut, where it is wrong."""
    schemas = {"look": SCHEMA, "write": SCHEMA}
    text = calls_in_frame(calls, habits_of(template).frames[0])
    whole, wrong = [(call.name, call.arguments) for call in calls], []
    make = detect(template)
    for at in range(len(text)):
        for is_told in (False, True):
            parser = make(ParserOptions(streams=is_told, schemas=schemas))
            deltas = [*parser.feed(text[:at]), *parser.finish(is_cut=is_told)]
            said, _, read = folded(deltas)
            # What is no whole JSON is told as a cut call, and never run.
            less = [call for call in read if is_whole(call) and not among(call, whole)]
            leaks = is_told and len(said.strip()) >= LEAST_LEAK
            if less or leaks:
                wrong.append(f"{family}: {text[:at][-40:]!r} gives {said!r}, {less}")
    return wrong


def is_whole(call: ToolCall) -> bool:
    try:
        json.loads(call.arguments)
    except ValueError:
        return False
    return True


def among(call: ToolCall, whole: list[tuple[str, str]]) -> bool:
    return (call.name, json.loads(call.arguments)) in [(n, json.loads(a)) for n, a in whole]


def test_h4_a_call_cut_at_any_character_is_never_run_with_less_and_is_no_text() -> None:
    wrong: list[str] = []
    for family, template in TEMPLATES.items():
        wrong += cuts_of(family, template, (ONE,) if template in SINGLE else (ONE, TWO))
    assert wrong == []


def test_h4_a_call_that_turns_out_broken_stays_one_whose_arguments_are_no_json() -> None:
    for body in ('{"name": "look", "arguments": {"path": src}}', '{"name": "look", "arguments": {'):
        text, _, (call,) = folded(told(MAKE["hermes"], ["<tool_call>", body, "</tool_call> after"]))
        assert "tool_call" not in text.replace("</tool_call> after", "")
        try:
            json.loads(call.arguments)
        except ValueError:
            continue
        raise AssertionError(call)


def test_h4_what_is_no_call_of_an_offered_tool_is_left_as_it_was() -> None:
    for make, text in (
        (MAKE["generic"], '{"name": "Anna", "arguments": {"for": "peace"}}'),
        (dialects.make_llama3, '{"name": "Anna", "parameters": {"for": "peace"}}'),
        (MAKE["generic"], '{"answer": 42}'),
        (MAKE["hermes"], "a < b and <tool"),
    ):
        for pieces in ([text], list(text)):
            assert folded(told(make, pieces)) == (text, "", ())
    for text in ("I say <", "so [", '{"answer": 4', "x < y"):
        assert folded(told(MAKE["hermes"], [text], is_cut=True)) == (text, "", ())
    opened = "<|channel|>commentary to=functions.look <|constrain|>json<|message|>"
    addressed = " to=functions.look<|channel|>commentary json<|message|>"
    for head, start in ((opened, len(opened)), (addressed, len(" to="))):
        for at in range(start, len(head) + 9):
            cut = folded(told(harmony.make, [(head + '{"path": ')[:at]], is_cut=True))
            assert cut == ("", "", ())


TYPED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "mode": {"enum": ["w", "a"]},
        "n": {"type": "integer"},
        "text": {"type": "string"},
        "any": {},
    },
}
BODY = 'a "b" \\ ä\u20ac\n\n</par <x>\n'
# The arguments in the order in which a model writes them; numbers and enums are told whole.
BARE_VALUES = {"path": "src/ä.py", "n": "5", "text": BODY, "mode": "w", "any": "[1, 2]"}
TYPED_JSON = {"path": "src/ä.py", "n": 5, "text": BODY, "mode": "w", "any": [1, 2]}


def tagged(call: str, parameter: str, *, lines: bool) -> str:
    """Return a call in tags; `call` and `parameter` have the name between two bars."""
    opening, closing, (before, after) = *call.split("|"), parameter.split("|")
    frame = "\n" if lines else ""
    end = "</" + before.lstrip("<").split("=")[0].split(" ")[0] + ">"
    pairs = [f"{before}{k}{after}{frame}{v}{frame}{end}\n" for k, v in BARE_VALUES.items()]
    return opening + "look" + closing.replace("@", "\n" + "".join(pairs))


GLM_PAIRS = "".join(
    f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"
    for key, value in BARE_VALUES.items()
)
IN_TAGS: dict[str, tuple[ParserFactory, str]] = {
    "qwen3 coder": (
        xml_calls.make_qwen3_coder,
        tagged(
            "Now.\n<tool_call>\n<function=|>@</function>\n</tool_call>", "<parameter=|>", lines=True
        ),
    ),
    "qwen3 coder, no section": (
        xml_calls.make_qwen3_coder,
        tagged("<function=|>@</function>", "<parameter=|>", lines=True),
    ),
    "seed-oss": (
        xml_calls.make_seed_oss,
        tagged(
            "<seed:tool_call><function=|>@</function></seed:tool_call>",
            "<parameter=|>",
            lines=False,
        ),
    ),
    "minimax": (
        xml_calls.make_minimax_m2,
        tagged(
            '<minimax:tool_call>\n<invoke name="|">@</invoke>\n</minimax:tool_call>',
            '<parameter name="|">',
            lines=False,
        ),
    ),
    "deepseek v3.2": (
        dialects.make_deepseek,
        tagged(
            '<｜DSML｜function_calls><｜DSML｜invoke name="|">@</｜DSML｜invoke>'
            "</｜DSML｜function_calls>",
            '<｜DSML｜parameter name="|">',
            lines=False,
        ),
    ),
    "glm": (
        dialects.make_glm,
        f"<think>so</think><tool_call>look\n{GLM_PAIRS}</tool_call>",
    ),
}


def test_h4_arguments_in_tags_are_told_while_they_are_written_as_the_beginning_of_json() -> None:
    schemas = {"look": TYPED}
    wrong: list[Any] = []
    for name, (make, text) in IN_TAGS.items():
        whole = make(ParserOptions(schemas=schemas))
        said, thought, (call,) = folded([*whole.feed(text), *whole.finish()])
        assert json.loads(call.arguments) == TYPED_JSON, name
        assert list(json.loads(call.arguments)) == list(TYPED_JSON), name
        for pieces in [list(text), *([text[:at], text[at:]] for at in range(len(text) + 1))]:
            parser = make(ParserOptions(streams=True, schemas=schemas))
            deltas = [delta for piece in pieces for delta in parser.feed(piece)]
            if folded([*deltas, *parser.finish()]) != (said, thought, (call,)):
                wrong.append((name, pieces[0]))
        # The name alone, then all that is there of a long value, but what may be its end.
        parser = make(ParserOptions(streams=True, schemas=schemas))
        early = parser.feed(text[: text.index("€") + 1])
        first, *_ = [each for each in early if isinstance(each, CallDelta)]
        assert (first.name, first.arguments) == ("look", ""), name
        _, _, (begun,) = folded(early)
        assert begun.arguments == call.arguments[: len(begun.arguments)], name
        assert begun.arguments.endswith('"text": "a \\"b\\" \\\\ ä\u20ac'), (name, begun)
        # A limit cuts it: a call as far as it came, and nothing of it is text.
        for at in range(text.index("src"), len(text) - 1):
            cut, _, calls = folded(told_of(make, text[:at], schemas))
            if cut != said or [each.name for each in calls] != ["look"]:
                wrong.append((name, "cut", text[:at][-20:], cut, calls))
    assert not wrong, wrong[:5]


def told_of(make: ParserFactory, text: str, schemas: dict[str, Any]) -> list[ParsedDelta]:
    parser = make(ParserOptions(streams=True, schemas=schemas))
    return [*parser.feed(text), *parser.finish(is_cut=True)]


def test_h4_drafts_show_what_is_written_and_change_nothing_of_what_comes_of_it() -> None:
    written = {**WRITTEN, **IN_TAGS}
    broken = '<tool_call>{"name": "look", "arguments": {"path": src}}</tool_call> after'
    written["hermes, broken"] = (MAKE["hermes"], broken)
    schemas = {"look": TYPED, "write": SCHEMA}
    for name, (make, text) in written.items():
        for given in (text, text[: len(text) // 2]):
            plain = make(ParserOptions(schemas=schemas))
            drafting = make(ParserOptions(schemas=schemas, drafts=True))
            expected = [*(each for char in given for each in plain.feed(char)), *plain.finish()]
            deltas = [*(each for char in given for each in drafting.feed(char))]
            deltas += drafting.finish()
            shown = [each for each in deltas if isinstance(each, ToolDraft)]
            assert [each for each in deltas if not isinstance(each, ToolDraft)] == expected, name
            assert given != text or shown, name
            assert {each.tool for each in shown} <= {"look", "write"}, name
            first = "".join(each.text for each in shown if not each.index)
            calls = folded(expected)[2]
            assert not calls or calls[0].arguments.startswith(first), name


def test_h4_a_key_that_comes_twice_is_told_twice_and_counts_as_written_last() -> None:
    pairs = "".join(f"<parameter=path>\n{value}\n</parameter>" for value in "ab")
    text = f"<function=look>{pairs}</function>"
    _, _, (call,) = folded(told_of(xml_calls.make_qwen3_coder, text, {"look": TYPED}))
    assert json.loads(call.arguments) == {"path": "b"}
