"""Appends to a chain until it is killed; prints the number of every receipt that is on disk."""

import asyncio
import sys
from pathlib import Path

from clawd.receipts.chain import ReceiptChain
from tests.receipts.samples import draft


async def _main(path: Path) -> None:
    chain = await ReceiptChain.open(path, max_file_bytes=20_000)

    async def append_for_ever() -> None:
        while True:
            receipt = await chain.append(draft(reason="x" * 200))
            sys.stdout.write(f"{receipt.seq} {receipt.receipt_hash}\n")
            sys.stdout.flush()

    await asyncio.gather(*(append_for_ever() for _ in range(8)))


asyncio.run(_main(Path(sys.argv[1])))
