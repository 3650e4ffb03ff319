"""Counts the files and functions of the daemon that one message goes through.

    python -m tests.walk            the files in the order in which they are entered
    python -m tests.walk --all      and the functions of each

The message is that of `clawctl agent -m`, answered by a script of the mock provider with one
`file_list`. What only the first message of a daemon does (imports, caches) is done by one before.
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from clawctl.client import connect
from clawd.service.build import Daemon
from clawd.wire.events import TurnFinished
from clawd.wire.turns import SendMessage
from tests.support.inprocess import Aside

ROOT = Path(__file__).resolve().parents[1]
DAEMON = f"{ROOT / 'clawd'}/"
REPLIES = [
    {"tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]},
    {"text": "There is hello.txt."},
]

INLINE = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>")
"""Part of the function in which they stand; Python 3.12 calls some of them no more."""

Walk = dict[str, dict[str, int]]
"""Files of the daemon in the order in which they are entered, each with calls of its functions."""


def walked() -> Walk:
    """Run a daemon, send it the message twice, and return where the second one went."""
    # Not a random name: its letters could be those that some secret begins with.
    folder = Path(tempfile.gettempdir()).resolve() / f"walk-{os.getpid()}"
    folder.mkdir(mode=0o700)
    script = folder / "script.json"
    script.write_text(json.dumps({"replies": REPLIES * 2}))
    found: Walk = {}
    is_counting = threading.Event()
    threading.setprofile(_counter(found, is_counting))
    aside: Aside | None = None
    try:
        aside = Aside(folder, f'script = "{script}"')
        (folder / "project" / "hello.txt").write_text("hello")
        for _ in range(2):
            found.clear()
            is_counting.set()
            _say(aside.inside.path)
            is_counting.clear()
            aside.run(_at_rest(aside.inside.daemon))
    finally:
        threading.setprofile(None)
        if aside is not None:
            aside.close()
        shutil.rmtree(folder)
    return {path: dict(functions) for path, functions in found.items()}


def _counter(found: Walk, is_counting: threading.Event) -> Callable[[FrameType, str, Any], None]:
    def entered(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if (
            event == "call"
            and is_counting.is_set()
            and code.co_filename.startswith(DAEMON)
            and not code.co_name.endswith(INLINE)
        ):
            functions = found.setdefault(code.co_filename.removeprefix(f"{ROOT}/"), {})
            functions[code.co_qualname] = functions.get(code.co_qualname, 0) + 1

    return entered


async def _at_rest(daemon: Daemon) -> None:
    """Wait until what follows on a turn in the background is over."""
    care = daemon.inbox.care
    assert care is not None
    if (summing := care._summaries._task) is not None:
        await asyncio.wait({summing})


def _say(socket: Path) -> None:
    with connect(socket) as client:
        finished = client.call(SendMessage(text="what files are in this project?"))
        assert isinstance(finished, TurnFinished)
        assert finished.text == "There is hello.txt.", finished


def main() -> None:
    """Print the walk."""
    found = walked()
    for number, (path, functions) in enumerate(found.items(), start=1):
        print(f"{number:3} {path}  {len(functions)}")
        if "--all" in sys.argv:
            print("".join(f"      {count:4} {name}\n" for name, count in functions.items()), end="")
    print(
        f"{len(found)} files, {sum(map(len, found.values()))} functions, "
        f"{sum(sum(functions.values()) for functions in found.values())} calls"
    )


if __name__ == "__main__":
    main()
