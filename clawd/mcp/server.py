"""clawd as an MCP server: its tools through the gate, by the official SDK.

Importing this loads the SDK; whoever serves imports it when the first client comes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import mcp_types as types
import msgspec
from mcp.server import Server, ServerRequestContext
from mcp.server.subscriptions import ListenHandler, ServerEvent, ToolsListChanged

from clawd.errors import ClawError
from clawd.mcp.mount import ToolDoor
from clawd.tools.offer import WRITE_RULE, ListedTool
from clawd.tools.outcome import CallOutcome

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
