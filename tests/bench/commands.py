"""How long `clawctl status` takes, against starting Python and importing what it must import."""

import subprocess
import sys
from collections.abc import Callable, Iterator

from tests.bench.ours import Daemon
from tests.bench.report import Row, measured_in_turn, row_of
from tests.bench.scale import Scale
from tests.bench.streams import now

STATUS = (sys.executable, "-m", "clawctl", "--no-start", "status")
IMPORTS = (sys.executable, "-c", "import click, msgspec")


def rows(daemon: Daemon, scale: Scale) -> Iterator[Row]:
    """Measure both commands, each once more before the clock runs."""
    ours, peer = timed(STATUS, daemon), timed(IMPORTS, daemon)
    ours(0)
    peer(0)
    pairs = measured_in_turn(ours, peer, scale.command_pairs)
    yield row_of('clawctl status (python -c "import click, msgspec")', "ms", pairs)


def timed(command: tuple[str, ...], daemon: Daemon) -> Callable[[int], float]:
    """Return what runs the command to its end and tells how many milliseconds that took."""

    def run(_number: int) -> float:
        began = now()
        subprocess.run(
            command,
            env=daemon.home.environ,
            cwd=daemon.home.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
            timeout=60,
        )
        return 1000 * (now() - began)

    return run
