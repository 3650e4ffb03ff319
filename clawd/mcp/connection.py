"""One connection with a server, from its start to its end; the only file that drives the SDK.

    async with linked(settings, surroundings, trouble, is_legacy=False) as link:
        listing = await link.list_tools()
        result = await link.call("read_file", {"path": "a"}, limit_s=60, progress=…)

It is entered and left in one task, as the SDK wants it; calls may come from any.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from pydantic import TypeAdapter, ValidationError

from clawd import __version__
from clawd.mcp.connection_end import TRANSPORT_ERROR, Trouble, shown
from clawd.mcp.events import Ear
from clawd.mcp.message_filter import FilteredRead, FilteredWrite, MessageFilter
from clawd.mcp.model import Progress, RemoteResult, ServerSettings
from clawd.mcp.server_hosts import ConnectError, ConnectionContext
from clawd.mcp.stdio import advice_of, stdio_transport
from clawd.mcp.tool_checks import Listing
from clawd.wire.safe_text import paragraph, shortened

_DISCOVER_SHARE = 0.4
_LISTEN_AGAIN_S = (1.0, 60.0)
_MAX_SENTENCE = 2_000
_CLOSED = "tool transport error: the connection was closed"
_ALL_RESULTS: TypeAdapter[types.CallToolResult] = TypeAdapter(types.CallToolResult)

# What the SDK logs are the words of servers.
for _name in ("mcp", "client", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


class Link:
    """A connection that is up.

    Attributes:
        revision: the protocol's revision agreed on.
        server_name: what the server calls itself; may be empty.
        server_version: likewise.
    """

    def __init__(
        self,
        session: ClientSession,
        message_filter: MessageFilter,
        tasks: asyncio.TaskGroup,
        settings: ServerSettings,
        ear: Ear,
    ) -> None:
        info = session.server_info
        self.revision = session.protocol_version or ""
        self.server_name = shown(info.name)[:100] if info else ""
        self.server_version = shown(info.version)[:100] if info else ""
        self._session = session
        self._filter = message_filter
        self._tasks = tasks
        self._settings = settings
        self._calls: set[asyncio.Task[RemoteResult]] = set()
        self._is_closing = False
        self._ear = ear
        self._subscribed = set[str]()

    def close(self) -> None:
        """Take no more calls, and end those that are under way."""
        self._is_closing = True
        for task in self._calls:
            task.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not self._calls

    @property
    def has_change(self) -> bool:
        """Whether the server said that its tools changed, and nobody has asked for them since."""
        return self._filter.has_changed

    def take_change(self) -> bool:
        """Whether the server said, since the last time this was asked, that its tools changed."""
        changed, self._filter.has_changed = self._filter.has_changed, False
        return changed

    async def list_tools(self) -> Listing:
        """Read all pages, within the limits.

        Raises:
            ConnectError: the server does not tell, or not in time.
        """
        listing, cursor, seen = Listing(self._settings.max_tools), "", set[str]()
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                while True:
                    params = types.PaginatedRequestParams(cursor=cursor) if cursor else None
                    taken = await self._session.list_tools(params=params)
                    page = self._filter.page
                    seen |= {tool.name for tool in page.tools} - {t.name for t in taken.tools}
                    cursor = listing.add(page)
                    if not cursor:
                        break
        except TimeoutError:
            limit_s = self._settings.connect_timeout_s
            raise ConnectError(f"the server did not list its tools within {limit_s:g} s") from None
        except MCPError as error:
            if error.code != types.METHOD_NOT_FOUND:
                raise ConnectError(f"the server does not list its tools: {_said(error)}") from error
        except ValidationError as error:
            raise ConnectError("the server's list of tools cannot be read") from error
        listing.drop(seen, "its x-mcp-header is not valid")
        return listing

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, limit_s: float, progress: Progress
    ) -> RemoteResult:
        """Make one call; never raises for what the server does."""
        if self._is_closing:
            return RemoteResult(failure=_CLOSED)
        task = self._tasks.create_task(self._call(tool, arguments, progress))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            # Not awaited once cancelled: telling the server may have to wait for it.
            done, _ = await asyncio.wait({task}, timeout=limit_s)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not done:
            task.cancel()
            alias, told_s = self._settings.alias, self._settings.call_timeout_s
            sentence = f"the MCP server {alias} did not answer within {told_s:g} s"
            return RemoteResult(failure=f"tool transport error: {sentence}")
        if task.cancelled():
            return RemoteResult(failure=_CLOSED)
        return task.result()

    async def _call(self, tool: str, arguments: Mapping[str, Any], tell: Progress) -> RemoteResult:
        async def told(
            progress: float, total: float | None = None, message: str | None = None
        ) -> None:
            tell(progress, total, shown(message or ""))

        params = types.CallToolRequestParams(name=tool, arguments=dict(arguments))
        try:
            answer = await self._session.send_request(
                types.CallToolRequest(params=params), _ALL_RESULTS, progress_callback=told
            )
        except MCPError as error:
            return RemoteResult(failure=_failure(error))
        except (ValidationError, RuntimeError, ValueError, TypeError, OSError) as error:
            return RemoteResult(failure=f"tool transport error: {type(error).__name__}")
        result = self._filter.result(answer.meta)
        if result is None:
            return RemoteResult(failure="tool transport error: the server's answer came too late")
        return result

    async def hear(self) -> None:
        """Have the server tell what is listened to. Runs until cancelled."""
        ask = self._listen if _is_modern(self._session) else self._subscribe
        while True:
            self._ear.changed.clear()
            asking = self._tasks.create_task(ask())
            try:
                await self._ear.changed.wait()
            finally:
                asking.cancel()
            await asyncio.wait({asking})

    async def _listen(self) -> None:
        """Listen, where the revision wants that asked for, as long as it takes."""
        offers, ear = self._session.server_capabilities, self._ear
        tools = offers.tools if offers else None
        is_told = tools is not None and tools.list_changed is True
        if not is_told and not ear.resources and not ear.wants("resources"):
            return
        async for _ in _tries():
            try:
                await self._hear_once(tools_change=is_told or ear.wants("tools"))
            except (MCPError, SubscriptionLost, TimeoutError, ValidationError) as error:
                ear.problem = f"it takes no subscription: {_why(error)}" if ear.wanted else ""

    async def _hear_once(self, *, tools_change: bool) -> None:
        async with contextlib.AsyncExitStack() as stack:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                heard = await stack.enter_async_context(
                    listen(
                        self._session,
                        tools_list_changed=tools_change,
                        resources_list_changed=self._ear.wants("resources"),
                        resource_subscriptions=self._ear.resources,
                    )
                )
            self._ear.problem = ""
            async for _ in heard:
                pass  # the filter has seen it

    async def _subscribe(self) -> None:
        """Subscribe to what is listened to, as older revisions have it, where that is offered."""
        offers, ear = self._session.server_capabilities, self._ear
        can_subscribe = offers is not None and offers.resources is not None
        async for _ in _tries():
            failed = ""
            for uri in {*ear.resources, *self._subscribed} if can_subscribe else ():
                failed = await self._ask(uri) or failed
            if ear.level and offers is not None and offers.logging is not None:
                params = types.SetLevelRequestParams(level=ear.level)  # type: ignore[arg-type]
                failed = await self._asked(types.SetLevelRequest(params=params)) or failed
            ear.problem = failed
            if not failed:
                return

    async def _ask(self, uri: str) -> str:
        """Subscribe to a resource, or no more; return why that failed."""
        request: types.ClientRequest
        if uri in self._ear.resources:
            request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
            self._subscribed.add(uri)
        else:
            request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
            self._subscribed.discard(uri)
        return await self._asked(request)

    async def _asked(self, request: types.ClientRequest) -> str:
        """Send a request that has no result; return why it failed."""
        try:
            async with asyncio.timeout(self._settings.connect_timeout_s):
                await self._session.send_request(request, types.EmptyResult)
        except (MCPError, TimeoutError, ValidationError, RuntimeError, ValueError) as error:
            return f"it does not take {request.method}: {_why(error)}"
        return ""


async def _tries() -> AsyncIterator[None]:
    """Give the tries of what may fail or end: at once, then later and later."""
    wait_s, most_s = _LISTEN_AGAIN_S
    while True:
        began = asyncio.get_running_loop().time()
        yield
        if asyncio.get_running_loop().time() - began > most_s:
            wait_s = _LISTEN_AGAIN_S[0]
        await asyncio.sleep(wait_s)
        wait_s = min(2 * wait_s, most_s)


@contextlib.asynccontextmanager
async def linked(
    settings: ServerSettings, around: ConnectionContext, trouble: Trouble, *, is_legacy: bool
) -> AsyncIterator[Link]:
    """Connect, and stay connected for the body; on exit nothing of it is left.

    Raises:
        ConnectError: the server does not speak with us; says why.
        ClawError: the sandbox does not let it start.
    """
    message_filter = MessageFilter(settings.max_result_bytes, trouble, around.ear)
    async with contextlib.AsyncExitStack() as stack:
        if settings.command:
            read, write = await stack.enter_async_context(
                stdio_transport(settings, around, trouble, message_filter.is_waiting)
            )
        else:
            read, write = await _http(stack, settings, around, trouble)
        session = await stack.enter_async_context(
            ClientSession(
                FilteredRead(read, message_filter),
                FilteredWrite(write, message_filter),
                client_info=types.Implementation(name="clawd", version=__version__),
            )
        )
        await _shake_hands(session, settings, around, trouble, is_legacy=is_legacy)
        async with asyncio.TaskGroup() as tasks:
            link = Link(session, message_filter, tasks, settings, around.ear)
            hearing = tasks.create_task(link.hear())
            try:
                yield link
            finally:
                link.close()
                hearing.cancel()


async def _http(
    stack: contextlib.AsyncExitStack,
    settings: ServerSettings,
    around: ConnectionContext,
    trouble: Trouble,
) -> Any:
    from clawd.mcp.http import Bearer, http_transport
    from clawd.mcp.oauth import sign_in_auth

    if settings.oauth:
        signing_in = sign_in_auth(settings, around.folder, around.on_sign_in)
        auth: Any = await stack.enter_async_context(signing_in)
    else:
        auth = Bearer(settings.token) if settings.token else None
    return await stack.enter_async_context(http_transport(settings, auth, trouble))


async def _shake_hands(
    session: ClientSession,
    settings: ServerSettings,
    around: ConnectionContext,
    trouble: Trouble,
    *,
    is_legacy: bool,
) -> None:
    """Agree on a revision: the newest by asking for it, an older one by its handshake."""
    limit_s = settings.connect_timeout_s
    try:
        async with around.connecting(limit_s):
            if not is_legacy and await _discovered(session, around, limit_s, trouble):
                return
            await session.initialize()
    except TimeoutError:
        problem = f"the server did not answer within {limit_s:g} s"
        if settings.command:
            last = around.log.last_line()
            problem += f"; its last words: {last}" if last else ""
            problem += f"; {advice_of(settings, is_missing=False)}"
        raise ConnectError(problem) from None
    except MCPError as error:
        raise ConnectError(trouble.problem or _said(error)) from error
    except ValidationError as error:
        raise ConnectError("the server's handshake cannot be read") from error
    except RuntimeError as error:
        raise ConnectError(shown(str(error))) from error


async def _discovered(
    session: ClientSession, around: ConnectionContext, limit_s: float, trouble: Trouble
) -> bool:
    """Ask for the newest revision; False where the server does not know how to answer.

    Raises:
        ConnectError: it ended, or may only be asked in the old way.
        MCPError: it cannot be reached.
    """
    try:
        async with around.connecting(limit_s * _DISCOVER_SHARE):
            await session.discover()
    except TimeoutError:
        trouble.ignores_discover = True
        return False
    except MCPError:
        if trouble.is_unreachable or trouble.status:
            raise
        if trouble.is_over.is_set():
            raise ConnectError(trouble.problem, try_legacy=True) from None
        return False
    except (ValidationError, RuntimeError):
        return False
    return True


def _is_modern(session: ClientSession) -> bool:
    return session.discover_result is not None


def _failure(error: MCPError) -> str:
    if error.code == TRANSPORT_ERROR:
        return f"tool transport error: {_said(error)}"
    if error.code == types.CONNECTION_CLOSED:
        return f"tool transport error: {_said(error)}"
    return f"tool dispatch failed: {_said(error)} (code {error.code})"


def _why(error: Exception) -> str:
    return shown(_said(error) if isinstance(error, MCPError) else type(error).__name__)


def _said(error: MCPError) -> str:
    """Return a server's reason for a model: with its lines, but not endless."""
    text = error.message.encode("utf-8", "replace").decode()
    return shortened(paragraph(text).strip(), _MAX_SENTENCE) or "the server gives no reason"
