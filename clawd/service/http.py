"""The HTTP gateway of a daemon: its parts, and its routes."""

from collections.abc import Callable
from typing import Any

from aiohttp import web

from clawd import __version__
from clawd.channels.http import embeddings, root, server_info, tokens
from clawd.channels.http.anthropic import routes as anthropic_routes
from clawd.channels.http.app import Gateway, Invoke
from clawd.channels.http.catalogue import Catalogue
from clawd.channels.http.generations import ModelGenerations
from clawd.channels.http.ollama import models as ollama_models
from clawd.channels.http.ollama import routes as ollama_routes
from clawd.channels.http.openai import chat, completions, models, responses
from clawd.errors import ForbiddenError
from clawd.runtime.continuity import Continuity
from clawd.security.principal import Principal
from clawd.service.build import Daemon
from clawd.wire.events import Event
from clawd.wire.method import Method, method_name


class DirectCall:
    """A request that came through another door than the control socket, as its handler sees it."""

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        self.ends = True
        self.on_answer: Any = None

    async def emit(self, event: Event) -> None:
        """Take an event; whoever calls a method this way wants its result alone."""


def gateway_of(daemon: Daemon) -> Gateway:
    """Return what the handlers of a daemon's gateway work with."""
    parts = daemon.handlers.parts
    generations = ModelGenerations(
        Catalogue(
            providers=parts.providers,
            settings=lambda: daemon.state.runtime,
            lines=parts.provider_lines,
            models=parts.models,
        ),
        parts.inbox,
        Continuity(parts.memory, parts.inbox.book, lambda: daemon.state.runtime),
        lambda: daemon.state.runtime,
    )
    daemon.estop.add_listener(_stopping(generations))
    return Gateway(
        generations=generations,
        invoke=invoke_of(daemon),
        calls=parts.calls,
        inbox=parts.inbox,
        providers=parts.providers,
        settings=lambda: daemon.state.runtime,
        engine=daemon.engine,
        models=parts.models,
        provider_lines=parts.provider_lines,
        version=__version__,
    )


def _stopping(generations: ModelGenerations) -> Callable[[bool], None]:
    def changed(is_set: bool) -> None:  # noqa: FBT001 - the listener's signature
        if is_set:
            generations.stop()

    return changed


def invoke_of(daemon: Daemon) -> Invoke:
    """Return what runs a method of the control socket for a principal."""

    async def invoke(params: Method[Any], principal: Principal) -> Any:
        name = method_name(type(params))
        if type(params).admin and not principal.is_admin:
            raise ForbiddenError(f"{name} needs an admin")
        return await getattr(daemon.handlers, name)(params, DirectCall(principal))

    return invoke


def routes_of() -> list[web.RouteDef]:
    """Return the routes of every dialect."""
    return [
        *root.ROUTES,
        *chat.ROUTES,
        *completions.ROUTES,
        *responses.ROUTES,
        *models.ROUTES,
        *embeddings.ROUTES,
        *tokens.ROUTES,
        *server_info.ROUTES,
        *anthropic_routes.ROUTES,
        *ollama_routes.ROUTES,
        *ollama_models.ROUTES,
    ]
