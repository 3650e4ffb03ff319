"""Two servers behind a router, seen from the command line: the way back, and one that is killed."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.home import Home

pytestmark = pytest.mark.daemon

LIMIT_S = 30.0
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
def server(name: str, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run a chat server that answers with its name; gives the process and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.chat_server_program", name, str(port)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


def test_conversations_return_to_their_server_and_leave_it_when_it_dies(home: Home) -> None:
    with ExitStack() as stack:
        running = {name: stack.enter_context(server(name)) for name in ("one", "two")}
        members = [MEMBER.format(name=name, port=port) for name, (_, port) in running.items()]
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

        process, port = running["one"]
        process.kill()
        process.wait()
        assert [again(first), again(second)] == ["from two", "from two"]
        assert "fleet: one is down" in home.log()

        stack.enter_context(server("one", port))
        deadline = time.monotonic() + LIMIT_S
        while home.json("agent", "-m", "hello")["text"] != "from one":
            assert time.monotonic() < deadline, home.log()
        assert again(first) == "from two"
