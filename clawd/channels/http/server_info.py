"""llama.cpp's GET /props and GET /slots: what a local model is, and which of its slots are busy.

`?model=` names a model, without it the default one is meant; who runs no models answers 501.
No slot ever shows what it works on.
"""

from pathlib import PurePath
from typing import Any

from aiohttp import web

from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.catalogue import find_able
from clawd.errors import BusyError
from clawd.providers.abilities import Described, Serving

RETRY_S = 1.0
_LACK = "runs no models itself"
_PARAMS = (
    "seed",
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_base",
    "dry_allowed_length",
    "xtc_probability",
    "xtc_threshold",
    "stop",
)
# How llama.cpp tells a seed that is drawn anew.
_ANY_SEED = 2**32 - 1


async def get_props(request: web.Request) -> web.Response:
    """Answer GET /props; loads the model."""
    caller = caller_of(request)
    provider, model, name = await _serving(request)
    found = await provider.describe(model)
    path = found.path if caller.principal.is_admin else PurePath(found.path).name
    version = request.app[GATEWAY].version
    return web.json_response(
        {
            "default_generation_settings": {
                "id": 0,
                "n_ctx": found.n_ctx,
                "is_processing": False,
                "params": _params(found),
            },
            "total_slots": found.n_parallel,
            "n_ctx": found.n_ctx,
            "model_alias": name,
            "model_path": path,
            "modalities": {"vision": False, "audio": False},
            "endpoint_slots": True,
            "endpoint_props": False,
            "endpoint_metrics": True,
            "chat_template": found.chat_template,
            "bos_token": found.bos_token,
            "eos_token": found.eos_token,
            "embedding_size": found.embedding_size,
            "build_info": f"clawd {version}",
        }
    )


async def get_slots(request: web.Request) -> web.Response:
    """Answer GET /slots; never loads a model."""
    caller_of(request)
    provider, model, _ = await _serving(request)
    slots = await provider.slots(model)
    if request.query.get("fail_on_no_slot") not in {None, "", "0"} and all(
        slot.is_processing for slot in slots
    ):
        raise BusyError("no slot available", retry_after_s=RETRY_S)
    return web.json_response(
        [{"id": s.id, "n_ctx": s.n_ctx, "is_processing": s.is_processing} for s in slots]
    )


async def _serving(request: web.Request) -> tuple[Serving, str, str]:
    name = request.query.get("model", "")
    return await find_able(
        request.app[GATEWAY],
        name,
        Serving,  # type: ignore[type-abstract]
        _LACK,
    )


def _params(found: Described) -> dict[str, Any]:
    params = {name: found.sampling[name] for name in _PARAMS if name in found.sampling}
    if params.get("seed", 0) < 0:
        params["seed"] = _ANY_SEED
    return params | {"n_predict": found.sampling.get("max_tokens") or -1}


ROUTES = [web.get("/props", get_props), web.get("/slots", get_slots)]
