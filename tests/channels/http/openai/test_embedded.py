"""OpenAI's endpoints on the embedded model: real tokens, real schemas, real counts."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.channels.http.openai.recorded import WEATHER
from tests.channels.http.openai.rig import Answer, raw_post
from tests.channels.http.rig import Served, served

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.real_model

LOCAL = '[providers.models.local]\nkind = "local"\nmodel = "embedded"\n'
PLAIN = {"model": "embedded", "temperature": 0, "max_tokens": 24}
SAID = [{"role": "user", "content": "Tell me about the sea."}]


class Local:
    def __init__(self, found: Served) -> None:
        self._port = int(found.url.rsplit(":", 1)[1])

    async def post(self, path: str, **body: Any) -> Answer:
        return await raw_post(self._port, path, PLAIN | body, X_Clawd_Inject="off")

    async def chat(self, **body: Any) -> Answer:
        return await self.post("/v1/chat/completions", **({"messages": SAID} | body))

    async def tokens(self, **body: Any) -> int:
        path = "/v1/chat/completions/input_tokens"
        answer = await self.post(path, **({"messages": SAID} | body))
        return int(answer.json()["input_tokens"])


@asynccontextmanager
async def local(folder: Path) -> AsyncIterator[Local]:
    async with served(folder, tables=LOCAL) as found:
        yield Local(found)


def text_of(answer: Answer) -> str:
    return str(answer.json()["choices"][0]["message"]["content"])


def streamed(answer: Answer) -> str:
    return "".join(
        choice["delta"].get("content") or ""
        for chunk in answer.data()
        for choice in chunk["choices"]
    )


def logprobs_of(answer: Answer) -> list[dict[str, Any]]:
    chunks = answer.data() if answer.body.startswith(b"data:") else [answer.json()]
    return [
        one
        for chunk in chunks
        for choice in chunk["choices"]
        for one in (choice["logprobs"] or {"content": []})["content"]
    ]


async def test_stream_text_is_the_whole_text_and_usage_is_the_tokenizers_count(
    tmp_path: Path,
) -> None:
    async with local(tmp_path) as at:
        whole = await at.chat()
        counted = await at.tokens()
        again = await at.chat(stream=True, stream_options={"include_usage": True})
    assert text_of(whole) == streamed(again)
    usage = whole.json()["usage"]
    assert usage["prompt_tokens"] == counted
    assert usage["total_tokens"] == counted + usage["completion_tokens"]
    assert usage["completion_tokens"] <= 24
    last = again.data()[-1]["usage"]
    assert last["prompt_tokens"] == counted
    assert last["prompt_tokens_details"]["cached_tokens"] > 0
    timings = whole.json()["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == counted
    assert timings["predicted_n"] == usage["completion_tokens"]


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probability_tokens_are_the_content(tmp_path: Path, stream: bool) -> None:
    async with local(tmp_path) as at:
        answer = await at.chat(logprobs=True, top_logprobs=3, stream=stream)
    found = logprobs_of(answer)
    text = streamed(answer) if stream else text_of(answer)
    assert text
    assert b"".join(bytes(one["bytes"]) for one in found).decode() == text
    assert all(one["logprob"] <= 0 and len(one["top_logprobs"]) == 3 for one in found)


async def test_a_schema_is_honoured(tmp_path: Path) -> None:
    schema = {"const": "foooo"}
    given = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    async with local(tmp_path) as at:
        chat = await at.chat(response_format=given)
        response = await at.post(
            "/v1/responses",
            input="Give me a.",
            max_output_tokens=24,
            text={"format": {"type": "json_schema", "name": "a", "schema": schema}},
        )
    assert json.loads(text_of(chat)) == "foooo"
    (item,) = response.json()["output"]
    assert json.loads(item["content"][0]["text"]) == "foooo"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_required_tool_is_called_once_with_arguments_by_its_schema(
    tmp_path: Path, stream: bool
) -> None:
    async with local(tmp_path) as at:
        answer = await at.chat(
            tools=[WEATHER], tool_choice="required", max_tokens=100, stream=stream
        )
    if stream:
        pieces = [
            piece
            for chunk in answer.data()
            for choice in chunk["choices"]
            for piece in choice["delta"].get("tool_calls", [])
        ]
        assert {piece["index"] for piece in pieces} == {0}
        names = [piece["function"]["name"] for piece in pieces if "id" in piece]
        arguments = "".join(piece["function"]["arguments"] for piece in pieces)
        reason = [chunk["choices"][0]["finish_reason"] for chunk in answer.data()][-1]
    else:
        choice = answer.json()["choices"][0]
        names = [call["function"]["name"] for call in choice["message"]["tool_calls"]]
        arguments = choice["message"]["tool_calls"][0]["function"]["arguments"]
        reason = choice["finish_reason"]
    assert names == ["get_weather"]
    assert list(json.loads(arguments)) == ["city"]
    assert reason == "tool_calls"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_context_that_is_exceeded_is_a_400_with_the_counts(
    tmp_path: Path, stream: bool
) -> None:
    # A raw prompt: the embedded model's template cuts long messages.
    async with local(tmp_path) as at:
        prompt = "the sea and the land. " * 30_000
        answer = await at.post("/v1/completions", prompt=prompt, stream=stream)
    error = answer.json()["error"]
    assert (answer.status, error["type"]) == (400, "exceed_context_size_error")
    assert error["n_prompt_tokens"] > error["n_ctx"] > 0


async def test_raw_prompts_are_gone_on_with_as_text_and_as_tokens(tmp_path: Path) -> None:
    async with local(tmp_path) as at:
        text = (await at.post("/v1/completions", prompt="The sea is", echo=True)).json()
        both = (await at.post("/v1/completions", prompt=["The sea is", "A cat"], n=2)).json()
        streamed = await at.post("/v1/completions", prompt="The sea is", stream=True, logprobs=1)
    said = text["choices"][0]["text"].removeprefix("The sea is")
    assert text["choices"][0]["text"].startswith("The sea is")
    assert [choice["text"] for choice in both["choices"][:2]] == [said, said]
    assert [choice["index"] for choice in both["choices"]] == [0, 1, 2, 3]
    choices = [choice for chunk in streamed.data() for choice in chunk["choices"]]
    assert "".join(choice["text"] for choice in choices) == said
    tokens = [
        token for choice in choices for token in (choice["logprobs"] or {"tokens": []})["tokens"]
    ]
    assert "".join(tokens) == said


async def test_a_bias_by_text_bans_its_tokens(tmp_path: Path) -> None:
    async with local(tmp_path) as at:
        plain = await at.chat(logprobs=True)
        first = logprobs_of(plain)[0]["token"]
        other = await at.chat(logprobs=True, logit_bias=[[first, False]])
    assert other.status == 200, other.body
    assert first not in {one["token"] for one in logprobs_of(other)}


async def test_prompt_progress_ends_with_the_whole_prompt(tmp_path: Path) -> None:
    async with local(tmp_path) as at:
        answer = await at.chat(stream=True, return_progress=True)
        again = await at.chat(stream=True, return_progress=True)
    caches = []
    for each in (answer, again):
        told = [chunk["prompt_progress"] for chunk in each.data() if "prompt_progress" in chunk]
        processed = [one["processed"] for one in told]
        assert processed[0] == told[0]["cache"]
        assert processed == sorted(processed)
        assert processed[-1] == told[-1]["total"]
        caches.append(told[0]["cache"])
    assert caches[1] > caches[0]


async def test_the_beginning_of_an_answer_is_gone_on_with(tmp_path: Path) -> None:
    async with local(tmp_path) as at:
        whole = text_of(await at.chat(max_tokens=12))
        begun = whole[: len(whole) // 2]
        rest = await at.chat(messages=[*SAID, {"role": "assistant", "content": begun}])
    assert rest.status == 200, rest.body
    assert text_of(rest)


async def test_choices_are_counted_together(tmp_path: Path) -> None:
    async with local(tmp_path) as at:
        told = (await at.chat(n=2, temperature=1, seed=3, max_tokens=8)).json()
    assert [choice["index"] for choice in told["choices"]] == [0, 1]
    assert all(choice["message"]["content"] for choice in told["choices"])


async def test_h8_what_a_loose_schema_asks_in_vain_is_a_notice_and_no_refusal(
    tmp_path: Path,
) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "multipleOf": 7}},
        "required": ["n"],
    }

    def asked(*, strict: bool) -> dict[str, Any]:
        inner = {"name": "n", "schema": schema, "strict": strict}
        return {"type": "json_schema", "json_schema": inner}

    async with local(tmp_path) as at:
        loose = await at.chat(response_format=asked(strict=False))
        strict = await at.chat(response_format=asked(strict=True))
    assert strict.status == 400 and "multipleOf" in strict.json()["error"]["message"]
    assert loose.status == 200, loose.body
    (notice,) = loose.json()["clawd"]["notices"]
    assert "multipleOf" in notice and "strict is false" in notice


async def test_h4_a_real_call_streams_its_arguments_in_pieces(tmp_path: Path) -> None:
    asked = {
        "messages": [{"role": "user", "content": "What is the weather in Zurich?"}],
        "tools": [WEATHER],
        "tool_choice": "required",
        "max_tokens": 80,
    }
    async with local(tmp_path) as at:
        whole = (await at.chat(**asked)).json()["choices"][0]["message"]["tool_calls"][0]
        chunks = (await at.chat(**asked, stream=True)).data()
    pieces = [
        call
        for chunk in chunks
        for choice in chunk["choices"]
        for call in choice["delta"].get("tool_calls", [])
        if call["index"] == 0
    ]
    assert pieces[0]["function"] == {"name": "get_weather", "arguments": ""}
    assert not any("name" in piece["function"] or "id" in piece for piece in pieces[1:])
    assert len(pieces) > 3
    told = "".join(piece["function"]["arguments"] for piece in pieces)
    assert told == whole["function"]["arguments"]
