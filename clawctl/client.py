"""The blocking client of the control socket: one connection, one request at a time.

    with connect(path) as client:
        report = client.call(Status())
        stream = client.stream(SendMessage(text="hello"))
        for event in stream:
            …
        finished = stream.result

`Stream.cancel` may be called from a signal handler. Every failure is a ClawError with a hint.
"""

# `socket` turns its constants into enumerations when it is imported: 3.5 ms of a one-shot command's
# 70. The class below it does all that is needed here.
import _socket
import contextlib
import errno
import select
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from clawd import __version__
from clawd.errors import ClawError, ProtocolError, UnreachableError
from clawd.wire import codec
from clawd.wire.events import Event
from clawd.wire.method import Method, method_name, result_type

# Longer than a busy machine lets a daemon wait that is well.
GREETING_LIMIT_S = 15.0
# With systemd: the config is checked, then the daemon starts, on a machine that is just booting.
ACTIVATION_LIMIT_S = 45.0
MANAGER = "systemd"
_CREDENTIALS_BYTES = 12

CONNECT_LIMIT_S = 5.0
CALL_LIMIT_S = 60.0
SEND_LIMIT_S = 30.0
CANCEL_LIMIT_S = 15.0
RECEIVE_BYTES = 256 * 1024
CLIENT_NAME = "clawctl"

# Why nobody answers, in the data of an UnreachableError; a daemon is started for the first two.
ABSENT, REFUSED, DENIED, SILENT, LOST = "absent", "refused", "denied", "silent", "lost"

R = TypeVar("R")


class Client:
    """One greeted connection. `welcome` says who answers, `path` where."""

    def __init__(
        self, connection: _socket.socket, path: Path, limit_s: float | None = None
    ) -> None:
        self.path = path
        self._socket = connection
        self._reader = codec.FrameReader()
        self._frames: deque[codec.ServerFrame] = deque()
        self._last_id = 0
        self._is_sending = False
        self._unsent: deque[codec.ClientFrame] = deque()
        self.welcome = self._greet(limit_s)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; a turn that it owns is cancelled by that."""
        self._socket.close()

    def call(self, params: Method[R], *, limit_s: float = CALL_LIMIT_S) -> R:
        """Call a method and return its result.

        Raises:
            ClawError: the daemon refused it; `code` says how.
            UnreachableError: no answer in time, or the connection was lost.
        """
        stream = self.stream(params)
        deadline = time.monotonic() + limit_s
        while not stream.is_done:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _unreachable(
                    f"the daemon (pid {self.welcome.pid}) did not answer "
                    f"{method_name(type(params))} within {limit_s:g} s",
                    hint="See its log, or end it: it may hang.",
                    reason=SILENT,
                )
            stream.wait(left)
        return stream.result

    def stream(self, params: Method[R]) -> "Stream[R]":
        """Call a method that streams events before its result."""
        self._last_id += 1
        name = method_name(type(params))
        self.send(codec.Request(id=self._last_id, method=name, params=codec.pack(params)))
        return Stream(self, self._last_id, result_type(type(params)))

    def send(self, frame: codec.ClientFrame) -> None:
        """Send a frame whole; one from a signal handler waits for the frame it interrupted."""
        self._unsent.append(frame)
        while self._unsent and not self._is_sending:
            self._is_sending = True
            try:
                # A handler that ran just before the line above may have sent everything.
                if self._unsent:
                    self._socket.sendall(codec.encode_frame(self._unsent.popleft()))
            except OSError as error:
                raise self._lost(error) from error
            finally:
                self._is_sending = False

    def receive(self, limit_s: float | None) -> codec.ServerFrame | None:
        """Return the next frame, or None when none came in time."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while not self._frames:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            try:
                readable, _, _ = select.select([self._socket], [], [], left)
                if not readable:
                    return None
                data = self._socket.recv(RECEIVE_BYTES)
            except (OSError, ValueError) as error:
                raise self._lost(error) from error
            if not data:
                raise self._lost(None)
            self._frames.extend(map(codec.decode_server_frame, self._reader.feed(data)))
        return self._frames.popleft()

    def is_alive(self) -> bool:
        """Return whether the daemon still holds the other end, without waiting."""
        try:
            if not select.select([self._socket], [], [], 0)[0]:
                return True
            return self._socket.recv(1, _socket.MSG_PEEK) != b""
        except (OSError, ValueError):
            return False

    def fileno(self) -> int:
        """Return the socket's descriptor, for select."""
        return self._socket.fileno()

    @property
    def has_frames(self) -> bool:
        """Whether frames were read that nobody took yet."""
        return bool(self._frames)

    def _greet(self, limit_s: float | None) -> codec.Welcome:
        hello = codec.Hello(
            min=codec.PROTOCOL_MIN,
            max=codec.PROTOCOL_MAX,
            client=CLIENT_NAME,
            version=__version__,
        )
        with contextlib.suppress(UnreachableError):  # a refusal may be there before the hello is
            self.send(hello)
        limit_s = limit_s or _greeting_limit_s(self._socket)
        match self.receive(limit_s):
            case codec.Welcome() as welcome:
                return welcome
            case codec.Failure() as failure:
                raise _failed(failure)
            case None:
                raise _unreachable(
                    f"{self.path} accepts connections, but nothing greets within {limit_s:g} s",
                    hint="The daemon may hang, or it is not a clawd: see its log.",
                    reason=SILENT,
                )
            case _:
                raise ProtocolError(f"{self.path}: expected a welcome; is this a clawd?")

    def _lost(self, error: BaseException | None) -> UnreachableError:
        why = f": {error}" if error is not None else ""
        return UnreachableError(
            f"the daemon closed the connection{why}",
            hint="It was stopped or it failed: see its log, then try again.",
            data={"reason": LOST, "socket": str(self.path)},
        )


def pages(call: Callable[[Method[R]], R], request: Method[R]) -> Iterator[R]:
    """Yield the pages of a list; `request` and each page have a cursor, empty in the last page."""
    cursor = ""
    while True:
        page = call(msgspec.structs.replace(request, cursor=cursor))
        yield page
        before, cursor = cursor, getattr(page, "cursor", "")
        if cursor in {"", before}:
            return


class Stream(Generic[R]):
    """The events of one request, then its result. Iterating yields every event and ends.

    Attributes:
        is_done: whether the result is there.
        is_cancelled: whether `cancel` was called.
        answered: ids of the questions that were answered here.
    """

    def __init__(self, client: Client, request_id: int, kind: type[R]) -> None:
        self._client = client
        self._id = request_id
        self._kind = kind
        self._events: deque[Event] = deque()
        self._failure: ClawError | None = None
        self._results: list[R] = []
        self.is_cancelled = False
        self._cancelled_at = 0.0
        self.answered: set[str] = set()

    def __iter__(self) -> Iterator[Event]:
        while not self.is_done:
            event = self.wait()
            if event is not None:
                yield event

    @property
    def is_done(self) -> bool:
        """Whether the result is there and every event was taken."""
        return bool(self._results) and not self._events

    @property
    def result(self) -> R:
        """The result; ask only when done."""
        return self._results[0]

    @property
    def waiting(self) -> tuple[Event, ...]:
        """The events that were read and not yet taken."""
        return tuple(self._events)

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come from the daemon."""
        return bool(self._results) or self._failure is not None

    def fileno(self) -> int:
        """Return the connection's descriptor, for select."""
        return self._client.fileno()

    def wait(self, limit_s: float | None = None) -> Event | None:
        """Return the next event; None when none came in time or the result did.

        Raises:
            ClawError: the request failed; every event before that was returned first.
        """
        if not self._events and not self.has_ended:
            self.read(limit_s)
        if self._events:
            return self._events.popleft()
        if self._failure is not None:
            raise self._failure
        return None

    def read(self, limit_s: float | None) -> None:
        """Take in what comes within the limit, without handing it out."""
        if self.is_cancelled:
            left = self._cancelled_at + CANCEL_LIMIT_S - time.monotonic()
            if left <= 0:
                raise ClawError(
                    f"the daemon did not stop within {CANCEL_LIMIT_S:g} s", code="cancelled"
                )
            limit_s = left if limit_s is None else min(limit_s, left)
        frame = self._client.receive(limit_s)
        while frame is not None and not self.has_ended:
            self._take(frame)
            frame = self._client.receive(0) if self._client.has_frames else None

    def answer(self, question: str, value: str, digest: str = "", *, arguments: str = "") -> None:
        """Answer an approval (its digest; arguments go with the word `edit`) or a question."""
        self.answered.add(question)
        fields = {"question": question, "value": value, "digest": digest, "arguments": arguments}
        self._client.send(codec.Answer(id=self._id, **fields))

    def cancel(self) -> None:
        """Ask the daemon to stop; the stream then ends with a failure `cancelled`."""
        if self.is_cancelled or self.has_ended:
            return
        self.is_cancelled = True
        self._cancelled_at = time.monotonic()
        with contextlib.suppress(UnreachableError):
            self._client.send(codec.Cancel(id=self._id))

    def _take(self, frame: codec.ServerFrame) -> None:
        match frame:
            case codec.EventFrame() if frame.id == self._id:
                self._events.append(codec.unpack_event(frame.event))
            case codec.Result() if frame.id == self._id:
                self._results.append(codec.unpack(frame.value, self._kind))
            case codec.Failure() if frame.id in {self._id, None}:
                self._failure = _failed(frame)
            case _:
                # Late frames of a request that was given up are nobody's any more.
                pass


def connect(path: Path, limit_s: float | None = None) -> Client:
    """Connect and greet, within a limit; None for one that a busy machine needs.

    Raises:
        UnreachableError: nobody answers there; `data["reason"]` says why.
        ProtocolError: what answers speaks no version that this side speaks.
        ClawError: the daemon refuses this client.
    """
    kind = _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC
    connection = _socket.socket(_socket.AF_UNIX, kind)
    try:
        connection.settimeout(CONNECT_LIMIT_S)
        try:
            connection.connect(str(path))
        except OSError as error:
            raise _cannot_connect(path, error) from error
        connection.settimeout(SEND_LIMIT_S)
        return Client(connection, path, limit_s)
    except BaseException:
        connection.close()
        raise


def connect_any(paths: list[Path], limit_s: float | None = None) -> Client:
    """Connect to the first path that answers, each within a limit.

    Raises:
        ClawError: none does; the error is that of the first path where something is there, else
            one that names them all.
    """
    failures: list[ClawError] = []
    for path in paths:
        try:
            return connect(path, limit_s)
        except ClawError as error:
            failures.append(error)
    for failure in failures:
        if reason_of(failure) != ABSENT:
            raise failure
    if len(failures) == 1:
        raise failures[0]
    names = " nor ".join(str(path) for path in paths)
    raise _unreachable(
        f"no daemon answers: there is neither {names}",
        hint="Start one with: clawd, or name its socket with --socket.",
        reason=ABSENT,
    )


def reason_of(error: ClawError) -> str:
    """Return why nobody answered; empty for other errors."""
    return str((error.data or {}).get("reason", "")) if error.code == "unreachable" else ""


def is_nobody(error: ClawError) -> bool:
    """Return whether an error says that no daemon is there, rather than one that does not serve."""
    return reason_of(error) in {ABSENT, REFUSED}


def _cannot_connect(path: Path, error: OSError) -> UnreachableError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return _unreachable(
            f"no daemon answers: there is no socket {path}",
            hint="Start one with: clawd, or name its socket with --socket.",
            reason=ABSENT,
        )
    if isinstance(error, ConnectionRefusedError):
        return _unreachable(
            f"socket {path} is there, but no daemon listens on it",
            hint="The daemon that made it has ended. Start one with: clawd",
            reason=REFUSED,
        )
    if isinstance(error, PermissionError):
        return UnreachableError(
            f"socket {path} refused the connection: permission denied",
            hint="Join group clawd-ctl and log in again, or: clawctl service install --user",
            data={"reason": DENIED, "socket": str(path)},
        )
    if isinstance(error, TimeoutError) or error.errno == errno.EAGAIN:
        return _unreachable(
            f"socket {path} does not accept connections: its queue is full",
            hint="The daemon may hang: see its log.",
            reason=SILENT,
        )
    return _unreachable(
        f"cannot connect to {path}: {error}",
        hint="Name the daemon's socket with --socket; a path has at most 107 bytes.",
        reason=DENIED,
    )


def _unreachable(message: str, *, hint: str, reason: str) -> UnreachableError:
    return UnreachableError(message, hint=hint, data={"reason": reason})


def _failed(failure: codec.Failure) -> ClawError:
    data: dict[str, Any] | None = failure.data
    return ClawError(failure.message, hint=failure.hint, code=failure.code, data=data)


def _greeting_limit_s(connection: _socket.socket) -> float:
    """Return how long to wait for the greeting on a connected socket."""
    return ACTIVATION_LIMIT_S if is_held_by_systemd(connection) else GREETING_LIMIT_S


def is_held_by_systemd(connection: _socket.socket) -> bool:
    """Return whether a service manager made the listening socket; it says so by its credentials."""
    with contextlib.suppress(OSError):
        credentials = connection.getsockopt(
            _socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS_BYTES
        )
        pid = int.from_bytes(credentials[:4], sys.byteorder)
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == MANAGER
    return False
