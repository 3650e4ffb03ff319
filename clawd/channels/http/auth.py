"""Whom a request acts as: by its key, or by the process that sent it.

Until the first key is made, programs of the owner on this machine need none; whatever they send as
one is ignored, because clients always send something. From then on it takes a valid key, also when
the last one is revoked: who took it back did not mean to let everybody in.
"""

import asyncio
import logging
import time
from typing import Any, Literal

import msgspec
from aiohttp import web

from clawd.channels.http import app
from clawd.channels.http.guard import Rates, TimedProtocol, connection_of
from clawd.channels.http.model_api import Caller
from clawd.errors import ForbiddenError, RateLimitError, StorageError, UnauthenticatedError
from clawd.memory.schedules import Schedules
from clawd.security.keys import KEY_START, ApiKey, KeyBook, hook_digest
from clawd.security.peer import Address, PeerPolicy, identify_all, principal_of, uid_of
from clawd.security.principal import Principal

Keyless = Literal["auto", "on", "off"]

PUBLIC = frozenset({"/", "/health", "/v1/health"})
KEYLESS_SCOPES = frozenset({"chat", "tools"})
PAGE_SCOPES = KEYLESS_SCOPES | {"admin"}
LOGIN_SCOPES = frozenset({"login"})
HOOK_SCOPES = frozenset({"hook"})
HOOKS_PER_MINUTE = 30
PAGE_HEADER = "X-Clawd-Page"
PRINCIPAL_S = 30.0

_log = logging.getLogger(__name__)


class Doorman:
    """Finds out whom requests act as.

    Args:
        keys: those there are.
        policy: who may talk to the daemon at all.
        is_local: whether nobody but this machine can reach us; else everybody needs a key.
        keyless: what the config says of programs of the owner without a key: `auto` lets them in
            until the first key is made. Never in the system mode.
        schedules: those that a hook may begin; None where there are none.
    """

    def __init__(
        self,
        keys: KeyBook,
        policy: PeerPolicy,
        *,
        is_local: bool,
        keyless: Keyless = "auto",
        schedules: Schedules | None = None,
    ) -> None:
        self._schedules = schedules
        self._hook_rates = Rates(HOOKS_PER_MINUTE, time.monotonic)
        self._keys = keys
        self._policy = policy
        self._keyless: Keyless = keyless if is_local and policy.mode == "user" else "off"
        self._principals: dict[int, tuple[float, Principal]] = {}
        self._walking = asyncio.Lock()
        self._wanted: dict[TimedProtocol, tuple[Address, Address]] = {}
        self._running: dict[str, set[asyncio.Timeout]] = {}
        keys.add_listener(self._end_running)

    @property
    def is_open(self) -> bool:
        """Whether programs of the owner on this machine need no key."""
        return self._keyless == "on" or (self._keyless == "auto" and not self._keys.had_any)

    async def guest(self, request: web.Request) -> Caller:
        """Return whom a request to log in acts as, by its one-time link, which ends with this.

        Raises:
            UnauthenticatedError: it has no link, or one that is over or was used.
            ForbiddenError: the link is for browsers of another user, or of this machine alone.
        """
        if request.headers.get(PAGE_HEADER) != "1":  # what no form of another page can send
            raise ForbiddenError("only the page itself logs in")
        taken = (self._keys.links.take(text) for text in shown_keys(request))
        link = next((each for each in taken if each is not None), None)
        if link is None:
            raise UnauthenticatedError(
                "the link was used already, or is too old", hint="clawctl page makes another."
            )
        if link.is_here and await _uid_at(request) not in {0, link.principal.uid}:
            raise ForbiddenError("the link is for browsers of its owner on this machine")
        return Caller(principal=link.principal, scopes=LOGIN_SCOPES)

    async def hook(self, request: web.Request) -> Caller:
        """Return as whom a request begins a schedule, by the secret of its hook.

        Raises:
            UnauthenticatedError: there is no schedule of this secret; the answer is always the
                same.
            RateLimitError: it comes too often; wrong ones count together.
        """
        found = None
        for digest in filter(None, map(hook_digest, shown_keys(request))):
            if self._schedules is not None and found is None:
                found = await self._schedules.of_hook(digest)
        who = app.HOOK_KEY + (found.id if found is not None else "")
        if wait_s := self._hook_rates.take(who):
            raise RateLimitError("too many requests in a minute", retry_after_s=wait_s)
        if found is None:
            raise UnauthenticatedError("this is no secret of a hook")
        principal = Principal(uid=found.owner, gid=-1, pid=0, key_id=found.job.key_id)
        return Caller(principal=principal, scopes=HOOK_SCOPES, key_id=who)

    async def caller(self, request: web.Request) -> Caller:
        """Return whom a request acts as.

        Raises:
            UnauthenticatedError: it has no valid key, and needs one.
            ForbiddenError: the owner of its key may not talk to this daemon any more.
        """
        shown = shown_keys(request)
        for text in shown:
            key = self._keys.find(text)
            if key is not None:
                return await self._caller_by(key)
        is_ours = any(text.startswith(KEY_START) for text in shown)  # no key becomes none
        if not self.is_open or (self._keyless == "on" and is_ours):
            what = "the key is not known, revoked or expired" if shown else "there is no key"
            raise UnauthenticatedError(
                what, hint="Send one as Authorization: Bearer; clawctl key create makes one."
            )
        principal = await self._peer(request)
        if request.app[app.GATEWAY].has_page and is_own_page(request):
            whole = msgspec.structs.replace(principal, role="admin")
            return Caller(principal=whole, scopes=PAGE_SCOPES)
        return Caller(principal=principal, scopes=KEYLESS_SCOPES)

    async def while_in_force(
        self, request: web.Request, caller: Caller, handler: app.Handler
    ) -> web.StreamResponse:
        """Let a handler run as long as the key of its request is in force, and no longer.

        Raises:
            UnauthenticatedError: the key was revoked or expired meanwhile.
        """
        if not caller.key_id:
            return await handler(request)
        running = self._running.setdefault(caller.key_id, set())
        limit = asyncio.timeout(self._keys.left_s(caller.key_id))
        try:
            async with limit:
                running.add(limit)
                return await handler(request)
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            running.discard(limit)
            if not running:
                self._running.pop(caller.key_id, None)
        if request.get(app.IS_STREAM) and request.transport is not None:
            request.transport.abort()
            raise ConnectionAbortedError("the key of a stream is in force no longer")
        raise UnauthenticatedError("the key was revoked or expired while the request ran")

    def _end_running(self, key_id: str) -> None:
        for limit in self._running.get(key_id, ()):
            if not limit.expired():
                limit.reschedule(asyncio.get_running_loop().time())

    async def _caller_by(self, key: ApiKey) -> Caller:
        principal = await self._owner(key.owner)
        scopes = set(key.scopes)
        if not principal.is_admin:
            scopes.discard("admin")
        role = principal.role if "admin" in scopes else "user"
        try:
            await self._keys.note_use(key)
        except StorageError as error:
            _log.warning("when a key was used is not kept: %s", error.message)
        return Caller(
            principal=Principal(
                uid=principal.uid, gid=principal.gid, pid=0, role=role, key_id=key.id
            ),
            scopes=frozenset(scopes),
            key_id=key.id,
        )

    async def _owner(self, uid: int) -> Principal:
        """Return who the owner of a key is now; the machine's user database is asked at times."""
        now = time.monotonic()
        at, known = self._principals.get(uid, (0.0, None))
        if known is None or now - at > PRINCIPAL_S:
            known = await asyncio.to_thread(principal_of, uid, self._policy)
            self._principals[uid] = (now, known)
        return known

    async def _peer(self, request: web.Request) -> Principal:
        """Return the owner, if a program of his sent the request; found out once a connection.

        Raises:
            UnauthenticatedError: it is not so, or nobody can tell.
        """
        connection = connection_of(request)
        if connection is None:
            raise UnauthenticatedError("nobody can tell which connection this is")
        if connection.peer is None:
            await self._look_up(request, connection)
        if not isinstance(connection.peer, Principal):
            raise UnauthenticatedError(
                f"a key is needed: {connection.peer}", hint="clawctl key create makes one."
            )
        return connection.peer

    async def _look_up(self, request: web.Request, connection: TimedProtocol) -> None:
        """Find out who is at the other end, for all connections that wait for it in one walk."""
        peer, ours = _ends(request)
        if peer is None or ours is None:
            connection.peer = "nobody can tell where it comes from"
            return
        self._wanted[connection] = (peer, ours)
        async with self._walking:
            if connection.peer is not None:
                return
            batch, self._wanted = self._wanted, {}
            try:
                found = await asyncio.to_thread(identify_all, list(batch.values()), self._policy)
            except BaseException:
                self._wanted = batch | self._wanted  # for the next that waits
                raise
            for each, who in zip(batch, found, strict=True):
                each.peer = who if isinstance(who, Principal) else who.message
                if isinstance(who, ForbiddenError):
                    _log.info("a request without a key is refused: %s", who.message)


def shown_keys(request: web.Request) -> list[str]:
    """Return what a request shows as keys: a bearer, or an x-api-key. Never one of the address."""
    shown = []
    for value in request.headers.getall("Authorization", []):
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer" and key.strip():
            shown.append(key.strip())
    shown += [value.strip() for value in request.headers.getall("X-Api-Key", []) if value.strip()]
    return shown[:2]


def is_own_page(request: web.Request) -> bool:
    """Return whether a request comes from the gateway's own page, as a browser of the owner says.

    Pages of other sites cannot: a browser writes `Sec-Fetch-Site` itself. A program of the owner
    can write it too, and gains nothing: the control socket gives it the same.
    """
    headers = request.headers
    return headers.get("Sec-Fetch-Site") == "same-origin" and headers.get(PAGE_HEADER) == "1"


def vouching(doorman: Doorman) -> Any:
    """Return the middleware that says to handlers who asks; public paths ask nobody."""

    @web.middleware
    async def vouch(request: web.Request, handler: app.Handler) -> web.StreamResponse:
        if request.path == app.LOGIN_PATH and request.method == "POST":
            request[app.CALLER] = await doorman.guest(request)
            return await handler(request)
        if request.path == app.HOOK_PATH:
            request[app.CALLER] = await doorman.hook(request)
            return await handler(request)
        is_public = request.path in PUBLIC or request.path.startswith(app.PAGE_PATH)
        if not (is_public and request.method in {"GET", "HEAD"}):
            request[app.CALLER] = caller = await doorman.caller(request)
            return await doorman.while_in_force(request, caller, handler)
        return await handler(request)

    return vouch


async def _uid_at(request: web.Request) -> int | None:
    """Return the user of this machine who sent a request; None where nobody can tell."""
    peer, ours = _ends(request)
    return None if peer is None or ours is None else await asyncio.to_thread(uid_of, peer, ours)


def _ends(request: web.Request) -> tuple[Address | None, Address | None]:
    """Return the address that a request comes from, and the one that it came to."""
    transport = request.transport
    if transport is None:
        return None, None
    get = transport.get_extra_info
    return _address(get("peername")), _address(get("sockname"))


def _address(info: Any) -> Address | None:
    if isinstance(info, tuple) and len(info) >= 2:
        return str(info[0]), int(info[1])
    return None
