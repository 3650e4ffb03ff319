"""Refusals for the prompt's length, as servers word them."""

from clawd.errors import ContextFullError, InvalidRequestError, ProviderError
from clawd.providers.http import with_counts
from tests.support.rows import each_row

TOLD = [
    (
        'HTTP 400: {"error":{"code":400,"message":"the request exceeds the available context '
        'size","type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":8192}}',
        {"n_prompt_tokens": 9000, "n_ctx": 8192},
    ),
    (
        'HTTP 400: {"error": {"message": "This model\'s maximum context length is 8192 tokens. '
        'However, your messages resulted in 9000 tokens. Please reduce the length.", '
        '"code": "context_length_exceeded"}}',
        {"n_prompt_tokens": 9000, "n_ctx": 8192},
    ),
    (
        "HTTP 400: This model's maximum context length is 2048 tokens. However, you requested "
        "2152 tokens (1652 in the messages, 500 in the completion).",
        {"n_prompt_tokens": 1652, "n_ctx": 2048},
    ),
    (
        "HTTP 400: prompt is too long: 210000 tokens > 200000 maximum",
        {"n_prompt_tokens": 210000, "n_ctx": 200000},
    ),
    (
        "HTTP 400: input length and `max_tokens` exceed context limit: 199706 + 21333 > 200000",
        {"n_prompt_tokens": 199706, "n_ctx": 200000},
    ),
    ('HTTP 400: {"error":{"code":"context_length_exceeded"}}', None),
]


@each_row(("message", "counts"), TOLD)
def test_the_counts_of_a_refusal_are_found(message: str, counts: dict[str, int] | None) -> None:
    error = with_counts(ProviderError(message, kind="http", status=400))
    assert isinstance(error, ContextFullError)
    assert (error.message, error.data) == (message, counts)


@each_row(
    "error",
    [
        ProviderError("HTTP 400: unknown field", kind="http", status=400),
        ProviderError("HTTP 500: maximum context length is 5 tokens", kind="http", status=500),
        ProviderError("HTTP 429: maximum context length", kind="http", status=429),
        InvalidRequestError("prompt is too long"),
    ],
)
def test_other_errors_stay_what_they_are(error: ProviderError | InvalidRequestError) -> None:
    assert with_counts(error) is error
