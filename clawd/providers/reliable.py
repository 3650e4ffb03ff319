"""The `reliable` provider: a chain of providers; the next answers when one cannot.

When a request is tried again before its first byte, and how long that waits; and what stands in for
a provider that cannot be built, so that the others live and its name answers.
"""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol, TypeGuard, TypeVar, runtime_checkable

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
    sees,
)
from clawd.wire.events import ReasoningDelta, TextDelta

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
_RETRIED_CLIENT_ERRORS = frozenset({408, 429})
_FIRST_SERVER_ERROR = 500
_chance = random.SystemRandom()
FIRST_DELTA_TIMEOUT_S = 130.0
_FALLBACK_KINDS = frozenset({"network", "auth", "timeout"})


class FirstByteTimeoutError(ProviderError):
    """The server took the request and sent nothing in time; it may still be at it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, kind="timeout", hint=hint)


class RetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often and after what a request is tried again.

    Attributes:
        extra_attempts: after the first one; 0 never tries again.
        initial_s: first wait; doubles with each.
        max_s: the longest wait.
        jitter_s: up to this much is added by chance.
        max_retry_after_s: a server that asks for a longer wait is not asked again.
    """

    extra_attempts: int = 5
    initial_s: float = 0.25
    max_s: float = 4.0
    jitter_s: float = 0.25
    max_retry_after_s: float = 60.0


async def retrying(
    settings: RetrySettings, attempt: Callable[[], Awaitable[_T]], *, who: str
) -> _T:
    """Return what the first attempt returns that does not fail, or raise the last failure.

    Tried again are network errors, connections not made in time, HTTP 408, 429 and 5xx. `who` is
    named in the log: a provider and its address.
    """
    import stamina

    failed = 0

    def wait_or_stop(error: Exception) -> bool | float:
        nonlocal failed
        wait = _wait_or_stop(settings, error)
        failed += 1
        if wait is not False and failed <= settings.extra_attempts:
            _log.warning(
                "%s failed (%s), retry %d of %d",
                who,
                _reason(error),
                failed,
                settings.extra_attempts,
            )
        return wait

    context = stamina.retry_context(
        on=wait_or_stop,
        attempts=settings.extra_attempts + 1,
        timeout=None,
        wait_initial=settings.initial_s,
        wait_max=settings.max_s,
        wait_jitter=settings.jitter_s,
    )
    async for again in context:
        with again:
            return await attempt()
    raise ProviderError("the request was never tried", kind="invalid")


def _backoff_s(settings: RetrySettings, number: int) -> float:
    """Return how long to wait before the retry of this number, from 1 on."""
    wait = min(settings.initial_s * 2.0 ** (number - 1), settings.max_s)
    return wait + _chance.uniform(0.0, settings.jitter_s)


def is_passing(error: Exception) -> bool:
    """Return whether a failure may be gone when the same is asked again."""
    if not isinstance(error, ProviderError):
        return False
    match error.kind:
        case "network":
            return True
        case "timeout":
            return not isinstance(error, FirstByteTimeoutError)
        case "http":
            return error.status in _RETRIED_CLIENT_ERRORS or error.status >= _FIRST_SERVER_ERROR
        case "auth" | "invalid":
            return False


def _reason(error: Exception) -> str:
    """Return what failed in a word or two, for the log: no text of the other side."""
    if not isinstance(error, ProviderError):
        return type(error).__name__
    return f"{error.kind}, status {error.status}" if error.status else error.kind


def parse_retry_after(value: str) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, 10.2.3), or None."""
    value = value.strip()
    if value.replace(".", "", 1).isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _wait_or_stop(settings: RetrySettings, error: Exception) -> bool | float:
    """Return whether to try again; a number is the wait that the server asked for."""
    if not isinstance(error, ProviderError) or not is_passing(error):
        return False
    if error.retry_after_s is None:
        return True
    if error.retry_after_s > settings.max_retry_after_s:
        return False
    return float(error.retry_after_s)


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


_ONCE = RetrySettings(extra_attempts=0)


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
        asked, failures = self._seeing(request), list[tuple[Provider, ProviderError]]()
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

    def _seeing(self, request: ChatRequest) -> list[Provider]:
        """Return who may be asked: the first, and of the others those that see its pictures."""
        first, *others = self._providers
        if any(message.pictures for message in request.messages):
            others = [each for each in others if sees(each, "")]
        return [first, *others]

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
            return _backoff_s(self._retry, number)
        wait_s = min(each for each in asked_for if each is not None)
        return None if wait_s > self._retry.max_retry_after_s else wait_s

    def _log_failure(self, failure: tuple[Provider, ProviderError], following: str) -> None:
        provider, error = failure
        name = provider.name()
        _log.warning("provider %s: %s failed (%s), %s", self._name, name, _reason(error), following)

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
                has_content = has_content or isinstance(
                    delta, TextDelta | ReasoningDelta | CallDelta
                )
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
