"""POST /v1/chat/completions, and how many tokens its prompt would have."""

from aiohttp import web

from clawd.channels.http.answering import answer_many
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import read_object
from clawd.channels.http.openai.bias import with_token_ids
from clawd.channels.http.openai.chat_answer import ChatAnswer
from clawd.channels.http.openai.chat_request import read_chat, repeated
from clawd.channels.http.side_by_side import open_many


async def post_chat(request: web.Request) -> web.StreamResponse:
    """Answer POST /v1/chat/completions."""
    gateway = request.app[GATEWAY]
    asked = read_chat(await with_token_ids(gateway, await read_object(request)), request)
    wanted = repeated(asked.request, asked.choices)
    opened = await open_many(gateway.generations, wanted, caller_of(request))
    dialect = ChatAnswer(asked.telling, choices=asked.choices)
    return await answer_many(request, opened, dialect, stream=asked.telling.stream)


async def post_input_tokens(request: web.Request) -> web.Response:
    """Answer POST /v1/chat/completions/input_tokens."""
    asked = read_chat(await read_object(request), request)
    count = await request.app[GATEWAY].generations.count(asked.request, caller_of(request))
    return web.json_response({"object": "response.input_tokens", "input_tokens": count})


ROUTES = [
    web.post("/v1/chat/completions", post_chat),
    web.post("/chat/completions", post_chat),
    web.post("/v1/chat/completions/input_tokens", post_input_tokens),
    web.post("/chat/completions/input_tokens", post_input_tokens),
]
