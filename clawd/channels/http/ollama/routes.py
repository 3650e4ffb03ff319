"""Ollama's door for answers: POST /api/chat, /api/generate, /api/embed and /api/embeddings.

Streams are the default here, as there. No content type is asked for: some clients send none.
"""

import time
from typing import Any

from aiohttp import web

from clawd.channels.http.answering import answer
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import field, invalid, read_object
from clawd.channels.http.embeddings import embed, embed_cut, inputs_of
from clawd.channels.http.exchange import ModelRequest
from clawd.channels.http.ollama.answer import Form, OllamaAnswer
from clawd.channels.http.ollama.loading import load_or_unload
from clawd.channels.http.ollama.request import (
    chat_request,
    generate_request,
    keep_alive_s,
    model_of,
    shows_thoughts,
)
from clawd.channels.http.wishes import with_wishes

_NS_PER_S = 1_000_000_000


async def post_chat(request: web.Request) -> web.StreamResponse:
    """Answer POST /api/chat."""
    body = await read_object(request)
    asked = chat_request(body) if body.get("messages") else None
    return await _answered(request, body, asked, "chat")


async def post_generate(request: web.Request) -> web.StreamResponse:
    """Answer POST /api/generate."""
    body = await read_object(request)
    asked = generate_request(body)
    return await _answered(request, body, asked if body.get("prompt") else None, "generate")


async def post_embed(request: web.Request) -> web.Response:
    """Answer POST /api/embed: an embedding of each input."""
    started = time.monotonic()
    body = await read_object(request)
    given = body.get("input")
    inputs = [] if given is None or given == [] else inputs_of(given)
    dimensions = field(body, "dimensions", int, 0)
    makes = embed_cut if field(body, "truncate", bool, default=True) else embed
    result = await makes(request.app[GATEWAY], caller_of(request), model_of(body), inputs)
    if dimensions and result.vectors and dimensions != result.size:
        raise invalid(
            "dimensions",
            f"this model's vectors have {result.size} numbers and are not cut; {dimensions} asked",
        )
    return web.json_response(
        {
            "model": result.model,
            "embeddings": result.numbers(),
            "total_duration": int((time.monotonic() - started) * _NS_PER_S),
            "load_duration": 0,
            "prompt_eval_count": result.tokens,
        }
    )


async def post_embeddings(request: web.Request) -> web.Response:
    """Answer POST /api/embeddings, the older form: one embedding."""
    body = await read_object(request)
    prompt = field(body, "prompt", str, "")
    inputs = [prompt] if prompt else []
    result = await embed(request.app[GATEWAY], caller_of(request), model_of(body), inputs)
    return web.json_response({"embedding": result.numbers()[0] if result.vectors else []})


async def _answered(
    request: web.Request, body: dict[str, Any], asked: ModelRequest | None, form: Form
) -> web.StreamResponse:
    """Answer a request, or load or unload a model where there is nothing to answer."""
    dialect = OllamaAnswer(form, shows_thoughts=shows_thoughts(body))
    stays_s = keep_alive_s(body)
    stream = field(body, "stream", bool, default=True)
    gateway, caller = request.app[GATEWAY], caller_of(request)
    if asked is None:
        model = model_of(body)
        done = await load_or_unload(gateway, caller, model, stays_s)
        return web.json_response(dialect.loaded(model, done))
    generation = await gateway.generations.open(
        with_wishes(asked, request, body, streams=True), caller
    )
    return await answer(request, generation, dialect, stream=stream)


ROUTES = [
    web.post("/api/chat", post_chat),
    web.post("/api/generate", post_generate),
    web.post("/api/embed", post_embed),
    web.post("/api/embeddings", post_embeddings),
]
