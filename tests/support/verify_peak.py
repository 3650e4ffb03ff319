"""How much memory a process takes that verifies a log of receipts and does nothing else."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def verify_peak_kb(log: Path) -> tuple[int, int]:
    """Return how many receipts of the log are valid, and the peak of the process in KiB."""
    command = [sys.executable, "-m", "tests.support.verify_peak", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    receipts, peak_kb = map(int, done.stdout.split())
    return receipts, peak_kb


def _main(log: Path) -> None:
    from clawd.receipts.verify import verify

    found = verify(log)
    # VmHWM and not ru_maxrss: that one begins with the peak of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    if not found.ok or peak is None:
        raise SystemExit(found.message)
    sys.stdout.write(f"{found.receipts} {peak[1]}\n")


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
