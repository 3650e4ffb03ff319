"""What the fixture server of the conformance suite offers: its tools, prompts and resources."""

import asyncio
import base64
import json
import struct
import zlib
from typing import Any

import mcp_types as types
from mcp.server.subscriptions import InMemorySubscriptionBus, PromptsListChanged, ToolsListChanged

from tests.conformance.fixture_asking import (
    ASKING,
    TEXT,
    Context,
    Params,
    Run,
    Told,
    elicited,
    given,
    wanted,
)

STATIC, BINARY, WATCHED = "test://static-text", "test://static-binary", "test://watched-resource"
TEMPLATE = "test://template/{id}/data"
CONTEXT = {"type": "object", "properties": {"context": TEXT}, "required": ["context"]}

BUS = InMemorySubscriptionBus()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png() -> str:
    """Return a picture of one red pixel."""
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"\x00\xff\x00\x00")
    chunks = _chunk(b"IHDR", head) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + chunks).decode()


def _wav() -> str:
    """Return a sound without a sample."""
    head = b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16)
    body = head + b"data" + struct.pack("<I", 0)
    return base64.b64encode(b"RIFF" + struct.pack("<I", len(body)) + body).decode()


PNG, WAV = _png(), _wav()


def text(words: str) -> types.TextContent:
    """Return a block of text."""
    return types.TextContent(type="text", text=words)


def image() -> types.ImageContent:
    """Return a block with the picture."""
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, mime: str = "text/plain", words: str = "embedded") -> types.EmbeddedResource:
    """Return a block with a resource."""
    resource = types.TextResourceContents(uri=uri, mime_type=mime, text=words)
    return types.EmbeddedResource(type="resource", resource=resource)


def blocks(*content: Any) -> Run:
    """Return a tool that answers with blocks."""

    async def run(_ctx: Context, _params: Params) -> Told:
        return types.CallToolResult(content=list(content))

    return run


async def _log(ctx: Context, words: str) -> None:
    await ctx.session.send_log_message("info", words, related_request_id=ctx.request_id)


async def log(ctx: Context, _params: Params) -> Told:
    """Say three things while it runs."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await _log(ctx, words)
        await asyncio.sleep(0.05)  # the suite wants to see them come one by one
    return "logged"


async def progress(ctx: Context, _params: Params) -> Told:
    """Tell of its progress three times."""
    for now in (0, 50, 100):
        await ctx.session.report_progress(now, 100, f"Completed step {now} of 100")
        await asyncio.sleep(0.05)
    return "done"


async def reconnect(ctx: Context, _params: Params) -> Told:
    """Close the stream in the middle of the call."""
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await asyncio.sleep(0.1)
    return "reconnected"


async def fail(_ctx: Context, _params: Params) -> Told:
    """Fail, in words for a model."""
    return types.CallToolResult(content=[text("this tool fails on purpose")], is_error=True)


async def region(_ctx: Context, params: Params) -> Told:
    """Tell an argument that is in a header as well."""
    return f"region={(params.arguments or {}).get('region', '')}"


async def change_tools(_ctx: Context, _params: Params) -> Told:
    """Tell that the tools changed."""
    await BUS.publish(ToolsListChanged())
    return "told"


async def change_prompts(_ctx: Context, _params: Params) -> Told:
    """Tell that the prompts changed."""
    await BUS.publish(PromptsListChanged())
    return "told"


SCHEMA_2020 = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": TEXT, "city": TEXT},
        }
    },
    "properties": {
        "name": TEXT,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": TEXT,
        "email": TEXT,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

_MIXED = ("test://mixed-content-resource", "application/json", '{"test": "data"}')
_TOOLS: dict[str, tuple[dict[str, Any], Run]] = {
    "test_simple_text": ({}, blocks(text("This is a simple text response for testing."))),
    "test_image_content": ({}, blocks(image())),
    "test_audio_content": (
        {},
        blocks(types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")),
    ),
    "test_embedded_resource": ({}, blocks(embedded("test://embedded-resource"))),
    "test_multiple_content_types": ({}, blocks(text("several"), image(), embedded(*_MIXED))),
    "test_tool_with_logging": ({}, log),
    "test_logging_tool": ({}, log),
    "test_tool_with_progress": ({}, progress),
    "test_reconnection": ({}, reconnect),
    "test_error_handling": ({}, fail),
    "test_x_mcp_header": ({"region": {**TEXT, "x-mcp-header": "Region"}}, region),
    "test_trigger_tool_change": ({}, change_tools),
    "test_trigger_prompt_change": ({}, change_prompts),
    **ASKING,
}

RUNS: dict[str, Run] = {name: run for name, (_, run) in _TOOLS.items()}
RUNS["json_schema_2020_12_tool"] = blocks(text("valid"))
SCHEMAS: dict[str, dict[str, Any]] = {
    name: {"type": "object", "properties": properties} for name, (properties, _) in _TOOLS.items()
}
SCHEMAS["json_schema_2020_12_tool"] = SCHEMA_2020

PROMPTS: dict[str, tuple[str, ...]] = {
    "test_simple_prompt": (),
    "test_prompt_with_arguments": ("arg1", "arg2"),
    "test_prompt_with_embedded_resource": ("resourceUri",),
    "test_prompt_with_image": (),
    "test_input_required_result_prompt": (),
}


def prompt(params: types.GetPromptRequestParams) -> list[Any] | types.InputRequiredResult | None:
    """Return the blocks of a prompt, what it wants first, or None where there is none."""
    arguments = params.arguments or {}
    match params.name:
        case "test_simple_prompt":
            return [text("This is a simple prompt for testing.")]
        case "test_prompt_with_arguments":
            told = ", ".join(f"{name}='{arguments.get(name, '')}'" for name in ("arg1", "arg2"))
            return [text(f"Prompt with arguments: {told}")]
        case "test_prompt_with_embedded_resource":
            return [embedded(arguments.get("resourceUri", "test://none")), text("Read it.")]
        case "test_prompt_with_image":
            return [image(), text("Look at it.")]
        case "test_input_required_result_prompt":
            if found := given(params, "user_context"):
                return [text(f"Use this: {json.dumps(found['user_context'].content)}")]
            return wanted(user_context=elicited("What should be used?", CONTEXT))
        case _:
            return None


def resource(uri: str) -> types.TextResourceContents | types.BlobResourceContents | None:
    """Return what a resource holds, or None where there is none."""
    if uri == BINARY:
        return types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
    before, after = TEMPLATE.split("{id}")
    if uri.startswith(before) and uri.endswith(after):
        own = uri[len(before) : -len(after)]
        told = json.dumps({"id": own, "templateTest": True, "data": f"Data for ID: {own}"})
        return types.TextResourceContents(uri=uri, mime_type="application/json", text=told)
    words = {STATIC: "This is the content of the static text resource.", WATCHED: "watched"}
    if uri not in words:
        return None
    return types.TextResourceContents(uri=uri, mime_type="text/plain", text=words[uri])
