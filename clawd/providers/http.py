"""One server over HTTP: a request sent, its answer read, streamed or whole, errors reported.

What an answer means is the dialect's: a provider hands in an `AnswerReader` that takes the data of
each server-sent event, or the whole body, and gives deltas. Events are read from bytes in any
pieces (WHATWG HTML, 9.2.6):

    : a comment
    event: message
    data: {"a": 1}
    data:{"b": 2}

Both data lines belong to one event, joined by a line break; the blank line after them ends it.

A refusal because the prompt is too long is known by its words, which say by how much:

    llama.cpp   {"error": {"code": 400, "type": "exceed_context_size_error",
                 "n_prompt_tokens": 9000, "n_ctx": 8192, …}}
    OpenAI      This model's maximum context length is 8192 tokens. However, your messages resulted
                in 9000 tokens.
    vLLM        … However, you requested 9100 tokens (9000 in the messages, 100 in the completion).
    Anthropic   prompt is too long: 9000 tokens > 8192 maximum
                input length and `max_tokens` exceed context limit: 9000 + 100 > 8192
"""

import asyncio
import copy
import json
import logging
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec

from clawd.config.schema import ProviderSection
from clawd.errors import ClawError, ConfigError, ContextFullError, ProviderError
from clawd.kernel.concurrency import Pace
from clawd.providers.base import Capabilities, ChatRequest, Delta, sees_by_name
from clawd.providers.reliable import (
    FirstByteTimeoutError,
    RetrySettings,
    parse_retry_after,
    retrying,
)
from clawd.wire.events import HopUsage

MAX_BODY_BYTES = 64 * 1024 * 1024
_ERROR_BYTES = 64 * 1024
SHOWN_CHARS = 400
_READ_BYTES = 64 * 1024
REDACTED = "[redacted]"
_SHORTEST_PART = 4  # of a key; shorter ones tell nothing and may be any word
# What may follow the reason of the end (usage, [DONE]) is not waited for longer.
_TAIL_S = 5.0
_OK = 200
_AUTH_STATUSES = frozenset({401, 403})
MAX_EVENT_BYTES = 16 * 1024 * 1024
# What a line costs in memory beside its bytes.
_LINE_COST = 64
_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
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
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class _Model(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class _ModelList(msgspec.Struct, frozen=True, kw_only=True):
    data: list[_Model]


class AnswerReader(ABC):
    """An answer on its way, in one dialect.

    Attributes:
        has_content: text, reasoning or a call came.
        has_reason: the server said why it ended.
        is_done: the server said that nothing follows; the reader may say it of a whole body.
        missed_index: a part came without its number.
    """

    def __init__(self, provider: str, model: str) -> None:
        self.has_content = False
        self.has_reason = False
        self.is_done = False
        self.missed_index = False
        self._provider = provider
        self._model = model
        self._first_at = 0.0

    def take(self, data: str) -> list[Delta]:
        """Take the data of one event, or a whole body.

        Raises:
            ProviderError: it is not of the dialect, or reports an error.
        """
        deltas = self._read(data)
        if deltas and not self.has_content:
            self.has_content = True
            self._first_at = time.monotonic()
        return deltas

    def finish(self) -> list[Delta]:
        """Take the end of the answer.

        Raises:
            ProviderError: the server ended it without saying that it is complete.
        """
        if not (self.has_reason or self.is_done):
            raise ProviderError(
                "the connection ended before the answer was complete", kind="network"
            )
        return self._end()

    @abstractmethod
    def _read(self, data: str) -> list[Delta]:
        """Return the deltas of one event, or of a whole body."""

    @abstractmethod
    def _end(self) -> list[Delta]:
        """Return the deltas of the end, which is complete."""

    def _timed(self, usage: HopUsage) -> HopUsage:
        """Return the counts with the tokens of a second since the first delta."""
        elapsed_s = time.monotonic() - self._first_at if self.has_content else 0.0
        speed = usage.completion_tokens / elapsed_s if elapsed_s > 0 else 0.0
        return msgspec.structs.replace(usage, tokens_per_s=speed)

    def _miss_index(self, of: str) -> None:
        """Note, once, that parts come without their numbers."""
        if not self.missed_index:
            self.missed_index = True
            _log.info("provider %s sends %s without index", self._provider, of)


class Connections:
    """The HTTP session, made on first use within the running loop; may be shared."""

    def __init__(self, headers: Mapping[str, str], connect_timeout_s: float) -> None:
        self._headers = {"User-Agent": "clawd", "Accept-Encoding": "identity", **headers}
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout_s)
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        """Return the session, open."""
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                headers=self._headers,
                timeout=self._timeout,
                trust_env=False,
            )
        return self._session

    async def close(self) -> None:
        """Close the session; idempotent."""
        if self._session is not None:
            await self._session.close()


class HttpProvider(ABC):
    """A provider that is one server. What it raises never holds the key.

    Args:
        name: under which the config knows it.
        section: what the config says of it.
        key: taken out of every error: a server may repeat it in its answer.
        retry: how often a request is tried again; None is as the defaults say.

    Raises:
        ConfigError: the address holds a password, or no header can hold the key.
    """

    models_path = "/models"

    def __init__(
        self,
        name: str,
        section: ProviderSection,
        *,
        key: str = "",
        retry: RetrySettings | None = None,
    ) -> None:
        _check_address(name, section.base_url)
        _check_key(name, key)
        self._name = name
        self._section = section
        self._key = key
        self.retry = retry or RetrySettings()
        self._url = self._url_of(section.base_url)
        self._connections = Connections(self._headers(key), section.connect_timeout_s)

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._name

    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        return Capabilities(streaming=self._section.stream, tools=self._section.tools)

    def sees(self, model: str) -> bool:
        """Return whether a model sees pictures."""
        return sees_by_name(self._section.vision, model or self._section.model)

    def without_retries(self) -> Self:
        """Return one that shares the connections and never tries again; for chains."""
        other = copy.copy(self)
        other.retry = RetrySettings(extra_attempts=0)
        return other

    @abstractmethod
    def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request; tried again only before the first byte."""

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    @abstractmethod
    def _headers(self, key: str) -> dict[str, str]:
        """Return the headers of every request; an empty key is none."""

    def _url_of(self, base_url: str) -> str:
        """Return what paths are appended to."""
        return base_url.rstrip("/")

    def _refusal(self, _first: bytes) -> ProviderError | None:
        """Return the error in the first bytes of an answer with status 200, None for none.

        It counts as one before the first byte.
        """
        return None

    async def _ask(
        self, path: str, body: Mapping[str, Any], answer: AnswerReader
    ) -> AsyncGenerator[Delta, None]:
        """Send a request, give the deltas of its answer; tried again only before the first byte.

        Raises:
            ProviderError: it failed.
        """
        data = _encoded(body)
        try:
            response, first = await retrying(
                self.retry, lambda: self._open(path, data), who=self._who()
            )
            try:
                async with aclosing(self._read(response, first, answer)) as deltas:
                    async for delta in deltas:
                        yield delta
            finally:
                response.close()
        except ProviderError as error:
            raise self._redacted(error) from error

    async def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        """Send a request and return the whole body of its answer; tried once.

        Raises:
            ProviderError: the server cannot be reached or refuses.
        """
        return await self._fetched("POST", path, _encoded(body), self._section.timeout_s)

    async def _fetched(self, method: str, path: str, data: bytes | None, limit_s: float) -> bytes:
        url, session = f"{self._url}{path}", self._connections.session()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        try:
            with self._converted():
                async with (
                    asyncio.timeout(limit_s),
                    session.request(
                        method, url, data=data, headers=headers, allow_redirects=False
                    ) as response,
                ):
                    await _refuse_status(response)
                    return await _read_all(response, b"")
        except ProviderError as error:
            raise self._redacted(error) from error

    async def check(self) -> str:
        """Ask for the list of models.

        Raises:
            ProviderError: the server cannot be reached or refuses.
        """
        url, model, limit_s = self._url, self._section.model, self._section.first_byte_timeout_s
        try:
            models = msgspec.json.decode(
                await self._fetched("GET", self.models_path, None, limit_s), type=_ModelList
            )
        except (msgspec.DecodeError, RecursionError):
            return f"{url} answered, without a list of models"
        ids = [each.id for each in models.data]
        found = "is one of them" if model in ids else "is none of them"
        return f"{url} answered with {len(ids)} models; {model} {found}"

    def _who(self) -> str:
        """Return the provider and its address, for the log: without what may be a secret."""
        parts = urlsplit(self._url)
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        return f"provider {self._name} at {without_key(where, self._key)}"

    async def _open(self, path: str, data: bytes) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send the request and wait for the first bytes of the answer."""
        section = self._section
        limit_s = section.first_byte_timeout_s if section.stream else section.timeout_s
        response: aiohttp.ClientResponse | None = None
        is_open = False
        try:
            with self._converted(first_byte_limit_s=limit_s):
                async with asyncio.timeout(limit_s):
                    response = await self._connections.session().post(
                        f"{self._url}{path}",
                        data=data,
                        headers={"Content-Type": "application/json"},
                        allow_redirects=False,
                    )
                    await _refuse_status(response)
                    first = await response.content.readany()
            if not first:
                raise ProviderError(
                    f"{self._url} ended the answer without a single byte", kind="network"
                )
            if (refusal := self._refusal(first)) is not None:
                raise refusal
            is_open = True
            return response, first
        except ProviderError as error:
            # Here and not later: the retries log what they were caused by.
            raise self._redacted(error) from error
        finally:
            if response is not None and not is_open:
                response.close()

    async def _read(
        self, response: aiohttp.ClientResponse, first: bytes, answer: AnswerReader
    ) -> AsyncGenerator[Delta, None]:
        with self._converted():
            while first.isspace():
                first = await self._more(response, self._section.timeout_s)
            # By its look and not by its type: servers mislabel both.
            if first.lstrip().startswith(b"{"):
                async with asyncio.timeout(self._section.timeout_s):
                    text = await _read_all(response, first)
                for delta in answer.take(text.decode("utf-8", "replace")):
                    yield delta
                answer.is_done = True
            else:
                async for delta in self._read_events(response, first, answer):
                    yield delta
        for delta in answer.finish():
            yield delta

    async def _read_events(
        self, response: aiohttp.ClientResponse, data: bytes, answer: AnswerReader
    ) -> AsyncGenerator[Delta, None]:
        parser, pace = SseParser(), Pace()
        while data:
            await pace.step()
            for event in parser.feed(data):
                await pace.step()
                for delta in answer.take(event.data):
                    yield delta
                if answer.is_done:
                    return
            limit_s = _TAIL_S if answer.has_reason else self._section.timeout_s
            try:
                data = await self._more(response, limit_s)
            except TimeoutError:
                if answer.has_reason:
                    return
                raise
        for event in parser.finish():
            for delta in answer.take(event.data):
                yield delta

    async def _more(self, response: aiohttp.ClientResponse, limit_s: float) -> bytes:
        async with asyncio.timeout(limit_s):
            return await response.content.readany()

    @contextmanager
    def _converted(self, *, first_byte_limit_s: float = 0.0) -> Iterator[None]:
        """Turn what aiohttp and the clock raise into ProviderError; the one place for it."""
        where = self._url
        try:
            yield
        except aiohttp.ConnectionTimeoutError as error:
            limit_s = self._section.connect_timeout_s
            raise ProviderError(
                f"{where} took no connection within {limit_s:g} s", kind="timeout"
            ) from error
        except TimeoutError as error:
            if first_byte_limit_s:
                raise FirstByteTimeoutError(
                    f"{where} sent nothing within {first_byte_limit_s:g} s",
                    hint="Raise first_byte_timeout_s of this provider if it is only slow.",
                ) from error
            limit_s = self._section.timeout_s
            raise ProviderError(
                f"{where} sent nothing more for {limit_s:g} s", kind="timeout"
            ) from error
        except aiohttp.InvalidURL as error:
            raise ProviderError(f"{where} is no URL", kind="invalid") from error
        except (aiohttp.ClientError, OSError) as error:
            raise ProviderError(
                f"{where} failed: {str(error) or type(error).__name__}",
                kind="network",
                hint="Is the server running, and base_url right?",
            ) from error

    def _redacted(self, error: ProviderError) -> ProviderError:
        """Return the error without the key, which a server may repeat in its answer."""
        message = without_key(error.message, self._key)
        if message == error.message:
            return error
        return ProviderError(
            message,
            kind=error.kind,
            status=error.status,
            retry_after_s=error.retry_after_s,
            hint=error.hint,
        )


def without_key(text: str, key: str) -> str:
    """Return a text without a key, and without the beginning of one where the text was cut."""
    if not key:
        return text
    text = text.replace(key, REDACTED)
    for length in range(min(len(key) - 1, len(text)), _SHORTEST_PART - 1, -1):
        if text.endswith(key[:length]):
            return text[:-length] + REDACTED
    return text


def _check_address(name: str, url: str) -> None:
    """Make sure that a provider's address holds no password.

    Raises:
        ConfigError: it does; the message does not say it.
    """
    if "@" in urlsplit(url).netloc:
        raise ConfigError(
            f"base_url of provider {name} holds a user name or password",
            hint="Name the environment variable of the key in api_key_env instead.",
        )


def _check_key(name: str, key: str) -> None:
    """Make sure that a key can stand in a header.

    Raises:
        ConfigError: it cannot; the message does not say it.
    """
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(
            f"the API key of provider {name} holds characters that no HTTP header may hold",
            hint="Look for a line break at its end.",
        )


def decoded(decoder: msgspec.json.Decoder[_T], data: str, *, what: str, hint: str) -> _T:
    """Return an event or a body as the dialect has it.

    Raises:
        ProviderError: it is not of the dialect, which the message names.
    """
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ProviderError(
            f"the server sent what is no {what} ({error}): {data[:SHOWN_CHARS]}",
            kind="invalid",
            hint=hint,
        ) from error


def _encoded(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON; half of a surrogate pair, as a model may write one, is replaced."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        text = json.dumps(body, ensure_ascii=False)
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


async def _refuse_status(response: aiohttp.ClientResponse) -> None:
    """Raise for every status but 200, with the beginning of the body."""
    if response.status == _OK:
        return
    body = await response.content.read(_ERROR_BYTES)
    text = body.decode("utf-8", "replace")[:SHOWN_CHARS]
    raise ProviderError(
        f"HTTP {response.status}: {text}",
        kind="auth" if response.status in _AUTH_STATUSES else "http",
        status=response.status,
        retry_after_s=parse_retry_after(response.headers.get("Retry-After", "")),
    )


async def _read_all(response: aiohttp.ClientResponse, first: bytes) -> bytes:
    pieces, size = [first], len(first)
    async for piece in response.content.iter_chunked(_READ_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_BODY_BYTES:
            raise ProviderError(f"the answer is over {MAX_BODY_BYTES} bytes", kind="invalid")
    return b"".join(pieces)


class SseEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event; `event` is empty when the server named none."""

    data: str
    event: str = ""


class SseParser:
    """Cuts a byte stream into events. Takes LF, CR and CRLF, and data without a space."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []
        self._event = b""
        self._line_size = 0
        self._data_size = 0
        self._ends_with_cr = False
        self._is_first_line = True

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take bytes and return the events that are whole now.

        Raises:
            ProviderError: an event is over MAX_EVENT_BYTES.
        """
        if self._ends_with_cr and data.startswith(b"\n"):
            data = data[1:]
            self._ends_with_cr = False
        if not data:
            return []
        self._ends_with_cr = data.endswith(b"\r")
        *lines, rest = _LINE_END.split(data)
        events: list[SseEvent] = []
        for line in lines:
            self._line.append(line)
            self._take_line(b"".join(self._line), events)
            self._line.clear()
            self._line_size = 0
        self._line.append(rest)
        self._line_size += len(rest)
        self._check_size()
        return events

    def finish(self) -> list[SseEvent]:
        """Take the end of the stream; an event without its blank line counts."""
        events: list[SseEvent] = []
        self._take_line(b"".join(self._line), events)
        self._take_line(b"", events)
        return events

    def _take_line(self, line: bytes, events: list[SseEvent]) -> None:
        if self._is_first_line:
            line = line.removeprefix(_BOM)
            self._is_first_line = False
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value) + _LINE_COST
            self._check_size()
        elif name == b"event":
            self._event = value

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            events.append(SseEvent(data=data, event=self._event.decode("utf-8", "replace")))
        self._data = []
        self._data_size = 0
        self._event = b""

    def _check_size(self) -> None:
        if self._line_size + self._data_size > MAX_EVENT_BYTES:
            raise ProviderError(
                f"the server sent an event of more than {MAX_EVENT_BYTES} bytes", kind="invalid"
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
