"""A whole daemon inside the test: every real part, a mock provider, clients of any principal."""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from clawd.channels.rpc.connection import RpcServer
from clawd.config.load import load
from clawd.mcp.model import RemoteServers
from clawd.receipts.record import Receipt
from clawd.receipts.verify import BadLine, read_receipts
from clawd.security.principal import Principal
from clawd.security.redact import Redactor
from clawd.service.build import Daemon
from clawd.service.control_socket import listen
from clawd.service.handlers.table import handlers_of
from tests.channels.rpc.rig import IDENTITY, LIMIT_S, Door

T = TypeVar("T")

OWNER = Principal(uid=os.getuid(), gid=os.getgid(), pid=os.getpid(), role="admin")


class Inside(Door):
    """A daemon and its socket. `identify` says who a client is; `principal` by default."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        super().__init__(folder / "run" / "clawd.sock")
        self.daemon = daemon
        self.workspace = folder / "project"
        self.principal = OWNER
        self.identify: Callable[[socket.socket], Principal] = lambda _peer: self.principal

    def receipts(self) -> list[Receipt]:
        """Return the receipts of the chain, oldest first."""
        path = self.daemon.loaded.config.receipts.path
        if not path.exists():
            return []
        lines = list(read_receipts(path))
        assert not any(isinstance(line, BadLine) for line in lines)
        return [line for line in lines if isinstance(line, Receipt)]


@asynccontextmanager
async def daemon_in(
    folder: Path, tables: str = "", *, servers: RemoteServers | None = None
) -> AsyncIterator[Inside]:
    """Run a daemon whose home and workspace lie in the folder."""
    home, workspace = folder / "home", folder / "project"
    home.mkdir(mode=0o700, exist_ok=True)
    workspace.mkdir(exist_ok=True)
    (home / "config.toml").write_text(
        f'workspace_dir = "{workspace}"\ndefault_provider = "mock"\n'
        f'[providers.models.mock]\nkind = "mock"\n{tables}\n'
    )
    environ = {"HOME": str(folder), "CLAWD_HOME": str(home), "PATH": os.environ["PATH"]}
    daemon = Daemon(load(None, environ), environ, servers=servers)
    await daemon.open(Redactor([], b"k" * 32))
    inside = Inside(daemon, folder)
    server = RpcServer(
        handlers_of(daemon), identify=lambda peer: inside.identify(peer), identity=IDENTITY
    )
    await server.start(listen(inside.path))
    try:
        yield inside
    finally:
        inside.close()
        await server.close()
        await daemon.inbox.close(grace_s=0)
        await daemon.close()


class Aside:
    """Such a daemon on a loop of its own thread, so that a test may use the blocking client."""

    def __init__(self, folder: Path, tables: str = "") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._stack = AsyncExitStack()
        try:
            self.inside = self.run(self._stack.enter_async_context(daemon_in(folder, tables)))
        except BaseException:
            self.close()  # a thread that goes on would hold up the end of this process
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the daemon's loop and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(3 * LIMIT_S)

    def close(self) -> None:
        """End the daemon and its thread."""
        self.run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
