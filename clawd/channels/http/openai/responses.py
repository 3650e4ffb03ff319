"""POST /v1/responses, and how many tokens its prompt would have."""

from aiohttp import web

from clawd.channels.http.answering import answer
from clawd.channels.http.app import GATEWAY, caller_of
from clawd.channels.http.body import read_object
from clawd.channels.http.openai.response_answer import ResponseAnswer
from clawd.channels.http.openai.response_request import read_response


async def post_responses(request: web.Request) -> web.StreamResponse:
    """Answer POST /v1/responses."""
    asked = read_response(await read_object(request), request)
    generations = request.app[GATEWAY].generations
    generation = await generations.open(asked.request, caller_of(request))
    return await answer(request, generation, ResponseAnswer(asked), stream=asked.stream)


async def post_input_tokens(request: web.Request) -> web.Response:
    """Answer POST /v1/responses/input_tokens."""
    asked = read_response(await read_object(request), request)
    count = await request.app[GATEWAY].generations.count(asked.request, caller_of(request))
    return web.json_response({"object": "response.input_tokens", "input_tokens": count})


ROUTES = [
    web.post("/v1/responses", post_responses),
    web.post("/responses", post_responses),
    web.post("/v1/responses/input_tokens", post_input_tokens),
    web.post("/responses/input_tokens", post_input_tokens),
]
