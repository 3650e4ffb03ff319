"""Raw prompts, embeddings and the counts of refusals over a real server on loopback."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest

from clawd.errors import ContextFullError, ProviderError
from clawd.providers.base import (
    ChatRequest,
    Embedding,
    Failed,
    Finished,
    Message,
    RawPrompt,
    Vectors,
)
from clawd.providers.openai import vectors_of
from clawd.wire.events import HopUsage, TextDelta
from tests.providers.test_openai_compatible import LIMIT_S, deltas_of, provider_for
from tests.support.chat_server import DONE, Answer, ChatServer, event, streamed
from tests.support.rows import each_row

TOO_LONG = (
    b'{"error":{"code":400,"type":"exceed_context_size_error","message":"too long",'
    b'"n_prompt_tokens":9,"n_ctx":8}}'
)


def embedded(*vectors: list[float], indices: Sequence[int] = ()) -> Answer:
    data = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in zip(indices or range(len(vectors)), vectors, strict=True)
    ]
    body = {"object": "list", "data": data, "model": "e5", "usage": {"prompt_tokens": 7}}
    return Answer(pieces=(json.dumps(body).encode(),))


async def made(server: ChatServer, *inputs: RawPrompt, model: str = "") -> Vectors:
    async with asyncio.timeout(LIMIT_S), provider_for(server) as provider:
        assert isinstance(provider, Embedding)
        return await provider.embed(model, inputs)


async def test_a_raw_prompt_is_forwarded_to_completions_as_a_stream() -> None:
    def piece(text: str, finish: str | None = None) -> bytes:
        choice = {"index": 0, "text": text, "finish_reason": finish}
        return event({"object": "text_completion", "choices": [choice]})

    usage = event({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3}})
    server = ChatServer(streamed(piece("pa"), piece("ss <think>"), piece("", "stop"), usage, DONE))
    deltas = await deltas_of(server, ChatRequest(prompt="def f():"))
    assert server.paths == ["/v1/completions"]
    assert deltas[:-1] == [TextDelta(text="pa"), TextDelta(text="ss <think>")]
    assert isinstance(deltas[-1], Finished)
    spent = msgspec.structs.replace(deltas[-1].usage, tokens_per_s=0.0)
    assert spent == HopUsage(prompt_tokens=2, completion_tokens=3)


async def test_a_raw_prompt_is_forwarded_whole_where_streams_are_off() -> None:
    body = {"choices": [{"index": 0, "text": "yes", "finish_reason": "length"}]}
    server = ChatServer(Answer(pieces=(json.dumps(body).encode(),)))
    deltas = await deltas_of(server, ChatRequest(prompt=(1, 2)), stream=False)
    assert deltas[0] == TextDelta(text="yes")
    assert isinstance(deltas[-1], Finished)
    assert deltas[-1].reason == "length"
    assert server.requests[0]["prompt"] == [1, 2]


async def test_a_refusal_for_the_prompts_length_tells_the_counts() -> None:
    server = ChatServer(Answer(status=400, pieces=(TOO_LONG,)))
    request = ChatRequest(messages=(Message(role="user", content="x" * 100),))
    last = (await deltas_of(server, request))[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, ContextFullError)
    assert last.error.data == {"n_prompt_tokens": 9, "n_ctx": 8}
    assert last.error.message.startswith("HTTP 400: ")


async def test_embeddings_keep_the_order_of_the_inputs_and_have_length_one() -> None:
    server = ChatServer(embedded([0.0, 2.0], [3.0, 4.0], indices=(1, 0)))
    found = await made(server, "a", (5, 6), model="e5-small")
    assert server.paths == ["/v1/embeddings"]
    assert server.requests[0] == {
        "model": "e5-small",
        "input": ["a", [5, 6]],
        "encoding_format": "float",
    }
    assert [np.frombuffer(each, "<f4").tolist() for each in found.vectors] == [
        pytest.approx([0.6, 0.8]),
        pytest.approx([0.0, 1.0]),
    ]
    assert (found.tokens, found.model) == (7, "e5")


async def test_no_inputs_ask_nobody() -> None:
    server = ChatServer(embedded())
    assert (await made(server)).vectors == ()
    assert server.requests == []


async def test_a_refused_embedding_tells_why() -> None:
    with pytest.raises(ContextFullError):
        await made(ChatServer(Answer(status=400, pieces=(TOO_LONG,))), "a")
    with pytest.raises(ProviderError, match="HTTP 404"):
        await made(ChatServer(Answer(status=404, pieces=(b"no such path",))), "a")


@each_row(
    "body",
    [
        b"not json",
        b"{}",
        b'{"data": [{"embedding": [1.0]}]}',
        b'{"data": [{"embedding": [1.0], "index": 0}, {"embedding": [1.0], "index": 0}]}',
        b'{"data": [{"embedding": [1.0], "index": 0}, {"embedding": [1.0], "index": 2}]}',
    ],
)
def test_an_answer_that_is_not_one_vector_for_each_input_is_refused(body: bytes) -> None:
    with pytest.raises(ProviderError):
        vectors_of(body, 2, "m")


def test_a_vector_of_zeros_stays_one() -> None:
    body: dict[str, Any] = {"data": [{"embedding": [0.0, 0.0]}]}
    found = vectors_of(json.dumps(body).encode(), 1, "m")
    assert np.frombuffer(found.vectors[0], "<f4").tolist() == [0.0, 0.0]
