"""How long the REPL takes to its first prompt, against importing the libraries that draw it."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

from tests.bench.commands import timed
from tests.bench.ours import Daemon
from tests.bench.report import Row, measured_in_turn, row_of
from tests.bench.scale import Scale
from tests.bench.streams import BenchError, now

AGENT = (sys.executable, "-m", "clawctl", "--no-start", "agent")
IMPORTS = (sys.executable, "-c", "import prompt_toolkit, rich.console")
# The editor moves over the blank after the prompt, or writes it.
PROMPT = re.compile(rb">(?: |\x08?\x1b\[2?C)")
LIMIT_S = 30.0


def rows(daemon: Daemon, scale: Scale) -> Iterator[Row]:
    """Measure both, each once more before the clock runs."""
    peer = timed(IMPORTS, daemon)

    def ours(_number: int) -> float:
        return _to_first_prompt(daemon)

    ours(0)
    peer(0)
    pairs = measured_in_turn(ours, peer, scale.command_pairs)
    name = 'REPL to first prompt (python -c "import prompt_toolkit, rich.console")'
    yield row_of(name, "ms", pairs)


def _to_first_prompt(daemon: Daemon) -> float:
    """Return the milliseconds from the start of clawctl until a person can type."""
    ours, theirs = pty.openpty()
    began = now()
    child = subprocess.Popen(
        AGENT,
        env={**daemon.home.environ, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"},
        cwd=daemon.home.workspace,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        seen = bytearray()
        while PROMPT.search(seen) is None:
            if not select.select([ours], [], [], LIMIT_S)[0]:
                raise BenchError(f"the REPL showed no prompt in {LIMIT_S:g} s: {bytes(seen)!r}")
            seen += os.read(ours, 65_536)
        return 1000 * (now() - began)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        os.close(ours)
