"""What cannot be meant is a 400 in OpenAI's envelope that names the field, also for a stream."""

from typing import Any

from tests.channels.http.openai.recorded import WEATHER
from tests.channels.http.openai.rig import Answer, door
from tests.support.rows import each_row

USER = {"role": "user", "content": "hello"}
ASSISTANT = {"role": "assistant", "content": "a"}
IMAGE = {"type": "image_url", "image_url": {"url": "ftp://example.org/a.png"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}


def said(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def calling(call: Any) -> dict[str, Any]:
    return {"messages": [USER, {"role": "assistant", "tool_calls": call}]}


def formatted(value: Any) -> dict[str, Any]:
    return {"response_format": value}


def by_schema(schema: Any) -> dict[str, Any]:
    return formatted({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}})


CHAT: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages"),
    ({"messages": "hello"}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [123]}, "messages[0]"),
    ({"messages": [{}]}, "messages[0].role"),
    ({"messages": [{"role": 123, "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 123}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": {"text": "a"}}]}, "messages[0].content"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [USER, ASSISTANT, ASSISTANT]}, "messages"),
    (said(IMAGE), "messages[0].content[0].image_url"),
    ({"messages": [{"role": "system", "content": [IMAGE]}, USER]}, "messages[0].content[0]"),
    (said({"type": "text", "text": "a"}, SOUND), "messages[0].content[1]"),
    (said({"type": "text"}), "messages[0].content[0].text"),
    (said(5), "messages[0].content[0]"),
    (calling("x"), "messages[1].tool_calls"),
    (calling([{}]), "messages[1].tool_calls[0]"),
    (calling([{"function": {"arguments": "{}"}}]), "messages[1].tool_calls[0].function.name"),
    (
        calling([{"function": {"name": "f", "arguments": 5}}]),
        "messages[1].tool_calls[0].function.arguments",
    ),
    ({"model": 5}, "model"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": True}, "stream_options"),
    ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": -5}, "max_completion_tokens"),
    ({"max_tokens": "many"}, "max_tokens"),
    ({"stop": [1]}, "stop"),
    ({"stop": ["x"] * 65}, "stop"),
    ({"seed": "x"}, "seed"),
    ({"n": 0}, "n"),
    ({"n": 17}, "n"),
    ({"logprobs": 5}, "logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logit_bias": {"hello": 1}}, "logit_bias"),
    ({"logit_bias": [["hello", 1]]}, "logit_bias"),
    ({"logit_bias": {"5": "x"}}, "logit_bias"),
    ({"logit_bias": {"5": True}}, "logit_bias"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"tools": {}}, "tools"),
    ({"tools": ["x"]}, "tools[0]"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
        "tools[0].function.parameters",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": "perhaps"}, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": 5}, "tool_choice"),
    (
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
        "tool_choice",
    ),
    ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice"),
    (formatted({"type": "sound"}), "response_format.type"),
    (formatted({}), "response_format.type"),
    (formatted("json"), "response_format"),
    (formatted({"type": "json_schema"}), "response_format.json_schema"),
    (formatted({"type": "json_schema", "json_schema": {}}), "response_format.json_schema.schema"),
    (by_schema(123), "response_format.json_schema.schema"),
    (by_schema({"type": "hiccup"}), "response_format.json_schema.schema.type"),
    (by_schema({"type": 123}), "response_format.json_schema.schema.type"),
    (
        by_schema({"properties": {"a": {"items": {"type": ["string", "x"]}}}}),
        "response_format.json_schema.schema.properties.a.items.type",
    ),
    (by_schema({"properties": []}), "response_format.json_schema.schema.properties"),
    (by_schema({"anyOf": {}}), "response_format.json_schema.schema.anyOf"),
    (formatted({"type": "json_object", "schema": 123}), "response_format.schema"),
    (
        formatted({"type": "json_object", "schema": {"type": "hiccup"}}),
        "response_format.schema.type",
    ),
    ({"json_schema": 5}, "json_schema.schema"),
    ({"grammar": 'root ::= "a"'}, "grammar"),
    ({"functions": [{"name": "f"}]}, "functions"),
    ({"modalities": ["text", "audio"]}, "modalities"),
]

COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": {}}, "prompt"),
    ({"prompt": [[]]}, "prompt[0]"),
    ({"prompt": [[1, "a"]]}, "prompt[0]"),
    ({"prompt": [1, -1]}, "prompt"),
    ({"prompt": ["a"] * 17, "n": 2}, "prompt"),
    ({"prompt": [1, 2], "suffix": "end"}, "suffix"),
    ({"suffix": 5}, "suffix"),
    ({"grammar": "x"}, "grammar"),
    ({"best_of": 3}, "best_of"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": "x"}, "logprobs"),
    ({"echo": True, "logprobs": 1}, "echo"),
    ({"echo": 1.5}, "echo"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"n": 0}, "n"),
]

RESPONSES: list[tuple[dict[str, Any], str]] = [
    ({"input": None}, "input"),
    ({"input": 5}, "input"),
    ({"input": []}, "input"),
    ({"input": [5]}, "input[0]"),
    ({"input": [{"type": 5}]}, "input[0].type"),
    ({"input": [{"role": "wizard", "content": "a"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "input[0].content[0].image_url",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        "input[0].content[0].file_id",
    ),
    ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name"),
    ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    (
        {"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]},
        "input[0].output",
    ),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"background": True}, "background"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"instructions": 5}, "instructions"),
    ({"text": "x"}, "text"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
    (
        {"text": {"format": {"type": "json_schema", "schema": {"type": "hiccup"}}}},
        "text.format.schema.type",
    ),
    ({"text": {"format": {"type": "sound"}}}, "text.format.type"),
    ({"text": {"format": "x"}}, "text.format"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "f", "parameters": 5}]}, "tools[0].parameters"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"top_logprobs": 21}, "top_logprobs"),
]


def check(answer: Answer, field: str) -> None:
    assert answer.status == 400, answer.body
    assert answer.headers["content-type"].startswith("application/json")
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["code"] == "invalid_request"
    assert error["param"] == field
    assert error["message"].startswith(field)


@each_row(("body", "field"), CHAT, ids=[field for _, field in CHAT])
async def test_a_chat_body_is_refused(body: dict[str, Any], field: str) -> None:
    async with door() as at:
        check(await at.chat(body), field)
        if "stream" not in body:
            check(await at.chat({**body, "stream": True}), field)
        assert at.generations.opened == []


@each_row(("body", "field"), COMPLETIONS, ids=[field for _, field in COMPLETIONS])
async def test_a_completion_body_is_refused(body: dict[str, Any], field: str) -> None:
    async with door() as at:
        for stream in (False, True):
            asked = {"prompt": "a", **body, "stream": stream}
            check(await at.post("/v1/completions", asked), field)
        assert at.generations.opened == []


@each_row(("body", "field"), RESPONSES, ids=[field for _, field in RESPONSES])
async def test_a_response_body_is_refused(body: dict[str, Any], field: str) -> None:
    async with door() as at:
        for stream in (False, True):
            asked = {"input": "a", **body, "stream": stream}
            check(await at.post("/v1/responses", asked), field)
        assert at.generations.opened == []


async def test_an_earlier_response_is_refused_with_what_to_do_instead() -> None:
    async with door() as at:
        body = {"input": "a", "previous_response_id": "resp_1"}
        message = (await at.post("/v1/responses", body)).json()["error"]["message"]
    assert "send the whole conversation" in message


@each_row("path", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
@each_row("body", [b"{", b"[]", b'"x"', b"\xff\xfe", b"", b"[" * 300])
async def test_a_body_that_is_no_object_is_refused(path: str, body: bytes) -> None:
    async with door() as at:
        answer = await at.post(path, body)
    assert answer.status == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_other_methods_and_paths_are_told_in_the_envelope() -> None:
    async with door() as at:
        answer = await at.post("/v1/chat/nothing", {})
    assert (answer.status, answer.json()["error"]["type"]) == (404, "not_found_error")
