"""Anthropic's door: POST /v1/messages and /v1/messages/count_tokens.

Queries and the version header are passed over: every version and beta that clients name asks the
same of us.
"""

import msgspec
from aiohttp import web

from clawd.channels.http.answering import answer
from clawd.channels.http.anthropic.answer import AnthropicAnswer
from clawd.channels.http.anthropic.request import request_of, shows_thoughts
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import field, read_object
from clawd.channels.http.clawd_events import wants_events
from clawd.channels.http.exchange import ModelRequest
from clawd.channels.http.wishes import with_wishes

_CHARACTERS_PER_TOKEN = 4


async def post_messages(request: web.Request) -> web.StreamResponse:
    """Answer POST /v1/messages."""
    body = await read_object(request)
    stream = field(body, "stream", bool, default=False)
    asked = with_wishes(request_of(body), request, body)
    dialect = AnthropicAnswer(
        shows_thoughts=shows_thoughts(body),
        shows_events=wants_events(request),
        estimate=_estimate(asked),
    )
    generation = await request.app[GATEWAY].generations.open(asked, caller_of(request))
    return await answer(request, generation, dialect, stream=stream)


async def post_count_tokens(request: web.Request) -> web.Response:
    """Answer POST /v1/messages/count_tokens."""
    body = await read_object(request)
    asked = with_wishes(request_of(body), request, body)
    tokens = await request.app[GATEWAY].generations.count(asked, caller_of(request))
    return web.json_response({"input_tokens": tokens})


def _estimate(request: ModelRequest) -> int:
    """Return about how many tokens a prompt has; for servers that count only at the end."""
    size = len(msgspec.json.encode((request.system, request.messages, request.tools)))
    return max(1, size // _CHARACTERS_PER_TOKEN)


ROUTES = [
    web.post("/v1/messages", post_messages),
    web.post("/v1/messages/count_tokens", post_count_tokens),
]
