"""A server with all that the conformance suite asks for, mounted as clawd mounts its own.

    python -m tests.conformance.fixture_server

It serves `/mcp` with sessions, behind the gateway's own middlewares, on a port of the loopback
interface that it prints, until its standard input ends.
"""

import asyncio
import sys
import time
from typing import Any, cast

import mcp_types as types
from aiohttp import web
from mcp.server import Server, ServerRequestContext
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from clawd.channels.http import mcp
from clawd.channels.http.app import CALLER, Gateway, Handler, McpServed, make_app
from clawd.channels.http.guard import DoorRules, Rates, Traffic, guarding, rating, reading
from clawd.channels.http.model_api import Caller
from clawd.channels.http.server import Server as HttpServer
from clawd.channels.http.server import bind
from clawd.config.sections import HttpSection
from clawd.mcp.mount import Mount
from clawd.security.principal import Principal
from tests.conformance import fixture_things as things

NAME = "conformance-fixture"
Context = ServerRequestContext[dict[str, Any], Any]
Page = types.PaginatedRequestParams | None
CALLER_HERE = Caller(
    principal=Principal(uid=1000, gid=1000, pid=1, role="user"), scopes=frozenset({"tools"})
)


async def list_tools(_ctx: Context, _page: Page) -> types.ListToolsResult:
    """List the tools."""
    tools = [
        types.Tool(name=name, description=f"The tool {name}.", input_schema=things.SCHEMAS[name])
        for name in things.RUNS
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(
    ctx: Context, params: types.CallToolRequestParams
) -> types.CallToolResult | types.InputRequiredResult:
    """Call a tool."""
    run = things.RUNS.get(params.name)
    if run is None:
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name}")
    told = await run(ctx, params)
    if isinstance(told, str):
        return types.CallToolResult(content=[things.text(told)])
    return told


async def list_prompts(_ctx: Context, _page: Page) -> types.ListPromptsResult:
    """List the prompts."""
    prompts = [
        types.Prompt(
            name=name,
            description=f"The prompt {name}.",
            arguments=[types.PromptArgument(name=each, required=True) for each in arguments],
        )
        for name, arguments in things.PROMPTS.items()
    ]
    return types.ListPromptsResult(prompts=prompts)


async def get_prompt(
    _ctx: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    """Return a prompt."""
    found = things.prompt(params)
    if found is None:
        raise MCPError(types.INVALID_PARAMS, f"there is no prompt {params.name}")
    if isinstance(found, types.InputRequiredResult):
        return found
    messages = [types.PromptMessage(role="user", content=each) for each in found]
    return types.GetPromptResult(messages=messages)


async def list_resources(_ctx: Context, _page: Page) -> types.ListResourcesResult:
    """List the resources."""
    named = [(things.STATIC, "text/plain"), (things.BINARY, "image/png")]
    resources = [
        types.Resource(uri=uri, name=uri, mime_type=mime)
        for uri, mime in [*named, (things.WATCHED, "text/plain")]
    ]
    return types.ListResourcesResult(resources=resources)


async def list_templates(_ctx: Context, _page: Page) -> types.ListResourceTemplatesResult:
    """List the templates of resources."""
    template = types.ResourceTemplate(
        uri_template=things.TEMPLATE, name="template", mime_type="application/json"
    )
    return types.ListResourceTemplatesResult(resource_templates=[template])


async def read_resource(
    _ctx: Context, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    """Read a resource."""
    found = things.resource(str(params.uri))
    if found is None:
        uri = str(params.uri)
        raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri}", data={"uri": uri})
    return types.ReadResourceResult(contents=[found])


async def nothing(_ctx: Context, _params: Any) -> types.EmptyResult:
    """Say that it is done."""
    return types.EmptyResult()


async def complete(_ctx: Context, _params: types.CompleteRequestParams) -> types.CompleteResult:
    """Know nothing that could follow."""
    return types.CompleteResult(completion=types.Completion(values=[], total=0, has_more=False))


def make_fixture() -> Server[dict[str, Any]]:
    """Return the server."""
    server = Server(
        NAME,
        version="1",
        get_tool_input_schema=things.SCHEMAS.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=nothing,
        on_unsubscribe_resource=nothing,
        on_subscriptions_listen=ListenHandler(things.BUS),
        on_completion=complete,
        on_set_logging_level=nothing,
    )
    security = RequestStateSecurity.ephemeral()
    server.middleware.append(RequestStateBoundary(security, default_audience=NAME))
    return server


@web.middleware
async def vouch(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let everybody be the one caller: keys are not what is looked at here."""
    request[CALLER] = CALLER_HERE
    return await handler(request)


async def main() -> None:
    """Serve until standard input ends."""
    http = HttpSection(port=0)
    served = McpServed(mount=Mount(make_fixture, keeps_sessions=True), door_of=lambda _: None)  # type: ignore[arg-type,return-value]
    none = cast("Any", None)
    gateway = Gateway(
        generations=none,
        invoke=none,
        stream=none,
        health=none,
        calls=none,
        inbox=none,
        questions=none,
        providers=none,
        settings=none,
        engine=none,
        models=none,
        mcp=served,
    )
    rules = DoorRules(hosts=frozenset(), origins=frozenset(), is_tls=False)
    limits = reading(http.max_body_bytes, http.body_timeout_s)
    guards = [guarding(rules), vouch, rating(Rates(0, time.monotonic)), limits]
    traffic = Traffic()
    app = make_app(gateway, mcp.ROUTES, guards, outermost=[traffic.observing()])
    server = HttpServer(app, traffic, http)
    await server.start(bind(["127.0.0.1"], 0), None)
    print(server.addresses[0], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.close()


if __name__ == "__main__":
    asyncio.run(main())
