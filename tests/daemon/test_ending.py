"""A daemon that ends while it answers over HTTP: everybody is told, in the words of the dialect."""

import contextlib
import http.client
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from clawctl.client import connect
from clawd.wire.daemon import Status
from tests.support.gguf_models import write_random_gguf
from tests.support.home import Home

pytestmark = [pytest.mark.daemon, pytest.mark.real_model]

LIMIT_S = 90.0
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
TABLES = """
[channels.http]
enabled = true
port = 0
[engine]
n_threads = 1
n_parallel = 8
ctx_size = 8192
max_tokens = 1000000
stop_loops = false
[limits]
shutdown_grace_s = 0
"""
HELLO = [{"role": "user", "content": "hello"}]
STREAMED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/chat/completions", {"messages": HELLO, "stream": True}),
    ("/v1/completions", {"prompt": "hello", "stream": True}),
    ("/v1/responses", {"input": "hello", "stream": True, "tool_choice": "none"}),
    ("/v1/messages", {"messages": HELLO, "max_tokens": 1_000_000, "stream": True}),
)
WHOLE: tuple[str, dict[str, Any]] = ("/v1/completions", {"prompt": "hello"})


def test_who_waits_for_an_answer_over_http_is_told_that_the_daemon_ends(home: Home) -> None:
    models = home.path / "models"
    models.mkdir(parents=True)
    home.path.chmod(0o700)
    write_random_gguf(models / "endless.gguf", chat_template=TEMPLATE, context_length=8192)
    home.configure(provider="local", top='default_model = "endless"', tables=TABLES)
    home.start()
    with connect(home.path / "run" / "clawd.sock") as client:
        port = int(client.call(Status()).gateway.rpartition(":")[2])
    with contextlib.ExitStack() as kept:
        whole = kept.enter_context(_asking(port, *WHOLE))
        asked = [kept.enter_context(_asking(port, path, body)) for path, body in STREAMED]
        streams = [connection.getresponse() for connection in asked]
        for stream in streams:
            _read_until_text(stream)
        pid = home.pid()
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        for (path, _), stream in zip(STREAMED, streams, strict=True):
            rest = stream.read().decode()
            assert '"error"' in rest, (path, rest)
        answer = whole.getresponse()
        assert (answer.status, b"is ending" in answer.read()) == (503, True)
    home.close()


@contextlib.contextmanager
def _asking(port: int, path: str, body: dict[str, Any]) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    with contextlib.closing(connection):
        data = json.dumps({"model": "endless", **body})
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        yield connection


def _read_until_text(stream: http.client.HTTPResponse) -> None:
    while b"delta" not in (line := stream.readline()) and b'"text"' not in line:
        assert line, "the stream ended before its first text"
