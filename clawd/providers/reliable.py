"""The `reliable` provider: a chain of providers; the next answers when one cannot be reached."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Protocol, TypeGuard, runtime_checkable

import msgspec

from clawd.errors import ClawError, ConfigError, ProviderError
from clawd.providers.base import (
    CallDelta,
    Capabilities,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Provider,
    Reasoning,
    Text,
)

FIRST_DELTA_TIMEOUT_S = 130.0

_FALLBACK_KINDS = frozenset({"network", "auth", "timeout"})

_log = logging.getLogger(__name__)


@runtime_checkable
class Retrying(Protocol):
    """A provider that tries again by itself, which would only delay a chain."""

    def without_retries(self) -> Provider:
        """Return the same provider without that."""
        ...


class ReliableProvider:
    """Asks providers in order.

    The next is asked on network, authentication and timeout errors before the first content;
    any other failure, and any after content, is the answer. The request's model is the first
    provider's; the others answer with their own default. The providers stay their owner's.
    """

    def __init__(
        self,
        name: str,
        providers: Sequence[Provider],
        *,
        first_delta_timeout_s: float = FIRST_DELTA_TIMEOUT_S,
    ) -> None:
        if not providers:
            raise ConfigError(
                f"provider {name} is a chain of no providers",
                problems=(f"{name}: providers is empty",),
                hint="Name at least one provider in `providers`.",
            )
        self._name = name
        self._providers = [
            provider.without_retries() if isinstance(provider, Retrying) else provider
            for provider in providers
        ]
        self._first_delta_timeout_s = first_delta_timeout_s

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._name

    def capabilities(self) -> Capabilities:
        """Return what the first provider can do; local, or heeding hints, only when all are."""
        each = [provider.capabilities() for provider in self._providers]
        return msgspec.structs.replace(
            each[0],
            local=all(one.local for one in each),
            heeds_hints=all(one.heeds_hints for one in each),
        )

    def fronted(self, model: str) -> tuple[tuple[Provider, str], ...]:
        """Return the first provider: models are named as it names them."""
        return ((self._providers[0], model),)

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request with the first provider that can be reached."""
        failures: list[tuple[str, ProviderError]] = []
        for number, provider in enumerate(self._providers, start=1):
            attempt = _Attempt(provider, self._first_delta_timeout_s)
            async with aclosing(attempt.chat(request)) as deltas:
                async for delta in deltas:
                    yield delta
            if attempt.failure is None:
                return
            following = self._providers[number : number + 1]
            _log.warning(
                "provider %s: %s failed (%s), %s",
                self._name,
                provider.name(),
                attempt.failure.kind,
                f"asking {following[0].name()}" if following else "nobody is left to ask",
            )
            failures.append((provider.name(), attempt.failure))
            request = msgspec.structs.replace(request, model="")
        yield Failed(error=self._all_failed(failures))

    async def check(self) -> str:
        """Check every provider; say which answered and which did not.

        Raises:
            ProviderError: none answered.
        """
        lines: list[str] = []
        failures: list[tuple[str, ProviderError]] = []
        for provider in self._providers:
            try:
                lines.append(f"{provider.name()}: {await provider.check()}")
            except ClawError as error:
                lines.append(f"{provider.name()}: failed: {error.message}")
                failures.append((provider.name(), _as_provider_error(error)))
        if len(failures) == len(self._providers):
            raise self._all_failed(failures)
        return "\n".join(lines)

    async def close(self) -> None:
        """Do nothing: the providers are closed by who made them."""

    def _all_failed(self, failures: list[tuple[str, ProviderError]]) -> ProviderError:
        told = "\n".join(f"{name}: {error.message}" for name, error in failures)
        last = failures[-1][1]
        return ProviderError(
            f"every provider of {self._name} failed:\n{told}", kind=last.kind, status=last.status
        )


class _Attempt:
    """One provider's turn; `failure` is set when the next one is to be asked."""

    def __init__(self, provider: Provider, first_delta_timeout_s: float) -> None:
        self.failure: ProviderError | None = None
        self._provider = provider
        self._limit_s: float | None = first_delta_timeout_s

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        has_content = False
        deltas = aiter(self._provider.chat(request))
        try:
            while (delta := await self._next(deltas)) is not None:
                if isinstance(delta, Failed) and not has_content and _passes_on(delta.error):
                    self.failure = delta.error
                    return
                has_content = has_content or isinstance(delta, Text | Reasoning | CallDelta)
                yield delta
                if isinstance(delta, Failed | Finished):
                    return
        finally:
            if isinstance(deltas, AsyncGenerator):
                await deltas.aclose()

    async def _next(self, deltas: AsyncIterator[Delta]) -> Delta | None:
        """Return the next delta, None at the end; the first one has a limit."""
        limit_s, self._limit_s = self._limit_s, None
        try:
            async with asyncio.timeout(limit_s):
                return await anext(deltas, None)
        except TimeoutError:
            error = ProviderError(
                f"{self._provider.name()} sent nothing within {limit_s:g} s", kind="timeout"
            )
            return Failed(error=error)


def _passes_on(error: Exception) -> TypeGuard[ProviderError]:
    return isinstance(error, ProviderError) and error.kind in _FALLBACK_KINDS


def _as_provider_error(error: ClawError) -> ProviderError:
    if isinstance(error, ProviderError):
        return error
    return ProviderError(error.message, kind="invalid", hint=error.hint)
