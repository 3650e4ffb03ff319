"""What a request asks of an answer becomes what the engine holds it to."""

from typing import Any

import msgspec
import pytest

from clawd.engine.protocol import Grammar, Sampling
from clawd.errors import InvalidRequestError
from clawd.providers import openai
from clawd.providers.base import ChatRequest, Message, ToolSpec
from clawd.providers.local_request import (
    LocalOptions,
    callable_tools,
    generate_for,
    grammar_for,
    offered_tools,
)
from clawd.providers.toolcalls.detect import habits_of
from tests.support.rows import each_row

OPEN = {"type": "object"}
TOOLS = (
    ToolSpec(name="read", description="Reads.", parameters=OPEN),
    ToolSpec(name="time", description="Tells the time.", parameters=OPEN),
)
MISTRAL = habits_of("[TOOL_CALLS][ARGS]")
THINKING = habits_of("<seed:tool_call><seed:think>")


def request(**more: Any) -> ChatRequest:
    return ChatRequest(messages=(Message(role="user", content="go"),), **more)


def test_nothing_asked_for_holds_nothing() -> None:
    assert grammar_for(request(), MISTRAL) == Grammar()
    assert grammar_for(request(tools=TOOLS, tool_choice="none"), MISTRAL) == Grammar()


def test_r10_tools_that_may_not_be_called_stay_in_the_prompt_where_it_is_to_go_on() -> None:
    wanted = request(tools=TOOLS, found=TOOLS[:1], tool_choice="none", keeps_tools=True)
    assert grammar_for(wanted, MISTRAL) == Grammar()
    told = generate_for(wanted, Sampling(), LocalOptions()).tools
    called = msgspec.structs.replace(wanted, tool_choice="auto")
    assert told == generate_for(called, Sampling(), LocalOptions()).tools != ()
    body = openai.build_body(wanted, model="m", stream=True)
    assert body["tool_choice"] == "none"


def test_offered_tools_are_held_once_the_model_begins_a_call() -> None:
    assert grammar_for(request(tools=TOOLS), MISTRAL) == Grammar(
        kind="tool_call",
        tools={"read": OPEN, "time": OPEN},
        lazy=True,
        frames=MISTRAL.frames,
        thoughts=MISTRAL.thoughts,
    )


@each_row(("choice", "names"), [("required", {"read", "time"}), ("time", {"time"})])
def test_a_required_or_named_tool_is_held_from_the_start(choice: str, names: set[str]) -> None:
    grammar = grammar_for(request(tools=TOOLS, tool_choice=choice), THINKING)
    assert (grammar.kind, grammar.lazy, set(grammar.tools)) == ("tool_call", False, names)
    assert (grammar.frames, grammar.in_reasoning) == (THINKING.frames, True)
    assert grammar.thoughts == (("<seed:think>", "</seed:think>"),)


def test_a_schema_holds_the_answer_or_a_call() -> None:
    wanted = {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}}
    grammar = grammar_for(request(tools=TOOLS, response_format=wanted), MISTRAL)
    assert (grammar.kind, grammar.schema, grammar.lazy) == (
        "json_schema",
        {"type": "integer"},
        False,
    )
    assert set(grammar.tools) == {"read", "time"}
    only_schema = grammar_for(request(response_format={"type": "json_object"}), MISTRAL)
    assert (only_schema.schema, only_schema.tools) == (OPEN, {})


def test_a_required_call_goes_before_a_schema() -> None:
    both = request(tools=TOOLS, tool_choice="time", response_format={"type": "json_object"})
    assert grammar_for(both, MISTRAL).kind == "tool_call"


def test_reasoning_that_calls_stand_in_is_not_waited_for() -> None:
    habits = habits_of("<|tools_prefix|><|inner_prefix|>")
    assert habits.starts_in_reasoning
    grammar = grammar_for(request(tools=TOOLS), habits)
    assert (grammar.in_reasoning, grammar.thoughts) == (False, ())


@each_row(
    "wanted",
    [{"tool_choice": "gone"}, {"response_format": {"type": "json_schema"}},
     {"response_format": {"type": "xml"}}],
)  # fmt: skip
def test_what_cannot_be_is_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        grammar_for(request(tools=TOOLS, **wanted), MISTRAL)


def test_a_named_tool_is_the_only_one_that_may_be_called_and_the_prompt_begins_as_ever() -> None:
    named = request(tools=TOOLS, tool_choice="time")
    assert callable_tools(named) == TOOLS[1:]
    assert offered_tools(named) == offered_tools(request(tools=TOOLS)) == TOOLS


def test_one_call_at_most_is_what_no_parallel_calls_means() -> None:
    free = grammar_for(request(tools=TOOLS, parallel_calls=False), MISTRAL)
    assert (free.lazy, free.single, free.parallel) == (True, True, False)
    held = grammar_for(request(tools=TOOLS, tool_choice="required", parallel_calls=False), MISTRAL)
    assert (held.lazy, held.single, held.parallel) == (False, True, False)


def test_several_calls_where_one_is_required_only_when_asked_for() -> None:
    asked = grammar_for(request(tools=TOOLS, tool_choice="required", parallel_calls=True), MISTRAL)
    assert (asked.single, asked.parallel) == (False, True)
    silent = grammar_for(request(tools=TOOLS, tool_choice="required"), MISTRAL)
    assert (silent.single, silent.parallel) == (False, False)


def test_r4_a_tool_that_the_prompt_does_not_list_may_be_called_and_nothing_is_rendered() -> None:
    plan, undo = (ToolSpec(name=name, description="", parameters=OPEN) for name in ("plan", "undo"))
    wanted = request(tools=TOOLS, found=(plan,), unlisted=(undo,))
    assert list(grammar_for(wanted, MISTRAL).tools) == ["read", "time", "plan", "undo"]
    generate = generate_for(wanted, Sampling(), LocalOptions())
    assert [tool["function"]["name"] for tool in generate.tools] == ["read", "time"]
    sent = openai.build_body(wanted, model="m", stream=True)
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["read", "time", "plan"]
    for choice, names in (("none", []), ("time", ["time"])):
        chosen = msgspec.structs.replace(wanted, tool_choice=choice)
        assert list(grammar_for(chosen, MISTRAL).tools) == names
