"""Two servers behind a router, seen from the command line: the way back, and one that is killed."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.home import Home

pytestmark = pytest.mark.daemon

LIMIT_S = 60.0
ROOT = Path(__file__).parents[2]
FLEET = """
[providers.models.fleet]
kind = "router"
providers = ["one", "two"]
"""
MEMBER = """
[providers.models.{name}]
kind = "openai-compatible"
base_url = "http://127.0.0.1:{port}/v1"
model = "m"
"""


@contextmanager
def held_port() -> Iterator[int]:
    """Hold a port for a server that may listen there, end, and come back."""
    with socket.socket() as holder:
        # Who binds with the same option may listen; to nobody else is the port given meanwhile.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextmanager
def server(name: str, port: int) -> Iterator[subprocess.Popen[str]]:
    """Run a chat server that answers with its name."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.chat_server_program", name, str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            assert int(process.stdout.readline()) == port
            yield process
        finally:
            process.kill()


def test_conversations_return_to_their_server_and_leave_it_when_it_dies(home: Home) -> None:
    with ExitStack() as stack:
        ports = {name: stack.enter_context(held_port()) for name in ("one", "two")}
        one, _two = (stack.enter_context(server(name, port)) for name, port in ports.items())
        members = [MEMBER.format(name=name, port=port) for name, port in ports.items()]
        home.configure(provider="fleet", tables=FLEET + "".join(members))
        home.start()
        checked = home.json("provider", "test", "fleet")["message"]
        assert [line.split()[0] for line in checked.splitlines()] == ["one:", "two:"]

        first, second = (home.json("agent", "-m", "hello") for _ in range(2))
        assert (first["text"], second["text"]) == ("from one", "from two")

        def again(turn: dict[str, str]) -> str:
            named = ("--conversation", turn["conversation_id"])
            return str(home.json("agent", *named, "-m", "and?")["text"])

        assert [again(first), again(second), again(first)] == ["from one", "from two", "from one"]

        one.kill()
        one.wait()
        assert [again(first), again(second)] == ["from two", "from two"]
        assert "fleet: one is down" in home.log()

        stack.enter_context(server("one", ports["one"]))
        deadline = time.monotonic() + LIMIT_S
        while home.json("agent", "-m", "hello")["text"] != "from one":
            assert time.monotonic() < deadline, home.log()
        assert again(first) == "from two"
