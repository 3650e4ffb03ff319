"""/v1/responses: what its bodies become, and its answers, read raw from the socket."""

import json
from typing import Any

from clawd.channels.http.model_api import GatewayEvent
from clawd.engine.protocol import TokenLogprob, TopLogprob
from clawd.errors import ContextFullError, ProviderError
from clawd.providers.base import CallDelta, Failed, Finished, Message, Sampling, ToolCall
from clawd.wire.events import PromptEvaluated, ReasoningDelta, TextDelta, ToolRequested
from tests.channels.http.openai.recorded import CODEX_FIRST, CODEX_SECOND, WEATHER
from tests.channels.http.openai.rig import DONE, HELLO, USAGE, Answer, Door, door
from tests.support.rows import each_row

FLAT = {"type": "function", **WEATHER["function"]}
EVERYTHING: tuple[GatewayEvent, ...] = (
    ReasoningDelta(text="I "),
    ReasoningDelta(text="think."),
    TextDelta(text="Let me "),
    TextDelta(text="see."),
    CallDelta(index=0, id="call_x", name="get_weather"),
    CallDelta(index=0, arguments='{"city":'),
    CallDelta(index=0, arguments='"Oslo"}'),
    CallDelta(index=1, id="call_y", name="now"),
    Finished(reason="tool_calls", usage=USAGE),
)


async def respond(at: Door, asked: Any = "hello", **body: Any) -> Answer:
    return await at.post("/v1/responses", {"input": asked, **body})


def named(answer: Answer, name: str) -> list[dict[str, Any]]:
    return [value for kind, value in answer.events() if kind == name]


async def read(items: Any, **body: Any) -> tuple[Message, ...]:
    async with door() as at:
        assert (await respond(at, items, **body)).status == 200
        return at.asked.messages


async def test_text_is_what_the_user_says_and_instructions_come_first() -> None:
    async with door() as at:
        await respond(
            at,
            [{"role": "developer", "content": "Two."}, {"role": "user", "content": "hello"}],
            instructions="One.",
            max_output_tokens=5,
            model="m",
            temperature=0,
        )
        asked = at.asked
    assert asked.system == "One.\n\nTwo."
    assert asked.messages == (Message(role="user", content="hello"),)
    assert (asked.model, asked.sampling) == ("m", Sampling(temperature=0.0, max_tokens=5))
    assert await read("hello") == (Message(role="user", content="hello"),)


async def test_calls_join_what_was_said_before_them_and_results_follow() -> None:
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "reasoning", "id": "rs", "summary": []},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Going."}]},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x":1}'},
        {"type": "function_call", "call_id": "b", "name": "g", "arguments": ""},
        {
            "type": "function_call_output",
            "call_id": "b",
            "output": [{"type": "input_text", "text": "B"}],
        },
        {"type": "web_search_call", "id": "ws"},
        {"type": "function_call_output", "call_id": "a", "output": "A"},
    ]
    calls = (
        ToolCall(id="a", name="f", arguments='{"x":1}'),
        ToolCall(id="b", name="g", arguments="{}"),
    )
    assert await read(items) == (
        Message(role="user", content="go"),
        Message(role="assistant", content="Going.", tool_calls=calls),
        Message(role="tool", content="B", tool_call_id="b", name="g"),
        Message(role="tool", content="A", tool_call_id="a", name="f"),
    )


async def test_all_that_a_model_said_between_two_users_is_one_message() -> None:
    items = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "One. "},
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"role": "assistant", "content": "Two."},
        {"type": "function_call_output", "call_id": "a", "output": "A"},
    ]
    call = ToolCall(id="a", name="f", arguments="{}")
    said = Message(role="assistant", content="One. Two.", tool_calls=(call,))
    assert (await read(items))[1] == said


async def test_fields_without_meaning_here_are_ignored_and_null_is_absent() -> None:
    ignored = {
        "store": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "k",
        "service_tier": "auto",
        "truncation": "auto",
        "client_metadata": {},
        "user": "me",
    }
    absent = [
        *("instructions", "tools", "tool_choice", "text"),
        *("stream", "metadata", "top_p", "previous_response_id"),
    ]
    async with door() as at:
        await respond(at, "hello", **ignored, **dict.fromkeys(absent))
        await respond(at, "hello")
        assert at.generations.asked[0] == at.generations.asked[1]


async def test_functions_are_flat_and_other_tools_passed_over() -> None:
    tools = [{"type": "namespace", "tools": []}, FLAT, {"type": "web_search"}, WEATHER]
    async with door() as at:
        choice = {"type": "function", "name": "get_weather"}
        await respond(at, tools=tools, tool_choice=choice, parallel_tool_calls=False)
        asked = at.asked
    assert [tool.name for tool in asked.tools] == ["get_weather", "get_weather"]
    assert asked.tools[0] == asked.tools[1]
    assert (asked.tool_choice, asked.parallel_calls) == ("get_weather", False)


async def test_a_format_by_schema_is_flat_too() -> None:
    schema = {"type": "object"}
    given = {"type": "json_schema", "name": "a", "strict": True, "schema": schema}
    async with door() as at:
        told = (await respond(at, text={"format": given, "verbosity": "low"})).json()
        asked = at.asked
    assert asked.response_format == {
        "type": "json_schema",
        "json_schema": {"name": "a", "schema": schema, "strict": True},
    }
    assert told["text"] == {"format": given}


async def test_the_requests_of_codex_are_taken_whole() -> None:
    async with door() as at:
        assert (await at.post("/v1/responses", CODEX_FIRST)).status == 200
        assert (await at.post("/v1/responses", CODEX_SECOND)).status == 200
        first, second = at.generations.asked
    assert [tool.name for tool in first.tools] == [
        *("exec_command", "update_plan", "collaboration__spawn"),
    ]
    assert first.parallel_calls is False
    assert [message.role for message in first.messages] == ["user", "user"]
    assert first.system is not None and first.system == second.system
    call = ToolCall(id="call_1", name="exec_command", arguments='{"path":"/"}')
    assert second.messages[2:] == (
        Message(
            role="assistant", content="Listing.", tool_calls=(call,), reasoning="I should list."
        ),
        Message(
            role="tool",
            content="Exit code: 0\nOutput:\none",
            tool_call_id="call_1",
            name="exec_command",
        ),
    )


async def test_a_whole_response_has_its_items_and_usage() -> None:
    async with door(EVERYTHING) as at:
        told = (await respond(at, tools=[FLAT], metadata={"a": "b"})).json()
    assert told["id"].startswith("resp_")
    assert (told["object"], told["status"], told["error"]) == ("response", "completed", None)
    assert told["incomplete_details"] is None and told["metadata"] == {"a": "b"}
    reasoning, message, first, second = told["output"]
    assert [item["type"] for item in told["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "I think."}]
    assert reasoning["summary"] == []
    assert message["id"].startswith("msg_") and message["status"] == "completed"
    assert message["content"] == [
        {"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}
    ]
    assert (first["call_id"], first["name"], first["status"]) == (
        "call_x",
        "get_weather",
        "completed",
    )
    assert json.loads(first["arguments"]) == {"city": "Oslo"}
    assert second["arguments"] == "{}"
    assert told["usage"] == {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 14,
    }


async def test_a_stream_tells_every_event_of_every_item_in_order() -> None:
    async with door(EVERYTHING) as at:
        answer = await respond(at, tools=[FLAT], stream=True)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [name.removeprefix("response.") for name, _ in answer.events()] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "output_item.added",
        "function_call_arguments.done",
        "output_item.done",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [value["sequence_number"] for _, value in answer.events()] == list(range(24))
    assert all(name == value["type"] for name, value in answer.events())
    assert b"[DONE]" not in answer.body


async def test_ids_and_places_are_the_same_over_all_events_and_deltas_are_the_whole() -> None:
    async with door(EVERYTHING) as at:
        answer = await respond(at, tools=[FLAT], stream=True)
    completed = named(answer, "response.completed")[0]["response"]
    assert named(answer, "response.created")[0]["response"]["id"] == completed["id"]
    added = [each["item"]["id"] for each in named(answer, "response.output_item.added")]
    done = {each["output_index"]: each for each in named(answer, "response.output_item.done")}
    assert [item["id"] for item in completed["output"]] == added
    assert [done[index]["item"] for index in sorted(done)] == completed["output"]
    for _, value in answer.events():
        if "item_id" in value:
            assert added[value["output_index"]] == value["item_id"]
    text = "".join(each["delta"] for each in named(answer, "response.output_text.delta"))
    assert text == completed["output"][1]["content"][0]["text"] == "Let me see."
    assert named(answer, "response.output_text.done")[0]["text"] == text
    for index in (2, 3):
        pieces = [
            each["delta"]
            for each in named(answer, "response.function_call_arguments.delta")
            if each["output_index"] == index
        ]
        assert "".join(pieces) == completed["output"][index]["arguments"]


async def test_reasoning_is_a_summary_for_who_asks_for_one() -> None:
    async with door(EVERYTHING) as at:
        answer = await respond(at, stream=True, reasoning={"effort": "low", "summary": "auto"})
    names = [name for name, _ in answer.events()]
    assert names.count("response.reasoning_summary_text.delta") == 2
    assert "response.reasoning_summary_part.added" in names
    assert "response.reasoning_summary_part.done" in names
    assert not any(name.startswith("response.reasoning_text") for name in names)
    item = named(answer, "response.completed")[0]["response"]["output"][0]
    assert item["summary"] == [{"type": "summary_text", "text": "I think."}]


@each_row("stream", [False, True])
async def test_an_answer_that_was_cut_is_incomplete(stream: bool) -> None:
    cut = (
        TextDelta(text="He"),
        CallDelta(index=0, id="c", name="f", arguments='{"a'),
        Finished(reason="length", usage=USAGE),
    )
    async with door(cut) as at:
        answer = await respond(at, stream=stream, max_output_tokens=3)
    told = named(answer, "response.incomplete")[0]["response"] if stream else answer.json()
    assert told["status"] == "incomplete"
    assert told["incomplete_details"] == {"reason": "max_output_tokens"}
    assert told["max_output_tokens"] == 3
    assert [item["status"] for item in told["output"]] == ["completed", "incomplete"]


@each_row("stream", [False, True])
async def test_an_answer_of_nothing_is_an_empty_message(stream: bool) -> None:
    async with door((DONE,)) as at:
        answer = await respond(at, stream=stream)
    told = named(answer, "response.completed")[0]["response"] if stream else answer.json()
    assert [item["content"][0]["text"] for item in told["output"]] == [""]


@each_row("stream", [False, True])
async def test_log_probabilities_come_where_they_are_included(stream: bool) -> None:
    likely = TopLogprob(token=0, piece=b"H", logprob=-1.0)
    token = TokenLogprob(token=0, piece=b"Hello", logprob=-0.5, top=(likely,))
    end = Finished(reason="stop", usage=USAGE, logprobs=(token,))
    async with door((*HELLO[:-1], end)) as at:
        include = ["message.output_text.logprobs"]
        answer = await respond(at, stream=stream, include=include, top_logprobs=1)
        assert (at.asked.sampling.logprobs, at.asked.sampling.top_logprobs) == (True, 1)
    told = named(answer, "response.completed")[0]["response"] if stream else answer.json()
    part = told["output"][0]["content"][0]
    assert "".join(one["token"] for one in part["logprobs"]) == part["text"] == "Hello"


@each_row("stream", [False, True])
async def test_a_failure_before_the_answer_is_a_status(stream: bool) -> None:
    full = ContextFullError("too long", data={"n_prompt_tokens": 900, "n_ctx": 512})
    async with door((Failed(error=full),)) as at:
        answer = await respond(at, stream=stream)
    assert (answer.status, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


async def test_a_failure_in_the_middle_is_an_error_and_a_failed_response() -> None:
    broken = (
        TextDelta(text="He"),
        Failed(error=ProviderError("gone", kind="network"), partial=True),
    )
    async with door(broken) as at:
        answer = await respond(at, stream=True)
    (error,) = named(answer, "error")
    assert error["error"]["message"] == error["message"] == "gone"
    name, last = answer.events()[-1]
    assert name == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {"code": "provider", "message": "gone"}


async def test_what_clawd_does_beside_the_answer_is_told_only_to_who_asks() -> None:
    events = (
        PromptEvaluated(tokens=9, cached=2, elapsed_ms=1, context_used=9, context_size=99),
        ToolRequested(call_id="c", tool="time", arguments="{}"),
        *HELLO,
    )
    async with door(events, conversation_id="conv-1") as at:
        quiet = await respond(at, stream=True)
        loud = await respond(at, stream=True, stream_options={"clawd_events": True})
        whole = (await respond(at)).json()
    assert all(name.startswith("response.") for name, _ in quiet.events())
    told = [(name, value) for name, value in loud.events() if name.startswith("clawd.")]
    assert [name for name, _ in told] == [
        "clawd.prompt_progress",
        "clawd.prompt_progress",
        "clawd.prompt_eval",
        "clawd.tool_call",
    ]
    assert all(name == value["type"] for name, value in told)
    assert [value["sequence_number"] for _, value in loud.events()] == list(
        range(len(loud.events()))
    )
    assert whole["clawd"]["conversation_id"] == "conv-1"
    assert whole["clawd"]["tool_calls"][0]["name"] == "time"


async def test_tokens_of_a_prompt_are_counted() -> None:
    async with door() as at:
        answer = await at.post("/v1/responses/input_tokens", {"input": "hello"})
    assert answer.json() == {"object": "response.input_tokens", "input_tokens": 42}


async def test_r5_what_was_thought_belongs_to_what_the_model_said_or_called_next() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    kept = await read(
        [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "a plan"}]},
            call,
            {"type": "function_call_output", "call_id": "c", "output": "seen"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "b plan"}]},
            {"role": "assistant", "content": "done"},
            {"type": "reasoning", "encrypted_content": "x", "summary": []},
            {"role": "user", "content": "more"},
        ]
    )
    assert [(message.role, message.reasoning) for message in kept] == [
        ("user", ""),
        ("assistant", "a plan"),
        ("tool", ""),
        ("assistant", "b plan"),
        ("user", ""),
    ]
