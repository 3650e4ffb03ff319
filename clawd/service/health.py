"""Whether a daemon can answer requests, as the HTTP gateway tells it."""

import asyncio
from collections.abc import Awaitable, Callable

from clawd.channels.http.facts import Health
from clawd.engine.models import EMBEDDED
from clawd.engine.slot import ModelStatus
from clawd.errors import ClawError
from clawd.service.build import Daemon
from clawd.service.state import LocalModels

LOADING = "Loading model"
STOPPED = "the emergency stop is set: no request to a model is begun"


def health_of(daemon: Daemon) -> Callable[[], Awaitable[Health]]:
    """Return what tells the health of a daemon."""

    async def health() -> Health:
        models = daemon.engine.status()
        path, model = await asyncio.to_thread(_default, daemon)
        known = next((each for each in models if path and each.path == path), None)
        is_loading = known is not None and known.state == "loading"
        running, room = _slots(models)
        stopped = STOPPED if daemon.estop.is_set() else ""
        problem = daemon.problem or stopped or (LOADING if is_loading else "")
        return Health(
            problem=problem,
            model=model,
            model_loaded=not path or (known is not None and known.state == "ready"),
            slots_processing=min(running, room),
            slots_idle=max(room - running, 0),
        )

    return health


def _default(daemon: Daemon) -> tuple[str, str]:
    """Return the file of the default model (empty for a remote one) and its name."""
    loaded = daemon.state.loaded
    section = loaded.config.providers.models.get(loaded.config.default_provider)
    name = loaded.config.default_model or (section.model if section is not None else "")
    if section is None or section.kind != "local":
        return "", name
    try:
        found = LocalModels(loaded).find(name or EMBEDDED)
    except ClawError:
        return "", name
    return found.config.path, found.config.alias


def _slots(models: list[ModelStatus]) -> tuple[int, int]:
    """Return how many generations of local models there are, and how many could run."""
    return (
        sum(each.running for each in models),
        sum(each.info.n_parallel for each in models if each.info is not None),
    )
