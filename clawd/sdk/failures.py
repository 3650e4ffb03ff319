"""Failures of the control socket as the errors that they were on the other side. Pure."""

from clawd.errors import (
    BusyError,
    CancelledByUserError,
    ClawError,
    ConfigError,
    ContextFullError,
    EngineError,
    ForbiddenError,
    InvalidRequestError,
    ModelLoadError,
    ModelNotFoundError,
    NotFoundError,
    ProtocolError,
    ProviderError,
    ProviderErrorKind,
    RateLimitError,
    ReceiptError,
    SandboxUnavailableError,
    StoppedError,
    StorageError,
    UnauthenticatedError,
    UnreachableError,
    WorkerDiedError,
)
from clawd.wire.messages import Failure

_PLAIN: dict[str, type[ClawError]] = {
    kind.default_code: kind
    for kind in (
        CancelledByUserError,
        ContextFullError,
        EngineError,
        ForbiddenError,
        InvalidRequestError,
        ModelLoadError,
        ModelNotFoundError,
        NotFoundError,
        ProtocolError,
        ReceiptError,
        SandboxUnavailableError,
        StoppedError,
        StorageError,
        UnauthenticatedError,
        UnreachableError,
        WorkerDiedError,
    )
}
_WAITING = {kind.default_code: kind for kind in (BusyError, RateLimitError)}
_KINDS: tuple[ProviderErrorKind, ...] = ("network", "auth", "timeout", "http", "invalid")


def error_of(failure: Failure) -> ClawError:
    """Return the error that a failure tells; a plain ClawError for a code that is not known."""
    message, hint, data = failure.message, failure.hint, failure.data or {}
    if failure.code in _WAITING:
        wait_s = data.get("retry_after_s")
        return _WAITING[failure.code](
            message, hint=hint, retry_after_s=wait_s if isinstance(wait_s, float) else 1.0
        )
    if failure.code == ConfigError.default_code:
        return ConfigError(message, hint=hint, problems=tuple(map(str, data.get("problems", ()))))
    if failure.code == ProviderError.default_code:
        kind: ProviderErrorKind = next(
            (each for each in _KINDS if each == data.get("kind")), "invalid"
        )
        status = data.get("status")
        return ProviderError(
            message, hint=hint, kind=kind, status=status if isinstance(status, int) else 0
        )
    if failure.code in _PLAIN:
        return _PLAIN[failure.code](message, hint=hint, data=failure.data)
    return ClawError(message, hint=hint, code=failure.code, data=failure.data)
