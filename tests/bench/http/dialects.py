"""What is asked in each dialect, and where in its answers text and counts stand."""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.bench.http.client import Heard
from tests.bench.streams import BenchError

Counts = tuple[int, int]
"""Tokens of the prompt and of the answer."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, in whatever dialect. `tokens` is the most of an answer; 0 says nothing."""

    text: str
    model: str
    stream: bool
    tokens: int = 0


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """One way to ask.

    Attributes:
        piece: text of one value of a stream.
        whole: text of a whole answer.
        counts: of one value, None where it has none.
    """

    name: str
    path: str
    body: Callable[[Asked], dict[str, Any]]
    piece: Callable[[dict[str, Any]], str]
    whole: Callable[[dict[str, Any]], str]
    counts: Callable[[dict[str, Any]], Counts | None]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer says, and when.

    Attributes:
        first_byte_at: of the body.
        text_at: when each piece of text came; one time for a whole answer.
    """

    text: str
    counts: Counts
    sent_at: float
    ended_at: float
    first_byte_at: float
    text_at: tuple[float, ...]

    @property
    def first_ms(self) -> float:
        """From the request to the first text."""
        return 1000 * (self.text_at[0] - self.sent_at)

    @property
    def total_ms(self) -> float:
        """From the request to the last byte."""
        return 1000 * (self.ended_at - self.sent_at)


def told(dialect: Dialect, heard: Heard, *, stream: bool) -> Told:
    """Return what a response says.

    Raises:
        BenchError: it is an error, or without text or counts.
    """
    if heard.status != 200:
        raise BenchError(f"{dialect.path} answered {heard.status}: {heard.body[:500]!r}")
    read = dialect.piece if stream else dialect.whole
    pieces: list[tuple[float, str]] = []
    counts: Counts | None = None
    for at, value in _values(heard):
        if text := read(value):
            pieces.append((at, text))
        counts = dialect.counts(value) or counts
    if not pieces or counts is None:
        raise BenchError(f"{dialect.path} told no text or no counts: {heard.body[-500:]!r}")
    return Told(
        text="".join(text for _, text in pieces),
        counts=counts,
        sent_at=heard.sent_at,
        ended_at=heard.ended_at,
        first_byte_at=heard.parts[0][0],
        text_at=tuple(at for at, _ in pieces),
    )


def _values(heard: Heard) -> Iterator[tuple[float, dict[str, Any]]]:
    for at, line in heard.lines():
        data = line.removeprefix(b"data: ")
        if data.startswith(b"{"):
            yield at, msgspec.json.decode(data)


def _message(asked: Asked) -> list[dict[str, str]]:
    return [{"role": "user", "content": asked.text}]


def _limited(asked: Asked, name: str) -> dict[str, Any]:
    return {name: asked.tokens} if asked.tokens else {}


def _chat_body(asked: Asked) -> dict[str, Any]:
    told = {"stream_options": {"include_usage": True}} if asked.stream else {}
    return {
        "model": asked.model,
        "messages": _message(asked),
        "stream": asked.stream,
        "temperature": 0,
        **told,
        **_limited(asked, "max_tokens"),
    }


def _chat_piece(value: dict[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in value["choices"])


def _chat_whole(value: dict[str, Any]) -> str:
    return str(value["choices"][0]["message"]["content"])


def _chat_counts(value: dict[str, Any]) -> Counts | None:
    usage = value.get("usage")
    return (usage["prompt_tokens"], usage["completion_tokens"]) if usage else None


def _responses_body(asked: Asked) -> dict[str, Any]:
    return {
        "model": asked.model,
        "input": asked.text,
        "stream": asked.stream,
        "temperature": 0,
        "store": False,
        **_limited(asked, "max_output_tokens"),
    }


def _responses_piece(value: dict[str, Any]) -> str:
    return str(value["delta"]) if value["type"] == "response.output_text.delta" else ""


def _responses_whole(value: dict[str, Any]) -> str:
    return str(value["output"][-1]["content"][0]["text"])


def _responses_counts(value: dict[str, Any]) -> Counts | None:
    usage = value.get("response", value).get("usage")
    return (usage["input_tokens"], usage["output_tokens"]) if usage else None


def _messages_body(asked: Asked) -> dict[str, Any]:
    return {
        "model": asked.model,
        "messages": _message(asked),
        "stream": asked.stream,
        "temperature": 0,
        "max_tokens": asked.tokens or 32_000,
    }


def _messages_piece(value: dict[str, Any]) -> str:
    return str(value["delta"]["text"]) if value["type"] == "content_block_delta" else ""


def _messages_whole(value: dict[str, Any]) -> str:
    return str(value["content"][-1]["text"])


def _messages_counts(value: dict[str, Any]) -> Counts | None:
    usage = value.get("usage")
    if not usage:
        return None
    return usage["input_tokens"] + usage["cache_read_input_tokens"], usage["output_tokens"]


def _ollama_body(asked: Asked) -> dict[str, Any]:
    options = {"temperature": 0, **_limited(asked, "num_predict")}
    return {
        "model": asked.model,
        "messages": _message(asked),
        "stream": asked.stream,
        "options": options,
    }


def _ollama_text(value: dict[str, Any]) -> str:
    return str(value["message"]["content"])


def _ollama_counts(value: dict[str, Any]) -> Counts | None:
    return (value["prompt_eval_count"], value["eval_count"]) if value["done"] else None


CHAT = Dialect(
    name="chat",
    path="/v1/chat/completions",
    body=_chat_body,
    piece=_chat_piece,
    whole=_chat_whole,
    counts=_chat_counts,
)
RESPONSES = Dialect(
    name="responses",
    path="/v1/responses",
    body=_responses_body,
    piece=_responses_piece,
    whole=_responses_whole,
    counts=_responses_counts,
)
MESSAGES = Dialect(
    name="messages",
    path="/v1/messages",
    body=_messages_body,
    piece=_messages_piece,
    whole=_messages_whole,
    counts=_messages_counts,
)
OLLAMA = Dialect(
    name="ollama",
    path="/api/chat",
    body=_ollama_body,
    piece=_ollama_text,
    whole=_ollama_text,
    counts=_ollama_counts,
)
DIALECTS = (CHAT, RESPONSES, MESSAGES, OLLAMA)
