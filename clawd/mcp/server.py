"""clawd as an MCP server: its tools through the gate, by the official SDK.

Importing this loads the SDK; it is imported when the first client comes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import mcp_types as types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.subscriptions import ListenHandler, ServerEvent, ToolsListChanged
from mcp.shared.message import SessionMessage

from clawd.errors import ClawError
from clawd.mcp.mount import ToolDoor
from clawd.tools.offer import WRITE_RULE, ListedTool
from clawd.tools.outcome import CallOutcome
from clawd.wire.safe_text import single_line

NAME = "clawd"
RECEIPT = "clawd/receipt"
INSTRUCTIONS = (
    "Tools of a clawd daemon. Every call is judged by its owner's policy and leaves a receipt, "
    "named in the result's _meta. A call may wait for its owner's approval; a refused one is an "
    "error whose text begins with 'denied:' and says why. File paths are relative to the "
    f"workspace; nothing outside of it can be reached. {WRITE_RULE}"
)
MAX_REPORTS = 256
MAX_LISTENERS = 64

Context = ServerRequestContext[dict[str, Any], Any]
DoorOf = Callable[[Context], ToolDoor]
OnChange = Callable[[Callable[[], None]], Callable[[], None]]
"""Takes who is to be told when the tools have changed; returns what ends that."""


def make_server(door_of: DoorOf, *, version: str, on_change: OnChange) -> Server[dict[str, Any]]:
    """Return an SDK server over the tools that `door_of` finds for a request.

    Args:
        door_of: finds the tools.
        version: of clawd.
        on_change: tells those who listen, by the newest revision, that there are other tools.
    """

    async def list_tools(
        ctx: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_descriptor(tool) for tool in door_of(ctx).listed()])

    async def call_tool(ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = msgspec.json.encode(params.arguments or {}).decode()
        try:
            async with _reporting(ctx) as report:
                outcome = await door_of(ctx).call(params.name, arguments, report)
        except ClawError as error:
            return _failure(error)
        return _result(outcome)

    return Server(
        NAME,
        version=version,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_subscriptions_listen=ListenHandler(_Changes(on_change), max_subscriptions=MAX_LISTENERS),
    )


class _Changes:
    """What those who listen are told of, in the form of the SDK."""

    def __init__(self, on_change: OnChange) -> None:
        self._on_change = on_change

    async def publish(self, event: ServerEvent) -> None:
        """Do nothing: only the tools themselves are told of."""

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Tell a listener from now on; return what ends that."""
        return self._on_change(lambda: listener(ToolsListChanged()))


def _descriptor(tool: ListedTool) -> types.Tool:
    hints = tool.annotations
    return types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=hints.read_only_hint,
            destructive_hint=hints.destructive_hint,
            idempotent_hint=hints.idempotent_hint,
            open_world_hint=hints.open_world_hint,
        ),
    )


def _result(outcome: CallOutcome) -> types.CallToolResult:
    pictures = [
        types.ImageContent(type="image", data=each.base64, mime_type=each.media_type)
        for each in outcome.pictures
    ]
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=outcome.text), *pictures],
        is_error=outcome.kind != "ok",
        _meta={RECEIPT: outcome.receipt_id} if outcome.receipt_id else None,
    )


def _failure(error: ClawError) -> types.CallToolResult:
    hint = f" {error.hint}" if error.hint else ""
    text = f"error: {error.message}.{hint}"
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=True)


@contextlib.asynccontextmanager
async def _reporting(ctx: Context) -> AsyncIterator[Callable[[str], None]]:
    """Tell the client of the progress of a call, where it asked to be told.

    Reports beyond a bound are left out; the last one always arrives before the result.
    """
    reports: asyncio.Queue[str | None] = asyncio.Queue(MAX_REPORTS + 1)

    def report(text: str) -> None:
        if reports.qsize() < MAX_REPORTS:
            reports.put_nowait(text)

    async def tell() -> None:
        count = 0
        while (text := await reports.get()) is not None:
            count += 1
            await ctx.session.report_progress(float(count), None, text)

    telling = asyncio.create_task(tell())
    try:
        yield report
        reports.put_nowait(None)
        await telling
    finally:
        telling.cancel()


MAX_WAITING = 64
MAX_OPEN = 128
"""So many requests of a client may be without an answer; more are refused."""

END_GRACE_S = 1.0
_ID_LIMIT = 64

_TOOLS_CHANGED = types.JSONRPCNotification(jsonrpc="2.0", method="notifications/tools/list_changed")


async def serve_lines(
    server: Server[Any],
    lines: AsyncIterator[str],
    send: Callable[[str], Awaitable[None]],
    on_change: Callable[[Callable[[], None]], Callable[[], None]],
) -> None:
    """Serve until the lines end; what runs then is cancelled.

    Args:
        server: answers.
        lines: JSON texts of the client.
        send: takes a JSON text for the client.
        on_change: tells when there are other tools. Clients of the older revisions are told of it
            once they have shaken hands; those of the newest ask for it.
    """
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](MAX_WAITING)
    outgoing, to_client = anyio.create_memory_object_stream[SessionMessage](MAX_WAITING)
    options = server.create_initialization_options(NotificationOptions(tools_changed=True))
    client = _Client(send, on_change)
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(client.read(lines, to_server)),
            tasks.create_task(client.write(to_client)),
            tasks.create_task(client.tell_changes(outgoing)),
        ]
        try:
            await server.run(incoming, outgoing, options)
        finally:
            client.close()
            for task in running:
                task.cancel()


class _Client:
    """A client on lines: what it says, what it is told, and what it waits for."""

    def __init__(
        self,
        send: Callable[[str], Awaitable[None]],
        on_change: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        self._send = send
        self._on_change = on_change
        self._sending = asyncio.Lock()
        self._open_requests = _OpenRequests()
        self._has_changed = asyncio.Event()
        self._tells = contextlib.ExitStack()

    async def read(
        self,
        lines: AsyncIterator[str],
        to_server: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        """Give the server what the client says, until it says no more."""
        async with to_server:
            async for line in lines:
                if line.strip():
                    await self._hear(_message(line), to_server)
            await self._open_requests.wait(END_GRACE_S)

    async def write(self, to_client: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Tell the client what the server says."""
        async with to_client:
            async for message in to_client:
                await self._tell(message)
                self._open_requests.answered(message)

    async def tell_changes(self, outgoing: MemoryObjectSendStream[SessionMessage]) -> None:
        """Say that there are other tools, whenever there are."""
        while True:
            await self._has_changed.wait()
            self._has_changed.clear()  # many changes that nobody has read of are one
            await outgoing.send(SessionMessage(_TOOLS_CHANGED))

    def close(self) -> None:
        """Be told of no more changes."""
        self._tells.close()

    async def _hear(
        self,
        message: SessionMessage | Exception,
        to_server: MemoryObjectSendStream[SessionMessage | Exception],
    ) -> None:
        if refused := self._open_requests.refusal(message):
            await self._tell(refused)
            return
        self._open_requests.asked(message)
        if _is_initialized(message):
            self._tells.callback(self._on_change(self._has_changed.set))
        await to_server.send(message)

    async def _tell(self, message: SessionMessage) -> None:
        async with self._sending:
            await self._send(message.message.model_dump_json(by_alias=True, exclude_unset=True))


class _OpenRequests:
    """The requests of a client that have no answer yet.

    A client that says all it has to say and closes is answered all the same, where that is quick.
    """

    def __init__(self) -> None:
        self._ids: set[object] = set()
        self._none = asyncio.Event()
        self._none.set()

    def refusal(self, message: SessionMessage | Exception) -> SessionMessage | None:
        """Return the answer to a request that is one too many, or that nobody could tell apart."""
        if not isinstance(message, SessionMessage):
            return None
        asked = message.message
        if not isinstance(asked, types.JSONRPCRequest):
            return None
        if asked.id in self._ids:
            told = f"request {single_line(str(asked.id), _ID_LIMIT)} is under way already"
        elif len(self._ids) >= MAX_OPEN:
            told = f"{MAX_OPEN} requests are under way; wait for the answer of one"
        else:
            return None
        error = types.ErrorData(code=types.INVALID_REQUEST, message=told)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=asked.id, error=error))

    def asked(self, message: SessionMessage | Exception) -> None:
        """Note a message of the client."""
        if not isinstance(message, SessionMessage):
            return
        if isinstance(message.message, types.JSONRPCRequest):
            self._ids.add(message.message.id)
            self._none.clear()
        elif isinstance(message.message, types.JSONRPCNotification):
            self._taken_back(message.message)

    def answered(self, message: SessionMessage) -> None:
        """Note a message for the client that was sent."""
        if isinstance(message.message, types.JSONRPCResponse | types.JSONRPCError):
            self._over(message.message.id)

    def _taken_back(self, notification: types.JSONRPCNotification) -> None:
        """Forget a request that the client cancelled: it gets no answer."""
        if notification.method == "notifications/cancelled":
            number = (notification.params or {}).get("requestId")
            if type(number) in {int, str}:  # a bool is no id, but would be found as one
                self._over(number)

    def _over(self, number: object) -> None:
        self._ids.discard(number)
        if not self._ids:
            self._none.set()

    async def wait(self, limit_s: float) -> None:
        """Wait until all are answered, or that long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._none.wait()


def _is_initialized(message: SessionMessage | Exception) -> bool:
    return (
        isinstance(message, SessionMessage)
        and isinstance(message.message, types.JSONRPCNotification)
        and message.message.method == "notifications/initialized"
    )


def _message(line: str) -> SessionMessage | Exception:
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line))
    except ValueError as error:
        return error
