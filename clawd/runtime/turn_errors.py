"""How a turn's errors are told: as errors of clawd, and in a few words."""

import asyncio

from clawd.errors import ClawError, ProviderError


def as_claw_error(error: Exception) -> ClawError:
    """Return the error itself, or a provider's own exception as one that can be told."""
    if isinstance(error, ClawError):
        return error
    return ProviderError(f"{type(error).__name__}: {error}", kind="invalid")


def why(error: BaseException) -> str:
    """Return a few words on why something ended."""
    if isinstance(error, asyncio.CancelledError):
        return "it was cancelled"
    return error.message if isinstance(error, ClawError) else type(error).__name__
