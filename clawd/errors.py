"""The errors that cross a boundary of clawd: a code for programs, a message and a hint for people.

    ClawError
    ├── ConfigError              config_invalid      every problem of a config file, in one pass
    ├── UnreachableError         unreachable         no daemon answers on the socket
    ├── ProtocolError            protocol            no frame, or a version nobody speaks
    ├── InvalidRequestError      invalid_request     parameters that cannot be meant
    ├── NotFoundError            not_found           a name that is not there; says which are
    ├── UnauthenticatedError     unauthenticated     no valid key, and one is needed
    ├── ForbiddenError           forbidden           the principal may not do this
    ├── BusyError                busy                a bounded queue is full; see retry_after_s
    │   └── RateLimitError       rate_limited        a key asks too often
    ├── CancelledByUserError     cancelled           somebody asked for it to stop
    ├── StoppedError             estop               the emergency stop is set
    ├── EngineError              engine
    │   ├── ModelNotFoundError   model_not_found
    │   ├── ModelLoadError       model_load
    │   ├── WorkerDiedError      worker_died         the worker process ended; says its last lines
    │   └── ContextFullError     context_full        names the biggest parts
    ├── ProviderError            provider            kind: network, auth, timeout, http, invalid
    ├── SandboxUnavailableError  sandbox_unavailable
    ├── ReceiptError             receipts            the chain cannot be written or read
    └── StorageError             storage             memory cannot be written or read

A subclass adds nothing but its code and, where a caller needs them, typed fields.
"""

from typing import Any, ClassVar, Literal


class ClawError(Exception):
    """A failure that somebody outside this module is told about.

    Attributes:
        code: stable word for programs.
        message: what happened, with which value, and what was expected.
        hint: what to do next; may be empty.
        data: further facts for programs (JSON-like), or None.
    """

    default_code: ClassVar[str] = "internal"

    def __init_subclass__(cls, *, code: str = "") -> None:  # type: ignore[explicit-override]
        cls.default_code = code or cls.default_code

    def __init__(
        self, message: str, *, hint: str = "", code: str = "", data: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code or self.default_code
        self.message = message
        self.hint = hint
        self.data = data


class ConfigError(ClawError, code="config_invalid"):
    """The configuration has at least one problem; `problems` holds a line for each."""

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint, data={"problems": list(problems)})
        self.problems = problems


class UnreachableError(ClawError, code="unreachable"):
    """No daemon answers on the socket."""


class ProtocolError(ClawError, code="protocol"):
    """The other side sent what is no frame, or speaks no version that this side speaks."""


class InvalidRequestError(ClawError, code="invalid_request"):
    """The parameters of a request cannot be meant."""


class NotFoundError(ClawError, code="not_found"):
    """A name that is not there."""


class UnauthenticatedError(ClawError, code="unauthenticated"):
    """No valid key came with the request, and one is needed."""


class ForbiddenError(ClawError, code="forbidden"):
    """The principal may not do this."""


class BusyError(ClawError, code="busy"):
    """A bounded queue is full; try again after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: float, hint: str = "") -> None:
        super().__init__(message, hint=hint, data={"retry_after_s": retry_after_s})
        self.retry_after_s = retry_after_s


class RateLimitError(BusyError, code="rate_limited"):
    """A key asks too often."""


class CancelledByUserError(ClawError, code="cancelled"):
    """Somebody asked for it to stop."""


class StoppedError(ClawError, code="estop"):
    """The emergency stop is set."""


class EngineError(ClawError, code="engine"):
    """Local inference failed."""


class ModelNotFoundError(EngineError, code="model_not_found"):
    """No such model here; the message names those that are."""


class ModelLoadError(EngineError, code="model_load"):
    """The model's file is there but cannot be loaded."""


class WorkerDiedError(EngineError, code="worker_died"):
    """The worker process ended while it was needed; the message ends with its last lines."""


class ContextFullError(EngineError, code="context_full"):
    """The prompt does not fit the context; the message gives the counts."""


ProviderErrorKind = Literal["network", "auth", "timeout", "http", "invalid"]


class ProviderError(ClawError, code="provider"):
    """A model provider failed.

    Attributes:
        kind: what failed: the way there (`network`), the key (`auth`), time (`timeout`), the
            answer's status (`http`) or its form (`invalid`).
        status: HTTP status, or 0.
        retry_after_s: what the other side asked for, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ProviderErrorKind,
        status: int = 0,
        retry_after_s: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint, data={"kind": kind, "status": status})
        self.kind = kind
        self.status = status
        self.retry_after_s = retry_after_s


class SandboxUnavailableError(ClawError, code="sandbox_unavailable"):
    """A child process was asked for and no sandbox of the required level is to be had."""


class ReceiptError(ClawError, code="receipts"):
    """The receipt chain cannot be written or read."""


class StorageError(ClawError, code="storage"):
    """Memory cannot be written or read."""
