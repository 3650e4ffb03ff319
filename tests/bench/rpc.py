"""How long a call of the control socket takes, against a bare echo of a frame of the same size."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from clawctl.client import Client, connect
from clawd.wire.codec import Request, encode_frame, pack
from clawd.wire.daemon import Ping
from clawd.wire.method import method_name
from tests.bench.ours import Daemon
from tests.bench.report import Row, measured_in_turn, row_of
from tests.bench.scale import Scale
from tests.bench.streams import BenchError, now

ROOT = Path(__file__).parents[2]


def rows(daemon: Daemon, folder: Path, scale: Scale) -> Iterator[Row]:
    """Measure bursts of calls, one call at a time."""
    frame = encode_frame(Request(id=scale.rpc_calls, method=method_name(Ping), params=pack(Ping())))
    with connect(daemon.socket) as client, echo_connection(folder / "echo.sock") as echo:
        ours = _per_call_us(_ping(client), scale.rpc_calls)
        peer = _per_call_us(_echo(echo, frame), scale.rpc_calls)
        ours(0)
        peer(0)
        pairs = measured_in_turn(ours, peer, scale.rpc_pairs)
    yield row_of("RPC round trip (bare socket echo)", "µs", pairs)


@contextmanager
def echo_connection(path: Path) -> Iterator[socket.socket]:
    """Start an echo in another process and connect to it."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.echo_server", str(path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            raise BenchError("the echo server did not start")
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(path))
            yield connection
        # Leaving the block closes its standard input, which ends it.


def _ping(client: Client) -> Callable[[], None]:
    def call() -> None:
        client.call(Ping())

    return call


def _echo(connection: socket.socket, frame: bytes) -> Callable[[], None]:
    def call() -> None:
        connection.sendall(frame)
        missing = len(frame)
        while missing:
            missing -= len(connection.recv(missing))

    return call


def _per_call_us(call: Callable[[], None], calls: int) -> Callable[[int], float]:
    """Return what makes so many calls and tells how many microseconds one took."""

    def burst(_number: int) -> float:
        began = now()
        for _ in range(calls):
            call()
        return 1e6 * (now() - began) / calls

    return burst
