"""The `anthropic` provider: any server that speaks Anthropic's /v1/messages, streaming or not."""

import json
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from clawd.errors import InvalidRequestError, ProviderError
from clawd.providers.anthropic_answer import AnthropicAnswer, refusal_in
from clawd.providers.anthropic_request import Block, Dialect, build_body
from clawd.providers.base import Capabilities, ChatRequest, Delta, Failed, Message
from clawd.providers.context_error import with_counts
from clawd.providers.http_server import (
    Connections,
    HttpServer,
    HttpSettings,
    check_address,
    check_key,
)
from clawd.providers.retry import RetrySettings

ADDRESS = "https://api.anthropic.com"
VERSION = "2023-06-01"
MAX_PAUSES = 4
MAX_KEPT_ANSWERS = 256
MAX_KEPT_BYTES = 8 * 1024 * 1024


class AnthropicSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One server. The key is not in here, so that it is in no dump of the settings.

    Attributes:
        base_url: with or without `/v1` at its end; empty is Anthropic's own.
        tools: False for a model that can call none: none are offered to it.
        first_byte_timeout_s: from the request to the first byte of a stream's body.
        read_timeout_s: between bytes; without streaming also to the first byte.
    """

    name: str
    model: str
    base_url: str = ""
    dialect: Dialect = Dialect()
    tools: bool = True
    connect_timeout_s: float = 10.0
    first_byte_timeout_s: float = 120.0
    read_timeout_s: float = 1800.0
    retry: RetrySettings = RetrySettings()


class KeptAnswers:
    """The blocks of answers that thought before they called tools, by the id of the first call.

    The API wants thoughts back, signed as they were, with the results of the calls they led to.
    They stay in this process and go back to the model that thought them; the oldest are dropped.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[str, list[Block], int]] = OrderedDict()
        self._bytes = 0

    def keep(self, model: str, blocks: list[Block]) -> None:
        """Remember an answer, if it has thoughts and calls."""
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if not calls or not any("thinking" in block["type"] for block in blocks):
            return
        size = len(json.dumps(blocks))  # takes half of a surrogate pair, too
        self._drop(calls[0])
        self._answers[calls[0]] = (model, blocks, size)
        self._bytes += size
        while self._bytes > MAX_KEPT_BYTES or len(self._answers) > MAX_KEPT_ANSWERS:
            self._drop(next(iter(self._answers)))

    def blocks(self, model: str, message: Message) -> list[Block] | None:
        """Return the blocks of a message that the model said just so."""
        ids = [call.id for call in message.tool_calls]
        known, blocks, _ = self._answers.get(ids[0], ("", [], 0)) if ids else ("", [], 0)
        if known != model:
            return None
        said = "".join(block["text"] for block in blocks if block["type"] == "text")
        same_calls = ids == [block["id"] for block in blocks if block["type"] == "tool_use"]
        is_same = same_calls and said.strip() == (message.content or "").strip()
        return blocks if is_same else None

    def _drop(self, call_id: str) -> None:
        _, _, size = self._answers.pop(call_id, ("", [], 0))
        self._bytes -= size


class AnthropicProvider:
    """Answers with a server that speaks Anthropic's messages."""

    def __init__(self, settings: AnthropicSettings, *, api_key: str = "") -> None:
        check_address(settings.name, settings.base_url)
        check_key(settings.name, api_key)
        self._settings = settings
        self._key = api_key
        url = (settings.base_url or ADDRESS).rstrip("/")
        self._url = url if url.endswith("/v1") else f"{url}/v1"
        headers = {"anthropic-version": VERSION}
        if api_key:
            headers["x-api-key"] = api_key
        self._connections = Connections(headers, settings.connect_timeout_s)
        self._server = self._server_of(self._connections)
        self._kept = KeptAnswers()

    def name(self) -> str:
        """Return the name under which the config knows it."""
        return self._settings.name

    def capabilities(self) -> Capabilities:
        """Return what it can do."""
        settings = self._settings
        return Capabilities(streaming=settings.dialect.stream, tools=settings.tools)

    def without_retries(self) -> "AnthropicProvider":
        """Return one that shares the connections and never tries again; for chains."""
        once = msgspec.structs.replace(self._settings, retry=RetrySettings(extra_attempts=0))
        other = AnthropicProvider(once, api_key=self._key)
        other._connections, other._kept = self._connections, self._kept
        other._server = other._server_of(self._connections)
        return other

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        """Answer one request; tried again only before the first byte."""
        model = request.model or self._settings.model
        answer = AnthropicAnswer(self._settings.name, model)
        try:
            body = self._body(request, model)
            asked = body["messages"]
            for _attempt in range(MAX_PAUSES + 1):
                async with aclosing(self._server.chat("/messages", body, answer)) as deltas:
                    async for delta in deltas:
                        yield delta
                if not answer.is_paused:
                    break
                paused = {"role": "assistant", "content": answer.blocks()}
                body = body | {"messages": [*asked, paused]}
                answer.go_on()
            else:
                yield answer.ending()
        except (ProviderError, InvalidRequestError) as error:
            yield Failed(error=with_counts(error), partial=answer.has_content)
            return
        finally:
            if answer.has_reason:
                self._kept.keep(model, answer.blocks())

    async def check(self) -> str:
        """Ask for the list of models.

        Raises:
            ProviderError: the server cannot be reached or refuses.
        """
        return await self._server.listed("/models?limit=1000", model=self._settings.model)

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    def _body(self, request: ChatRequest, model: str) -> dict[str, Any]:
        if not self._settings.tools:
            request = msgspec.structs.replace(request, tools=(), tool_choice="auto")
        return build_body(
            request,
            model=model,
            dialect=self._settings.dialect,
            kept=lambda message: self._kept.blocks(model, message),
        )

    def _server_of(self, connections: Connections) -> HttpServer:
        settings = self._settings
        http = HttpSettings(
            name=settings.name,
            url=self._url,
            streams=settings.dialect.stream,
            connect_timeout_s=settings.connect_timeout_s,
            first_byte_timeout_s=settings.first_byte_timeout_s,
            read_timeout_s=settings.read_timeout_s,
            retry=settings.retry,
        )
        return HttpServer(http, connections, self._key, refusal=refusal_in)
