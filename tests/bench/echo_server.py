"""A bare echo on a Unix socket: `python -m tests.bench.echo_server PATH` says `ready`, then echoes.

It ends when its standard input does.
"""

import asyncio
import sys


class Echo(asyncio.Protocol):
    """Sends back what comes, with nothing in between."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self._transport.write(data)


async def serve(path: str) -> None:
    """Echo until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_unix_server(Echo, path)
    print("ready", flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
