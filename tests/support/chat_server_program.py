"""A chat server in a process of its own, to be killed: `python -m … NAME PORT`, port 0 is any.

Prints its port, then answers every request with `from NAME`; asked for `long` it streams without
end.
"""

import asyncio
import sys

from aiohttp import web
from typing_extensions import override

from tests.support.chat_server import DONE, Answer, ChatServer, chunk, routes

PAUSE_S = 0.005


class Speaker(ChatServer):
    """Says who it is."""

    def __init__(self, name: str) -> None:
        super().__init__(Answer())
        self._name = name

    @override
    async def chat(self, request: web.Request) -> web.StreamResponse:
        asked = (await request.json())["messages"][-1]["content"]
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(chunk({"content": f"from {self._name}"}))
        while asked == "long":
            await asyncio.sleep(PAUSE_S)
            await response.write(chunk({"content": " more"}))
        await response.write(chunk({}, "stop") + DONE)
        return response


async def main(name: str, port: int) -> None:
    runner = web.AppRunner(routes(Speaker(name)))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
