"""Runs commands of clawctl one after the other in one process: a JSON list in a file.

Between them a marker line stands on standard output and on standard error.
"""

import json
import os
import sys
import traceback
from pathlib import Path

from clawctl.main import main

MARK = "=== command {} ==="


def run_all() -> None:
    streams = (sys.stdout, sys.stderr)
    commands = Path(os.environ["HOSTILE_COMMANDS"]).read_text(encoding="utf-8")
    for number, arguments in enumerate(json.loads(commands)):
        for stream in streams:
            print("\n" + MARK.format(number), file=stream, flush=True)
        try:
            code: int | str = main(arguments)
        except Exception:  # noqa: BLE001 - a defect is told with the command that has it
            code = "a defect"
            traceback.print_exc()
        sys.stdout, sys.stderr = streams
        print(f"\nended with {code}", flush=True)


if __name__ == "__main__":
    run_all()
