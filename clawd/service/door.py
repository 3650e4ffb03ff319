"""The control socket of a running daemon: opened, watched, bound anew when its file is gone, shut.

A file in a folder of temporary files may be swept away, or removed by a hand that slipped. A
daemon that nobody can reach any more could not be stopped either, so it looks every few seconds.
"""

import asyncio
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from socket import socket

from clawd.channels.rpc.server import RpcServer
from clawd.errors import ClawError
from clawd.service.background import Watch
from clawd.service.sockets import listen, remove

LOOK_INTERVAL_S = 2.0

_log = logging.getLogger(__name__)


class Door:
    """Where clients of the control socket come in.

    Args:
        server: serves who comes in.
        path: of the socket.
        watch: is told of the task that looks after the socket, and its name.
        look_interval_s: seconds between two looks.

    Attributes:
        server: serves who comes in.
        path: of the socket, unless systemd made it.
        is_systemds: whether the socket came from systemd, which then cares for its file.
    """

    def __init__(
        self,
        server: RpcServer,
        path: Path,
        *,
        watch: Watch | None = None,
        look_interval_s: float = LOOK_INTERVAL_S,
    ) -> None:
        self.server = server
        self.path = path
        self.is_systemds = False
        self._watch_task = watch
        self._look_interval_s = look_interval_s
        self._made: os.stat_result | None = None
        self._above = -1
        self._watching: asyncio.Task[None] | None = None
        self._trouble = ""

    async def open(self, passed: Sequence[socket]) -> None:
        """Listen on the socket that was passed in, or make one and watch its file.

        Raises:
            ClawError: it cannot be made, or somebody answers there.
        """
        if passed:
            self.is_systemds = True
            await self.server.start(passed[0])
            return
        listener = listen(self.path)
        self._made = self.path.lstat()
        # Held open, so that no other directory gets its number.
        self._above = os.open(self.path.parent.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        await self.server.start(listener)
        self._watching = asyncio.create_task(self._watch())
        if self._watch_task is not None:
            self._watch_task(self._watching, "the watch over the control socket")

    async def shut(self) -> None:
        """Take no more clients and remove the file that was made here."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self.server.stop_listening()
        if self._made is not None:
            remove(self.path, self._made)
        if self._above >= 0:
            os.close(self._above)
            self._above = -1

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._look_interval_s)
            if not self._is_ours():
                await self._bind_anew()

    def _is_ours(self) -> bool:
        try:
            return self._made is not None and os.path.samestat(self.path.lstat(), self._made)
        except OSError:
            return False

    def _is_home_ours(self) -> bool:
        """Tell whether the folder above the socket's is the one of the start.

        A home that was removed, moved or unmounted is not begun anew for the sake of its socket.
        """
        try:
            above = self.path.parent.parent.stat()
            return os.path.samestat(above, os.fstat(self._above))
        except OSError:
            return False

    async def _bind_anew(self) -> None:
        """Make the socket again; clients that are connected notice nothing."""
        try:
            if not self._is_home_ours():
                raise ClawError(f"{self.path.parent.parent} was removed, moved or unmounted")
            listener = listen(self.path, makes_parents=False)
            self._made = self.path.lstat()
        except (ClawError, OSError) as error:
            trouble = error.message if isinstance(error, ClawError) else str(error)
            if trouble != self._trouble:  # said once, tried for ever
                _log.error("the control socket is gone and cannot be made again: %s", trouble)
            self._trouble = trouble
            return
        self._trouble = ""
        await self.server.stop_listening()
        await self.server.start(listener)
        where = str(self.path)
        _log.warning("the control socket was gone, it is there again", extra={"socket": where})
