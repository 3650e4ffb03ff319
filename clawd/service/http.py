"""The HTTP gateway of a daemon: its parts, its routes and its server."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from aiohttp import web

from clawd import __version__
from clawd.channels.http import anthropic as anthropic_routes
from clawd.channels.http import embeddings, gateway, llama_server, mcp, metrics, page
from clawd.channels.http.app import (
    Gateway,
    GatewayHealth,
    Invoke,
    McpServed,
    Stream,
    Take,
    make_app,
)
from clawd.channels.http.auth import Doorman, vouching
from clawd.channels.http.catalogue import ROUTES as MODEL_ROUTES
from clawd.channels.http.catalogue import ModelCatalogue
from clawd.channels.http.errors import nothing_starts
from clawd.channels.http.generations import ModelGenerations
from clawd.channels.http.guard import DoorRules, Rates, Traffic, guarding, rating, reading
from clawd.channels.http.model_api import Caller
from clawd.channels.http.ollama import chat as ollama_routes
from clawd.channels.http.ollama import models as ollama_models
from clawd.channels.http.openai import chat, completions, responses
from clawd.channels.http.pictures import Fetch, SeeingGenerations
from clawd.channels.http.server import (
    Server,
    addresses_of,
    bind,
    check_exposure,
    is_loopback,
    tls_of,
)
from clawd.channels.rpc.connection import Call
from clawd.config.sections import HttpSection
from clawd.engine.models import AUTO
from clawd.engine.slot import ModelStatus
from clawd.errors import ClawError, ForbiddenError
from clawd.mcp.mount import DOOR, Mount, ToolDoor
from clawd.runtime.calls import ClientKind
from clawd.runtime.conversation_matching import Continuity
from clawd.runtime.incoming import Door
from clawd.security.peer import PeerPolicy
from clawd.security.principal import Principal, Role
from clawd.service.build import Daemon
from clawd.service.handlers.table import HANDLERS
from clawd.tools.registry import Registry
from clawd.wire.daemon import CreateKey, RevokeKey
from clawd.wire.events import Event
from clawd.wire.method import Method, method_name
from clawd.wire.policy import AddRule, AllowHost, AnswerApproval, RevokeRule

# Whether a daemon can answer requests, as the HTTP gateway tells it.

_LOADING = "Loading model"
_STOPPED = "the emergency stop is set: no request to a model is begun"


def health_of(daemon: Daemon) -> Callable[[], Awaitable[GatewayHealth]]:
    """Return what tells the health of a daemon."""

    async def health() -> GatewayHealth:
        models = daemon.engine.status()
        path, model = await asyncio.to_thread(_default, daemon)
        known = next((each for each in models if path and each.path == path), None)
        is_loading = known is not None and known.state == "loading"
        running, room = _slots(models)
        stopped = _STOPPED if daemon.estop.is_set() else ""
        problem = daemon.problem or stopped or (_LOADING if is_loading else "")
        return GatewayHealth(
            problem=problem,
            model=model,
            model_loaded=not path or (known is not None and known.state == "ready"),
            slots_processing=min(running, room),
            slots_idle=max(room - running, 0),
        )

    return health


def _default(daemon: Daemon) -> tuple[str, str]:
    """Return the file of the default model (empty for a remote one) and its name."""
    loaded = daemon.state.loaded
    section = loaded.config.providers.models.get(loaded.config.default_provider)
    name = loaded.config.default_model or (section.model if section is not None else "")
    if section is None or section.kind != "local":
        return "", name
    try:
        found = daemon.models.find(name or AUTO)
    except ClawError:
        return "", name
    return found.config.path, found.config.alias


def _slots(models: list[ModelStatus]) -> tuple[int, int]:
    """Return how many generations of local models there are, and how many could run."""
    return (
        sum(each.running for each in models),
        sum(each.info.n_parallel for each in models if each.info is not None),
    )


# The MCP server of a daemon's gateway: what it is made of, when its first client comes.

_MAX_DOORS = 4_096


def _mcp_served(daemon: Daemon) -> McpServed | None:
    """Return what serves MCP clients over HTTP; None where the config wants none."""
    if not daemon.loaded.config.channels.http.mcp:
        return None
    return McpServed(mount=_mount(daemon.registry), door_of=_doors(daemon))


def _mount(registry: Registry) -> Mount:

    def make() -> Any:
        from clawd.mcp.server import make_server

        def door_of(ctx: Any) -> ToolDoor:
            found: ToolDoor = ctx.request.scope["state"][DOOR]
            return found

        return make_server(door_of, version=__version__, on_change=registry.on_change)

    return Mount(make)


def _doors(daemon: Daemon) -> Callable[[Caller], ToolDoor]:
    """Return what finds the tools of a caller; the calls of a key belong to one conversation."""
    clients = daemon.tool_clients
    kind = ClientKind(
        label="MCP client over HTTP", patterns=lambda: daemon.state.runtime.tools_allow("http")
    )
    doors: dict[tuple[int, str, Role], ToolDoor] = {}

    def door_of(caller: Caller) -> ToolDoor:
        # By the role of now: who is an admin no more, or whose key is not, sees his own only.
        at = (caller.principal.uid, caller.key_id, caller.principal.role)
        found = doors.pop(at, None)
        if found is None:
            found = clients.door(caller.principal, kind, lasting=f"mcp:{caller.key_id}")
        doors[at] = found  # put back last: the first is the one that was idle longest
        if len(doors) > _MAX_DOORS:
            doors.pop(next(iter(doors)))
        return found

    return door_of


# What lets a call through, or a program in: over the socket a person is at the other end, over
# HTTP it may be a program that a tool has started.
_ADMIN_HERE = (AddRule, AllowHost, AnswerApproval, RevokeRule, CreateKey, RevokeKey)

_log = logging.getLogger(__name__)


class _DirectCall:
    """A request that came through another door than the control socket, as its handler sees it."""

    def __init__(self, principal: Principal, take: Take | None = None) -> None:
        self.principal = principal
        self.door: Door = "http"
        self.client = "http"
        self.ends = True
        self.on_answer: Any = None
        self.shows_events = take is not None
        self._take = take

    attending = Call.attending

    async def emit(self, event: Event) -> None:
        """Give an event to a client that asked for events; others want the result alone."""
        if self._take is not None:
            await self._take(event)


async def start_gateway(
    daemon: Daemon,
    policy: PeerPolicy,
    routes: list[web.RouteDef] | None = None,
    *,
    passed: Sequence[socket.socket] = (),
) -> Server:
    """Start the gateway of a daemon, with other routes if given; return it, listening.

    `passed` are listening sockets from outside; with them `host` and `port` bind nothing.

    Raises:
        ClawError: it may not, or cannot, listen where the config says; says what to do.
    """
    http = daemon.loaded.config.channels.http
    given = tuple(str(each.getsockname()[0]) for each in passed)
    addresses = given or await addresses_of(http.host)
    check_exposure(http, addresses, keys=daemon.keys.in_force)
    tls = await asyncio.to_thread(tls_of, http)
    traffic = Traffic()
    doorman = Doorman(
        daemon.keys,
        policy,
        is_local=is_loopback(addresses),
        keyless=http.keyless,
        schedules=daemon.memory.schedules,
    )
    app = make_app(
        gateway_of(daemon),
        routes_of() if routes is None else routes,
        [
            guarding(_door_rules(http)),
            vouching(doorman),
            rating(Rates(http.requests_per_minute, time.monotonic)),
            reading(http.max_body_bytes, http.body_timeout_s),
        ],
        outermost=[traffic.observing()],
        max_body_bytes=http.max_body_bytes,
        is_scoped=routes is None,
    )
    server = Server(app, traffic, http)
    await server.start(list(passed) or bind(addresses, http.port), tls)
    daemon.gateway_address = ", ".join(server.addresses)
    daemon.needs_no_key = lambda: doorman.is_open
    if not is_loopback(addresses) and tls is None:
        _log.warning("the HTTP gateway can be reached by other machines without TLS")
    _log.info("channel started", extra={"channel": "http", "address": daemon.gateway_address})
    return server


def _door_rules(http: HttpSection) -> DoorRules:
    return DoorRules(
        hosts=frozenset({*http.allowed_hosts, http.host} - {"0.0.0.0", "::"}),  # noqa: S104
        origins=frozenset(http.cors_origins),
        is_tls=bool(http.tls_cert),
    )


def gateway_of(daemon: Daemon) -> Gateway:
    """Return what the handlers of a daemon's gateway work with."""
    catalogue = ModelCatalogue(
        providers=lambda: daemon.state.providers,
        settings=lambda: daemon.state.runtime,
        lines=lambda: daemon.state.provider_lines(),
        models=lambda: daemon.models.listed(),
    )
    generations = ModelGenerations(
        catalogue,
        daemon.inbox,
        Continuity(daemon.memory, daemon.inbox.book, lambda: daemon.state.runtime),
        lambda: daemon.state.runtime,
        daemon.activity.models,
        is_stopped=daemon.estop.is_set,
    )
    daemon.estop.add_listener(_stopping(generations))
    return Gateway(
        generations=SeeingGenerations(
            generations,
            catalogue,
            daemon.pictures,
            _fetching(daemon),
        ),
        invoke=invoke_of(daemon),
        stream=_stream_of(daemon),
        health=health_of(daemon),
        calls=daemon.calls,
        inbox=daemon.inbox,
        questions=daemon.person.questions,
        providers=lambda: daemon.state.providers,
        settings=lambda: daemon.state.runtime,
        engine=daemon.engine,
        models=lambda: daemon.models.listed(),
        provider_lines=lambda: daemon.state.provider_lines(),
        ping_s=lambda: daemon.loaded.config.channels.http.ping_interval_s,
        is_stopped=daemon.estop.is_set,
        mcp=_mcp_served(daemon),
        has_page=daemon.loaded.config.channels.http.page,
        page_icon=daemon.loaded.config.channels.http.page_icon,
        version=__version__,
    )


def _fetching(daemon: Daemon) -> Fetch:
    async def fetch(url: str) -> bytes:
        if daemon.estop.is_set():
            raise nothing_starts()
        state = daemon.state
        return await daemon.toolset.picture_at(url, state.loaded, state.policy)

    return fetch


def _stopping(generations: ModelGenerations) -> Callable[[bool], None]:
    def changed(is_set: bool) -> None:  # noqa: FBT001 - the listener's signature
        if is_set:
            generations.stop()

    return changed


def invoke_of(daemon: Daemon) -> Invoke:
    """Return what runs a method of the control socket for a principal."""
    stream = _stream_of(daemon)

    async def invoke(params: Method[Any], principal: Principal) -> Any:
        return await stream(params, principal, None)

    return invoke


def _stream_of(daemon: Daemon) -> Stream:
    """Return what runs a method of the control socket and gives its events to a function."""

    async def stream(params: Method[Any], principal: Principal, take: Take | None) -> Any:
        name = method_name(type(params))
        if (type(params).admin or isinstance(params, _ADMIN_HERE)) and not principal.is_admin:
            raise ForbiddenError(
                f"{name} needs an admin, and over HTTP a key with scope admin",
                hint="Use clawctl, or make a key: clawctl key create --scope chat,tools,admin",
            )
        call = cast("Call", _DirectCall(principal, take))
        return await HANDLERS[name](daemon, params, call)

    return stream


def routes_of() -> list[web.RouteDef]:
    """Return the routes of every dialect."""
    return [
        *chat.ROUTES,
        *completions.ROUTES,
        *responses.ROUTES,
        *MODEL_ROUTES,
        *embeddings.ROUTES,
        *llama_server.ROUTES,
        *anthropic_routes.ROUTES,
        *ollama_routes.ROUTES,
        *ollama_models.ROUTES,
        *mcp.ROUTES,
        *gateway.ROUTES,
        *page.ROUTES,
        *page.ACT_ROUTES,
        *metrics.ROUTES,
    ]
