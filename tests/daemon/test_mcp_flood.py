"""A real daemon with an MCP server that prints without an end: everything else goes on."""

import contextlib
import http.client
import json
import os
import signal
import sys
import threading
import time

import psutil
import pytest

from clawctl.client import Client, connect
from clawd.errors import ClawError
from clawd.wire.mcp import ConnectMcp, ListMcpServers
from tests.daemon.test_mcp import SERVER, ready
from tests.support.home import Home
from tests.support.lent_home import LentHome
from tests.support.rows import thorough

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox]

LOUD = """
import os
while True:
    os.write(1, b"this is no message\\n" * 3000)
"""
LIMIT_S = 60.0
SAMPLES = 400 if thorough() else 200


def configure(home: Home) -> None:
    words = json.dumps([sys.executable, str(SERVER)])
    seen = json.dumps([str(SERVER.parent), sys.prefix, sys.base_prefix])
    good = f"command = {words}\nreadonly_paths = {seen}\n"
    loud = json.dumps(["/usr/bin/python3", "-ISc", LOUD])
    home.configure(
        tables=f"[mcp.servers.one]\n{good}[mcp.servers.two]\n{good}"
        f"[mcp.servers.loud]\ncommand = {loud}\n"
        '[mcp.auto_approve]\ntools = ["one__echo", "two__echo"]\n'
        "[channels.http]\nenabled = true\nport = 0\n"
    )


def p99_of_health_s(port: int) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    took: list[float] = []
    for _ in range(SAMPLES):
        began = time.monotonic()
        connection.request("GET", "/health")
        assert connection.getresponse().read()
        took.append(time.monotonic() - began)
    connection.close()
    return sorted(took)[round(SAMPLES * 0.99) - 1]


def resident_mib(home: Home) -> float:
    pid = home.pid()
    assert pid is not None
    return float(psutil.Process(pid).memory_info().rss) / (1 << 20)


def connected(home: Home) -> Client:
    return connect(home.path / "run" / "clawd.sock")


def problem_of(client: Client) -> str:
    lines = client.call(ListMcpServers()).items
    return next(line.problem for line in lines if line.alias == "loud")


def ended_by_flood(home: Home) -> None:
    deadline = time.monotonic() + LIMIT_S
    with connected(home) as client:
        while "prints too much" not in problem_of(client):
            assert time.monotonic() < deadline, home.log()


def test_s5_a_server_that_prints_without_an_end_delays_nobody(home: Home) -> None:
    configure(home)
    home.start()
    ready(home, "one")
    ready(home, "two")
    assert home.ctl("mcp", "disconnect", "loud").returncode == 0
    port = int(str(home.json("status")["gateway"]).rpartition(":")[2])
    idle_s, before_mib = p99_of_health_s(port), resident_mib(home)

    stop = threading.Event()

    def reconnect() -> None:
        while not stop.is_set():  # so that it floods again and again
            with contextlib.suppress(ClawError), connected(home) as client:
                client.call(ConnectMcp(alias="loud"))

    flooding = threading.Thread(target=reconnect)
    flooding.start()
    try:
        ended_by_flood(home)
        # 100 ms on a machine that does nothing else; far less than a flood takes everywhere. Others
        # that are busy for a moment are no flood, which goes on.
        most_s = (0.1 if thorough() else 1.0) + 3 * idle_s
        flooded_s = next(
            (took_s for _ in range(3) if (took_s := p99_of_health_s(port)) < most_s), most_s
        )
        for alias in ("one", "two"):
            ran = home.ctl("mcp", "tool", alias, "echo", "--json", '{"text":"still here"}')
            assert ran.stdout == "still here\n", (ran.stderr, home.log())
        grown_mib = resident_mib(home) - before_mib
        print(f"p99 idle {idle_s * 1000:.1f} ms, flooded {flooded_s * 1000:.1f} ms")
        print(f"memory grew by {grown_mib:.1f} MiB")
        assert flooded_s < most_s
        assert grown_mib < 48
        done = home.ctl("estop")
        assert (done.returncode, "did not take the call" in done.stderr) == (0, False), done.stderr
        assert (home.path / "ESTOP").exists()
        pid = home.pid()
        assert pid is not None
        os.kill(pid, signal.SIGTERM)
        assert home.daemon is not None
        assert home.daemon.wait(LIMIT_S / 3) == 0
    finally:
        stop.set()
        flooding.join()


def test_s5_the_emergency_stop_of_a_daemon_that_hangs_is_written_at_once(
    lent_home: LentHome,
) -> None:
    home = lent_home
    home.configure()
    home.start()
    pid = home.pid()
    assert pid is not None
    began = time.monotonic()
    assert home.ctl("--version").returncode == 0
    start_s = time.monotonic() - began  # of clawctl, on this machine, now
    os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        done = home.ctl("estop", "--reason", "it hangs")
        took_s = time.monotonic() - began
    finally:
        os.kill(pid, signal.SIGCONT)
    assert done.returncode == 0, done.stderr
    assert "was written; the daemon did not take the call" in done.stderr
    assert json.loads((home.path / "ESTOP").read_text("utf-8"))["reason"] == "it hangs"
    assert took_s < 12 + start_s, "the greeting alone is waited for 15 s where nobody is in a hurry"
