"""Opens intents and keeps turns until it is killed; prints what memory has acknowledged."""

import asyncio
import itertools
import sys
from pathlib import Path

from clawd.memory.store import Memory
from clawd.receipts.record import new_id
from tests.memory.samples import begun
from tests.memory.test_ledger import ARGUMENTS, intent


async def _main(path: Path) -> None:
    memory = await Memory.open(path)

    async def open_intents() -> None:
        while True:
            made = intent(id=new_id())
            await memory.ledger.open_intent(made, ARGUMENTS)
            sys.stdout.write(f"intent {made.id}\n")
            sys.stdout.flush()

    async def keep_turns() -> None:
        for number in itertools.count():
            made = await begun(memory, f"question {number}", f"answer {number}")
            sys.stdout.write(f"turn {made.id}\n")
            sys.stdout.flush()

    await asyncio.gather(*(open_intents() for _ in range(4)), keep_turns(), keep_turns())


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
