"""What a conversation asks of a router: the hints it keeps and those of a new message. Pure."""

from collections.abc import Mapping

from clawd.errors import InvalidRequestError
from clawd.providers.base import Provider


def hints_for(
    provider: Provider, kept: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Return the hints of a turn: what was kept, the new word of each name, no empty ones.

    Raises:
        InvalidRequestError: there are some and the provider is no router; what was to stay
            private would go anywhere.
    """
    hints = {name: value for name, value in {**kept, **given}.items() if value}
    if hints and not provider.capabilities().heeds_hints:
        told = ", ".join(f"{name}={value}" for name, value in hints.items())
        raise InvalidRequestError(
            f"the conversation asks for {told}, and provider {provider.name()} is no router",
            hint="Choose a router as the provider, or take the hint back: an empty value does.",
        )
    return hints
