"""Tools of the fixture server that want more of the client in the middle of a call."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError

Context = ServerRequestContext[dict[str, Any], Any]
Params = types.CallToolRequestParams
Told = str | types.CallToolResult | types.InputRequiredResult
Run = Callable[[Context, Params], Awaitable[Told]]

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
COLOR = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
OK = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
DEFAULTS = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    },
    "required": [],
}
ENUMS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{i}", "title": f"Option {i}"} for i in (1, 2, 3)],
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": f"value{i}", "title": f"Choice {i}"} for i in (1, 2, 3)]},
        },
    },
    "required": [],
}


def elicited(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    """Return a question to the person at the client."""
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def sampled(text: str) -> types.CreateMessageRequest:
    """Return a question to the client's model."""
    content = types.TextContent(type="text", text=text)
    message = types.SamplingMessage(role="user", content=content)
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    )


def wanted(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    """Return that these are wanted before the call can go on."""
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def given(params: Any, *names: str) -> dict[str, Any] | None:
    """Return what the client gave, if all of it is there."""
    responses = params.input_responses or {}
    return {name: responses[name] for name in names} if set(names) <= set(responses) else None


def _field(answer: Any, name: str) -> str:
    content = answer.content if isinstance(answer, types.ElicitResult) else None
    return str((content or {}).get(name, "?"))


async def ask_model(ctx: Context, params: Params) -> Told:
    """Have the client's model answer, in a session."""
    text = str((params.arguments or {}).get("prompt", ""))
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    answer = await ctx.session.create_message(
        [message], max_tokens=100, related_request_id=ctx.request_id
    )
    return f"LLM response: {getattr(answer.content, 'text', '')}"


def ask_person(schema: dict[str, Any]) -> Run:
    """Return a tool that has the person at the client answer, in a session."""

    async def run(ctx: Context, params: Params) -> Told:
        message = str((params.arguments or {}).get("message", "Please answer"))
        answer = await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)
        return f"User response: action={answer.action}, content={json.dumps(answer.content or {})}"

    return run


async def missing_capability(ctx: Context, _params: Params) -> Told:
    """Refuse clients that have no model to ask."""
    capabilities = ctx.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(
            code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="this tool needs a client with sampling",
            data={"requiredCapabilities": {"sampling": {}}},
        )
    return "the client has sampling"


async def one_person(_ctx: Context, params: Params) -> Told:
    """Want a name."""
    if found := given(params, "user_name"):
        return f"Hello, {_field(found['user_name'], 'name')}!"
    return wanted(user_name=elicited("What is your name?", NAME))


async def one_model(_ctx: Context, params: Params) -> Told:
    """Want an answer of the model."""
    if found := given(params, "capital_question"):
        return f"The model says: {getattr(found['capital_question'].content, 'text', '?')}"
    return wanted(capital_question=sampled("What is the capital of France?"))


async def one_roots(_ctx: Context, params: Params) -> Told:
    """Want the client's folders."""
    if found := given(params, "client_roots"):
        return f"{len(getattr(found['client_roots'], 'roots', []))} roots"
    return wanted(client_roots=types.ListRootsRequest())


async def with_state(_ctx: Context, params: Params) -> Told:
    """Want a word, and the state back."""
    if given(params, "confirm") and params.request_state == "asked":
        return "state-ok: confirmed"
    return wanted("asked", confirm=elicited("Please confirm", OK))


async def several(_ctx: Context, params: Params) -> Told:
    """Want a name, an answer of the model and the folders together."""
    if given(params, "user_name", "greeting", "client_roots"):
        return "all is there"
    return wanted(
        "several",
        user_name=elicited("What is your name?", NAME),
        greeting=sampled("Write a greeting"),
        client_roots=types.ListRootsRequest(),
    )


async def rounds(_ctx: Context, params: Params) -> Told:
    """Want two things, one after the other."""
    state = json.loads(params.request_state or '{"round": 0}')
    if state["round"] == 1 and (found := given(params, "step1")):
        name = _field(found["step1"], "name")
        after = json.dumps({"round": 2, "name": name})
        return wanted(after, step2=elicited("Step 2: What is your favorite color?", COLOR))
    if state["round"] == 2 and (found := given(params, "step2")):
        return f"{state['name']} likes {_field(found['step2'], 'color')}"
    return wanted('{"round": 1}', step1=elicited("Step 1: What is your name?", NAME))


async def sealed(_ctx: Context, params: Params) -> Told:
    """Want the state back as it was; the SDK refuses any other."""
    if params.request_state is None:
        return wanted("sealed", confirm=elicited("Please confirm", OK))
    return f"state-ok: {params.request_state}"


async def as_able(ctx: Context, _params: Params) -> Told:
    """Want what this client says that it can give, and nothing else."""
    able = ctx.session.client_capabilities
    requests: dict[str, Any] = {}
    if able is not None and able.sampling is not None:
        requests["sample"] = sampled("Say hello")
    if able is not None and able.elicitation is not None:
        requests["ask"] = elicited("What is your name?", NAME)
    return wanted("as able", **requests)


_MORE = "test_input_required_result"
TEXT = {"type": "string"}

ASKING: dict[str, tuple[dict[str, Any], Run]] = {
    "test_sampling": ({"prompt": TEXT}, ask_model),
    "test_elicitation": ({"message": TEXT}, ask_person(NAME)),
    "test_elicitation_sep1034_defaults": ({}, ask_person(DEFAULTS)),
    "test_elicitation_sep1330_enums": ({}, ask_person(ENUMS)),
    "test_missing_capability": ({}, missing_capability),
    "test_streaming_elicitation": ({}, one_person),
    f"{_MORE}_elicitation": ({}, one_person),
    f"{_MORE}_sampling": ({}, one_model),
    f"{_MORE}_list_roots": ({}, one_roots),
    f"{_MORE}_request_state": ({}, with_state),
    f"{_MORE}_multiple_inputs": ({}, several),
    f"{_MORE}_multi_round": ({}, rounds),
    f"{_MORE}_tampered_state": ({}, sealed),
    f"{_MORE}_capabilities": ({}, as_able),
}
