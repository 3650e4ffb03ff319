"""Events and messages of Anthropic's /v1/messages, for a real server on loopback."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.chat_server import Answer, ChatServer, streamed

USAGE = {
    "input_tokens": 5,
    "cache_creation_input_tokens": 3,
    "cache_read_input_tokens": 12,
    "output_tokens": 1,
}


def event(kind: str, **fields: Any) -> bytes:
    data = json.dumps({"type": kind, **fields}, ensure_ascii=False)
    return f"event: {kind}\ndata: {data}\n\n".encode()


def begin(**usage: int) -> bytes:
    message = {"id": "msg_1", "role": "assistant", "model": "m-1", "content": []}
    return event("message_start", message=message | {"usage": USAGE | usage})


def block(index: int, start: dict[str, Any], *deltas: dict[str, Any]) -> bytes:
    return b"".join(
        (
            event("content_block_start", index=index, content_block=start),
            *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
            event("content_block_stop", index=index),
        )
    )


def text(index: int, *pieces: str) -> bytes:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces]
    return block(index, {"type": "text", "text": ""}, *deltas)


def thought(index: int, said: str, signature: str) -> bytes:
    return block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": said},
        {"type": "signature_delta", "signature": signature},
    )


def call(index: int, call_id: str, name: str, *pieces: str) -> bytes:
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    start = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, start, *deltas)


def end(reason: str, output_tokens: int = 7) -> bytes:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return event("message_delta", delta=delta, usage={"output_tokens": output_tokens}) + event(
        "message_stop"
    )


HELLO = (begin(), event("ping"), text(0, "He", "llo"), end("end_turn"))


def answered(*pieces: bytes, **fields: Any) -> Answer:
    return streamed(*pieces, **fields)


@asynccontextmanager
async def serving(server: ChatServer) -> AsyncIterator[str]:
    """Serve on loopback; gives the address, without /v1."""
    app = web.Application()
    app.router.add_post("/v1/messages", server.chat)
    app.router.add_get("/v1/models", server.list_models)
    test_server = TestServer(app, handler_cancellation=True)
    await test_server.start_server(shutdown_timeout=0.1)
    try:
        yield f"http://127.0.0.1:{test_server.port}"
    finally:
        await test_server.close()
