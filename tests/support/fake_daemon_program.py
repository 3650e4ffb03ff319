"""A program that stands in for `clawd`: serves a fake daemon, or fails as it is told.

    python fake_daemon_program.py serve|fail|record SOCKET HOME

It appends a line to HOME/starts each time; `record` writes what it inherited before it serves.
"""

import os
import signal
import sys
import time
from pathlib import Path

from tests.support.fake_daemon import FakeDaemon


def inherited() -> str:
    folder = Path("/proc/self/fd")
    lines = [f"session {os.getsid(0) == os.getpid()}", f"stdin {(folder / '0').readlink()}"]
    for link in sorted(folder.iterdir()):
        try:
            target = link.readlink()
        except FileNotFoundError:
            continue
        lines.append(f"fd {link.name} {target}")
    return "\n".join(lines)


def main() -> int:
    mode, socket, home = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    with (home / "starts").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    if mode == "fail":
        print("config has 1 problem:\x1b[2J godmode", file=sys.stderr)
        return 3
    if mode == "record":
        (home / "inherited").write_text(inherited())
    # Long enough for another client to come by while nothing listens yet.
    time.sleep(0.2)
    with FakeDaemon(socket, home):
        print("serving", flush=True)
        signal.sigwait({signal.SIGTERM})
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    sys.exit(main())
