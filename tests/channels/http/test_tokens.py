"""/tokenize, /detokenize, /apply-template, /props and /slots over a real application."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from clawd.channels.http.llama_server import params_of
from clawd.providers.base import Described
from tests.channels.http.local_models import served_locally
from tests.channels.http.rig import Served, served
from tests.support.gguf_models import write_random_gguf
from tests.support.rows import Rows, each_row

shared = pytest.mark.asyncio(loop_scope="module")  # for those that take `door`

TEXT = "<|im_start|>naïve 🙂"
CHAT: dict[str, Any] = {
    "model": "embedded",
    "messages": [{"role": "user", "content": "what is 12 times 7?"}],
    "tools": [
        {
            "type": "function",
            "function": {"name": "calculator", "parameters": {"type": "object"}},
        }
    ],
    "max_tokens": 40,
    "temperature": 0,
}
MANY = 16_384
ENDLESS = {"model": "endless", "prompt": "x", "max_tokens": MANY - 100, "stream": True}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """One gateway and one worker of the engine for all that ask the same of them."""
    async with served_locally(tmp_path_factory.mktemp("local")) as made:
        yield made


@asynccontextmanager
async def served_endless(folder: Path) -> AsyncIterator[Served]:
    """A gateway with a model that neither ends by itself nor says anything twice."""
    async with served_locally(folder, ctx_size=MANY) as door:
        models = folder / "home" / "models"
        write_random_gguf(
            models / "endless.gguf", n_embd=256, n_layer=6, n_ff=768, is_printable=True
        )
        yield door


async def answers(response: aiohttp.ClientResponse) -> None:
    """Return once a stream brought a token: what comes before is a sign of life while it waits."""
    assert response.status == 200
    async for line in response.content:
        name, _, data = line.decode().partition(": ")
        if name == "data" and json.loads(data)["choices"][0]["text"]:
            return
    raise AssertionError("the stream ended before it brought a token")


async def posted(door: Served, path: str, **body: Any) -> Any:
    status, answer = await door.post(path, {"model": "embedded", **body})
    assert status == 200, answer
    return answer


@shared
async def test_a_text_goes_to_tokens_and_back(door: Served) -> None:
    special = (await posted(door, "/tokenize", content=TEXT))["tokens"]
    plain = (await posted(door, "/tokenize", content=TEXT, parse_special=False))["tokens"]
    for tokens in (special, plain):
        assert await posted(door, "/detokenize", tokens=tokens) == {"content": TEXT}
    assert (await posted(door, "/detokenize", tokens=[])) == {"content": ""}
    assert special[0] == 1
    assert len(plain) > len(special)


@shared
async def test_pieces_are_text_or_bytes(door: Served) -> None:
    found = (await posted(door, "/tokenize", content=TEXT, with_pieces=True))["tokens"]
    plain = (await posted(door, "/tokenize", content=TEXT))["tokens"]
    assert [each["id"] for each in found] == plain
    pieces = [each["piece"] for each in found]
    assert pieces[0] == "<|im_start|>"
    assert any(isinstance(piece, list) for piece in pieces)
    data = b"".join(bytes(p) if isinstance(p, list) else p.encode() for p in pieces)
    assert data.decode() == TEXT


@shared
async def test_texts_and_tokens_are_joined(door: Served) -> None:
    hello = (await posted(door, "/tokenize", content="hello"))["tokens"]
    mixed = (await posted(door, "/tokenize", content=[1, "hello", 2]))["tokens"]
    nothing = await posted(door, "/tokenize")
    assert mixed == [1, *hello, 2]
    assert nothing == {"tokens": []}


@shared
async def test_what_cannot_be_meant_is_refused(door: Served) -> None:
    table: list[tuple[str, dict[str, Any]]] = [
        ("/tokenize", {"content": 5}),
        ("/tokenize", {"content": ["a", None]}),
        ("/tokenize", {"content": [99_999]}),
        ("/tokenize", {"content": "a", "add_special": "maybe"}),
        ("/detokenize", {}),
        ("/detokenize", {"tokens": "5"}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": [2**70]}),
        ("/detokenize", {"tokens": [99_999]}),
        ("/apply-template", {}),
        ("/apply-template", {"messages": "hi"}),
    ]
    rows = Rows()
    for path, body in table:
        with rows.row((path, body)):
            status, answer = await door.post(path, {"model": "embedded"} | body)
            assert (status, answer["error"]["type"]) == (400, "invalid_request_error")
    rows.check()


@shared
async def test_a_template_gives_the_prompt_that_is_answered_and_counted(door: Served) -> None:
    prompt = (await posted(door, "/apply-template", **CHAT))["prompt"]
    whole = await posted(door, "/v1/chat/completions", **CHAT)
    cut = (await posted(door, "/tokenize", content=prompt))["tokens"]
    raw = await posted(door, "/v1/completions", prompt=prompt, max_tokens=40, temperature=0)
    begun = {"role": "assistant", "content": "I can"}
    opened = await posted(
        door, "/apply-template", messages=[*CHAT["messages"], begun], tools=CHAT["tools"]
    )
    assert prompt.endswith("<|im_start|>assistant\n")
    assert opened["prompt"] == f"{prompt}I can"
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    assert raw["usage"]["prompt_tokens"] == len(cut)
    assert "<tool_call>" in raw["choices"][0]["text"]


@shared
async def test_the_counted_input_is_what_an_answer_tells(door: Served) -> None:
    counted = await posted(door, "/v1/chat/completions/input_tokens", **CHAT)
    whole = await posted(door, "/v1/chat/completions", **CHAT)
    assert counted["input_tokens"] == whole["usage"]["prompt_tokens"]


@shared
async def test_props_tell_what_a_model_is(door: Served) -> None:
    status, props = await door.get("/props?model=embedded")
    assert status == 200
    assert props["n_ctx"] == props["default_generation_settings"]["n_ctx"] == 1024
    assert props["total_slots"] >= 1
    assert props["model_alias"] == "embedded"
    assert props["model_path"].endswith("clawd-tiny.gguf")
    assert "<|im_start|>" in props["chat_template"]
    assert (props["bos_token"], props["eos_token"]) == ("<|endoftext|>", "<|im_end|>")
    assert props["default_generation_settings"]["params"]["seed"] == 2**32 - 1
    assert props["default_generation_settings"]["params"]["n_predict"] == 320
    assert props["modalities"] == {"vision": False, "audio": False}


@each_row(
    ("max_tokens", "n_ctx", "expected"), [(0, 1024, 1024), (0, 32768, 4096), (320, 1024, 320)]
)
def test_h5_props_tell_the_limit_that_every_answer_has(
    max_tokens: int, n_ctx: int, expected: int
) -> None:
    found = Described(
        name="m",
        path="/m.gguf",
        n_ctx=n_ctx,
        n_parallel=1,
        chat_template="",
        bos_token="",
        eos_token="",
        sampling={"max_tokens": max_tokens},
        embedding_size=0,
        generates=True,
    )
    assert params_of(found)["n_predict"] == expected


async def test_slots_tell_what_is_busy_and_never_what_with(tmp_path: Path) -> None:
    async with served_endless(tmp_path) as door:
        status, idle = await door.get("/slots?model=endless")
        assert status == 200
        assert {each["is_processing"] for each in idle} == {False}
        assert all(set(each) == {"id", "n_ctx", "is_processing"} for each in idle)
        async with door.session.post(door.url + "/v1/completions", json=ENDLESS) as response:
            await answers(response)
            _, busy = await door.get("/slots?model=endless")
        assert [each["is_processing"] for each in busy].count(True) == 1
        assert [each["id"] for each in busy] == list(range(len(idle)))


async def test_who_asks_for_a_free_slot_is_told_when_there_is_none(tmp_path: Path) -> None:
    path = "/slots?model=endless&fail_on_no_slot=1"
    async with served_endless(tmp_path) as door:
        status, slots = await door.get(path)
        assert status == 200
        streams = [
            await door.session.post(door.url + "/v1/completions", json=ENDLESS) for _ in slots
        ]
        try:
            await asyncio.gather(*map(answers, streams))
            status, told = await door.get(path)
            assert (status, told["error"]["type"]) == (503, "unavailable_error")
            assert (await door.get("/slots?model=endless&fail_on_no_slot=0"))[0] == 200
        finally:
            for each in streams:
                each.close()


async def test_a_provider_that_runs_no_models_answers_not_supported(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        for path in ("/props", "/slots"):
            status, told = await door.get(path)
            assert (status, told["error"]["type"]) == (501, "not_supported_error")
        for path, body in (
            ("/tokenize", {"content": "a"}),
            ("/detokenize", {"tokens": [1]}),
            ("/apply-template", CHAT | {"model": ""}),
        ):
            status, told = await door.post(path, body)
            assert (status, told["error"]["type"]) == (501, "not_supported_error")
        assert (await door.get("/props?model=no-such"))[0] == 404
