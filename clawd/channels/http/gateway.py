"""clawd's own routes that only look: the reports of the control socket as JSON."""

from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.app import GATEWAY
from clawd.channels.http.bodies import PresetBody, body_as, query_as
from clawd.channels.http.caller import caller_of
from clawd.channels.http.openapi import document_of
from clawd.errors import NotFoundError
from clawd.providers.presets import check_preset, preset_values
from clawd.wire.method import Method
from clawd.wire.methods import (
    EstopState,
    ListApprovals,
    ListConversations,
    ListModels,
    ListTools,
    SearchMemory,
    ShowConversation,
    Status,
)
from clawd.wire.receipt_methods import HeadOfReceipts, ListReceipts, ShowReceipt, VerifyReceipts
from clawd.wire.reports import ToolLine, ToolList

PRESET_NOTE = (
    "a preset holds for one message: name it in the field `preset` of a request, or in its header "
    "X-Clawd-Preset"
)


def json_of(value: Any, status: int = 200) -> web.Response:
    """Return a response with a struct, or plain data, as JSON."""
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


async def told(request: web.Request, params: Method[Any]) -> web.Response:
    """Return what a method of the control socket answers to the caller."""
    result = await request.app[GATEWAY].invoke(params, caller_of(request).principal)
    return json_of(result)


async def status(request: web.Request) -> web.Response:
    """Say what the daemon is and does."""
    return await told(request, Status())


async def models(request: web.Request) -> web.Response:
    """List the models of this machine."""
    return await told(request, ListModels())


async def tools(request: web.Request) -> web.Response:
    """List the tools."""
    return await told(request, ListTools())


async def tool(request: web.Request) -> web.Response:
    """Show one tool, by its name or another name of it."""
    name = request.match_info["name"]
    for line in (await _tools(request)).items:
        if name == line.name or name in line.aliases:
            return json_of(line)
    raise NotFoundError(f"there is no tool {name[:64]!r}", hint="GET /tools lists them.")


async def tools_as_functions(request: web.Request) -> web.Response:
    """List the tools as OpenAI clients would send them."""
    functions = [_function(line) for line in (await _tools(request)).items]
    return json_of({"object": "list", "data": functions})


async def conversations(request: web.Request) -> web.Response:
    """List conversations, newest first."""
    return await told(request, query_as(request, ListConversations))


async def conversation(request: web.Request) -> web.Response:
    """Show one conversation."""
    wanted = request.match_info["id"]
    return await told(request, query_as(request, ShowConversation, conversation_id=wanted))


async def search(request: web.Request) -> web.Response:
    """Search the stored messages for `q`."""
    words = request.query.get("q", "")
    return await told(request, query_as(request, SearchMemory, query=words))


async def receipts(request: web.Request) -> web.Response:
    """List receipts, newest first."""
    return await told(request, query_as(request, ListReceipts))


async def receipt(request: web.Request) -> web.Response:
    """Show one receipt."""
    return await told(request, ShowReceipt(receipt_id=request.match_info["id"]))


async def verify(request: web.Request) -> web.Response:
    """Verify the receipt log."""
    return await told(request, query_as(request, VerifyReceipts))


async def head(request: web.Request) -> web.Response:
    """Show the end of the receipt log."""
    return await told(request, HeadOfReceipts())


async def approvals(request: web.Request) -> web.Response:
    """List what waits for an answer."""
    return await told(request, ListApprovals())


async def estop(request: web.Request) -> web.Response:
    """Say whether the emergency stop is set."""
    return await told(request, EstopState())


async def presets(_request: web.Request) -> web.Response:
    """List the sampling presets."""
    return json_of({"presets": preset_values(), "note": PRESET_NOTE})


async def preset(request: web.Request) -> web.Response:
    """Check a preset and return its values; it changes nothing."""
    name = (await body_as(request, PresetBody)).preset
    check_preset(name or "none")
    return json_of({"preset": name, "values": preset_values()[name], "note": PRESET_NOTE})


async def openapi(request: web.Request) -> web.Response:
    """Return the document of the routes that are served."""
    return json_of(document_of(request.app.router, request.app[GATEWAY].version))


async def _tools(request: web.Request) -> ToolList:
    found = await request.app[GATEWAY].invoke(ListTools(), caller_of(request).principal)
    assert isinstance(found, ToolList)
    return found


def _function(line: ToolLine) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": line.name,
            "description": line.description,
            "parameters": line.parameters,
        },
    }


ROUTES = [
    web.get("/status", status),
    web.get("/models/local", models),
    web.get("/tools", tools),
    web.get("/tools/{name}", tool),
    web.get("/v1/tools", tools_as_functions),
    web.get("/conversations", conversations),
    web.get("/conversations/{id}", conversation),
    web.get("/memory/search", search),
    web.get("/receipts", receipts),
    web.get("/receipts/verify", verify),
    web.get("/receipts/head", head),
    web.get("/receipts/{id}", receipt),
    web.get("/approvals", approvals),
    web.get("/estop", estop),
    web.get("/v1/preset", presets),
    web.post("/v1/preset", preset),
    web.get("/openapi.json", openapi),
]
