"""OpenAI's endpoints on the embedded model: real tokens, real schemas, real counts."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.channels.http.openai.recorded import WEATHER
from tests.channels.http.openai.rig import Answer, raw_post
from tests.channels.http.rig import Served, served

pytest.importorskip("llama_cpp")
pytestmark = pytest.mark.real_model
shared = pytest.mark.asyncio(loop_scope="module")  # for those that take `at`

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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Local]:
    """One daemon and one worker of the engine for the file: no test asks what was before it."""
    async with served(tmp_path_factory.mktemp("local"), tables=LOCAL) as found:
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
    chunks = answer.data() if answer.body.startswith((b"data:", b":")) else [answer.json()]
    return [
        one
        for chunk in chunks
        for choice in chunk["choices"]
        for one in (choice["logprobs"] or {"content": []})["content"]
    ]


@shared
async def test_stream_text_is_the_whole_text_and_usage_is_the_tokenizers_count(
    at: Local,
) -> None:
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


@shared
@pytest.mark.parametrize("stream", [False, True])
async def test_log_probability_tokens_are_the_content(at: Local, stream: bool) -> None:
    answer = await at.chat(logprobs=True, top_logprobs=3, stream=stream)
    found = logprobs_of(answer)
    text = streamed(answer) if stream else text_of(answer)
    assert text
    assert b"".join(bytes(one["bytes"]) for one in found).decode() == text
    assert all(one["logprob"] <= 0 and len(one["top_logprobs"]) == 3 for one in found)


@shared
async def test_a_schema_is_honoured(at: Local) -> None:
    schema = {"const": "foooo"}
    given = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
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


@shared
@pytest.mark.parametrize("stream", [False, True])
async def test_a_required_tool_is_called_once_with_arguments_by_its_schema(
    at: Local, stream: bool
) -> None:
    answer = await at.chat(tools=[WEATHER], tool_choice="required", max_tokens=100, stream=stream)
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


@shared
@pytest.mark.parametrize("stream", [False, True])
async def test_a_context_that_is_exceeded_is_a_400_with_the_counts(at: Local, stream: bool) -> None:
    # A raw prompt: the embedded model's template cuts long messages.
    prompt = "the sea and the land. " * 30_000
    answer = await at.post("/v1/completions", prompt=prompt, stream=stream)
    error = answer.json()["error"]
    assert (answer.status, error["type"]) == (400, "exceed_context_size_error")
    assert error["n_prompt_tokens"] > error["n_ctx"] > 0


@shared
async def test_raw_prompts_are_gone_on_with_as_text_and_as_tokens(at: Local) -> None:
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


@shared
async def test_a_bias_by_text_bans_its_tokens(at: Local) -> None:
    plain = await at.chat(logprobs=True)
    first = logprobs_of(plain)[0]["token"]
    other = await at.chat(logprobs=True, logit_bias=[[first, False]])
    assert other.status == 200, other.body
    assert first not in {one["token"] for one in logprobs_of(other)}


@shared
async def test_prompt_progress_ends_with_the_whole_prompt(at: Local) -> None:
    new = [{"role": "user", "content": "Of what no other test has asked: count the hills."}]
    answer = await at.chat(messages=new, stream=True, return_progress=True)
    again = await at.chat(messages=new, stream=True, return_progress=True)
    caches = []
    for each in (answer, again):
        told = [chunk["prompt_progress"] for chunk in each.data() if "prompt_progress" in chunk]
        processed = [one["processed"] for one in told]
        assert processed[0] == told[0]["cache"]
        assert processed == sorted(processed)
        assert processed[-1] == told[-1]["total"]
        caches.append(told[0]["cache"])
    assert caches[1] > caches[0]


@shared
async def test_the_beginning_of_an_answer_is_gone_on_with(at: Local) -> None:
    whole = text_of(await at.chat(max_tokens=12))
    begun = whole[: len(whole) // 2]
    rest = await at.chat(messages=[*SAID, {"role": "assistant", "content": begun}])
    assert rest.status == 200, rest.body
    assert text_of(rest)


@shared
async def test_choices_are_counted_together(at: Local) -> None:
    told = (await at.chat(n=2, temperature=1, seed=3, max_tokens=8)).json()
    assert [choice["index"] for choice in told["choices"]] == [0, 1]
    assert all(choice["message"]["content"] for choice in told["choices"])


@shared
async def test_h8_what_a_loose_schema_asks_in_vain_is_a_notice_and_no_refusal(
    at: Local,
) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "not": {"const": 7}}},
        "required": ["n"],
    }

    def asked(*, strict: bool) -> dict[str, Any]:
        inner = {"name": "n", "schema": schema, "strict": strict}
        return {"type": "json_schema", "json_schema": inner}

    loose = await at.chat(response_format=asked(strict=False))
    strict = await at.chat(response_format=asked(strict=True))
    assert strict.status == 400
    assert "#/properties/n/not" in strict.json()["error"]["message"]
    assert loose.status == 200, loose.body
    (notice,) = loose.json()["clawd"]["notices"]
    assert "left out: not (" in notice and "strict is false" in notice


@shared
async def test_h4_a_real_call_streams_its_arguments_in_pieces(at: Local) -> None:
    # So long that not all of them can wait for a reader who is not let run for a moment.
    days = {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 30, "maxItems": 30}
    parameters = {
        "type": "object",
        "properties": {"days": days},
        "required": ["days"],
        "additionalProperties": False,
    }
    function = {"name": "get_weather", "description": "Weather", "parameters": parameters}
    asked = {
        "messages": [{"role": "user", "content": "What is the weather in Zurich?"}],
        "tools": [{"type": "function", "function": function}],
        "tool_choice": "required",
        "max_tokens": 300,
    }
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
    assert len(pieces) >= 2  # a reader that is slow gets several in one
    told = "".join(piece["function"]["arguments"] for piece in pieces)
    assert told == whole["function"]["arguments"]
