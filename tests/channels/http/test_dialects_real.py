"""Anthropic's and Ollama's doors before the embedded model: what only a real model can show."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.channels.http.anthropic.reading import message_of
from tests.channels.http.rig import Served, served
from tests.channels.http.told import raw, reread_lines, reread_sse

MODEL = "here"
LOCAL = f'[providers.models.{MODEL}]\nkind = "local"\n'
HELLO = {"role": "user", "content": "hello"}
SUM = {"role": "user", "content": "what is 12 times 7?"}
PARAMETERS = {
    "type": "object",
    "properties": {"expression": {"type": "string"}},
    "required": ["expression"],
}
CALCULATOR = {"name": "calculator", "description": "calculates", "input_schema": PARAMETERS}
FUNCTION = {
    "type": "function",
    "function": {"name": "calculator", "description": "calculates", "parameters": PARAMETERS},
}
SCHEMA = {
    "type": "object",
    "properties": {"count": {"type": "integer"}},
    "required": ["count"],
    "additionalProperties": False,
}
MESSAGES, CHAT, GENERATE = "/v1/messages", "/api/chat", "/api/generate"


class Real:
    def __init__(self, door: Served) -> None:
        self._door = door

    async def message(self, *messages: Any, **fields: Any) -> dict[str, Any]:
        """Ask for a message, whole and as a stream; both must be the same."""
        body = {"model": MODEL, "max_tokens": 32000, "messages": list(messages), **fields}
        body["tools"] = fields.get("tools") or [CALCULATOR]
        whole = (await raw(self._door.url, MESSAGES, body)).json()
        data = (await raw(self._door.url, MESSAGES, body | {"stream": True})).body
        streamed = message_of(reread_sse(data))
        start = reread_sse(data)[0][1]["message"]["usage"]
        end = streamed["usage"]
        prompt = ("input_tokens", "cache_read_input_tokens")
        assert [start[name] for name in prompt] == [end[name] for name in prompt]
        assert _settled(whole) == _settled(streamed)
        return streamed

    async def lines(self, path: str, **body: Any) -> list[dict[str, Any]]:
        answer = await raw(self._door.url, path, {"model": MODEL, **body})
        assert answer.status == 200, answer
        return reread_lines(answer.body)

    async def whole(self, path: str, **body: Any) -> Any:
        return (await raw(self._door.url, path, {"model": MODEL, "stream": False, **body})).json()


def _settled(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without its ids, and without how much of the prompt a cache had."""
    usage = message["usage"]
    prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
    content = [block | {"id": ""} for block in message["content"]]
    told = {"prompt": prompt, "answer": usage["output_tokens"]}
    return message | {"id": "", "content": content, "usage": told}


@asynccontextmanager
async def real(folder: Path) -> AsyncIterator[Real]:
    async with served(folder, tables=LOCAL) as door:
        yield Real(door)


async def test_messages_of_a_model_are_the_same_whole_and_streamed(tmp_path: Path) -> None:
    async with real(tmp_path) as door:
        message = await door.message(HELLO)
        (block,) = message["content"]
        assert block["text"].startswith("Hello!")
        assert message["stop_reason"] == "end_turn"
        assert message["usage"]["output_tokens"] > 10
        cut = await door.message(HELLO, max_tokens=3)
        assert cut["stop_reason"] == "max_tokens"
        assert cut["usage"]["output_tokens"] == 3
        stopped = await door.message(HELLO, stop_sequences=["demo"])
        assert stopped["content"][0]["text"] == block["text"].partition("demo")[0]
        assert (await door.message())["stop_reason"] == "end_turn"


async def test_what_a_cache_had_is_told_apart(tmp_path: Path) -> None:
    async with real(tmp_path) as door:
        usage = (await door.message(HELLO))["usage"]
    assert usage["cache_read_input_tokens"] > usage["input_tokens"] > 0
    assert usage["cache_creation_input_tokens"] == 0


async def test_a_call_makes_its_round_trip_over_messages(tmp_path: Path) -> None:
    async with real(tmp_path) as door:
        message = await door.message(SUM)
        (call,) = message["content"]
        assert (message["stop_reason"], call["name"]) == ("tool_use", "calculator")
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "84"}
        said = {"role": "assistant", "content": [call]}
        answer = await door.message(SUM, said, {"role": "user", "content": [result]})
    assert answer["stop_reason"] == "end_turn"
    assert "84" in answer["content"][0]["text"]


async def test_choices_and_schemas_bind_the_model_over_messages(tmp_path: Path) -> None:
    async with real(tmp_path) as door:
        forced = await door.message(HELLO, tool_choice={"type": "any"})
        assert [block["type"] for block in forced["content"]] == ["tool_use"]
        assert isinstance(forced["content"][0]["input"]["expression"], str)
        none = await door.message(SUM, tool_choice={"type": "none"})
        assert {block["type"] for block in none["content"]} == {"text"}
        wanted = {"format": {"type": "json_schema", "schema": SCHEMA}}
        held = await door.message(HELLO, output_config=wanted, tool_choice={"type": "none"})
        assert isinstance(json.loads(held["content"][0]["text"])["count"], int)


async def test_too_long_a_prompt_is_refused_before_a_stream_begins(tmp_path: Path) -> None:
    block = {"type": "tool_use", "id": "a", "name": "calculator", "input": {"expression": "1"}}
    long = " ".join(map(str, range(50_000)))
    history = [
        SUM,
        {"role": "assistant", "content": [block]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": long}]},
    ]
    body = {"model": MODEL, "max_tokens": 9, "messages": history, "tools": [CALCULATOR]}
    async with served(tmp_path, tables=LOCAL) as door:
        for stream in (True, False):
            answer = await raw(door.url, MESSAGES, body | {"stream": stream})
            assert answer.status == 400
            assert answer.json()["error"]["type"] == "invalid_request_error"
            assert answer.json()["error"]["message"].startswith("prompt is too long: ")


async def test_lines_of_a_model_tell_the_whole_answer(tmp_path: Path) -> None:
    async with real(tmp_path) as door:
        lines = await door.lines(CHAT, messages=[HELLO], tools=[FUNCTION])
        whole = await door.whole(CHAT, messages=[HELLO], tools=[FUNCTION])
        assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"]
        last = lines[-1]
        for name in ("prompt_eval_count", "eval_count", "done_reason"):
            assert last[name] == whole[name]
        for name in ("total_duration", "prompt_eval_duration", "eval_duration"):
            assert last[name] > 0
        assert last["total_duration"] >= last["prompt_eval_duration"] + last["eval_duration"]
        short = await door.lines(
            CHAT, messages=[HELLO], tools=[FUNCTION], options={"num_predict": 2}
        )
        assert (short[-1]["done_reason"], short[-1]["eval_count"]) == ("length", 2)


async def test_a_call_makes_its_round_trip_over_lines(tmp_path: Path) -> None:
    async with real(tmp_path) as door:
        lines = await door.lines(CHAT, messages=[SUM], tools=[FUNCTION])
        (message,) = [line["message"] for line in lines if "tool_calls" in line["message"]]
        (call,) = message["tool_calls"]
        assert isinstance(call["function"]["arguments"], dict)
        result = {"role": "tool", "tool_name": "calculator", "content": "84"}
        answer = await door.whole(CHAT, messages=[SUM, message, result], tools=[FUNCTION])
    assert "84" in answer["message"]["content"]


async def test_schemas_bind_the_model_over_lines(tmp_path: Path) -> None:
    async with real(tmp_path) as door:
        held = await door.whole(GENERATE, prompt="hello", format=SCHEMA)
        assert isinstance(json.loads(held["response"])["count"], int)
        any_json = await door.whole(GENERATE, prompt="hello", format="json")
        assert isinstance(json.loads(any_json["response"]), dict)
