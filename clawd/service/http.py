"""The HTTP gateway of a daemon: its parts, and its routes."""

from typing import Any

from aiohttp import web

from clawd import __version__
from clawd.channels.http import gateway, gateway_acts, health, metrics
from clawd.channels.http.app import Gateway, Invoke, Stream, Take
from clawd.channels.http.counted import CountedGenerations
from clawd.channels.http.generations import ModelGenerations
from clawd.errors import ForbiddenError
from clawd.security.principal import Principal
from clawd.service.build import Daemon
from clawd.service.health import health_of
from clawd.wire.events import Event
from clawd.wire.method import Method, method_name


class DirectCall:
    """A request that came through another door than the control socket, as its handler sees it."""

    def __init__(self, principal: Principal, take: Take | None = None) -> None:
        self.principal = principal
        self.ends = True
        self.on_answer: Any = None
        self._take = take

    async def emit(self, event: Event) -> None:
        """Give an event to whoever asked for events; without, only the result is wanted."""
        if self._take is not None:
            await self._take(event)


def gateway_of(daemon: Daemon) -> Gateway:
    """Return what the handlers of a daemon's gateway work with."""
    parts = daemon.handlers.parts
    generations = ModelGenerations(parts.providers, lambda: daemon.state.runtime)
    return Gateway(
        generations=CountedGenerations(generations, daemon.activity.models),
        invoke=invoke_of(daemon),
        stream=stream_of(daemon),
        health=health_of(daemon),
        calls=parts.calls,
        inbox=parts.inbox,
        questions=parts.questions,
        providers=parts.providers,
        settings=lambda: daemon.state.runtime,
        engine=daemon.engine,
        models=parts.models,
        version=__version__,
    )


def invoke_of(daemon: Daemon) -> Invoke:
    """Return what runs a method of the control socket for a principal."""
    stream = stream_of(daemon)

    async def invoke(params: Method[Any], principal: Principal) -> Any:
        return await stream(params, principal, None)

    return invoke


def stream_of(daemon: Daemon) -> Stream:
    """Return what runs a method of the control socket and gives its events to a function."""

    async def stream(params: Method[Any], principal: Principal, take: Take | None) -> Any:
        name = method_name(type(params))
        if type(params).admin and not principal.is_admin:
            raise ForbiddenError(f"{name} needs an admin")
        return await getattr(daemon.handlers, name)(params, DirectCall(principal, take))

    return stream


def routes_of() -> list[web.RouteDef]:
    """Return the routes of every dialect."""
    return [*gateway.ROUTES, *gateway_acts.ROUTES, *health.ROUTES, *metrics.ROUTES]
