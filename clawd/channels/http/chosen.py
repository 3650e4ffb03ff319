"""Which provider and model a name of a client means, for what is no chat."""

import asyncio

from clawd.channels.http.app import Gateway
from clawd.errors import ModelNotFoundError
from clawd.providers.abilities import Serving
from clawd.providers.base import Provider


async def chosen_provider(gateway: Gateway, name: str) -> tuple[Provider, str]:
    """Return the provider and its name of the model that a client named.

    A provider's name is its default model; `provider/model` is one of its models; "" is the
    default of all. Other names are models of this machine. Never another model than asked for.

    Raises:
        ModelNotFoundError: there is none of this name; says which there are.
    """
    settings, providers = gateway.settings(), gateway.providers()
    default = providers[settings.default_provider]
    if name in {"", settings.default_model, default.name()}:
        return default, settings.default_model
    if name in providers:
        return providers[name], ""
    prefix, _, rest = name.partition("/")
    if rest and prefix in providers:
        return providers[prefix], rest
    local = next((each for each in providers.values() if isinstance(each, Serving)), None)
    models = await asyncio.to_thread(gateway.models)
    known = [line.name for line in models.items]
    if local is not None:
        stem = name.removesuffix(".gguf").removesuffix(":latest").lower()
        for each in known:
            if each.lower() == stem:
                return local, each
    there = ", ".join(sorted({*providers, *(known if local is not None else ())}))
    raise ModelNotFoundError(
        f"there is no model {name!r}; there are: {there}",
        hint="GET /v1/models lists them.",
    )
