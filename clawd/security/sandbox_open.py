"""A child process that stays: its standard input and output are open for as long as it lives.

    async with sandbox.open(command, on_errors=log.add) as child:
        await child.write(b"ping")
        data = await child.read()           # b"" at its end

Nothing is buffered here: what nobody reads stays in the kernel's pipe, and so holds the child back.
Its standard error is read at once and handed on. At the end it is asked to go, in three steps:
end of file, SIGTERM, SIGKILL; its namespace or its keeper takes all that it has started with it.
"""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable

from typing_extensions import override

from clawd.errors import SandboxUnavailableError
from clawd.security.sandbox_child import READ_BYTES, Child, KillRegistry
from clawd.security.sandbox_looks import Overseer
from clawd.security.sandbox_plan import Plan

EOF_GRACE_S = 2.0
TERM_GRACE_S = 1.0

_PIPE_BYTES = 256 << 10
_PAUSE_S = 0.01
"""So long a child that fills the pipe of its errors waits for the next look at it."""


class OpenChild(Child):
    """A child to talk with. One task reads at a time, and one writes."""

    def __init__(
        self,
        registry: KillRegistry | None,
        overseer: Overseer | None,
        *,
        on_errors: Callable[[bytes], None],
    ) -> None:
        super().__init__(registry, overseer)
        self._on_errors = on_errors
        self._stdin = -1
        self._stdout = -1
        self._waiting: set[asyncio.Event] = set()

    @override
    def open_stdio(self, given: dict[str, int]) -> None:
        given["stdin"], self._stdin = os.pipe2(os.O_CLOEXEC)
        self._stdout, given["out"] = os.pipe2(os.O_CLOEXEC)
        for ours in (self._stdin, self._stdout):
            os.set_blocking(ours, False)
            with contextlib.suppress(OSError):  # the user's pipes may be at their limit
                fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        errors, given["err"] = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(errors, False)
        self.watch(errors, self._take_errors)

    def _take_errors(self, descriptor: int) -> None:
        data = os.read(descriptor, READ_BYTES)
        if not data:
            self.unwatch(descriptor)
            return
        self._on_errors(data)
        if len(data) == READ_BYTES:  # more than anybody reads: the full pipe holds it back
            self._loop.remove_reader(descriptor)
            self._loop.call_later(_PAUSE_S, self._look_again, descriptor)

    def _look_again(self, descriptor: int) -> None:
        if self.is_watched(descriptor):
            self._loop.add_reader(descriptor, self._take_errors, descriptor)

    async def read(self, max_bytes: int = READ_BYTES) -> bytes:
        """Return what it has printed, at least a byte; nothing at its end.

        It always gives way to others first: a child may print faster than anybody reads.
        """
        await asyncio.sleep(0)
        while self._stdout != -1:
            try:
                return os.read(self._stdout, max_bytes)
            except BlockingIOError:
                await self._until(self._loop.add_reader, self._loop.remove_reader, self._stdout)
        return b""

    async def write(self, data: bytes) -> None:
        """Write all of it, as fast as the child reads.

        Raises:
            BrokenPipeError: it does not read any more.
        """
        view = memoryview(data)
        while view:
            if self._stdin == -1:
                raise BrokenPipeError("its standard input is closed")
            try:
                view = view[os.write(self._stdin, view) :]
            except BlockingIOError:
                await self._until(self._loop.add_writer, self._loop.remove_writer, self._stdin)

    def close_stdin(self) -> None:
        """Let it see the end of its input; idempotent."""
        if self._stdin != -1:
            self._loop.remove_writer(self._stdin)
            os.close(self._stdin)
            self._stdin = -1
            self._wake()

    async def ask_to_leave(self) -> None:
        """Close its input and wait, then send SIGTERM and wait; what lives then is `end`'s."""
        self.close_stdin()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EOF_GRACE_S):
                await self.dead()
        if not self.is_dead:
            await self.ask_to_end(TERM_GRACE_S)

    @override
    def close_stdio(self) -> None:
        self.close_stdin()
        if self._stdout != -1:
            self._loop.remove_reader(self._stdout)
            os.close(self._stdout)
            self._stdout = -1
            self._wake()

    async def _until(
        self,
        add: Callable[[int, Callable[[], None]], None],
        remove: Callable[[int], object],
        descriptor: int,
    ) -> None:
        """Wait until a descriptor is ready, or closed."""
        ready = asyncio.Event()
        self._waiting.add(ready)
        add(descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            self._waiting.discard(ready)
            if descriptor in {self._stdin, self._stdout}:
                remove(descriptor)

    def _wake(self) -> None:
        for ready in self._waiting:
            ready.set()


@contextlib.asynccontextmanager
async def opened(child: OpenChild, plan: Plan) -> AsyncIterator[None]:
    """Start a child by its plan and let it begin; on exit nothing of it is alive.

    Raises:
        SandboxUnavailableError: it cannot be started.
    """
    try:
        try:
            child.start(plan)
        except OSError as error:
            raise SandboxUnavailableError(f"cannot start a process: {error}") from error
        child.let_go()
        await child.begun()
        if child.failure:
            raise SandboxUnavailableError(f"the sandbox cannot be set up: {child.failure}")
        try:
            yield
        finally:
            await child.ask_to_leave()
    finally:
        await child.end()
