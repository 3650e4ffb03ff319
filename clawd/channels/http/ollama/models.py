"""Ollama's door to models: /api/tags, /api/show, /api/ps, /api/version; and what it has no way to.

Models come from files on this machine and from the configuration: pulling, creating, copying,
pushing and deleting them is answered with 501.
"""

import asyncio
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from clawd.channels.http.app import GATEWAY, Gateway, caller_of
from clawd.channels.http.body import read_object
from clawd.channels.http.catalogue import find, listed
from clawd.channels.http.ollama.loading import local_model_of
from clawd.channels.http.ollama.request import model_of
from clawd.engine.protocol import ModelInfo
from clawd.engine.slot import ModelStatus
from clawd.errors import ClawError
from clawd.wire.methods import ListLoadedModels, LoadModel

# Clients refuse what is older than the first one whose answers they can read.
API_LEVEL = "0.6.4"
_EPOCH = datetime.fromtimestamp(0, UTC)
_UNKNOWN = "unknown"
_THINKING = ("<think>", "enable_thinking", "reasoning_content")
_STEPS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K"))
_CANNOT = ("pull", "push", "create", "copy", "delete", "blobs/{digest}")


async def get_tags(request: web.Request) -> web.Response:
    """Answer GET /api/tags: the models that can be asked for."""
    gateway = request.app[GATEWAY]
    models = await listed(gateway)
    changed = await asyncio.to_thread(lambda: [_changed_at(model.path) for model in models])
    infos = _infos(gateway)
    lines = [
        {
            "name": model.name,
            "model": model.name,
            "modified_at": _stamp(at),
            "size": model.size_bytes,
            "digest": _digest(model.name, model.path, at),
            "details": _details(infos.get(model.path), is_local=model.is_local),
        }
        for model, at in zip(models, changed, strict=True)
    ]
    return web.json_response({"models": lines})


async def get_ps(request: web.Request) -> web.Response:
    """Answer GET /api/ps: the models that are loaded."""
    gateway = request.app[GATEWAY]
    infos = _infos(gateway)
    loaded = await gateway.invoke(ListLoadedModels(), caller_of(request).principal)
    lines = []
    for line in loaded.items:
        if line.state != "ready":
            continue
        at = await asyncio.to_thread(_changed_at, line.path)
        lines.append(
            {
                "name": line.name,
                "model": line.name,
                "size": line.size_bytes,
                "digest": _digest(line.name, line.path, at),
                "details": _details(infos.get(line.path), is_local=True),
                "size_vram": 0,
                "context_length": line.context_size,
            }
        )
    return web.json_response({"models": lines})


async def post_show(request: web.Request) -> web.Response:
    """Answer POST /api/show: what a model is; loads it, for nobody else can tell."""
    gateway = request.app[GATEWAY]
    choice = await find(gateway, model_of(await read_object(request)))
    able = choice.provider.capabilities()
    told: dict[str, Any] = {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _details(None, is_local=False),
        "model_info": {"general.architecture": _UNKNOWN},
        "capabilities": ["completion", "tools"] if able.tools else ["completion"],
        "modified_at": _stamp(_EPOCH),
    }
    if name := local_model_of(gateway, choice):
        line = await gateway.invoke(LoadModel(name=name), caller_of(request).principal)
        at = await asyncio.to_thread(_changed_at, line.path)
        told |= {"modified_at": _stamp(at)} | _shown(_infos(gateway).get(line.path), told)
    elif able.context_size:
        told["model_info"][f"{_UNKNOWN}.context_length"] = able.context_size
    return web.json_response(told)


async def get_version(request: web.Request) -> web.Response:
    """Answer GET /api/version: the version of Ollama's API that is spoken, and clawd's own."""
    own = request.app[GATEWAY].version
    return web.json_response({"version": API_LEVEL, "clawd": own, "server": f"clawd/{own}"})


async def refuse(request: web.Request) -> web.Response:
    """Answer what is not done here."""
    raise ClawError(
        f"{request.path} is not supported: models are files on this machine",
        code="not_supported",
        hint="Add one with `clawctl model add FILE`.",
    )


def _infos(gateway: Gateway) -> dict[str, ModelInfo]:
    """Return what is loaded, by path."""
    known: list[ModelStatus] = gateway.engine.status()
    return {each.path: each.info for each in known if each.info is not None}


def _shown(info: ModelInfo | None, told: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a loaded model; `context_length` is what can be used of it here."""
    if info is None:
        return {}
    able = told["capabilities"] if info.generates else ["embedding"]
    thinks = info.generates and any(mark in info.chat_template for mark in _THINKING)
    return {
        "template": info.chat_template,
        "details": _details(info, is_local=True),
        "capabilities": [*able, *(["thinking"] if thinks else [])],
        "model_info": {
            "general.architecture": info.architecture,
            "general.parameter_count": info.n_params,
            f"{info.architecture}.context_length": info.n_ctx,
            f"{info.architecture}.vocab_size": info.n_vocab,
        },
    }


def _details(info: ModelInfo | None, *, is_local: bool) -> dict[str, Any]:
    family = info.architecture if info else ""
    return {
        "parent_model": "",
        "format": "gguf" if is_local else "",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": _size(info.n_params) if info else "",
        "quantization_level": "",
    }


def _size(parameters: int) -> str:
    for step, letter in _STEPS:
        if parameters >= step:
            return f"{parameters / step:.1f}{letter}"
    return str(parameters)


def _digest(name: str, path: str, changed_at: datetime) -> str:
    """Return what is another one when the model is another one; its content is not read for it."""
    mark = f"{name}\0{path}\0{changed_at.isoformat()}"
    return hashlib.sha256(mark.encode("utf-8", "replace")).hexdigest()


def _changed_at(path: str) -> datetime:
    """Return when a file was last changed; blocks."""
    if not path:
        return _EPOCH
    try:
        return datetime.fromtimestamp(Path(path).stat().st_mtime, UTC)
    except OSError:
        return _EPOCH


def _stamp(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


ROUTES = [
    web.get("/api/tags", get_tags),
    web.get("/api/ps", get_ps),
    web.get("/api/version", get_version),
    web.post("/api/show", post_show),
    *(web.route("*", f"/api/{name}", refuse) for name in _CANNOT),
]
