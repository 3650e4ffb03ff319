"""The `openai-compatible` provider: any server that speaks /chat/completions, streaming or not."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec

from clawd.errors import InvalidRequestError, ProviderError
from clawd.providers.abilities import Vectors
from clawd.providers.base import Capabilities, ChatRequest, Delta, Failed, RawPrompt
from clawd.providers.context_error import with_counts
from clawd.providers.http_server import (
    Connections,
    HttpServer,
    HttpSettings,
    check_address,
    check_key,
)
from clawd.providers.openai_answer import OpenAIAnswer
from clawd.providers.openai_embeddings import embedding_body, vectors_of
from clawd.providers.openai_request import build_body
from clawd.providers.retry import RetrySettings


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


class OpenAICompatibleProvider:
    """Answers with a server that speaks OpenAI's chat completions."""

    def __init__(self, settings: OpenAISettings, *, api_key: str = "") -> None:
        check_address(settings.name, settings.base_url)
        check_key(settings.name, api_key)
        self._settings = settings
        self._key = api_key
        self._url = settings.base_url.rstrip("/")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._connections = Connections(headers, settings.connect_timeout_s)
        self._server = self._server_of(self._connections)

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
        other._server = other._server_of(self._connections)
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
            path = "/chat/completions" if request.prompt is None else "/completions"
            async with aclosing(self._server.chat(path, body, answer)) as deltas:
                async for delta in deltas:
                    yield delta
        except ProviderError as error:
            yield Failed(error=with_counts(error), partial=answer.has_content)

    async def embed(self, model: str, inputs: Sequence[RawPrompt]) -> Vectors:
        """Return a vector of each input, in their order.

        Raises:
            ProviderError: the server cannot be reached, refuses, or answers something else.
            ContextFullError: an input is too long.
        """
        name = model or self._settings.model
        if not inputs:
            return Vectors(vectors=(), tokens=0, model=name)
        try:
            data = await self._server.post("/embeddings", embedding_body(name, inputs))
        except ProviderError as error:
            raise with_counts(error) from error
        return vectors_of(data, len(inputs), name)

    async def check(self) -> str:
        """Ask for the list of models.

        Raises:
            ProviderError: the server cannot be reached or refuses.
        """
        return await self._server.listed("/models", model=self._settings.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def _server_of(self, connections: Connections) -> HttpServer:
        settings = self._settings
        http = HttpSettings(
            name=settings.name,
            url=self._url,
            streams=settings.stream,
            connect_timeout_s=settings.connect_timeout_s,
            first_byte_timeout_s=settings.first_byte_timeout_s,
            read_timeout_s=settings.read_timeout_s,
            retry=settings.retry,
        )
        return HttpServer(http, connections, self._key)
