"""Stands in for a provider that cannot be built, so that the others live and its name answers."""

from collections.abc import AsyncIterator

from clawd.errors import ClawError, ProviderError
from clawd.providers.base import Capabilities, ChatRequest, Delta, Failed


class UnavailableProvider:
    """Fails every request with the reason; of kind `auth`, so that a chain goes on."""

    def __init__(self, name: str, reason: ClawError) -> None:
        self._name = name
        self._error = ProviderError(reason.message, kind="auth", hint=reason.hint)

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._name

    def capabilities(self) -> Capabilities:
        """Return what it can do: nothing."""
        return Capabilities(streaming=False, tools=False)

    async def chat(self, _request: ChatRequest) -> AsyncIterator[Delta]:
        """Fail."""
        yield Failed(error=self._error)

    async def check(self) -> str:
        """Fail.

        Raises:
            ProviderError: always.
        """
        raise self._error

    async def close(self) -> None:
        """Do nothing."""
