"""What a task of `make bench-agent` acts on and is graded by: a home, its daemon, what is left.

Nothing here looks at what the model says: a task is graded by files, receipts and memory.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from clawctl.client import Client, Stream, connect
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.wire.events import ApprovalRequested, QuestionAsked, TurnFinished
from clawd.wire.receipts import ShowReceipt
from clawd.wire.tools import RunTool
from clawd.wire.turns import SendMessage
from tests.support.home import Home


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One receipt with what was hashed in it."""

    tool: str
    status: str
    approval: str
    arguments: Any
    result: str


class World:
    """A home with a running daemon on the embedded model, and a workspace."""

    def __init__(self, home: Home, server: "Pages") -> None:
        self.home = home
        self.workspace = home.workspace
        self.server = server
        self._conversation = ""

    def file(self, path: str) -> str | None:
        """Return a file's text, None where there is none."""
        found = self.workspace / path
        return found.read_text("utf-8") if found.is_file() else None

    def files(self) -> set[str]:
        """Return the relative paths of all files."""
        found = (path for path in self.workspace.rglob("*") if path.is_file())
        return {str(path.relative_to(self.workspace)) for path in found}

    def knowledge(self) -> list[str]:
        """Return the texts of all entries of knowledge."""
        return [path.read_text("utf-8") for path in (self.home.path / "knowledge").glob("*.md")]

    def acts(self) -> list[Act]:
        """Return what the receipts say, oldest first."""
        with self._connected() as client:
            return [_act(client, line) for line in self.home.receipt_lines()]

    def say(self, text: str, *, agrees: bool = False, anew: bool = False) -> None:
        """Send a message, answer what is asked, wait for the end of the turn.

        Args:
            text: the message.
            agrees: whether approvals are given.
            anew: in a conversation of its own.
        """
        conversation = "" if anew else self._conversation
        with self._connected() as client:
            message = SendMessage(text=text, conversation_id=conversation, interactive=True)
            stream = client.stream(message)
            try:
                finished = _to_the_end(stream, agrees=agrees)
            except ClawError:
                return  # as the emergency stop ends it; what is left of it is graded
            self._conversation = finished.conversation_id

    def run(self, tool: str, arguments: str = "{}") -> None:
        """Run a tool of this workspace as the person at the terminal would, and agree to it."""
        with self._connected() as client:
            request = RunTool(name=tool, arguments=arguments, interactive=True)
            stream = client.stream(request)
            for event in stream:
                if isinstance(event, ApprovalRequested):
                    stream.answer(event.approval_id, "once", event.digest)

    @contextmanager
    def _connected(self) -> Iterator[Client]:
        with connect(layout(self.home.environ).socket) as client:
            yield client


class Pages:
    """A server on loopback that knows one page and remembers what was asked."""

    TEXT = "the kettle is on"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """The server's `host:port`."""
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> "Pages":
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        asked, text = self.asked, self.TEXT

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            @override
            def log_message(self, format: str, *args: object) -> None:
                return

        return Page


@contextmanager
def world(folder: Path, server: Pages, *, is_reachable: bool = False) -> Iterator[World]:
    """Start a daemon on the embedded model; `is_reachable` lets web tools go to the server."""
    folder.mkdir()
    home = Home(folder)
    del home.environ["PYTHONWARNINGS"]
    allowed = f'[security]\nallowed_addresses = ["{server.address}"]' if is_reachable else ""
    home.configure(provider="local", tables=allowed)
    try:
        home.start()
        yield World(home, server)
    finally:
        home.close()


def _to_the_end(stream: Stream[TurnFinished], *, agrees: bool) -> TurnFinished:
    for event in stream:
        if isinstance(event, ApprovalRequested):
            stream.answer(event.approval_id, "once" if agrees else "deny", event.digest)
        elif isinstance(event, QuestionAsked):
            stream.answer(event.question_id, "")
    return stream.result


def _act(client: Client, line: dict[str, Any]) -> Act:
    detail = client.call(ShowReceipt(receipt_id=line["id"]))
    try:
        arguments = msgspec.json.decode(detail.arguments)
    except msgspec.DecodeError:
        arguments = detail.arguments
    return Act(
        tool=line["tool"],
        status=line["status"],
        approval=line["approval"],
        arguments=arguments,
        result=detail.result,
    )
