"""Anthropic's and Ollama's doors before the embedded model: what only a real model can show."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.channels.http.anthropic.reading import message_of
from tests.channels.http.rig import Served, served
from tests.channels.http.told import Raw, raw, reread_lines, reread_sse
from tests.support.gguf_models import write_random_gguf

shared = pytest.mark.asyncio(loop_scope="module")  # for those that take `door`

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
    "properties": {"yes": {"type": "boolean"}},
    "required": ["yes"],
    "additionalProperties": False,
}
ALL_OF_IT = "{% for message in messages %}{{ message.content }}{% endfor %}"
TOO_LONG = re.compile(r"prompt is too long: (\d+) tokens > (\d+) maximum; ")
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
        start = dict(reread_sse(data))["message_start"]["message"]["usage"]
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
        asked = {"model": MODEL, "stream": False, **body}
        # One pass: clawd's own tools would be as good an answer as the one by the schema.
        return (await raw(self._door.url, path, asked, headers=["X-Clawd-Inject: off"])).json()


def _settled(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without its ids, and without how much of the prompt a cache had."""
    usage = message["usage"]
    prompt = usage["input_tokens"] + usage["cache_read_input_tokens"]
    content = [block | {"id": ""} for block in message["content"]]
    told = {"prompt": prompt, "answer": usage["output_tokens"]}
    return message | {"id": "", "content": content, "usage": told}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Real]:
    """One gateway and one worker of the engine for all that ask the same of them."""
    async with served(tmp_path_factory.mktemp("local"), tables=LOCAL) as made:
        yield Real(made)


@shared
async def test_messages_of_a_model_are_the_same_whole_and_streamed(door: Real) -> None:
    message = await door.message(HELLO)
    (block,) = message["content"]
    assert block["text"].startswith("Hello!")
    assert message["stop_reason"] == "end_turn"
    assert message["usage"]["output_tokens"] > 10
    cut = await door.message(HELLO, max_tokens=3)
    assert cut["stop_reason"] == "max_tokens"
    assert cut["usage"]["output_tokens"] == 3
    stopped = await door.message(HELLO, stop_sequences=["never said", "demo"])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "demo")
    assert stopped["content"][0]["text"] == block["text"].partition("demo")[0]
    assert (await door.message())["stop_reason"] == "end_turn"


@shared
async def test_what_a_cache_had_is_told_apart(door: Real) -> None:
    usage = (await door.message(HELLO))["usage"]
    assert usage["cache_read_input_tokens"] > usage["input_tokens"] > 0
    assert usage["cache_creation_input_tokens"] == 0


@shared
async def test_a_call_makes_its_round_trip_over_messages(door: Real) -> None:
    message = await door.message(SUM)
    (call,) = message["content"]
    assert (message["stop_reason"], call["name"]) == ("tool_use", "calculator")
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "84"}
    said = {"role": "assistant", "content": [call]}
    answer = await door.message(SUM, said, {"role": "user", "content": [result]})
    assert answer["stop_reason"] == "end_turn"
    assert "84" in answer["content"][0]["text"]


@shared
async def test_choices_and_schemas_bind_the_model_over_messages(door: Real) -> None:
    forced = await door.message(HELLO, tool_choice={"type": "any"})
    assert [block["type"] for block in forced["content"]] == ["tool_use"]
    assert isinstance(forced["content"][0]["input"]["expression"], str)
    none = await door.message(SUM, tool_choice={"type": "none"})
    assert {block["type"] for block in none["content"]} == {"text"}
    wanted = {"format": {"type": "json_schema", "schema": SCHEMA}}
    held = await door.message(HELLO, output_config=wanted, tool_choice={"type": "none"})
    assert isinstance(json.loads(held["content"][0]["text"])["yes"], bool)


def _error_of(answer: Raw) -> dict[str, Any]:
    """Return an error: a whole answer, or what a stream says after signs of life.

    A stream of responses says it twice: as an error, whole, and in the response that failed.
    """
    lines = [line.removeprefix(b"data: ") for line in answer.body.splitlines()]
    values = [json.loads(line) for line in lines if line[:1] == b"{"]
    found = [each.get("response", each) for each in values]
    error, *again = [each for each in found if each.get("error")]
    assert all(each["error"]["code"] == error["error"]["code"] for each in again), again
    assert isinstance(error, dict)
    return error


async def test_too_long_a_prompt_with_tools_is_refused_with_counts(tmp_path: Path) -> None:
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True)
    models.parent.chmod(0o700)
    write_random_gguf(models / "plain.gguf", context_length=512, chat_template=ALL_OF_IT)
    long = {"role": "user", "content": "word " * 3000}
    body = {"model": "plain", "max_tokens": 9, "messages": [long], "tools": [CALCULATOR]}
    async with served(tmp_path, tables=LOCAL) as door:
        for stream in (True, False):
            answer = await raw(door.url, MESSAGES, body | {"stream": stream})
            # What takes longer than a sign of life may is told in the stream.
            assert answer.status == 400 or (stream and answer.status == 200), answer.body
            error = _error_of(answer)["error"]
            assert error["type"] == "invalid_request_error"
            told = TOO_LONG.match(error["message"])
            assert told is not None
            assert int(told[1]) > int(told[2])
        asked = {"model": "plain", "messages": [long], "tools": [FUNCTION], "stream": False}
        answer = await raw(door.url, CHAT, asked)
        assert answer.status == 400
        assert set(answer.json()) == {"error"}


LONG = "word " * 9_000
LONG_MESSAGES = [{"role": "user", "content": LONG}]
OVER: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": LONG_MESSAGES},
    "/v1/completions": {"prompt": LONG},
    "/v1/responses": {"input": LONG},
    MESSAGES: {"messages": LONG_MESSAGES, "max_tokens": 9},
    CHAT: {"messages": LONG_MESSAGES},
    GENERATE: {"prompt": LONG},
}


async def test_r9_a_message_over_the_context_is_the_dialects_own_error_and_never_cut(
    tmp_path: Path,
) -> None:
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True)
    models.parent.chmod(0o700)
    write_random_gguf(models / "plain.gguf", context_length=8192, chat_template=ALL_OF_IT)
    async with served(tmp_path, tables=LOCAL) as door:
        for path, body in OVER.items():
            for header in ("X-Clawd-Inject: off", "X-Clawd-Inject: on"):  # one pass, and the loop
                for stream in (True, False):
                    asked = body | {"model": "plain", "stream": stream}
                    answer = await raw(door.url, path, asked, headers=[header])
                    about = (path, header, stream, answer.body[:300])
                    # What takes longer than a sign of life may is told in the stream.
                    assert answer.status == 400 or (stream and answer.status == 200), about
                    error = _error_of(answer)["error"]
                    if path.startswith("/api/"):
                        assert isinstance(error, str) and "context" in error, about
                    elif path == MESSAGES:
                        assert error["type"] == "invalid_request_error", about
                        told = TOO_LONG.match(error["message"])
                        assert told is not None and int(told[1]) > int(told[2]), about
                    else:
                        assert error["code"] == "context_length_exceeded", about
                        assert error["n_prompt_tokens"] > error["n_ctx"] == 8192, about
        counts = await door.inside.daemon.memory.conversations.counts(owner=None)
        assert counts.conversations == 0


async def test_counting_tells_what_an_answer_tells(tmp_path: Path) -> None:
    async with served(tmp_path, tables=LOCAL) as door:
        body = {"model": MODEL, "messages": [SUM], "tools": [CALCULATOR], "system": "be brief"}
        counted = (await raw(door.url, MESSAGES + "/count_tokens", body)).json()
        usage = (await raw(door.url, MESSAGES, body | {"max_tokens": 9})).json()["usage"]
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


@shared
async def test_the_beginning_of_an_answer_is_gone_on_with(door: Real) -> None:
    whole = (await door.message(HELLO))["content"][0]["text"]
    begun = {"role": "assistant", "content": whole[:30]}
    rest = (await door.message(HELLO, begun))["content"][0]["text"]
    assert whole[:30] + rest == whole


async def test_clawds_own_tools_answer_those_who_bring_none(tmp_path: Path) -> None:
    async with served(tmp_path, tables=LOCAL) as door:
        body = {"model": "embedded", "max_tokens": 200, "messages": [SUM], "stream": True}
        silent = reread_sse((await raw(door.url, MESSAGES, body)).body)
        shown = await raw(door.url, MESSAGES, body, headers=["X-Clawd-Events: on"])
        lines = reread_lines(
            (await raw(door.url, CHAT, {"model": "embedded", "messages": [SUM]})).body
        )
        receipts = door.inside.receipts()
    message = message_of(silent)
    assert [block["type"] for block in message["content"]] == ["text"]
    assert "84" in message["content"][0]["text"]
    assert message["stop_reason"] == "end_turn"
    names = [name for name, _ in reread_sse(shown.body)]
    assert "clawd.tool_call" in names and "clawd.tool_result" in names
    assert message_of([pair for pair in reread_sse(shown.body) if "clawd" not in pair[0]])
    assert "84" in "".join(line["message"]["content"] for line in lines)
    assert [receipt.tool for receipt in receipts] == ["calculator"] * 3


@shared
async def test_lines_of_a_model_tell_the_whole_answer(door: Real) -> None:
    lines = await door.lines(CHAT, messages=[HELLO], tools=[FUNCTION])
    whole = await door.whole(CHAT, messages=[HELLO], tools=[FUNCTION])
    assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"]
    last = lines[-1]
    for name in ("prompt_eval_count", "eval_count", "done_reason"):
        assert last[name] == whole[name]
    for name in ("total_duration", "prompt_eval_duration", "eval_duration"):
        assert last[name] > 0
    assert last["total_duration"] >= last["prompt_eval_duration"] + last["eval_duration"]
    short = await door.lines(CHAT, messages=[HELLO], tools=[FUNCTION], options={"num_predict": 2})
    assert (short[-1]["done_reason"], short[-1]["eval_count"]) == ("length", 2)


@shared
async def test_a_call_makes_its_round_trip_over_lines(door: Real) -> None:
    lines = await door.lines(CHAT, messages=[SUM], tools=[FUNCTION])
    (message,) = [line["message"] for line in lines if "tool_calls" in line["message"]]
    (call,) = message["tool_calls"]
    assert isinstance(call["function"]["arguments"], dict)
    result = {"role": "tool", "tool_name": "calculator", "content": "84"}
    answer = await door.whole(CHAT, messages=[SUM, message, result], tools=[FUNCTION])
    assert "84" in answer["message"]["content"]


@shared
async def test_schemas_bind_the_model_over_lines(door: Real) -> None:
    held = await door.whole(GENERATE, prompt="hello", format=SCHEMA)
    assert isinstance(json.loads(held["response"])["yes"], bool)
    said = await door.whole(CHAT, messages=[HELLO], format=SCHEMA)
    assert isinstance(json.loads(said["message"]["content"])["yes"], bool)
