"""GET / for clients that look whether somebody is there, in the words they look for."""

from aiohttp import web

_TEXT = "Ollama is running"


async def get_root(_request: web.Request) -> web.Response:
    """Answer GET and HEAD /."""
    return web.Response(text=_TEXT)


ROUTES = [web.get("/", get_root)]
