"""GET /v1/models and /v1/models/{id}: what can be asked for, in a form that all dialects read.

OpenAI's clients read `id`, `created` and `owned_by`, llama.cpp's `meta`, Anthropic's
`display_name`, `has_more` and their kin.
"""

import time
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.app import GATEWAY
from clawd.channels.http.catalogue import OfferedModel, capabilities_of, find, listed

_STARTED = int(time.time())


async def get_models(request: web.Request) -> web.Response:
    """Answer GET /v1/models."""
    models = [_told(model) for model in await listed(request.app[GATEWAY])]
    return web.json_response(
        {
            "object": "list",
            "data": models,
            "has_more": False,
            "first_id": models[0]["id"] if models else None,
            "last_id": models[-1]["id"] if models else None,
        }
    )


async def get_model(request: web.Request) -> web.Response:
    """Answer GET /v1/models/{id}; an id may hold slashes."""
    name = request.match_info["name"]
    gateway = request.app[GATEWAY]
    chosen = await find(gateway, name)
    provider = chosen.provider.name()
    models = await listed(gateway)
    for model in models:
        if model.name == name or (model.provider, model.model) == (provider, chosen.model):
            return web.json_response(_told(msgspec.structs.replace(model, name=name)))
    able = capabilities_of(chosen.provider, chosen.model)
    return web.json_response(_told(OfferedModel(name=name, provider=provider, capabilities=able)))


def _told(model: OfferedModel) -> dict[str, Any]:
    sees = "vision" in model.capabilities
    meta: dict[str, Any] = {"n_ctx": model.context_size or None, "size": model.size_bytes or None}
    return {
        "id": model.name,
        "object": "model",
        "type": "model",
        "created": _STARTED,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_STARTED)),
        "owned_by": model.provider or "clawd",
        "display_name": model.name,
        "aliases": [model.stands_for] if model.stands_for else [],
        "meta": {name: value for name, value in meta.items() if value is not None},
        "context_window": model.context_size or None,
        "architecture": {
            "input_modalities": ["text", "image"] if sees else ["text"],
            "output_modalities": ["text"],
        },
        "capabilities": list(model.capabilities),
        "status": {"value": model.state or "unloaded"} if model.is_local else {"value": "remote"},
    }


ROUTES = [
    web.get("/v1/models", get_models),
    web.get("/models", get_models),
    web.get("/v1/models/{name:.+}", get_model),
]
