"""llama.cpp's routes about tokens and prompts.

POST /tokenize        {"content": "…", "add_special": false, "parse_special": true,
                       "with_pieces": false} → {"tokens": [1, 2]} or [{"id": 1, "piece": "…"}]
POST /detokenize      {"tokens": [1, 2]} → {"content": "…"}
POST /apply-template  {"messages": […], "tools": […]} → {"prompt": "…"}

Each takes `model`, too; without it the default model is meant.
"""

from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import field, invalid, read_object
from clawd.channels.http.catalogue import find_able
from clawd.channels.http.openai.chat_request import read_chat
from clawd.providers.abilities import Tokenizing, TokenList
from clawd.providers.base import ChatRequest

MAX_PARTS = 4096
_MAX_TOKEN = 2**31 - 1
_LACK = "has no tokenizer that clawd can ask"


async def post_tokenize(request: web.Request) -> web.Response:
    """Answer POST /tokenize."""
    caller_of(request)
    body = await read_object(request)
    parts = _parts(body.get("content"))
    add_special = field(body, "add_special", bool, False)  # noqa: FBT003 - a default
    parse_special = field(body, "parse_special", bool, True)  # noqa: FBT003 - a default
    provider, model, _ = await _tokenizer(request, body)
    found: list[tuple[int, bytes]] = []
    for number, part in enumerate(parts):
        if isinstance(part, int):
            found.append((part, await provider.detokenize(model, [part])))
            continue
        cut = await provider.tokenize(
            model,
            part,
            # What begins a text begins the first one.
            add_special=add_special and number == 0,
            parse_special=parse_special,
        )
        found += _pairs(cut)
    if field(body, "with_pieces", bool, False):  # noqa: FBT003 - a default
        return _json({"tokens": [{"id": id_, "piece": _piece(piece)} for id_, piece in found]})
    return _json({"tokens": [id_ for id_, _ in found]})


async def post_detokenize(request: web.Request) -> web.Response:
    """Answer POST /detokenize."""
    caller_of(request)
    body = await read_object(request)
    tokens = body.get("tokens")
    if not isinstance(tokens, list) or not all(map(_is_token, tokens)):
        raise invalid("tokens", "expected a list of token ids")
    provider, model, _ = await _tokenizer(request, body)
    data = await provider.detokenize(model, tokens)
    return _json({"content": data.decode("utf-8", "replace")})


async def post_apply_template(request: web.Request) -> web.Response:
    """Answer POST /apply-template: the prompt of the client's messages and tools alone."""
    caller_of(request)
    body = await read_object(request)
    asked = read_chat(body, request).request
    provider, model, _ = await _tokenizer(request, body)
    written = await provider.render(
        ChatRequest(
            messages=asked.messages,
            system=asked.system or "",
            tools=asked.tools,
            tool_choice=asked.tool_choice if asked.tools else "auto",
            model=model,
        )
    )
    return _json({"prompt": written.text})


async def _tokenizer(request: web.Request, body: dict[str, Any]) -> tuple[Tokenizing, str, str]:
    name = field(body, "model", str, "")
    return await find_able(
        request.app[GATEWAY],
        name,
        Tokenizing,  # type: ignore[type-abstract]
        _LACK,
    )


def _parts(content: Any) -> list[str | int]:
    """Return the parts of a text, which may be a list of texts and tokens; nothing has none."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [content]
    is_list = isinstance(content, list) and len(content) <= MAX_PARTS
    if not is_list or not all(isinstance(each, str) or _is_token(each) for each in content):
        raise invalid("content", f"expected a text, or at most {MAX_PARTS} texts and token ids")
    return list(content)


def _is_token(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MAX_TOKEN


def _pairs(cut: TokenList) -> list[tuple[int, bytes]]:
    return list(zip(cut.tokens, cut.pieces, strict=True))


def _piece(piece: bytes) -> str | list[int]:
    """Return a piece as text, or as bytes where it ends inside a character."""
    try:
        return piece.decode("utf-8")
    except UnicodeDecodeError:
        return list(piece)


def _json(value: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


ROUTES = [
    web.post("/tokenize", post_tokenize),
    web.post("/detokenize", post_detokenize),
    web.post("/apply-template", post_apply_template),
]
