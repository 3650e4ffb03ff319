"""Whether requests can be answered, for whoever watches the service. Nobody is asked for a key."""

from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.app import GATEWAY
from clawd.channels.http.facts import Health
from clawd.channels.http.gateway import json_of

UNAVAILABLE = 503
LOADING = "Loading model"


async def health(request: web.Request) -> web.Response:
    """Say 200 when requests can be answered, 503 in llama.cpp's words when they cannot."""
    gateway = request.app[GATEWAY]
    found = await gateway.health()
    if not found.problem:
        return json_of({"status": "ok", **compat(found, gateway.version)})
    error = {"code": UNAVAILABLE, "message": found.problem, "type": "unavailable_error"}
    response = json_of(
        {"error": error, "status": "unavailable", **compat(found, gateway.version)}, UNAVAILABLE
    )
    response.headers["Retry-After"] = "1"
    return response


def compat(found: Health, version: str) -> dict[str, Any]:
    """Return what clients of several servers look for, and nothing about what anybody does."""
    facts = msgspec.structs.asdict(found)
    del facts["problem"]
    return {"server": "clawd", "version": version, **facts}


ROUTES = [web.get("/health", health), web.get("/v1/health", health)]
