"""Connections to a socket that other users made, handed over: the kernel goes on naming them."""

import array
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIMIT_S = 60.0
CLIENT = """
import array, socket, sys
made = socket.socket(socket.AF_UNIX)
made.connect(sys.argv[1])
to = socket.socket(fileno=int(sys.argv[2]))
to.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))])
to.recv(1)
"""


@contextmanager
def connected(
    path: Path, *before: str, uid: int | None = None, groups: tuple[int, ...] | None = None
) -> Iterator[tuple[socket.socket, int]]:
    """Yield a connection made by a process of another user, or one that `before` starts; its pid.

    The process lives as long as the body runs.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(LIMIT_S)
    words = [*before, "/usr/bin/python3", "-ISc", CLIENT, str(path), str(theirs.fileno())]
    with ours, theirs:
        process = subprocess.Popen(
            words, user=uid, group=uid, extra_groups=groups, pass_fds=[theirs.fileno()]
        )
        try:
            _, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
            (descriptor,) = array.array("i", ancillary[0][2])
            with socket.socket(fileno=descriptor) as connection:
                yield connection, process.pid
        finally:
            process.kill()
            process.wait()
