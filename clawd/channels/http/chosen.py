"""Which provider and model a name of a client means, for what is no chat."""

from typing import TypeVar

from clawd.channels.http.app import Gateway
from clawd.channels.http.catalogue import find
from clawd.errors import ClawError
from clawd.providers.base import Provider

_T = TypeVar("_T")


async def chosen_provider(gateway: Gateway, name: str) -> tuple[Provider, str]:
    """Return the provider, and its own name of the model that a client named.

    Raises:
        ModelNotFoundError: there is none of this name; says which there are.
    """
    choice = await find(gateway, name)
    return choice.provider, choice.model


async def chosen_able(
    gateway: Gateway, name: str, ability: type[_T], what: str
) -> tuple[_T, str, str]:
    """Return a provider with an ability, its name of the model, and the name to answer with.

    Args:
        gateway: what handlers work with.
        name: as the client named the model.
        ability: a protocol of providers/abilities.py.
        what: what the provider lacks otherwise, for the error.

    Raises:
        ModelNotFoundError: there is no such model.
        ClawError: who answers to the name cannot do this; a 501 to the client.
    """
    choice = await find(gateway, name)
    if not isinstance(choice.provider, ability):
        raise ClawError(
            f"provider {choice.provider.name()} {what}",
            code="not_supported",
            hint="Ask for a model of this machine: GET /v1/models lists them.",
        )
    return choice.provider, choice.model, choice.name
