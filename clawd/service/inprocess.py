"""A daemon inside of another program: its home, its lock and all its parts; no socket, no signals.

The program is a client like any other, over a pair of connected sockets that has no name. So the
gate, the sandbox, memory and receipts are those of every daemon.
"""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from clawd import __version__
from clawd.channels.rpc.connection import Identity
from clawd.channels.rpc.server import RpcServer
from clawd.config.load import Loaded
from clawd.engine.supervisor import Engine
from clawd.errors import ClawError
from clawd.providers.base import Provider
from clawd.runtime.settings import RuntimeSettings
from clawd.security.principal import Principal
from clawd.service.build import Daemon
from clawd.service.control_socket import HomeLock
from clawd.service.home import make_folders, redactor_of
from clawd.tools.base import Tool


class InProcessDaemon:
    """A daemon on the loop of the program that holds it, for that program alone.

    Args:
        loaded: its configuration.
        environ: what it sees of the environment.
    """

    def __init__(self, loaded: Loaded, environ: Mapping[str, str]) -> None:
        self._loaded = loaded
        self._environ = environ
        self._stack = AsyncExitStack()
        self._daemon: Daemon
        self._server: RpcServer

    async def open(self) -> None:
        """Open everything; on failure what was opened is closed again.

        Raises:
            ClawError: the home is in use (`already_running`), or a part cannot be had.
        """
        try:
            await self._open()
        except BaseException:
            await self._stack.aclose()
            raise

    async def close(self) -> None:
        """Cancel what runs and close everything, highest first."""
        await self._stack.aclose()

    async def connect(self) -> socket.socket:
        """Return a connected socket at whose other end the daemon serves."""
        theirs, ours = socket.socketpair()
        theirs.setblocking(False)  # noqa: FBT003 - the signature of socket
        ours.setblocking(False)  # noqa: FBT003 - the signature of socket
        try:
            await self._server.take(theirs)
        except BaseException:
            theirs.close()
            ours.close()
            raise
        return ours

    def adjust(self, change: Callable[[RuntimeSettings], RuntimeSettings]) -> None:
        """Have what the configuration says to the runtime changed, from the next message on."""
        self._daemon.state.overlay(change)

    def hold_tools(self, tools: Sequence[Tool], *, alone: bool) -> None:
        """Offer tools of the program beside those of the configuration, or `alone`.

        Raises:
            InvalidRequestError: a name is no tool name or is taken; nothing was changed.
        """
        self._daemon.hold_tools(tools, alone=alone)

    @property
    def engine(self) -> Engine:
        """The local models."""
        return self._daemon.engine

    @property
    def provider(self) -> Provider:
        """The provider that answers unless a message names another one.

        Raises:
            ClawError: the configured one is not there.
        """
        state = self._daemon.state
        name = state.runtime.default_provider
        if name not in state.providers:
            raise ClawError(f"there is no provider {name!r}", code="not_found")
        return state.providers[name]

    async def _open(self) -> None:
        loaded = self._loaded
        make_folders(loaded)
        lock = HomeLock(loaded.layout.lock)
        lock.take()
        self._stack.callback(lock.release)
        self._daemon = Daemon(loaded, self._environ, owns_process=False, umask=_umask())
        await self._daemon.open(redactor_of(loaded, self._environ))
        self._stack.push_async_callback(self._daemon.close)
        principal = Principal(uid=os.geteuid(), gid=os.getegid(), pid=os.getpid(), role="admin")
        self._server = RpcServer(
            self._daemon.handlers,
            identify=lambda _peer: principal,
            identity=Identity(version=__version__, pid=os.getpid(), home=str(loaded.layout.home)),
        )
        self._stack.push_async_callback(self._server.close)
        self._stack.push_async_callback(self._end_turns)

    async def _end_turns(self) -> None:
        await self._daemon.inbox.close(grace_s=0.0)


def _umask() -> int:
    """Return the umask of this process; setting it in order to read it would show in threads."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    return 0o077
