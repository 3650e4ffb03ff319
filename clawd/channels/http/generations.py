"""Runs requests to models: those with tools of the client's own are forwarded, one pass."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

from clawd.channels.http.exchange import Caller, GatewayEvent, Generation, ModelRequest
from clawd.errors import ModelNotFoundError, NotFoundError
from clawd.providers.base import ChatRequest, Provider
from clawd.runtime.settings import RuntimeSettings


class Forwarded:
    """One pass to a provider."""

    def __init__(self, provider: Provider, request: ChatRequest, *, model: str) -> None:
        self.model = model
        self.conversation_id = ""
        self._events = self._run(provider, request)

    def __aiter__(self) -> AsyncIterator[GatewayEvent]:
        """Return the events."""
        return self._events

    async def aclose(self) -> None:
        """Stop the work."""
        await self._events.aclose()

    @staticmethod
    async def _run(provider: Provider, request: ChatRequest) -> AsyncGenerator[GatewayEvent, None]:
        deltas = provider.chat(request)
        try:
            async for delta in deltas:
                yield delta
        finally:
            close = getattr(deltas, "aclose", None)
            if close is not None:
                await close()


class ModelGenerations:
    """Runs requests with the providers of the daemon."""

    def __init__(
        self,
        providers: Callable[[], Mapping[str, Provider]],
        settings: Callable[[], RuntimeSettings],
    ) -> None:
        self._providers = providers
        self._settings = settings

    async def open(self, request: ModelRequest, caller: Caller) -> Generation:  # noqa: ARG002
        """Begin a request."""
        provider, model = self._chosen(request.model)
        chat = ChatRequest(
            messages=request.messages,
            system=request.system or "",
            tools=request.tools,
            model=model,
            sampling=request.sampling,
            tool_choice=request.tool_choice,
            response_format=request.response_format,
        )
        return Forwarded(provider, chat, model=request.model or model or provider.name())

    async def count(self, request: ModelRequest, caller: Caller) -> int:  # noqa: ARG002
        """Return the tokens of the prompt."""
        raise NotFoundError("counting comes with the next step")

    def _chosen(self, name: str) -> tuple[Provider, str]:
        settings, providers = self._settings(), self._providers()
        if name in providers:
            return providers[name], ""
        default = providers[settings.default_provider]
        if not name or name == settings.default_model:
            return default, settings.default_model
        raise ModelNotFoundError(f"there is no model {name!r}")
