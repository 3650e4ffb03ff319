"""Daemons of a few components, for handlers that need no more."""

from types import SimpleNamespace
from typing import Any

from tests.support.dispatching import Bench


def daemon_of(bench: Bench, **components: Any) -> Any:
    """Return a daemon with the memory and the receipts of a bench."""
    config = SimpleNamespace(receipts=SimpleNamespace(path=bench.log))
    layout = SimpleNamespace(checkpoint_public_key=bench.log.with_name("checkpoint.pub"))
    loaded = SimpleNamespace(config=config, layout=layout)
    return SimpleNamespace(loaded=loaded, memory=bench.memory, **components)
