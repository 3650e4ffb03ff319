"""What a connection needs of its supervisor, and how it says that it came to nothing.

Loads nothing of the SDK: `link` does, and is imported when a server is to be connected.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from clawd.mcp.stderr_log import StderrLog
from clawd.security.sandbox import Sandbox

SIGN_IN_S = 330.0


class ConnectError(Exception):
    """A server could not be connected. `try_legacy`: the old handshake may work at once."""

    def __init__(self, problem: str, *, try_legacy: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.try_legacy = try_legacy


class Surroundings:
    """What is there around one connection.

    Args:
        sandbox: starts servers.
        folder: of the home, for tokens.
        log: takes the server's standard error.
        on_sign_in: takes the address that a person must open.
    """

    def __init__(
        self, sandbox: Sandbox, folder: Path, log: StderrLog, on_sign_in: Callable[[str], None]
    ) -> None:
        self.sandbox = sandbox
        self.folder = folder
        self.log = log
        self._on_sign_in = on_sign_in
        self._limits: list[asyncio.Timeout] = []

    @contextlib.asynccontextmanager
    async def connecting(self, limit_s: float) -> AsyncIterator[None]:
        """Limit the body, which a person who signs in may prolong. Raises TimeoutError.

        Limits may stand within each other; a sign-in prolongs all of them.
        """
        async with asyncio.timeout(limit_s) as limit:
            self._limits.append(limit)
            try:
                yield
            finally:
                self._limits.remove(limit)

    async def on_sign_in(self, address: str) -> None:
        """Tell that a person must open an address, and wait longer."""
        for limit in self._limits:
            if limit.expired():
                continue  # it is over, and whoever is in it was not told yet
            limit.reschedule(asyncio.get_running_loop().time() + SIGN_IN_S)
        self._on_sign_in(address)
