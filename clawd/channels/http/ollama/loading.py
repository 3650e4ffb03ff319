"""Requests without a prompt: they load a model, or unload it with `"keep_alive": 0`."""

from typing import Literal

from clawd.channels.http.app import Gateway
from clawd.channels.http.catalogue import find
from clawd.channels.http.exchange import Caller
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
    choice = await find(gateway, model)
    leaves = keep_alive_s == 0
    if not isinstance(choice.provider, LocalProvider):
        return "unload" if leaves else "load"
    name = choice.model or gateway.settings().default_model
    if not leaves:
        await gateway.invoke(LoadModel(name=name), caller.principal)
        return "load"
    try:
        await gateway.invoke(UnloadModel(name=name), caller.principal)
    except NotFoundError:
        return "unload"
    return "unload"
