"""`clawctl mcp serve`: passes lines between an MCP client on standard input and the daemon.

What the client says is not looked at here; the daemon speaks MCP.
"""

import os
import re
import select
import sys

from clawctl.app import App, Exit
from clawctl.client import Stream
from clawd.errors import ClawError
from clawd.wire.events import McpLine
from clawd.wire.reports import Done
from clawd.wire.serving_methods import END, LINE, ServeMcp

MAX_LINE_BYTES = 8 << 20
READ_BYTES = 64 << 10
_NOT_PLAIN = re.compile(r"[^ -~]+")


def serve(app: App) -> int:
    """Serve the client on standard input and output until it closes either."""
    with app.client() as client:
        stream = client.stream(ServeMcp())
        try:
            _pass_on(stream)
        except BrokenPipeError:
            return Exit.DONE
        except KeyboardInterrupt:
            return Exit.INTERRUPTED
    return Exit.DONE


def _pass_on(stream: Stream[Done]) -> None:
    """Pass lines both ways until the daemon has said all.

    Raises:
        ClawError: the daemon refused or went, or a line is too long.
        BrokenPipeError: the client went.
    """
    source, sink = sys.stdin.fileno(), sys.stdout.buffer
    waiting, is_open = b"", True
    while not stream.is_done:
        watched = [stream.fileno(), *([source] if is_open else [])]
        readable, _, _ = select.select(watched, [], [])
        if source in readable:
            data = os.read(source, READ_BYTES)
            *lines, waiting = (waiting + data).split(b"\n")
            for line in (*lines, *([] if data else [waiting])):
                _send(stream, line)
            if len(waiting) > MAX_LINE_BYTES:
                raise ClawError(f"a line of the client is over {MAX_LINE_BYTES} bytes")
            if not data:
                is_open, waiting = False, b""
                stream.answer(END, "")
        if stream.fileno() in readable:
            stream.read(0)
        while (event := _next(stream)) is not None:
            if isinstance(event, McpLine):
                sink.write(as_ascii(event.text) + b"\n")
        sink.flush()


def as_ascii(line: str) -> bytes:
    """Return a line of JSON in ASCII: the same value, and nothing that drives a terminal."""
    return _NOT_PLAIN.sub(_escaped, line).encode("ascii")


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def _next(stream: Stream[Done]) -> object:
    """Return an event that was read already, or None; tells a failure of the daemon."""
    return stream.wait(0) if stream.waiting or stream.has_ended else None


def _send(stream: Stream[Done], line: bytes) -> None:
    if line.strip():
        stream.answer(LINE, line.decode(errors="replace"))
