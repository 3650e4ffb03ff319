"""What clients of any dialect ask for in headers.

X-Clawd-Inject: off           without clawd's own system prompt and tools
X-Clawd-Conversation: conv-…  the conversation here that the message belongs to
"""

import msgspec
from aiohttp import web

from clawd.channels.http.answering import CONVERSATION_HEADER
from clawd.channels.http.exchange import ModelRequest

INJECT_HEADER = "X-Clawd-Inject"


def with_headers(asked: ModelRequest, request: web.Request) -> ModelRequest:
    """Return the request with what its headers ask for."""
    return msgspec.structs.replace(
        asked,
        inject=request.headers.get(INJECT_HEADER, "").strip().lower() != "off",
        conversation_id=request.headers.get(CONVERSATION_HEADER, "").strip(),
    )
