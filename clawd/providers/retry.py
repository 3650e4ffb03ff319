"""When a request to a provider is tried again before its first byte, and how long that waits."""

import logging
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeVar

import msgspec

from clawd.errors import ProviderError

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_RETRIED_CLIENT_ERRORS = frozenset({408, 429})
_FIRST_SERVER_ERROR = 500
_chance = random.SystemRandom()


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
                reason(error),
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


def backoff_s(settings: RetrySettings, number: int) -> float:
    """Return how long to wait before the retry of this number, from 1 on."""
    wait = min(settings.initial_s * 2.0 ** (number - 1), settings.max_s)
    return wait + _chance.uniform(0.0, settings.jitter_s)


def is_passing(error: Exception) -> bool:
    """Tell whether a failure may be gone when the same is asked again."""
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


def reason(error: Exception) -> str:
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
    """Say whether to try again; a number is the wait that the server asked for."""
    if not isinstance(error, ProviderError) or not is_passing(error):
        return False
    if error.retry_after_s is None:
        return True
    if error.retry_after_s > settings.max_retry_after_s:
        return False
    return float(error.retry_after_s)
