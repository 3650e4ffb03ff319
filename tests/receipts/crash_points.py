"""Crashes a writer before each of its steps on disk in turn, and lets it go on.

Each step is one call that changes a file or waits for the disk. Prints one JSON object a crash.
"""

import asyncio
import functools
import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from clawd.receipts.chain import ReceiptChain
from clawd.receipts.record import parse_checkpoint, public_key_of
from clawd.receipts.verify import read_public_key, verify
from tests.receipts.samples import draft

STEPS = ("fsync", "write", "replace", "rename", "unlink", "link", "ftruncate")
CRASHED = 9


def main(folder: Path) -> None:
    log = folder / "log"
    _run(lambda: _write(log))
    first_key = read_public_key(folder / "checkpoint.pub")
    for step in itertools.count(1):
        has_crashed = _run(functools.partial(_write_and_crash, log, step)) == CRASHED
        keys = [file.read_bytes() for file in folder.glob("checkpoint.key*")]
        valid = [key for key in keys if len(key) == 32 and public_key_of(key) == _promised(log)]
        status = _run(lambda: _write(log))
        left = [file.name for file in folder.glob("*checkpoint.key*")]
        found = verify(log, public_key=first_key)
        report = {
            "step": step,
            "valid_keys": len(valid),
            "goes_on": status == 0,
            "keys_left": left,
            "ok": found.ok,
            "level": found.level,
            "is_all_signed": found.signed == found.receipts,
        }
        sys.stdout.write(json.dumps(report) + "\n")
        if not has_crashed:
            return


def _run(act: Callable[[], None]) -> int:
    """Act in a child process; return its exit status."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            act()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _write(log: Path) -> None:
    async def write() -> None:
        chain = await ReceiptChain.open(log)
        await chain.append(draft())
        await chain.append(draft())
        await chain.close()

    asyncio.run(write())


def _write_and_crash(log: Path, step: int) -> None:
    steps = itertools.count(1)
    for name in STEPS:
        setattr(os, name, functools.partial(_act_or_crash, getattr(os, name), steps, step))
    _write(log)


def _act_or_crash(
    act: Callable[..., Any], steps: "itertools.count[int]", at: int, *args: Any
) -> Any:
    if next(steps) == at:
        if act.__name__ == "write":
            act(args[0], args[1][: len(args[1]) // 2])
        os._exit(CRASHED)
    return act(*args)


def _promised(log: Path) -> str:
    """Return the public key that the last whole checkpoint names."""
    whole = log.read_bytes().rpartition(b"\n")[0].split(b"\n")
    signed = [line for line in whole if line.startswith(b'{"checkpoint_hash"')]
    return parse_checkpoint(signed[-1]).next_public_key


main(Path(sys.argv[1]))
