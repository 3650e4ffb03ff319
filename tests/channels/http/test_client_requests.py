"""The requests that editors and chat windows make, played through the gateway with all its guards.

What Copilot's Ollama provider and the Ollama clients of Open WebUI, Continue and Zed send was read
in their sources; what the OpenAI clients of the latter three send is known from descriptions by
others. The programs themselves are not here. docs/use-with.md says so.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.channels.http.door import Guarded, Reply, guarded
from tests.channels.http.rig import events_of

SAID = [{"role": "user", "content": "hello"}]
SYSTEM = {"role": "system", "content": "Be brief."}
PARAMETERS = {"type": "object", "properties": {"path": {"type": "string"}}}
LOOK = {"name": "look", "description": "looks", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": LOOK}]
PAGES = 'cors_origins = ["http://localhost:*", "vscode-webview://*", "tauri://*", "app://*"]'
DOCKER = 'allowed_hosts = ["host.docker.internal"]'


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request, and what a client reads of its answer; raises where it would be lost."""

    method: str
    path: str
    reads: Callable[[Reply], Any]
    body: Any = None
    headers: dict[str, str] = {}
    key: str | None = None


def value(reply: Reply) -> Any:
    return reply.json()


def pieced(reply: Reply) -> bytes:
    """Return the body of a stream without the frame of its pieces (RFC 9112, section 7.1)."""
    assert reply.headers["transfer-encoding"] == "chunked"
    found, rest = b"", reply.body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        length = int(size, 16)
        found, rest = found + rest[:length], rest[length + 2 :]
    return found


def chunks(reply: Reply) -> str:
    """Return the text of a stream as OpenAI's clients gather it."""
    events = [each for _, each in events_of(pieced(reply).decode())]
    assert events[-1] == "[DONE]"
    ends = [choice["finish_reason"] for each in events[:-1] for choice in each["choices"]]
    assert ends[-1] == "stop"
    return "".join(
        choice["delta"].get("content") or "" for each in events[:-1] for choice in each["choices"]
    )


def lines(reply: Reply) -> str:
    """Return the text of a stream as Ollama's clients gather it; each line is a whole message."""
    found = [json.loads(line) for line in pieced(reply).splitlines()]
    assert [each["done"] for each in found] == [False] * (len(found) - 1) + [True]
    assert all(each["model"] and each["created_at"] for each in found)
    assert isinstance(found[-1]["eval_count"], int) and found[-1]["done_reason"]
    assert all(each["message"]["role"] == "assistant" for each in found)
    return "".join(each["message"]["content"] for each in found)


def tags(reply: Reply) -> Any:
    models = value(reply)["models"]
    details = {"format", "family", "families", "parameter_size", "quantization_level"}
    for each in models:
        assert set(each) >= {"name", "model", "modified_at", "size", "digest", "details"}
        assert set(each["details"]) >= details
    return models


def version(reply: Reply) -> Any:
    parts = [int(part) for part in value(reply)["version"].split(".")]
    assert parts >= [0, 6, 4]
    return parts


def shown(reply: Reply) -> Any:
    """Return what a picker shows; the name is one of the model's own."""
    told = value(reply)
    assert isinstance(told["capabilities"], list) and "tools" in told["capabilities"]
    assert isinstance(told["template"], str) and isinstance(told["details"]["family"], str)
    info = told["model_info"]
    assert info["general.basename"] == "clawd" and info["general.architecture"]
    return info


def listed(reply: Reply) -> Any:
    models = value(reply)["data"]
    assert "clawd" in [each["id"] for each in models]
    assert all(each["object"] == "model" for each in models)
    return models


def whole(reply: Reply) -> Any:
    return value(reply)["choices"][0]["message"]["content"]


def chat(stream: bool = True, **more: Any) -> dict[str, Any]:
    return {"model": "clawd", "messages": [SYSTEM, *SAID], "stream": stream, **more}


OPTIONS = {"num_ctx": 4096, "stop": [], "temperature": 0.7, "top_p": 0.9}
OPENAI_STREAM = chat(stream_options={"include_usage": True}, temperature=1.0)
OF_OLLAMA = chat(keep_alive=-1, options=OPTIONS, tools=[], think=None)
OPEN_WEBUI_USER = {
    "X-OpenWebUI-User-Name": "Ada%20L",
    "X-OpenWebUI-User-Id": "7",
    "X-OpenWebUI-User-Email": "ada@example.org",
    "X-OpenWebUI-User-Role": "admin",
    "X-OpenWebUI-Chat-Id": "c-1",
}
ELECTRON = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"}

CLIENTS: dict[str, tuple[Asked, ...]] = {
    "Open WebUI, OpenAI connection": (
        Asked(method="GET", path="/v1/models", reads=listed, headers=OPEN_WEBUI_USER),
        Asked(
            method="POST",
            path="/v1/chat/completions",
            body=chat(),
            reads=chunks,
            headers=OPEN_WEBUI_USER,
        ),
        Asked(
            method="POST",
            path="/v1/chat/completions",
            body=chat(stream=False, max_completion_tokens=1000),
            reads=whole,
        ),
    ),
    "Open WebUI, Ollama connection": (
        Asked(method="GET", path="/api/version", reads=version),
        Asked(method="GET", path="/api/tags", reads=tags),
        Asked(method="GET", path="/api/ps", reads=lambda reply: value(reply)["models"] is not None),
        Asked(method="POST", path="/api/chat", body=chat(options={}), reads=lines),
    ),
    "Continue, provider openai": (
        Asked(
            method="POST",
            path="/v1/chat/completions",
            body=chat(max_tokens=2048, temperature=0.0, top_p=None, stop=None),
            reads=chunks,
            headers={"api-key": "KEY"},
        ),
    ),
    "Continue, provider ollama": (
        Asked(method="POST", path="/api/show", body={"name": "clawd"}, reads=shown),
        Asked(
            method="POST",
            path="/api/chat",
            body=chat(keep_alive=1800, options=OPTIONS | {"num_predict": 2048, "use_mmap": True}),
            reads=lines,
        ),
    ),
    "Copilot in VS Code, Ollama": (
        Asked(method="GET", path="/api/version", reads=version, headers=ELECTRON),
        Asked(method="GET", path="/api/tags", reads=tags, headers=ELECTRON),
        Asked(method="POST", path="/api/show", body={"model": "clawd"}, reads=shown),
        Asked(
            method="POST",
            path="/v1/chat/completions",
            body=chat(stream_options={"include_usage": True}, tools=TOOLS, n=1, top_p=1),
            reads=chunks,
            headers=ELECTRON,
        ),
    ),
    "Zed, openai_compatible": (
        Asked(
            method="POST",
            path="/v1/chat/completions",
            body=OPENAI_STREAM
            | {"tools": [], "parallel_tool_calls": False, "prompt_cache_key": "t"},
            reads=chunks,
        ),
    ),
    "Zed, ollama": (
        Asked(method="GET", path="/api/tags", reads=tags, headers={"Accept": "application/json"}),
        Asked(method="POST", path="/api/show", body={"model": "clawd"}, reads=shown),
        Asked(method="POST", path="/api/chat", body=OF_OLLAMA, reads=lines),
    ),
}


async def play(door: Guarded, asked: Asked, **headers: str) -> Reply:
    named = {name.replace("-", "_"): text for name, text in (asked.headers | headers).items()}
    body = None if asked.body is None else json.dumps(asked.body).encode()
    if body is not None:
        named["Content_Type"] = "application/json"
    return await door.ask(asked.method, asked.path, body=body, key=asked.key, **named)


async def test_h6_the_requests_of_editors_and_chat_windows_are_answered_as_these_read_them(
    tmp_path: Path,
) -> None:
    wrong = []
    # With a key: a test's own process is the daemon's, which no program without one may be.
    async with guarded(tmp_path, own_routes=True) as door:
        for name, requests in CLIENTS.items():
            for asked in requests:
                reply = await play(door, asked)
                try:
                    assert reply.status == 200
                    assert asked.reads(reply)
                except (AssertionError, KeyError, ValueError) as error:
                    wrong.append((name, asked.path, repr(error)[:200], reply.body[:200]))
    assert not wrong, wrong


ASKING = Asked(method="POST", path="/v1/chat/completions", body=chat(stream=False), reads=whole)
FROM = (
    "http://localhost:5173",
    "vscode-webview://1a2b-3c",
    "tauri://localhost",
    "app://obsidian.md",
)
NEVER = ("http://localhost.evil.example:1", "https://evil.example", "null", "chrome-extension://a")


async def test_h6_pages_and_panels_ask_where_that_is_configured_and_nowhere_else(
    tmp_path: Path,
) -> None:
    found: dict[tuple[str, bool], list[int]] = {}
    for is_listed in (True, False):
        folder = tmp_path / str(is_listed)
        folder.mkdir()
        async with guarded(folder, PAGES if is_listed else "", own_routes=True) as door:
            for origin in (*FROM, *NEVER):
                preflight = await door.ask(
                    "OPTIONS",
                    ASKING.path,
                    key="",
                    Origin=origin,
                    Access_Control_Request_Method="POST",
                    Access_Control_Request_Headers="authorization,content-type",
                )
                reply = await play(door, ASKING, Origin=origin)
                told = reply.headers.get("access-control-allow-origin")
                assert told == (origin if is_listed and origin in FROM else None), origin
                found[origin, is_listed] = [preflight.status, reply.status]
    wanted = {
        (origin, is_listed): [204, 200] if is_listed and origin in FROM else [403, 403]
        for is_listed in (True, False)
        for origin in (*FROM, *NEVER)
    }
    assert found == wanted


async def test_h6_a_container_calls_the_machine_by_a_name_that_is_configured(
    tmp_path: Path,
) -> None:
    for number, (tables, status) in enumerate(((DOCKER, 200), ("", 403))):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with guarded(folder, tables, own_routes=True) as door:
            body = json.dumps(ASKING.body).encode()
            host = f"host.docker.internal:{door.port}"
            reply = await door.ask("POST", ASKING.path, host=host, body=body)
            assert reply.status == status
            assert (await door.ask("POST", ASKING.path, host="evil:1", body=body)).status == 403


async def test_h6_without_a_key_a_program_is_refused_once_one_was_made(tmp_path: Path) -> None:
    async with guarded(tmp_path, own_routes=True) as door:
        for stream in (True, False):
            asked = msgspec.structs.replace(ASKING, key="", body=chat(stream=stream))
            assert (await play(door, asked)).status == 401
        assert (await play(door, ASKING)).status == 200
