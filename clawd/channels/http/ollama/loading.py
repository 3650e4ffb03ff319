"""Requests without a prompt: they load a model, or unload it with `"keep_alive": 0`."""

import contextlib
from typing import Literal

from clawd.channels.http.app import Gateway
from clawd.channels.http.catalogue import Choice, find
from clawd.channels.http.exchange import Caller
from clawd.engine.models import EMBEDDED
from clawd.errors import NotFoundError
from clawd.providers.local import LocalProvider
from clawd.wire.methods import LoadModel, UnloadModel


async def load_or_unload(
    gateway: Gateway, caller: Caller, model: str, keep_alive_s: float | None
) -> Literal["load", "unload"]:
    """Load a model, or unload it where it is to stay for no time; say which it was.

    A model that another server runs is neither: that server decides.

    Raises:
        ModelNotFoundError: there is none of this name.
        ForbiddenError: unloading is for admins.
        ClawError: it cannot be loaded.
    """
    name = local_model_of(gateway, await find(gateway, model))
    if keep_alive_s != 0:
        if name:
            await gateway.invoke(LoadModel(name=name), caller.principal)
        return "load"
    if name:
        with contextlib.suppress(NotFoundError):  # it was not loaded
            await gateway.invoke(UnloadModel(name=name), caller.principal)
    return "unload"


def local_model_of(gateway: Gateway, choice: Choice) -> str:
    """Return the name of the model of this machine that a choice is; empty for another server's."""
    if not isinstance(choice.provider, LocalProvider):
        return ""
    provider = choice.provider.name()
    configured = (line.model for line in gateway.provider_lines() if line.name == provider)
    return choice.model or next(configured, "") or EMBEDDED
