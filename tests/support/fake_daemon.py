"""A daemon for tests of clients: a real socket that speaks the wire, with scripted answers."""

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawd.errors import ClawError, NotFoundError
from clawd.wire.codec import (
    Answer,
    Cancel,
    ClientFrame,
    EventFrame,
    Failure,
    FrameReader,
    Hello,
    Request,
    Result,
    ServerFrame,
    Welcome,
    decode_client_frame,
    encode_frame,
    pack,
    unpack,
)
from clawd.wire.daemon import KeyList, StatusReport
from clawd.wire.events import Event
from clawd.wire.mcp import McpServerList
from clawd.wire.method import Done, Method
from clawd.wire.methods import METHODS
from clawd.wire.policy import PolicyBoundary
from clawd.wire.skills import SkillList
from clawd.wire.tools import ToolList

LIMIT_S = 60.0


class Call:
    """One request as a handler sees it."""

    def __init__(self, link: "_Link", request: Request, params: Any) -> None:
        self._link = link
        self._id = request.id
        self.params = params
        self.answers: queue.Queue[Answer | None] = queue.Queue()
        self.cancelled = threading.Event()
        self.gone = link.gone

    def emit(self, *events: Event) -> None:
        for event in events:
            self._link.send(EventFrame(id=self._id, event=pack(event)))

    def answer(self) -> Answer:
        answer = self.answers.get(timeout=LIMIT_S)
        if answer is None:
            raise ClawError("the client left without an answer", code="cancelled")
        return answer

    def until_cancelled(self) -> None:
        assert self.cancelled.wait(LIMIT_S)
        raise ClawError("the turn was cancelled", code="cancelled")

    def hang_up(self) -> None:
        self._link.close()


Handler = Callable[[Call], object]


class FakeDaemon:
    """Serves one socket until it is closed.

    Attributes:
        handlers: what each method answers: a handler, or a plain value.
        requests: the parameters of every request, in order of arrival.
        welcome: what it greets with; a Failure refuses every client.
    """

    def __init__(self, path: Path, home: Path, **handlers: object) -> None:
        self.path = path
        self.home = home
        self.handlers: dict[str, object] = {
            "ping": Done(message="pong"),
            "status": self.status(),
            "list_tools": ToolList(items=()),
            "list_keys": KeyList(items=()),
            "list_mcp_servers": McpServerList(items=()),
            "list_skills": SkillList(items=()),
            # Nobody is asked whether this folder is trusted: it is the configured one.
            "show_policy": PolicyBoundary(
                autonomy="supervised",
                sandbox="full",
                workspace=str(Path.cwd()),
                workspace_only=True,
            ),
            **handlers,
        }
        self.requests: list[Method[Any]] = []
        self.hellos: list[Hello] = []
        self.welcome: ServerFrame | None = Welcome(
            protocol=1, version="9.9.9", pid=os.getpid(), home=str(home), role="admin"
        )
        self._links: list[_Link] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(str(path))
        self._server.listen(16)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> "FakeDaemon":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(LIMIT_S)
        for link in self._links:
            link.close()
            link.thread.join(LIMIT_S)
            # What a handler does after this would happen to another test.
            for thread in link.answering:
                thread.join(LIMIT_S)
        self.path.unlink(missing_ok=True)

    def calls_of(self, kind: type[Method[Any]]) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    def status(self, **changes: object) -> StatusReport:
        values: dict[str, Any] = {
            "pid": os.getpid(),
            "version": "9.9.9",
            "home": str(self.home),
            "socket": str(self.path),
            "workspace": "/srv/space",
            "config": str(self.home / "config.toml"),
            "started_at": "2026-01-02T03:04:05Z",
            "uptime_s": 90_061.0,
            "autonomy": "supervised",
            "sandbox": "full",
            "sandbox_reason": "",
            "estop": False,
            "estop_reason": "",
            "default_provider": "local",
            "default_model": "embedded",
            "receipts_enabled": True,
            "receipts": 3,
            "receipts_head": "ab" * 32,
            "receipts_problem": "",
            "conversations": 2,
            "turns_running": 0,
            "turns_queued": 0,
            "approvals_pending": 0,
        }
        return StatusReport(**{**values, **changes})

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self._links.append(_Link(self, connection))


class _Link:
    def __init__(self, daemon: FakeDaemon, connection: socket.socket) -> None:
        self._daemon = daemon
        self._connection = connection
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self.gone = threading.Event()
        self.answering: list[threading.Thread] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def send(self, frame: ServerFrame) -> None:
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(encode_frame(frame))

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        reader = FrameReader()
        with self._connection:
            while True:
                try:
                    data = self._connection.recv(65_536)
                except OSError:
                    data = b""
                if not data:
                    break
                for body in reader.feed(data):
                    self._take(decode_client_frame(body))
            self.gone.set()
            for call in self._calls.values():
                call.cancelled.set()
                call.answers.put(None)

    def _take(self, frame: ClientFrame) -> None:
        match frame:
            case Hello():
                self._daemon.hellos.append(frame)
                if self._daemon.welcome is not None:
                    self.send(self._daemon.welcome)
            case Request():
                params = unpack(frame.params, METHODS[frame.method])
                self._daemon.requests.append(params)
                call = Call(self, frame, params)
                self._calls[frame.id] = call
                thread = threading.Thread(target=self._run, args=(frame, call), daemon=True)
                self.answering.append(thread)
                thread.start()
            case Answer():
                self._calls[frame.id].answers.put(frame)
            case Cancel():
                self._calls[frame.id].cancelled.set()

    def _run(self, request: Request, call: Call) -> None:
        handler = self._daemon.handlers.get(request.method)
        try:
            if handler is None:
                raise NotFoundError(f"the test scripted no {request.method}")
            value = handler(call) if callable(handler) else handler
        except ClawError as error:
            self.send(
                Failure(
                    id=request.id,
                    code=error.code,
                    message=error.message,
                    hint=error.hint,
                    data=error.data,
                )
            )
        else:
            self.send(Result(id=request.id, value=pack(value)))
