"""The `reliable` provider: a chain of providers; the next answers when one cannot."""

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
from clawd.providers.retry import (
    FirstByteTimeoutError,
    RetrySettings,
    backoff_s,
    is_passing,
    reason,
)

FIRST_DELTA_TIMEOUT_S = 130.0

_FALLBACK_KINDS = frozenset({"network", "auth", "timeout"})
_ONCE = RetrySettings(extra_attempts=0)

_log = logging.getLogger(__name__)


@runtime_checkable
class Retrying(Protocol):
    """A provider that tries again by itself, which would only delay a chain."""

    def without_retries(self) -> Provider:
        """Return the same provider without that."""
        ...


class ReliableProvider:
    """Asks providers in order.

    The next is asked on network, authentication and timeout errors and HTTP 408, 429 and 5xx
    before the first content; any other failure, and any after content, is the answer. When all
    failed, those whose failure may pass are asked again, after a wait. The request's model is the
    first provider's; the others answer with their own default. The providers stay their owner's.

    Args:
        name: in the config.
        providers: first choice first.
        retry: how often and after what wait the whole chain is gone through again.
        first_delta_timeout_s: a provider that says nothing for that long has failed.
    """

    def __init__(
        self,
        name: str,
        providers: Sequence[Provider],
        *,
        retry: RetrySettings = _ONCE,
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
        self._retry = retry
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
        """Answer one request with the first provider that can."""
        asked, failures = self._providers, list[tuple[Provider, ProviderError]]()
        for number in range(1, self._retry.extra_attempts + 2):
            failures.clear()
            for place, provider in enumerate(asked, start=1):
                attempt = _Attempt(provider, self._first_delta_timeout_s)
                async with aclosing(attempt.chat(self._of(provider, request))) as deltas:
                    async for delta in deltas:
                        yield delta
                if attempt.failure is None:
                    return
                failures.append((provider, attempt.failure))
                if place < len(asked):
                    self._log_failure(failures[-1], f"asking {asked[place].name()}")
            again = [(each, error) for each, error in failures if is_passing(error)]
            wait_s = self._wait_s(again, number)
            if wait_s is None:
                break
            asked = [provider for provider, _ in again]
            count = f"retry {number} of {self._retry.extra_attempts} in {wait_s:.1f} s"
            self._log_failure(failures[-1], f"asking {asked[0].name()}, {count}")
            await asyncio.sleep(wait_s)
        self._log_failure(failures[-1], "nobody is left to ask")
        yield Failed(error=self._all_failed([(each.name(), error) for each, error in failures]))

    def _of(self, provider: Provider, request: ChatRequest) -> ChatRequest:
        if provider is self._providers[0]:
            return request
        return msgspec.structs.replace(request, model="")

    def _wait_s(self, again: list[tuple[Provider, ProviderError]], number: int) -> float | None:
        """Return how long to wait before those are asked again; None to give up."""
        if not again or number > self._retry.extra_attempts:
            return None
        asked_for = [error.retry_after_s for _, error in again]
        if None in asked_for:
            return backoff_s(self._retry, number)
        wait_s = min(each for each in asked_for if each is not None)
        return None if wait_s > self._retry.max_retry_after_s else wait_s

    def _log_failure(self, failure: tuple[Provider, ProviderError], following: str) -> None:
        provider, error = failure
        name = provider.name()
        _log.warning("provider %s: %s failed (%s), %s", self._name, name, reason(error), following)

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
            told = f"{self._provider.name()} sent nothing within {limit_s:g} s"
            return Failed(error=FirstByteTimeoutError(told))


def _passes_on(error: Exception) -> TypeGuard[ProviderError]:
    if not isinstance(error, ProviderError):
        return False
    return error.kind in _FALLBACK_KINDS or is_passing(error)


def _as_provider_error(error: ClawError) -> ProviderError:
    if isinstance(error, ProviderError):
        return error
    return ProviderError(error.message, kind="invalid", hint=error.hint)
