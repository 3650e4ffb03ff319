"""How much memory the bodies of all requests together may take."""

import asyncio


class Room:
    """A number of bytes that are taken and given back; who comes first is served first.

    Args:
        size: how many there are.
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def take(self, count: int) -> None:
        """Wait until so many are left, at most the size, and take them."""
        async with self._turn:
            while self._left < count:
                self._freed.clear()
                await self._freed.wait()
            self._left -= count

    def give(self, count: int) -> None:
        """Give some back."""
        self._left += count
        self._freed.set()
