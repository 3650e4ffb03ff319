"""Tells of a server's refusal that the prompt is too long, and by how much, where it says so.

llama.cpp   {"error": {"code": 400, "type": "exceed_context_size_error", "n_prompt_tokens": 9000,
             "n_ctx": 8192, …}}
OpenAI      This model's maximum context length is 8192 tokens. However, your messages resulted in
            9000 tokens.
vLLM        … However, you requested 9100 tokens (9000 in the messages, 100 in the completion).
Anthropic   prompt is too long: 9000 tokens > 8192 maximum
            input length and `max_tokens` exceed context limit: 9000 + 100 > 8192
"""

import re

from clawd.errors import ClawError, ContextFullError, ProviderError

_STATUSES = frozenset({0, 400, 413})
_MARKS = (
    "exceed_context_size_error",
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
    "exceed context limit",
)
_PROMPTS = (
    re.compile(r'"n_prompt_tokens": ?(\d{1,12})'),
    re.compile(r"\((\d{1,12}) in (?:the messages|your prompt)"),
    re.compile(r"(?:resulted in|you requested|contains at least) (\d{1,12}) "),
    re.compile(r"prompt is too long: (\d{1,12}) "),
    re.compile(r"exceed context limit: (\d{1,12}) "),
)
_CONTEXTS = (
    re.compile(r'"n_ctx": ?(\d{1,12})'),
    re.compile(r"maximum context length is (\d{1,12}) "),
    re.compile(r"> (\d{1,12})"),
)


def with_counts(error: ClawError) -> ClawError:
    """Return a refusal for the prompt's length as ContextFullError; other errors as they are."""
    if not isinstance(error, ProviderError) or error.status not in _STATUSES:
        return error
    text = error.message
    if not any(mark in text for mark in _MARKS):
        return error
    counts = {"n_prompt_tokens": _first(_PROMPTS, text), "n_ctx": _first(_CONTEXTS, text)}
    known = {name: count for name, count in counts.items() if count}
    return ContextFullError(text, hint="Shorten the conversation.", data=known or None)


def _first(patterns: tuple[re.Pattern[str], ...], text: str) -> int:
    found = (match for pattern in patterns if (match := pattern.search(text)))
    match = next(found, None)
    return int(match[1]) if match else 0
