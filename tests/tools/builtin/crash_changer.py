"""Changes one file again and again until it is killed: argv is a folder with `ws` in it."""

import asyncio
import sys
from itertools import count
from pathlib import Path

from clawd.memory.changes import ChangeLimits
from clawd.memory.store import Memory
from clawd.security.paths import PathRules
from clawd.security.workspace import Workspace
from clawd.tools.changes import CallFacts, ChangeKeeper


async def main(base: Path) -> None:
    memory = await Memory.open(base / "memory.sqlite")
    log = await memory.changes(base / "undo", ChangeLimits)
    rules = PathRules(workspace=base / "ws")

    def change(number: int) -> None:
        facts = CallFacts(
            owner=1000,
            conversation_id="c1",
            workspace=str(base / "ws"),
            call_id=f"call-{number}",
            tool="file_write",
        )
        with Workspace(rules, ChangeKeeper(log, facts)) as workspace:
            if number % 3:
                workspace.append("f", b"%d\n" % number)
            else:
                workspace.write("f", b"written anew by %d\n" % number)

    for number in count(1):
        await asyncio.to_thread(change, number)
        if number == 3:
            print("changing", flush=True)


asyncio.run(main(Path(sys.argv[1])))
