"""The receipt chain of a daemon: opened with it, and again after a failed write."""

import logging
from contextlib import AsyncExitStack

from clawd.config.load import Loaded
from clawd.errors import ReceiptError
from clawd.memory.ledger import MemoryLedger
from clawd.receipts.chain import ReceiptChain
from clawd.service.anchor import Anchor
from clawd.service.background import Watch
from clawd.service.last_run import LastRun
from clawd.service.recovery import close_interrupted

_log = logging.getLogger(__name__)


async def open_receipts(
    loaded: Loaded,
    ledger: MemoryLedger,
    stack: AsyncExitStack,
    last_run: LastRun,
    watch: Watch,
) -> tuple[ReceiptChain | None, Anchor | None]:
    """Open the chain and its anchor, and close what a crash left open; nothing where it is off.

    Raises:
        ReceiptError: the chain cannot be written.
    """
    config = loaded.config.receipts
    if not config.enabled:
        _log.warning("receipts are switched off: nothing is recorded, only low risk runs")
        return None, None
    chain = await ReceiptChain.open(config.path, key_path=loaded.layout.checkpoint_key)
    stack.push_async_callback(chain.close)
    anchor = Anchor(chain, ledger)
    await anchor.start(watch)
    stack.push_async_callback(anchor.close)
    failed, denied = await close_interrupted(chain, ledger, config.path)
    last_run.tell_of_receipts(chain, failed=failed, denied=denied)
    return chain, anchor


async def reopen_receipts(chain: ReceiptChain | None, anchor: Anchor | None) -> str:
    """Take receipts again after a failed write; return what to tell.

    Raises:
        ReceiptError: they still cannot be written.
    """
    if chain is None or anchor is None or not chain.failure:
        return ""
    try:
        await chain.reopen()
        await anchor.compare()
    except ReceiptError as error:
        raise ReceiptError(
            f"the config was reloaded, but receipts still cannot be written: {error.message}",
            hint=error.hint,
        ) from error
    # These calls ran, or were refused, when no receipt could be written; nobody was told more.
    unwritten = frozenset(chain.unwritten)
    closed = sum(await close_interrupted(chain, anchor.ledger, chain.path, only=unwritten))
    chain.unwritten -= unwritten
    told = {"path": str(chain.path), "closed": closed}
    _log.warning("receipts are written again", extra=told)
    return "receipts are written again" + (anchor.problem and f", but {anchor.problem}")
