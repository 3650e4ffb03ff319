"""Raw prompts and beginnings of answers as the engine and the parser get them."""

import pytest

from clawd.engine.protocol import ChatMessage, Generate, Grammar, Sampling
from clawd.errors import InvalidRequestError
from clawd.providers.base import ChatRequest, Message, ToolSpec
from clawd.providers.local_request import Fitted, LocalOptions, fitted, generate_for
from clawd.wire.events import ReasoningDelta, TextDelta
from tests.support.rows import each_row

PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}<|im_start|>assistant\n<tool_call>"
THINKING = (
    "{% for m in messages %}{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
TOOL = ToolSpec(name="time", description="", parameters={"type": "object"})


def made(request: ChatRequest, template: str) -> Fitted:
    generate = generate_for(request, Sampling(), LocalOptions())
    return fitted(generate, request, template)


def begun(text: str) -> ChatRequest:
    said = (Message(role="user", content="q"), Message(role="assistant", content=text))
    return ChatRequest(messages=said)


def test_a_raw_prompt_has_no_messages_no_tools_and_a_parser_that_leaves_all() -> None:
    got = made(ChatRequest(prompt="a", tools=(TOOL,), tool_choice="required"), PLAIN)
    assert got.generate == Generate(id=0, prompt="a", sampling=Sampling())
    text = '<think>x</think><tool_call>{"name": "time", "arguments": {}}</tool_call>'
    assert got.parser.feed(text) == [TextDelta(text=text)]
    assert got.parser.finish() == []


def test_a_raw_prompt_can_be_held_to_a_schema() -> None:
    wanted = {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}}
    grammar = made(ChatRequest(prompt="a", response_format=wanted), PLAIN).generate.grammar
    assert (grammar.kind, grammar.schema) == ("json_schema", {"type": "integer"})
    assert grammar.thoughts == ()


def test_a_beginning_without_reasoning_is_handed_on_as_it_is() -> None:
    got = made(begun("So"), PLAIN)
    assert got.generate.messages[-1] == ChatMessage(role="assistant", content="So")
    assert got.generate.grammar == Grammar()
    assert got.parser.feed(" far") == [TextDelta(text=" far")]


def test_a_beginning_stands_behind_the_reasoning_that_the_prompt_opens() -> None:
    got = made(begun("So"), THINKING)
    assert got.generate.messages[-1].content == "</think>\n\nSo"
    assert got.parser.feed(" far.") == [TextDelta(text=" far.")]


def test_a_beginning_may_itself_end_the_reasoning() -> None:
    got = made(begun("hm</think>So"), THINKING)
    assert got.generate.messages[-1].content == "hm</think>So"
    assert got.parser.feed(" far.") == [TextDelta(text=" far.")]


def test_a_beginning_that_leaves_reasoning_open_is_gone_on_with_in_it() -> None:
    got = made(begun("<think>hm"), PLAIN)
    assert got.parser.feed("so</think>yes") == [ReasoningDelta(text="so"), TextDelta(text="yes")]


def test_an_empty_beginning_is_none() -> None:
    got = made(begun(""), THINKING)
    assert got.generate.messages[-1].content == ""
    assert got.parser.feed("hm</think>yes") == [ReasoningDelta(text="hm"), TextDelta(text="yes")]


@each_row("fields", [{"system": "s"}, {"messages": begun("a").messages}])
def test_a_prompt_beside_a_conversation_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="one of the two"):
        made(ChatRequest(prompt="a", **fields), PLAIN)  # type: ignore[arg-type]
