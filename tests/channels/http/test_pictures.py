"""Pictures at every door: the model sees them, or the client is told why not."""

import base64
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.channels.http.rig import Served, served
from tests.support.pictures import png
from tests.support.rows import each_row

pytestmark = pytest.mark.sandbox

TOLD = {"text": "{{pictures}}"}
SIZE = re.compile(r"image/png (\d+x\d+) [0-9a-f]{64}")
TEXT = base64.b64encode(png(3, 2)).decode()
OTHER = base64.b64encode(png(5, 4)).decode()
URL = f"data:image/png;base64,{TEXT}"
TOOL = {"name": "shot", "parameters": {"type": "object", "properties": {}}}
Body = dict[str, Any]


def chat(url: str = URL, **more: Any) -> tuple[str, Body]:
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "high"}},
    ]
    body = {"model": "mock", "messages": [{"role": "user", "content": parts}]}
    return "/v1/chat/completions", body | more


def responses(url: str = URL) -> tuple[str, Body]:
    parts = [
        {"type": "input_text", "text": "What is it?"},
        {"type": "input_image", "image_url": url},
    ]
    return "/v1/responses", {"model": "mock", "input": [{"role": "user", "content": parts}]}


def messages(source: Body | None = None) -> tuple[str, Body]:
    given = source or {"type": "base64", "media_type": "image/png", "data": TEXT}
    blocks = [{"type": "image", "source": given}, {"type": "text", "text": "What is it?"}]
    said = [{"role": "user", "content": blocks}]
    return "/v1/messages", {"model": "mock", "max_tokens": 99, "messages": said}


def ollama(data: str = TEXT) -> tuple[str, Body]:
    said = {"role": "user", "content": "What is it?", "images": [data]}
    return "/api/chat", {"model": "mock", "messages": [said], "stream": False}


def generate(data: str = TEXT) -> tuple[str, Body]:
    return "/api/generate", {"model": "mock", "prompt": "?", "images": [data], "stream": False}


FORMS: list[tuple[str, Callable[[], tuple[str, Body]]]] = [
    ("chat", chat),
    ("responses", responses),
    ("anthropic", messages),
    ("ollama", ollama),
    ("generate", generate),
]


def answer_of(told: Any) -> str:
    """Return the text of an answer in any dialect."""
    match told:
        case {"choices": [{"message": {"content": str(text)}}]}:
            return text
        case {"output": [*_, {"content": [{"text": str(text)}]}]}:
            return text
        case {"content": [{"text": str(text)}]} | {"message": {"content": str(text)}}:
            return text
        case {"response": str(text)}:
            return text
        case _:
            raise AssertionError(told)


@asynccontextmanager
async def seeing(folder: Path, tables: str = "") -> AsyncIterator[Served]:
    async with served(folder, TOLD, tables=tables) as door:
        yield door


async def test_the_model_sees_what_each_dialect_sends(tmp_path: Path) -> None:
    async with seeing(tmp_path) as door:
        told = set()
        for name, form in FORMS:
            status, answer = await door.post(*form())
            assert status == 200, (name, answer)
            told.add(answer_of(answer))
    assert len(told) == 1  # the same bytes, whatever they came in
    assert SIZE.findall(told.pop()) == ["3x2"]


async def test_results_of_tools_hold_pictures(tmp_path: Path) -> None:
    openai = {
        "tools": [{"type": "function", "function": TOOL}],
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "shot", "arguments": ""}}
                ],
            },
            {
                "role": "tool",
                "tool_call_id": "a",
                "content": [{"type": "image_url", "image_url": {"url": URL}}],
            },
        ],
    }
    source = {"type": "base64", "media_type": "image/png", "data": OTHER}
    anthropic = {
        "model": "mock",
        "max_tokens": 9,
        "tools": [{"name": "shot", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "go"},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "a", "name": "shot", "input": {}}],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": [
                            {"type": "text", "text": "done"},
                            {"type": "image", "source": source},
                        ],
                    }
                ],
            },
        ],
    }
    async with seeing(tmp_path) as door:
        path, body = chat()
        _, first = await door.post(path, body | openai)
        _, second = await door.post("/v1/messages", anthropic)
    assert SIZE.findall(answer_of(first)) == ["3x2"]
    assert SIZE.findall(answer_of(second)) == ["5x4"]


async def test_a_model_that_sees_none_is_named_in_a_400(tmp_path: Path) -> None:
    async with seeing(tmp_path, 'vision = "no"') as door:
        for name, form in FORMS:
            status, answer = await door.post(*form())
            assert status == 400, (name, answer)
            assert "model mock sees no pictures" in str(answer), name


async def test_listings_say_who_sees_and_counts_know_of_pictures(tmp_path: Path) -> None:
    async with seeing(tmp_path) as door:
        (first, *_) = (await door.get("/v1/models"))[1]["data"]
        assert first["capabilities"] == ["completion", "tools", "vision"]
        assert first["architecture"]["input_modalities"] == ["text", "image"]
        (tag, *_) = (await door.get("/api/tags"))[1]["models"]
        assert "vision" in tag["details"]["capabilities"]
        assert "vision" in (await door.post("/api/show", {"model": "mock"}))[1]["capabilities"]
        path, body = messages()
        large = {"type": "base64", "data": base64.b64encode(png(560, 280)).decode()}
        counts = []
        for sent in (body, messages(large)[1]):
            _, told = await door.post(f"{path}/count_tokens", sent)
            counts.append(told["input_tokens"])
        assert counts[1] - counts[0] == 200 - 1
    (tmp_path / "blind").mkdir()
    async with seeing(tmp_path / "blind", 'vision = "no"') as door:
        (first, *_) = (await door.get("/v1/models"))[1]["data"]
        assert first["capabilities"] == ["completion", "tools"]


async def test_what_is_no_picture_is_a_400_that_says_where(tmp_path: Path) -> None:
    text = base64.b64encode(b"<svg/>").decode()
    wrong = [
        (chat("data:image/svg+xml;base64," + text), "messages[0].content[1].image_url"),
        (chat("data:image/png,notbase64"), "messages[0].content[1].image_url"),
        (chat("file:///etc/passwd"), "messages[0].content[1].image_url"),
        (responses("data:image/png;base64,%%%"), "input[0].content[1].image_url"),
        (messages({"type": "file", "file_id": "f"}), "messages[0].content[0].source.type"),
        (ollama("not base64!"), "messages[0].images[0]"),
        (ollama(text), "messages[0].images[0]"),
    ]
    system = {"role": "system", "content": "x", "images": [TEXT]}
    wrong.append((("/api/chat", {"model": "mock", "messages": [system]}), "messages[0].images"))
    async with seeing(tmp_path) as door:
        for (path, body), where in wrong:
            status, answer = await door.post(path, body)
            assert status == 400, (path, answer)
            assert where in str(answer)


async def test_a_chat_goes_on_in_its_conversation_and_pictures_stay_in_it(tmp_path: Path) -> None:
    async with seeing(tmp_path) as door:
        path, body = chat()
        _, first = await door.post(path, body)
        said = [
            *body["messages"],
            {"role": "assistant", "content": answer_of(first)},
            {"role": "user", "content": "and again?"},
        ]
        _, second = await door.post(path, body | {"messages": said})
        memory = door.inside.daemon.memory
        page = await memory.conversations.list(owner=None)
        assert SIZE.findall(answer_of(second)) == ["3x2"]
        assert len(page.conversations) == 1
        # Other words of the same picture are another chat's; another picture, too.
        path, other = chat(f"data:image/png;base64,{OTHER}")
        said[0] = other["messages"][0]
        _, third = await door.post(path, body | {"messages": said})
        assert SIZE.findall(answer_of(third)) == ["5x4"]
        page = await memory.conversations.list(owner=None)
        assert len(page.conversations) == 2


@asynccontextmanager
async def hosting(data: bytes) -> AsyncIterator[int]:
    async def give(_request: web.Request) -> web.Response:
        return web.Response(body=data, content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/p", give)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def test_an_address_is_fetched_by_the_rules_of_the_web(tmp_path: Path) -> None:
    async with hosting(png(3, 2)) as port:
        url = f"http://127.0.0.1:{port}/p"
        allowed = f'[security]\nallowed_addresses = ["127.0.0.1:{port}"]\n'
        async with seeing(tmp_path, allowed) as door:
            for form in (chat(url), responses(url), messages({"type": "url", "url": url})):
                status, answer = await door.post(*form)
                assert status == 200, answer
                assert SIZE.findall(answer_of(answer)) == ["3x2"]


@each_row("path", ["", "/metadata"])
async def test_an_address_of_this_machine_is_refused(tmp_path: Path, path: str) -> None:
    async with hosting(png(3, 2)) as port, seeing(tmp_path) as door:
        for host in ("127.0.0.1", "localhost", "169.254.169.254"):
            status, answer = await door.post(*chat(f"http://{host}:{port}{path}/p"))
            assert status in {400, 403}, answer
            assert "choices" not in answer


async def test_over_the_socket_a_message_takes_files(tmp_path: Path) -> None:
    async with seeing(tmp_path) as door:
        body = {"text": "What is it?", "pictures": [TEXT, OTHER]}
        status, told = await door.post("/methods/send_message", body)
        assert status == 200, told
        assert SIZE.findall(told["text"]) == ["3x2", "5x4"]
        shown = {"conversation_id": told["conversation_id"]}
        _, found = await door.post("/methods/show_conversation", shown)
        first = found["messages"][0]
        assert [(each["width"], each["height"]) for each in first["pictures"]] == [(3, 2), (5, 4)]
        assert "data" not in first["pictures"][0]


async def test_under_the_emergency_stop_nothing_is_read(tmp_path: Path) -> None:
    async with seeing(tmp_path) as door:
        await door.inside.daemon.estop.set_from_loop()
        path, body = chat()
        hello = body | {"messages": [{"role": "user", "content": "hello"}]}
        plain = await door.post(path, hello)
        for form in (chat(), chat("https://example.org/a.png"), ollama()):
            status, answer = await door.post(*form)
            assert status == plain[0], answer
            assert "emergency stop" in str(answer)
