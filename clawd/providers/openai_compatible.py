"""The `openai-compatible` provider: any server that speaks /chat/completions, streaming or not."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec

from clawd.errors import ConfigError, InvalidRequestError, ProviderError
from clawd.providers.base import Capabilities, ChatRequest, Delta, Failed
from clawd.providers.openai_answer import OpenAIAnswer
from clawd.providers.openai_request import build_body
from clawd.providers.retry import (
    FirstByteTimeoutError,
    RetrySettings,
    parse_retry_after,
    retrying,
)
from clawd.providers.sse import SseParser

MAX_BODY_BYTES = 64 * 1024 * 1024
_ERROR_BYTES = 64 * 1024
_ERROR_CHARS = 400
_READ_BYTES = 64 * 1024
# What may follow the last content chunk (usage, [DONE]) is not waited for longer.
_TAIL_S = 5.0
_OK = 200
_AUTH_STATUSES = frozenset({401, 403})


class OpenAISettings(msgspec.Struct, frozen=True, kw_only=True):
    """One server. The key is not in here, so that it is in no dump of the settings.

    Attributes:
        base_url: up to and without `/chat/completions`, usually ending with `/v1`.
        use_tool_role: False turns tool turns into text of the next user turn.
        tools: False for a model that can call none: none are offered to it.
        first_byte_timeout_s: from the request to the first byte of a stream's body.
        read_timeout_s: between bytes; without streaming also to the first byte.
    """

    name: str
    base_url: str
    model: str
    stream: bool = True
    use_tool_role: bool = True
    tools: bool = True
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    context_size: int = 0
    connect_timeout_s: float = 10.0
    first_byte_timeout_s: float = 120.0
    read_timeout_s: float = 1800.0
    retry: RetrySettings = RetrySettings()


class _Connections:
    """The HTTP session, made on first use within the running loop."""

    def __init__(self, api_key: str, connect_timeout_s: float) -> None:
        self._headers = {"User-Agent": "clawd", "Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout = aiohttp.ClientTimeout(total=None, connect=connect_timeout_s)
        self._session: aiohttp.ClientSession | None = None

    def session(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                headers=self._headers,
                timeout=self._timeout,
                trust_env=False,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class OpenAICompatibleProvider:
    """Answers with a server that speaks OpenAI's chat completions."""

    def __init__(self, settings: OpenAISettings, *, api_key: str = "") -> None:
        if "@" in urlsplit(settings.base_url).netloc:
            raise ConfigError(
                f"base_url of provider {settings.name} holds a user name or password",
                hint="Name the environment variable of the key in api_key_env instead.",
            )
        if not (api_key.isascii() and api_key.isprintable()):
            raise ConfigError(
                f"the API key of provider {settings.name} holds characters that no HTTP header "
                "may hold",
                hint="Look for a line break at its end.",
            )
        self._settings = settings
        self._key = api_key
        self._url = settings.base_url.rstrip("/")
        self._connections = _Connections(api_key, settings.connect_timeout_s)

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._settings.name

    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        settings = self._settings
        return Capabilities(
            streaming=settings.stream, tools=settings.tools, context_size=settings.context_size
        )

    def without_retries(self) -> "OpenAICompatibleProvider":
        """Return one that shares the connections and never tries again; for chains."""
        once = msgspec.structs.replace(self._settings, retry=RetrySettings(extra_attempts=0))
        other = OpenAICompatibleProvider(once, api_key=self._key)
        other._connections = self._connections
        return other

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request; tried again only before the first byte."""
        settings = self._settings
        model = request.model or settings.model
        answer = OpenAIAnswer(settings.name, model)
        try:
            body = build_body(
                request if settings.tools else msgspec.structs.replace(request, tools=()),
                model=model,
                stream=settings.stream,
                use_tool_role=settings.use_tool_role and settings.tools,
                max_tokens_field=settings.max_tokens_field,
            )
        except InvalidRequestError as error:
            yield Failed(error=error)
            return
        try:
            response, first = await retrying(settings.retry, lambda: self._open(body))
            try:
                async for delta in self._read(response, first, answer):
                    yield delta
            finally:
                response.close()
        except ProviderError as error:
            yield Failed(error=self._redacted(error), partial=answer.has_content)

    async def check(self) -> str:
        """Ask for the list of models.

        Raises:
            ProviderError: the server cannot be reached or refuses.
        """
        try:
            text = await self._get_models()
        except ProviderError as error:
            raise self._redacted(error) from error
        try:
            listed = msgspec.json.decode(text, type=_ModelList)
        except (msgspec.DecodeError, RecursionError):
            return f"{self._url} answered, without a list of models"
        ids = [model.id for model in listed.data]
        model = self._settings.model
        found = "is one of them" if model in ids else "is none of them"
        return f"{self._url} answered with {len(ids)} models; {model} {found}"

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def _get_models(self) -> bytes:
        limit_s = self._settings.first_byte_timeout_s
        with self._converted():
            async with (
                asyncio.timeout(limit_s),
                self._connections.session().get(
                    f"{self._url}/models", allow_redirects=False
                ) as response,
            ):
                await _refuse_status(response)
                return await _read_all(response, b"")

    async def _open(self, body: dict[str, Any]) -> tuple[aiohttp.ClientResponse, bytes]:
        """Send the request and wait for the first bytes of the answer."""
        settings = self._settings
        limit_s = settings.first_byte_timeout_s if settings.stream else settings.read_timeout_s
        response: aiohttp.ClientResponse | None = None
        is_open = False
        try:
            with self._converted(first_byte_limit_s=limit_s):
                async with asyncio.timeout(limit_s):
                    response = await self._connections.session().post(
                        f"{self._url}/chat/completions",
                        data=msgspec.json.encode(body),
                        headers={"Content-Type": "application/json"},
                        allow_redirects=False,
                    )
                    await _refuse_status(response)
                    first = await response.content.readany()
            if not first:
                raise ProviderError(
                    f"{self._url} ended the answer without a single byte", kind="network"
                )
            is_open = True
            return response, first
        except ProviderError as error:
            # Here and not later: the retries log what they were caused by.
            raise self._redacted(error) from error
        finally:
            if response is not None and not is_open:
                response.close()

    async def _read(
        self, response: aiohttp.ClientResponse, first: bytes, answer: OpenAIAnswer
    ) -> AsyncGenerator[Delta, None]:
        with self._converted():
            while first.isspace():
                first = await self._more(response, self._settings.read_timeout_s)
            # By its look and not by its type: servers mislabel both.
            if first.lstrip().startswith(b"{"):
                async with asyncio.timeout(self._settings.read_timeout_s):
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
        self, response: aiohttp.ClientResponse, data: bytes, answer: OpenAIAnswer
    ) -> AsyncGenerator[Delta, None]:
        parser = SseParser()
        while data:
            for event in parser.feed(data):
                for delta in answer.take(event.data):
                    yield delta
                if answer.is_done:
                    return
            limit_s = _TAIL_S if answer.has_reason else self._settings.read_timeout_s
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
            limit_s = self._settings.connect_timeout_s
            raise ProviderError(
                f"{where} took no connection within {limit_s:g} s", kind="timeout"
            ) from error
        except TimeoutError as error:
            if first_byte_limit_s:
                raise FirstByteTimeoutError(
                    f"{where} sent nothing within {first_byte_limit_s:g} s",
                    hint="Raise first_byte_timeout_s of this provider if it is only slow.",
                ) from error
            limit_s = self._settings.read_timeout_s
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
        if not self._key or self._key not in error.message:
            return error
        return ProviderError(
            error.message.replace(self._key, "[redacted]"),
            kind=error.kind,
            status=error.status,
            retry_after_s=error.retry_after_s,
            hint=error.hint,
        )


class _Model(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class _ModelList(msgspec.Struct, frozen=True, kw_only=True):
    data: list[_Model]


async def _refuse_status(response: aiohttp.ClientResponse) -> None:
    """Raise for every status but 200, with the beginning of the body."""
    if response.status == _OK:
        return
    body = await response.content.read(_ERROR_BYTES)
    text = body.decode("utf-8", "replace")[:_ERROR_CHARS]
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
