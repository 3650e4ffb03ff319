"""Errors as each dialect's clients know them: an HTTP status, and the envelope of the path."""

import math
from typing import Any, Literal

from aiohttp import web

from clawd.errors import BusyError, ClawError, ContextFullError, ProviderError, StoppedError

Envelope = Literal["openai", "anthropic", "ollama"]

_STATUS = {
    "invalid_request": 400,
    "context_full": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "estop": 403,
    "not_found": 404,
    "model_not_found": 404,
    "too_large": 413,
    "rate_limited": 429,
    "cancelled": 499,
    "not_supported": 501,
    "provider": 502,
    "busy": 503,
    "model_load": 503,
    "worker_died": 503,
    "sandbox_unavailable": 503,
}
_PASSED_ON = frozenset({400, 429, 503})
_MAX_WAIT_S = 86_400.0
_WRONG = "invalid_request_error"
_OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    499: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}
_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    499: "api_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def nothing_starts() -> StoppedError:
    """Return the error of a request that the emergency stop keeps from being begun."""
    return StoppedError(
        "the emergency stop is set: no request to a model is begun",
        hint="an admin clears it with: clawctl estop --clear",
    )


def envelope_of(path: str) -> Envelope:
    """Return whose words the clients of a path read."""
    if f"{path}/".startswith("/v1/messages/"):
        return "anthropic"
    return "ollama" if f"{path}/".startswith("/api/") else "openai"


def status_of(error: Exception) -> int:
    """Return the HTTP status that tells an error."""
    if isinstance(error, ProviderError):
        if error.kind == "timeout":
            return 504
        # Another status of the other server is about us: its 401 is not for this client's key.
        return error.status if error.status in _PASSED_ON else 502
    return _STATUS.get(error.code, 500) if isinstance(error, ClawError) else 500


def message_of(error: Exception) -> str:
    """Return what a person is told; a defect of ours stays in the log."""
    if not isinstance(error, ClawError):
        return f"the request failed inside the daemon: {type(error).__name__}"
    return f"{error.message}. {error.hint}" if error.hint else error.message


def body_of(envelope: Envelope, error: Exception, status: int) -> dict[str, Any]:
    """Return the JSON value that tells an error to the clients of a dialect."""
    message = message_of(error)
    if envelope == "ollama":
        return {"error": message}
    if envelope == "anthropic":
        kind = _ANTHROPIC_TYPES.get(status) or (_WRONG if status < 500 else "api_error")
        body: dict[str, Any] = {"type": kind, "message": f"{_too_long(error)}{message}"}
        if details := _data_of(error).get("details"):
            body["details"] = details
        return {"type": "error", "error": body}
    told: dict[str, Any] = {
        "message": message,
        "type": _OPENAI_TYPES.get(status) or (_WRONG if status < 500 else "server_error"),
        "param": None,
        "code": error.code if isinstance(error, ClawError) else "internal",
    }
    data = _data_of(error)
    if data.get("param"):
        told["param"] = data["param"]
    if isinstance(error, ContextFullError):
        told["type"] = "exceed_context_size_error"
        told["code"] = "context_length_exceeded"
        told |= {name: data[name] for name in ("n_prompt_tokens", "n_ctx") if name in data}
    return {"error": told}


def _data_of(error: Exception) -> dict[str, Any]:
    return error.data or {} if isinstance(error, ClawError) else {}


def _too_long(error: Exception) -> str:
    """Return the words by which Anthropic's clients know that they must compact a conversation."""
    if not isinstance(error, ContextFullError):
        return ""
    data = error.data or {}
    if "n_prompt_tokens" not in data or "n_ctx" not in data:
        return "prompt is too long: "
    return f"prompt is too long: {data['n_prompt_tokens']} tokens > {data['n_ctx']} maximum; "


def error_response(path: str, error: Exception, status: int = 0) -> web.Response:
    """Return the response that reports an error to a client of this path."""
    status = status or status_of(error)
    response = web.json_response(body_of(envelope_of(path), error, status), status=status)
    wait_s = error.retry_after_s if isinstance(error, BusyError | ProviderError) else None
    if wait_s is not None:
        response.headers["Retry-After"] = str(max(1, math.ceil(min(wait_s, _MAX_WAIT_S))))
    return response
