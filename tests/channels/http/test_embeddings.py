"""POST /v1/embeddings over a real application, real models, and a provider that makes none."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from clawd.channels.http.embeddings import embed, inputs_of
from clawd.errors import InvalidRequestError
from clawd.service.http import gateway_of
from tests.channels.http.local_models import served_locally
from tests.channels.http.rig import Served, served
from tests.support.rows import Rows

shared = pytest.mark.asyncio(loop_scope="module")  # for those that take `door`

PATH = "/v1/embeddings"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One gateway and one worker of the engine for all that ask the same of them."""
    async with served_locally(tmp_path_factory.mktemp("local")) as made:
        yield made


async def embedded(door: Served, **body: Any) -> dict[str, Any]:
    status, answer = await door.post(PATH, {"model": "pooled", **body})
    assert status == 200, answer
    found: dict[str, Any] = answer
    return found


async def refused(door: Served, **body: Any) -> tuple[int, dict[str, Any]]:
    status, answer = await door.post(PATH, {"model": "pooled", **body})
    error: dict[str, Any] = answer["error"]
    return status, error


@shared
async def test_a_text_becomes_a_vector_of_length_one(door: Served) -> None:
    answer = await embedded(door, input="hello world")
    cut = (await door.post("/tokenize", {"model": "pooled", "content": "hello world"}))[1]
    (only,) = answer["data"]
    assert (answer["object"], answer["model"]) == ("list", "pooled")
    assert (only["object"], only["index"], len(only["embedding"])) == ("embedding", 0, 256)
    assert np.linalg.norm(only["embedding"]) == pytest.approx(1.0, abs=1e-5)
    count = len(cut["tokens"])
    assert answer["usage"] == {"prompt_tokens": count, "total_tokens": count}


@shared
async def test_texts_and_tokens_are_mixed_and_keep_their_order(door: Served) -> None:
    cut = (await door.post("/tokenize", {"model": "pooled", "content": "hello"}))[1]["tokens"]
    many = await embedded(door, input=["what is it?", cut, "hello"])
    alone = await embedded(door, input=cut)
    vectors = [each["embedding"] for each in many["data"]]
    assert [each["index"] for each in many["data"]] == [0, 1, 2]
    assert vectors[1] == vectors[2] == alone["data"][0]["embedding"]
    assert vectors[0] != vectors[1]
    assert many["usage"]["prompt_tokens"] > alone["usage"]["prompt_tokens"]


@shared
async def test_base64_holds_the_same_numbers(door: Served) -> None:
    numbers = await embedded(door, input=["a", "b c"])
    encoded = await embedded(door, input=["a", "b c"], encoding_format="base64")
    for one, other in zip(numbers["data"], encoded["data"], strict=True):
        data = base64.b64decode(other["embedding"])
        assert np.frombuffer(data, "<f4").tolist() == one["embedding"]


@shared
async def test_a_model_for_embeddings_alone_makes_them(door: Served) -> None:
    answer = await embedded(door, model="bert", input="hello", dimensions=64)
    assert len(answer["data"][0]["embedding"]) == 64
    chat = {"model": "bert", "messages": [{"role": "user", "content": "hi"}]}
    for stream in (False, True):
        status, told = await door.stream("/v1/chat/completions", chat | {"stream": stream})
        assert "embeddings only" in told
        assert status in ((200, 400) if stream else (400,))  # a slow stream has begun by then


@shared
async def test_what_cannot_be_meant_is_refused_by_name(door: Served) -> None:
    table: list[tuple[dict[str, Any], str]] = [
        ({}, "input"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": {"text": "a"}}, "input"),
        ({"input": ["a", []]}, "input[1]"),
        ({"input": ["a", 5]}, "input[1]"),
        ({"input": ["a", [5, "b"]]}, "input[1]"),
        ({"input": ["a", [-1]]}, "input[1]"),
        ({"input": [True]}, "input[0]"),
        ({"input": [2**31]}, "input[0]"),
        ({"input": ["a"] * 2049}, "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "encoding_format": 5}, "encoding_format"),
        ({"input": "a", "dimensions": 128}, "dimensions"),
        ({"input": "a", "dimensions": "many"}, "dimensions"),
    ]
    rows = Rows()
    for body, param in table:
        with rows.row(str(body)[:80]):
            status, error = await refused(door, **body)
            told = (status, error["type"], error["param"])
            assert told == (400, "invalid_request_error", param)
    rows.check()


@shared
async def test_an_input_that_is_too_long_tells_the_counts(door: Served) -> None:
    status, error = await refused(door, input=["ok", "x " * 3000])
    assert (status, error["type"]) == (400, "exceed_context_size_error")
    assert error["n_prompt_tokens"] > error["n_ctx"] == 1024
    assert "input 2 is too large" in error["message"]


@shared
async def test_empty_inputs_and_foreign_tokens_are_refused(door: Served) -> None:
    for wrong, said in (("", "input 2 is empty"), ([99_999], "99999 is no token")):
        status, error = await refused(door, input=["ok", wrong])
        assert (status, said in error["message"]) == (400, True)


@shared
async def test_who_makes_no_embeddings_says_so(door: Served) -> None:
    status, error = await refused(door, model="embedded", input="a")
    assert (status, error["type"]) == (400, "invalid_request_error")
    assert "makes no embeddings" in error["message"]
    status, error = await refused(door, model="", input="a")
    assert (status, error["type"]) == (501, "not_supported_error")
    status, error = await refused(door, model="no-such", input="a")
    assert (status, error["type"]) == (404, "not_found_error")


@shared
async def test_other_dialects_get_the_same_vectors(door: Served) -> None:
    answer = await embedded(door, input=["a", "b"])
    gateway = gateway_of(door.inside.daemon)
    result = await embed(gateway, door.caller, "pooled", ["a", "b"])
    nothing = await embed(gateway, door.caller, "pooled", [])
    assert result.numbers() == [each["embedding"] for each in answer["data"]]
    assert (result.size, result.model, nothing.vectors) == (256, "pooled", ())


async def test_nothing_is_embedded_for_nobody(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        door.caller = None  # type: ignore[assignment]
        for path in (PATH, "/tokenize", "/detokenize", "/apply-template"):
            assert (await door.post(path, {"input": "a"}))[0] == 403
        for path in ("/props", "/slots"):
            assert (await door.get(path))[0] == 403


def test_inputs_are_read_as_clients_send_them() -> None:
    assert inputs_of("a") == ["a"]
    assert inputs_of([1, 2]) == [(1, 2)]
    assert inputs_of([[1, 2], "a"]) == [(1, 2), "a"]
    with pytest.raises(InvalidRequestError, match="prompt"):
        inputs_of([], "prompt")


async def test_what_stands_before_a_local_provider_embeds_and_counts_with_it(
    tmp_path: Path,
) -> None:
    tables = (
        '[providers.models.all]\nkind = "router"\nproviders = ["mock", "local"]\n'
        '[providers.models.chain]\nkind = "reliable"\nproviders = ["local", "mock"]\n'
    )
    async with served_locally(tmp_path, tables) as door:
        alone = await embedded(door, input="hello")
        there = await embedded(door, input="hello", model="chain/pooled")
        assert there["data"] == alone["data"]
        refusal = await door.post(PATH, {"model": "all/pooled", "input": "hello"})
        assert refusal[0] == 501
        counting = "/v1/messages/count_tokens"
        said = {"model": "embedded", "messages": [{"role": "user", "content": "hi"}]}
        counted = await door.post(counting, said)
        for name in ("all", "chain"):
            assert await door.post(counting, said | {"model": name}) == counted
