"""Every kind of error in the envelope of every dialect: its status, its type, its headers."""

import json
from typing import Any

from clawd.channels.http.errors import error_response
from clawd.errors import (
    BusyError,
    CancelledByUserError,
    ClawError,
    ContextFullError,
    EngineError,
    ForbiddenError,
    InvalidRequestError,
    ModelLoadError,
    ModelNotFoundError,
    NotFoundError,
    ProviderError,
    RateLimitError,
    SandboxUnavailableError,
    StoppedError,
    StorageError,
    UnauthenticatedError,
    WorkerDiedError,
)
from tests.support.rows import each_row

OPENAI, ANTHROPIC, OLLAMA = "/v1/chat/completions", "/v1/messages", "/api/chat"
INVALID, SERVER, API = "invalid_request_error", "server_error", "api_error"

# the error, its status, its type for OpenAI's clients, its code there, its type for Anthropic's
KINDS: list[tuple[Exception, int, str, str, str]] = [
    (InvalidRequestError("no"), 400, INVALID, "invalid_request", INVALID),
    (
        ContextFullError("no"),
        400,
        "exceed_context_size_error",
        "context_length_exceeded",
        INVALID,
    ),
    (
        UnauthenticatedError("no"),
        401,
        "authentication_error",
        "unauthenticated",
        "authentication_error",
    ),
    (ForbiddenError("no"), 403, "permission_error", "forbidden", "permission_error"),
    (StoppedError("no"), 403, "permission_error", "estop", "permission_error"),
    (NotFoundError("no"), 404, "not_found_error", "not_found", "not_found_error"),
    (ModelNotFoundError("no"), 404, "not_found_error", "model_not_found", "not_found_error"),
    (ClawError("no", code="too_large"), 413, INVALID, "too_large", "request_too_large"),
    (
        RateLimitError("no", retry_after_s=3),
        429,
        "rate_limit_error",
        "rate_limited",
        "rate_limit_error",
    ),
    (CancelledByUserError("no"), 499, SERVER, "cancelled", API),
    (EngineError("no"), 500, SERVER, "engine", API),
    (StorageError("no"), 500, SERVER, "storage", API),
    (ClawError("no", code="not_supported"), 501, "not_supported_error", "not_supported", API),
    (ProviderError("no", kind="http", status=500), 502, SERVER, "provider", API),
    (ProviderError("no", kind="network"), 502, SERVER, "provider", API),
    (ProviderError("no", kind="auth", status=401), 502, SERVER, "provider", API),
    (ProviderError("no", kind="http", status=400), 400, INVALID, "provider", INVALID),
    (
        ProviderError("no", kind="http", status=429),
        429,
        "rate_limit_error",
        "provider",
        "rate_limit_error",
    ),
    (ProviderError("no", kind="timeout"), 504, SERVER, "provider", "timeout_error"),
    (BusyError("no", retry_after_s=2), 503, "unavailable_error", "busy", "overloaded_error"),
    (ModelLoadError("no"), 503, "unavailable_error", "model_load", "overloaded_error"),
    (WorkerDiedError("no"), 503, "unavailable_error", "worker_died", "overloaded_error"),
    (
        SandboxUnavailableError("no"),
        503,
        "unavailable_error",
        "sandbox_unavailable",
        "overloaded_error",
    ),
]


def told(path: str, error: Exception, status: int = 0) -> tuple[int, Any]:
    response = error_response(path, error, status)
    assert response.content_type == "application/json"
    assert response.text is not None
    return response.status, json.loads(response.text)


def name_of(kind: Any) -> str:
    return type(kind).__name__ if isinstance(kind, Exception) else ""


@each_row(("error", "status", "openai", "code", "anthropic"), KINDS, ids=name_of)
def test_an_error_has_the_envelope_of_its_path(
    error: Exception, status: int, openai: str, code: str, anthropic: str
) -> None:
    inner = {"message": "no", "type": openai, "param": None, "code": code}
    assert told(OPENAI, error) == (status, {"error": inner})
    found, body = told(ANTHROPIC, error)
    assert (found, set(body), body["type"]) == (status, {"type", "error"}, "error")
    assert (set(body["error"]), body["error"]["type"]) == ({"type", "message"}, anthropic)
    assert body["error"]["message"].endswith("no")
    assert told(OLLAMA, error) == (status, {"error": "no"})


@each_row("status", [405, 408, 413, 414, 415, 417, 431])
def test_whatever_is_wrong_with_a_request_is_no_failure_of_the_server(status: int) -> None:
    error = InvalidRequestError("no")
    assert told(OPENAI, error, status)[1]["error"]["type"] == INVALID
    wanted = "request_too_large" if status == 413 else INVALID
    assert told(ANTHROPIC, error, status)[1]["error"]["type"] == wanted


def test_a_defect_tells_its_kind_and_nothing_of_its_words() -> None:
    for path in (OPENAI, ANTHROPIC, OLLAMA):
        status, body = told(path, ValueError("/home/ada/secret"))
        assert status == 500
        assert "secret" not in json.dumps(body)
        assert "ValueError" in json.dumps(body)


@each_row(
    ("error", "wait"),
    [
        (BusyError("no", retry_after_s=2.4), "3"),
        (RateLimitError("no", retry_after_s=0.2), "1"),
        (ProviderError("no", kind="http", status=429, retry_after_s=7.0), "7"),
        (ProviderError("no", kind="http", status=429), None),
        (NotFoundError("no"), None),
    ],
)
def test_who_must_wait_is_told_how_long(error: Exception, wait: str | None) -> None:
    for path in (OPENAI, ANTHROPIC, OLLAMA):
        assert error_response(path, error).headers.get("Retry-After") == wait


def test_a_prompt_that_is_too_long_is_told_with_its_counts() -> None:
    error = ContextFullError("full", data={"n_prompt_tokens": 9, "n_ctx": 4})
    inner = told(OPENAI, error)[1]["error"]
    assert (inner["n_prompt_tokens"], inner["n_ctx"]) == (9, 4)
    said = told(ANTHROPIC, error)[1]["error"]["message"]
    assert said.startswith("prompt is too long: 9 tokens > 4 maximum")


@each_row(
    ("path", "keys"),
    [
        ("/v1/messages", {"type", "error"}),
        ("/v1/messages/count_tokens", {"type", "error"}),
        ("/v1/messagesque", {"error"}),
        ("/v1/models", {"error"}),
        ("/apical", {"error"}),
    ],
)
def test_a_path_that_only_begins_alike_is_of_no_dialect(path: str, keys: set[str]) -> None:
    assert set(told(path, NotFoundError("no"))[1]) == keys


def test_the_root_of_a_dialect_is_its_own() -> None:
    assert told("/api", NotFoundError("no"))[1] == {"error": "no"}
