"""Our side: a daemon with its gateway in a throwaway home, asked over HTTP or its socket."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clawctl.client import Client
from clawd.paths import layout
from clawd.wire.events import TextDelta
from clawd.wire.turns import SendMessage
from tests.bench.http.client import Connection, request_bytes
from tests.bench.http.dialects import Asked, Dialect, Told, told
from tests.bench.llama_server import free_port
from tests.bench.ours import start
from tests.bench.streams import BenchError, now
from tests.support.home import Home

INJECT_OFF = ("X-Clawd-Inject: off",)


@contextmanager
def running_gateway(folder: Path, *, provider: str, tables: str = "") -> Iterator["Gateway"]:
    """Start a daemon whose HTTP door and control socket both offer no tools."""
    folder.mkdir()
    home = Home(folder)
    # Turning warnings into errors costs a little at every start.
    del home.environ["PYTHONWARNINGS"]
    port = free_port()
    doors = f"""
[channels.cli]
tools_allow = []

[channels.http]
enabled = true
port = {port}
tools_allow = []
"""
    home.configure(provider=provider, tables=tables + doors)
    try:
        start(home)
        yield Gateway(home, port)
    finally:
        home.close()


class Gateway:
    """A daemon that answers."""

    def __init__(self, home: Home, port: int) -> None:
        self.home = home
        self.port = port
        self.socket = layout(home.environ).socket

    @property
    def pid(self) -> int:
        """The process of the daemon, without its worker.

        Raises:
            BenchError: it is gone.
        """
        pid = self.home.pid()
        if pid is None:
            raise BenchError(f"the daemon is gone: {self.home.log()[-2000:]}")
        return pid

    def request(self, dialect: Dialect, asked: Asked, *, one_pass: bool) -> bytes:
        """Return a request; without one pass clawd's own loop answers, as over the socket."""
        headers = INJECT_OFF if one_pass else ()
        return request_bytes(self.port, dialect.path, dialect.body(asked), headers)

    def ask(
        self, connection: Connection, dialect: Dialect, asked: Asked, *, one_pass: bool
    ) -> Told:
        """Ask over HTTP and read the answer."""
        request = self.request(dialect, asked, one_pass=one_pass)
        return told(dialect, connection.ask(request), stream=asked.stream)


def ask_socket(client: Client, text: str) -> Told:
    """Ask over the control socket, in a conversation of its own."""
    text_at: list[float] = []
    sent_at = now()
    stream = client.stream(SendMessage(text=text))
    for event in stream:
        if isinstance(event, TextDelta):
            text_at.append(now())
    ended_at = now()
    finished = stream.result
    return Told(
        text=finished.text,
        counts=(finished.usage.prompt_tokens, finished.usage.completion_tokens),
        sent_at=sent_at,
        ended_at=ended_at,
        first_byte_at=text_at[0],
        text_at=tuple(text_at),
    )
