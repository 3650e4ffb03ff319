"""The transport of a server on its standard input and output: JSON lines, in the sandbox."""

import contextlib
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from clawd.kernel.concurrency import Allowance, Pace
from clawd.mcp.connection_end import LineSplitter, LineTooLongError, StderrLog, Trouble
from clawd.mcp.model import FETCHERS, ServerSettings
from clawd.mcp.server_hosts import ConnectionContext
from clawd.security.sandbox.landlock import make_folder, remove_folder
from clawd.security.sandbox.long_lived import OpenChild
from clawd.security.sandbox.plan import SYSTEM_TREES, USR_LINKS, ChildCommand

_SAVE_EVERY_S = 2.0
_DEATH_S = 0.5
_NOT_STARTED = {126, 127}
"""Exit codes of programs that could not be started, as shells give them."""
_MAX_BATCH = 1_000

FLOOD_BYTES = 4 << 20
FLOOD_BYTES_PER_S = 256 << 10
"""What a server may print unasked, at once and in the long run: junk, notifications, requests."""

_LINE_COST_BYTES = 512
"""What each line counts at least: many small ones are more work than one large."""

_log = logging.getLogger(__name__)

Streams = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]


@contextlib.asynccontextmanager
async def stdio_transport(
    settings: ServerSettings,
    around: ConnectionContext,
    trouble: Trouble,
    is_asked: Callable[[object], bool],
) -> AsyncIterator[Streams]:
    """Start a server and give the streams of its messages; on exit nothing of it is alive.

    Args:
        settings: how it is started.
        around: starts it, takes its standard error and says what hosts it may reach.
        trouble: told how it ended.
        is_asked: whether the request of an id waits for its answer; all else that a server
            prints is bounded.

    Raises:
        ClawError: the sandbox does not let it start.
    """
    folder = make_folder() if settings.workspace_access == "none" else None
    log = around.log
    try:
        command, way_out = _command(settings, folder), around.reach.way_out()
        async with (
            around.sandbox.open(command, on_errors=log.add, way_out=way_out) as child,
            _streams(child, settings, _Noise(is_asked), log, trouble) as streams,
        ):
            yield streams
    finally:
        with anyio.CancelScope(shield=True):
            await log.save()
            if folder is not None:
                await anyio.to_thread.run_sync(remove_folder, folder)


def _command(settings: ServerSettings, folder: Path | None) -> ChildCommand:
    return ChildCommand(
        argv=settings.command,
        workspace=folder or Path(settings.workspace),
        workspace_writable=settings.workspace_access == "write",
        readonly_paths=tuple(Path(path) for path in settings.readonly_paths),
        env=settings.env,
        toolchains=True,
        apart=f"MCP server {settings.alias}",
    )


def advice_of(settings: ServerSettings, *, is_missing: bool) -> str:
    """Return what a person can do about a program that is not found, or does not answer in time.

    Args:
        settings: of the server.
        is_missing: it could not be started.
    """
    program, table = settings.command[0], f"[mcp.servers.{settings.alias}]"
    if not is_missing:
        told = f"if it is only slow, raise connect_timeout_s of {table}"
        if Path(program).name not in FETCHERS:
            return told
        if settings.hosts:
            return f"{program} fetches what it runs; {told}, or install the server first"
        return (
            f"{program} fetches what it runs, and has no network: install the server and name its "
            f"own program, or list the hosts that it needs as hosts in {table}"
        )
    found = _found_program(program)
    if found is None:
        return (
            f"there is no program {program} on this machine's PATH: install it, or name it by its "
            f"absolute path in {table}"
        )
    if any(found.is_relative_to(each) for each in (*SYSTEM_TREES, *USR_LINKS)):
        return ""
    return (
        f"{found} is there, and the sandbox hides it: put its folder on the PATH of your login "
        f"shell, or list it in readonly_paths of {table} and name the program by that path"
    )


def _found_program(program: str) -> Path | None:
    """Return where a person's own shell would find a program."""
    home = Path.home()
    places = [home / ".local/bin", home / "bin", home / ".cargo/bin", home / ".bun/bin"]
    places += sorted(home.glob(".nvm/versions/node/*/bin"), reverse=True)
    places += [home / ".pyenv/shims", home / ".volta/bin", home / "go/bin", Path("/snap/bin")]
    path = os.pathsep.join((os.environ.get("PATH", ""), *map(str, places)))
    found = shutil.which(program, path=path)
    return Path(found) if found is not None else None


def _how_it_ended(child: OpenChild, log: StderrLog, settings: ServerSettings) -> str:
    if not child.is_dead:
        return "the server closed its output"
    if child.overuse:
        return f"the server was ended: {child.overuse}"
    code = child.exit_code()
    how = f"with code {code}" if 0 <= code <= 128 else f"by signal {abs(code) % 128}"
    last = log.last_line()
    todo = advice_of(settings, is_missing=True) if code in _NOT_STARTED else ""
    said = f"the server ended {how}" + (f"; its last words: {last}" if last else "")
    return f"{said}; {todo}" if todo else said


@contextlib.asynccontextmanager
async def _streams(
    child: OpenChild, settings: ServerSettings, noise: "_Noise", log: StderrLog, trouble: Trouble
) -> AsyncIterator[Streams]:
    came, to_session = anyio.create_memory_object_stream[SessionMessage | Exception](0)[::-1]
    from_session, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        reader = _Reader(child, to_session, settings, noise)
        tasks.start_soon(reader.run, log, trouble)
        tasks.start_soon(_write, child, to_send)
        tasks.start_soon(_save, log)
        try:
            yield came, from_session
        finally:
            tasks.cancel_scope.cancel()
            for stream in (came, to_session, from_session, to_send):
                stream.close()


class FloodError(Exception):
    """A server prints more than anybody asked it for."""


class _Noise:
    """Counts what a server prints unasked."""

    def __init__(self, is_asked: Callable[[object], bool]) -> None:
        self._is_asked = is_asked
        self._allowance = Allowance(burst=FLOOD_BYTES, per_s=FLOOD_BYTES_PER_S)

    def heard(self, item: SessionMessage | None, size: int) -> None:
        """Count a message of so many bytes; None for junk.

        Raises:
            FloodError: it was too much.
        """
        message = item.message if item is not None else None
        if isinstance(message, JSONRPCResponse | JSONRPCError) and self._is_asked(message.id):
            return
        self._count(max(size, _LINE_COST_BYTES))

    def blank(self, lines: int) -> None:
        """Count lines with nothing in them.

        Raises:
            FloodError: it was too much.
        """
        self._count(lines * _LINE_COST_BYTES)

    def _count(self, size: int) -> None:
        if not self._allowance.take(size):
            raise FloodError(
                f"it prints too much that nobody asked for: over {FLOOD_BYTES >> 20} MiB, and more "
                f"than {FLOOD_BYTES_PER_S >> 10} KiB a second"
            )


class _Reader:
    """Reads a server's messages for as long as it prints any."""

    def __init__(
        self,
        child: OpenChild,
        to_session: MemoryObjectSendStream[SessionMessage | Exception],
        settings: ServerSettings,
        noise: _Noise,
    ) -> None:
        self._child = child
        self._noise = noise
        self._to_session = to_session
        self._settings = settings
        self._junk = 0

    async def run(self, log: StderrLog, trouble: Trouble) -> None:
        """Read to the end, and tell what it was."""
        try:
            await self._read()
            # Its death comes with the end of its output, and says more.
            with anyio.move_on_after(_DEATH_S):
                await self._child.wait()
            trouble.end(_how_it_ended(self._child, log, self._settings))
        except (LineTooLongError, FloodError) as error:
            trouble.end(f"the server was disconnected: {error}")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        finally:
            self._to_session.close()
            if self._junk:
                _log.info("junk of an MCP server: %s, %d lines", self._settings.alias, self._junk)

    async def _read(self) -> None:
        lines, pace = LineSplitter(), Pace()
        while data := await self._child.read():
            blanks = data.count(b"\n")
            for line in lines.feed(data):
                await pace.step()
                blanks -= 1
                share = len(line)
                for message in _messages(line):
                    self._noise.heard(message, share)
                    share = 0  # of a batch, the first stands for its bytes
                    if message is not None:
                        await self._to_session.send(message)
                        continue
                    self._junk += 1
                    if self._junk == 1:
                        alias = self._settings.alias
                        _log.warning("an MCP server prints what is no message: %s", alias)
            self._noise.blank(blanks)


def _messages(line: bytes) -> Iterator[SessionMessage | None]:
    """Give the messages of a line, more than one where it holds a batch; None for junk."""
    if not line.lstrip().startswith((b"{", b"[")):
        yield None
        return
    text = line.decode("utf-8", "replace")
    try:
        yield SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
        return
    except (ValidationError, RecursionError):
        pass
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        yield None
        return
    for each in given[:_MAX_BATCH] if isinstance(given, list) else [given]:
        try:
            yield SessionMessage(jsonrpc_message_adapter.validate_python(each, by_name=False))
        except (ValidationError, RecursionError):
            yield _unreadable(each)


def _unreadable(given: Any) -> SessionMessage | None:
    """Answer the call that an answer was meant for which is none; None for what is no answer."""
    number = given.get("id") if isinstance(given, dict) and "method" not in given else None
    if isinstance(number, bool) or not isinstance(number, int | str):
        return None
    error = ErrorData(code=INTERNAL_ERROR, message="the server's answer is no valid message")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=error))


async def _write(child: OpenChild, to_send: MemoryObjectReceiveStream[SessionMessage]) -> None:
    with contextlib.closing(to_send):
        async for item in to_send:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await child.write(text.encode() + b"\n")
            except BrokenPipeError:
                return  # its end is told by what it printed last


async def _save(log: StderrLog) -> None:
    while True:
        await anyio.sleep(_SAVE_EVERY_S)
        await log.save()
