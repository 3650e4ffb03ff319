"""One engine worker as an operating system process: start, frames, stderr, kill. No model here.

How a worker's death and a failed load are told: what happened, its last lines, what to do.
"""

import asyncio
import contextlib
import logging
import os
import resource
import signal
import socket
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, assert_never

import msgspec
import psutil
from typing_extensions import override

from clawd import errors
from clawd.engine import protocol
from clawd.paths import install_line

STDERR_LINES = 40
STDERR_LINE_CHARS = 500
_STDERR_BYTES = 64 * 1024

_PASSED_NAMES = frozenset({"PATH", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "TZ"})
_PASSED_PREFIXES = ("LC_", "OMP_", "GOMP_", "CUDA_", "HIP_", "ROCR_")
_EXIT_BY_SIGNAL = 128

_log = logging.getLogger(__name__)


class Launcher(Protocol):
    """Turns a worker's command line into the one that is run: the place for a fence.

    The file descriptor named after `--fd` must reach the worker, `model_path` must be readable
    there, and the worker must die with the process that is started.
    """

    def __call__(self, argv: tuple[str, ...], *, model_path: Path) -> Sequence[str]:
        """Return the command line to run; raises ClawError when it cannot be fenced."""
        ...


def unfenced(argv: tuple[str, ...], *, model_path: Path) -> Sequence[str]:
    """Run the worker as it is."""
    del model_path
    return argv


def worker_argv() -> tuple[str, ...]:
    """Return the command line of a worker, without `--fd N`."""
    return (sys.executable, "-s", "-P", "-m", "clawd.engine.worker")


def worker_environment(source: Mapping[str, str]) -> dict[str, str]:
    """Return what a worker gets of an environment: an allow-list, so no secret of any name."""
    kept = {
        name: value
        for name, value in source.items()
        if name in _PASSED_NAMES or name.startswith(_PASSED_PREFIXES)
    }
    kept["GGML_NO_BACKTRACE"] = "1"
    kept["PYTHONDONTWRITEBYTECODE"] = "1"
    root = Path(__file__).resolve().parents[2]
    if str(root) not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        kept["PYTHONPATH"] = str(root)
    return kept


def exit_reason(returncode: int) -> str:
    """Say how a process ended: `killed by SIGABRT`, `exit status 3`."""
    if returncode < 0:
        return f"killed by {_signal_name(-returncode)}"
    if number := exit_signal(returncode):
        return f"exit status {returncode} ({_signal_name(number)})"
    return f"exit status {returncode}"


def exit_signal(returncode: int) -> int:
    """Return the signal that ended a process, also when a launcher in between tells; or 0."""
    return -returncode if returncode < 0 else max(returncode - _EXIT_BY_SIGNAL, 0)


class WorkerProcess(asyncio.Protocol):
    """A started worker and the socket to it; made by `start_worker`.

    Attributes:
        was_overdue: it did not end within the grace of `finish`.
    """

    _transport: asyncio.Transport

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._frames = protocol.FrameBuffer()
        self._take: Callable[[list[protocol.FromWorker]], None] | None = None
        self._is_closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self.was_overdue = False

    @property
    def pid(self) -> int:
        """The process id; with a launcher that forks, the launcher's."""
        return self._process.pid

    def post(self, *frames: protocol.ToWorker) -> None:
        """Hand frames to the socket, in one piece, without waiting; ignored when it is closed.

        Raises:
            ProtocolError: a frame is too long.
        """
        data = b"".join(protocol.encode(frame) for frame in frames)
        if not self._transport.is_closing():
            self._transport.write(data)

    async def flush(self) -> None:
        """Wait until the worker has taken most of what was posted, or is gone."""
        await self._has_room.wait()

    async def read(self, take: Callable[[list[protocol.FromWorker]], None]) -> None:
        """Hand over frames as they come, at least one at a time, until the socket is closed.

        They are handed over where the loop reads them: to wake a task for each token costs more
        than all that is done with it.

        Raises:
            ProtocolError: what came is no frame.
        """
        self._take = take
        self._transport.resume_reading()
        await self._is_closed

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()  # until somebody takes what comes

    @override
    def data_received(self, data: bytes) -> None:
        assert self._take is not None, "it reads before anybody takes what comes"
        try:
            frames = [protocol.decode_from_worker(body) for body in self._frames.feed(data)]
        except errors.ProtocolError as error:
            self._transport.pause_reading()
            if not self._is_closed.done():
                self._is_closed.set_exception(error)
            return
        if frames:
            self._take(frames)

    @override
    def pause_writing(self) -> None:
        self._has_room.clear()

    @override
    def resume_writing(self) -> None:
        self._has_room.set()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._has_room.set()
        if not self._is_closed.done():
            self._is_closed.set_result(None)

    async def collect_stderr(self) -> None:
        """Keep the last lines of stderr until it is closed."""
        stream = self._process.stderr
        if stream is None:
            return
        rest = b""
        while data := await stream.read(_STDERR_BYTES):
            *lines, rest = (rest + data).split(b"\n")
            rest = rest[-STDERR_LINE_CHARS * 4 :]
            for line in lines:
                self._keep(line)
        if rest:
            self._keep(rest)

    def stderr_lines(self) -> tuple[str, ...]:
        """Return the last lines of stderr, oldest first, without control characters."""
        return tuple(self._stderr)

    def cpu_s(self) -> float:
        """Return the processor time of the worker's whole process group; looks at all of /proc."""
        return float(sum(each.user + each.system for each in self._group("cpu_times")))

    def memory_bytes(self) -> int:
        """Return the resident memory of the same, files mapped into it included."""
        return sum(each.rss for each in self._group("memory_info"))

    def _group(self, method: str) -> Iterator[Any]:
        for pid in psutil.pids():
            # Processes come and go meanwhile.
            with contextlib.suppress(ProcessLookupError, psutil.Error):
                if os.getpgid(pid) == self.pid:
                    yield getattr(psutil.Process(pid), method)()

    def kill(self) -> None:
        """Send SIGKILL to the worker's whole process group."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    async def finish(self, grace_s: float) -> int:
        """Wait for the end, kill after the grace, close the socket, return the exit status."""
        try:
            async with asyncio.timeout(grace_s):
                return await self._process.wait()
        except TimeoutError:
            self.was_overdue = True
            self.kill()
            return await self._process.wait()
        finally:
            # Whatever a launcher left in the group must not outlive it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._transport.abort()

    def _keep(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")[:STDERR_LINE_CHARS]
        clean = "".join(char if char.isprintable() else " " for char in text).rstrip()
        if clean:
            self._stderr.append(clean)
            _log.debug("engine worker %d: %s", self.pid, clean)


async def start_worker(
    argv: tuple[str, ...], *, launcher: Launcher, model_path: Path
) -> WorkerProcess:
    """Start a worker with one end of a socketpair, in a process group and session of its own.

    Raises:
        EngineError: the program cannot be started.
        ClawError: the launcher refuses.
    """
    ours, theirs = socket.socketpair()
    try:
        command = launcher((*argv, "--fd", str(theirs.fileno())), model_path=model_path)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            pass_fds=(theirs.fileno(),),
            env=worker_environment(os.environ),
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        raise errors.EngineError(
            f"the engine worker cannot be started: {error.strerror or error} ({argv[0]})",
            hint="Install clawd again: the Python that it runs on is gone or may not be run.",
        ) from error
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return await _connect(process, ours)


async def _connect(process: asyncio.subprocess.Process, ours: socket.socket) -> WorkerProcess:
    try:
        # A core file would hold prompts and be as large as the model.
        with contextlib.suppress(OSError):
            resource.prlimit(process.pid, resource.RLIMIT_CORE, (0, 0))
        connect = asyncio.get_running_loop().create_unix_connection
        _, worker = await connect(lambda: WorkerProcess(process), sock=ours)
    except BaseException:
        ours.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # Until it is gone: nobody else knows of it.
        await process.communicate()
        raise
    return worker


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


KillCause = Literal["template", "step", "other"]

BUSY_RETRY_S = 5.0
STARTED_AGAIN = "It is started again on next use."

_LESS_MEMORY = "lower ctx_size in [engine] or in the model's own section, or use a smaller model."
# What the worker and C++ write last when memory runs out.
_OUT_OF_MEMORY = ("out of memory", "std::bad_alloc")

_BY_SIGNAL: dict[int, str] = {
    signal.SIGKILL: f" If nobody killed it, memory ran out: {_LESS_MEMORY}",
    signal.SIGBUS: " Its model file was cut or overwritten while it was in use; replace such a "
    "file as a whole: `clawctl model add --force`.",
    signal.SIGILL: " This processor lacks an instruction that llama.cpp was built with: install "
    "llama-cpp-python from source.",
}
# By the code of a LoadFailed: the code it is known by outside, and what to do.
_BY_LOAD_CODE = {
    "model_not_found": ("model_not_found", "`clawctl model list` shows those that are there."),
    "out_of_memory": ("model_load", _LESS_MEMORY.capitalize()),
    "engine_missing": (
        "model_load",
        f"Install it with: {install_line('local')}\nOr let a server answer: clawctl onboard",
    ),
}
_WHOLE = "Is the file whole, and a model for text? Get it again, or use another model."


class WorkerDeath(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker ended that was not told to.

    Attributes:
        cause: what the supervisor did or saw: it `exited`, or was killed because it showed no
            sign of life while the chat `template` was rendered, or in a `step`, or `other`.
        running: ids of the generations that it took along.
        signal: what ended it when it `exited`, or 0.
    """

    model: str
    pid: int
    reason: str
    cause: KillCause | Literal["exited"]
    stderr: tuple[str, ...]
    running: tuple[int, ...]
    signal: int = 0

    def error(self) -> errors.WorkerDiedError:
        """Return it as an error, with the worker's last lines."""
        last = "\n".join(self.stderr)
        return errors.WorkerDiedError(
            f"the engine worker of model {self.model} (pid {self.pid}) died: {self.reason}."
            + (f" Its last lines:\n{last}" if last else " It wrote nothing to stderr."),
            hint=self._hint(),
        )

    def _hint(self) -> str:
        match self.cause:
            case "template":
                return (
                    "Its chat template is marked bad: use another model, or try it again after "
                    f"`clawctl model unload {self.model}`."
                )
            case "step":
                return (
                    f"{STARTED_AGAIN} A machine that is only slow needs a larger watchdog_s in "
                    "[engine]."
                )
            case "exited":
                if any(sign in line for line in self.stderr for sign in _OUT_OF_MEMORY):
                    return f"{STARTED_AGAIN} Memory ran out: {_LESS_MEMORY}"
                return STARTED_AGAIN + _BY_SIGNAL.get(self.signal, "")
            case "other":
                return STARTED_AGAIN
            case _:
                assert_never(self.cause)


def load_error(model: str, failed: protocol.LoadFailed) -> errors.ModelLoadError:
    """Return what a worker says about a model that it cannot load as an error."""
    code, hint = _BY_LOAD_CODE.get(failed.code, (failed.code, _WHOLE))
    return errors.ModelLoadError(
        f"model {model} cannot be loaded: {failed.message}", code=code, hint=hint
    )


def failure(failed: protocol.GenerationFailed | protocol.QuestionFailed) -> errors.ClawError:
    """Return what a worker says about something that it cannot do as an error."""
    message, hint = failed.message, failed.hint
    match failed.code:
        case "busy":
            wait_s = failed.retry_after_s if isinstance(failed, protocol.GenerationFailed) else 1.0
            return errors.BusyError(message, retry_after_s=wait_s, hint=hint)
        case "context_full":
            counts = {"n_prompt_tokens": failed.n_prompt_tokens, "n_ctx": failed.n_ctx}
            return errors.ContextFullError(message, hint=hint, data=counts)
        case "invalid_request":
            return errors.InvalidRequestError(message, hint=hint)
        case _:
            return errors.EngineError(message, code=failed.code, hint=hint)


def no_room(model: str, in_use: Sequence[str], max_loaded: int) -> errors.BusyError:
    """Return why a model cannot be loaded beside those that are in use."""
    return errors.BusyError(
        f"model {model} cannot be loaded now: {', '.join(sorted(in_use))} in use, and at most "
        f"{max_loaded} models may be loaded",
        retry_after_s=BUSY_RETRY_S,
        hint="Wait, or raise max_loaded in [engine].",
    )
