"""An answer that is a call of an offered tool and nothing else is that call, in every family."""

import json
from typing import Any

from clawd.providers.toolcalls.base import ParserOptions, ToolCallParser
from clawd.providers.toolcalls.detect import also_in_tags, habits_of, parser_of
from clawd.wire.events import TextDelta
from tests.providers.toolcalls.feeding import expect_linear, parse
from tests.providers.toolcalls.test_frames import TEMPLATES
from tests.support.rows import each_row

SCHEMAS: dict[str, dict[str, Any]] = {
    "file_list": {"type": "object", "properties": {"path": {"type": "string"}}},
    "time": {"type": "object"},
}
LIST = '{"name": "file_list", "arguments": {"path": "src"}}'
TIME = '{"name": "time", "arguments": {}}'
LISTED = ["file_list", '{"path": "src"}']


def reader(template: str, **more: object) -> ToolCallParser:
    options = ParserOptions(schemas=SCHEMAS, **more)  # type: ignore[arg-type]
    return parser_of(template, options, habits_of(template))


CALLS = {
    "bare": (LIST, [LISTED]),
    "over lines": (json.dumps(json.loads(LIST), indent=2), None),
    "in a fence": (f"```json\n{LIST}\n```", [LISTED]),
    "in a fence without a language": (f"```\n{LIST}\n```\n", [LISTED]),
    "in a fence that is left open": (f"```json\n{LIST}", [LISTED]),
    "blanks around it": (f"\n\n {LIST}\n", [LISTED]),
    "a list": (f"[{LIST}, {TIME}]", [LISTED, ["time", "{}"]]),
    "one under the other": (f"{LIST}\n{TIME}", [LISTED, ["time", "{}"]]),
    "parameters": ('{"name": "file_list", "parameters": {"path": "src"}}', [LISTED]),
    "arguments first": ('{"arguments": {"path": "src"}, "name": "file_list"}', [LISTED]),
    "a function": (
        '{"type": "function", "function": {"name": "file_list", "arguments": {"path": "src"}}}',
        [LISTED],
    ),
}


@each_row("template", TEMPLATES.values(), ids=TEMPLATES)
def test_r1_a_call_that_is_the_whole_answer_is_read_in_every_family(template: str) -> None:
    for name, (text, expected) in CALLS.items():
        for pieces in ([text], list(text), [text[:9], text[9:]]):
            content, _, calls = parse(reader(template), pieces)
            assert (content.strip(), calls[0][0] if calls else "") == ("", "file_list"), name
            assert json.loads(calls[0][1]) == {"path": "src"}, name
            if expected is not None:
                assert calls == expected, name


PLAIN = {
    "of a tool that is not offered": '{"name": "rm", "arguments": {"path": "src"}}',
    "without arguments": '{"name": "time"}',
    "an answer in JSON": '{"title": "file_list", "arguments": {}}',
    "numbers": "[1, 2, 3]",
    "an explanation": f"Call it so:\n```json\n{LIST}\n```",
    "words behind it": f"{LIST}\nThat lists the files.",
    "words behind a fence": f"```json\n{LIST}\n```\nThat lists the files.",
    "code": "```python\nprint(1)\n```",
    "one of two is not offered": f'[{LIST}, {{"name": "rm", "arguments": {{}}}}]',
    "half of one": '{"name": "file_list", "arguments": {"path": ',
    "nothing": "",
}


def test_r1_what_is_no_whole_call_of_an_offered_tool_stays_text_as_it_was_written() -> None:
    for name, text in PLAIN.items():
        for pieces in ([text], list(text)):
            assert parse(reader("<tool_call>"), pieces) == (text, "", []), name


def test_r1_text_passes_at_once_where_no_call_can_come_of_it() -> None:
    for text in ("Hello", "{}", "[1", "```python", '{"name": "x', '{"title'):
        assert reader("<tool_call>").feed(text) == [TextDelta(text=text)], text
    for text in ("{", "```js", '[{"na', '{"name": "fi', '{"name": "file_list", "arg'):
        assert reader("<tool_call>").feed(text) == [], text


def test_r1_a_call_behind_reasoning_is_read_and_without_tools_none_is() -> None:
    thought = f"<think>I list them.</think>\n{LIST}"
    assert parse(reader("<tool_call>"), list(thought)) == ("", "I list them.", [LISTED])
    assert parse(reader("<tool_call>", calls=False), [LIST]) == (LIST, "", [])


def test_r1_the_beginning_of_a_call_that_was_cut_is_no_text() -> None:
    for text, left in (
        ('{"name": "file_list", "arguments": {"pa', ""),
        ("```json\n" + '{"name": "file_list"', ""),
        ("{", "{"),
        ("```", "```"),
    ):
        parser = reader("<tool_call>")
        deltas = [*parser.feed(text), *parser.finish(is_cut=True)]
        assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == left, text


def test_r1_hostile_text_takes_linear_time() -> None:
    for unit in ('{"name": "file_list", "arguments": {', "[", "{", "```json\n", " "):
        expect_linear(lambda: reader("<tool_call>"), unit * (200_000 // len(unit)))


@each_row("template", TEMPLATES.values(), ids=TEMPLATES)
def test_r3_what_a_fallback_asked_for_is_read_in_every_family(template: str) -> None:
    text = f"So:\n<tool_call>\n{LIST}\n</tool_call>\n<tool_call>{TIME}</tool_call>"
    for pieces in ([text], list(text)):
        parser = also_in_tags(reader(template), ParserOptions(schemas=SCHEMAS))
        said, _, calls = parse(parser, pieces)
        assert (said.strip(), calls) == ("So:", [LISTED, ["time", "{}"]])


def test_r3_a_familys_own_form_is_read_beside_it_and_counted_in_one_row() -> None:
    text = f'[TOOL_CALLS]file_list[ARGS]{{"path": "src"}}</s><tool_call>{TIME}</tool_call>'
    parser = also_in_tags(reader("[TOOL_CALLS][ARGS]"), ParserOptions(schemas=SCHEMAS))
    assert parse(parser, list(text))[2] == [LISTED, ["time", "{}"]]
