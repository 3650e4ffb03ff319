"""Every route of the gateway in one table: what a caller needs for it, and what it is.

The scopes of `app.py` and the OpenAPI 3.1 document of the routes that are served come from here. A
route that has no row needs everything.
"""

import re
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.body import (
    AnswerBody,
    ChatBody,
    InfillBody,
    InfillReport,
    PresetBody,
    ReplyBody,
    RerankAnswer,
    RerankBody,
    RunBody,
    StopBody,
)
from clawd.wire.conversations import ConversationDetail, ConversationPage
from clawd.wire.daemon import EstopReport, StatusReport
from clawd.wire.events import TurnFinished
from clawd.wire.memory import MemoryHits
from clawd.wire.method import Done
from clawd.wire.models import ModelList
from clawd.wire.policy import ApprovalList
from clawd.wire.receipts import ReceiptDetail, ReceiptHead, ReceiptPage, Verification
from clawd.wire.tools import ToolLine, ToolList, ToolOutcome

Needs = frozenset[str] | None

PUBLIC: Needs = None
ANY: Needs = frozenset()
MODELS: Needs = frozenset({"models"})
CHAT: Needs = frozenset({"chat"})
TOOLS: Needs = frozenset({"tools"})
BOTH: Needs = frozenset({"chat", "tools"})
ADMIN: Needs = frozenset({"admin"})
LOGIN: Needs = frozenset({"login"})
"""What no key has: a one-time link of the page alone."""
HOOK: Needs = frozenset({"hook"})
"""What no key has: the secret of a schedule's hook alone."""

_PLACE = re.compile(r"\{[^{}]*\}")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One route.

    Attributes:
        path: as the router writes it, `/tools/{name}/run`.
        needs: scopes that the caller must have; empty: any beside models; None: nobody is asked.
        family: whose dialect it is.
        body: what the request carries, where it is known.
        answer: what comes back, where it is known.
        query: names that may stand after the question mark.
        streams: always, when the body says so, or never.
    """

    method: str
    path: str
    needs: Needs
    summary: str
    family: str = "clawd"
    body: type[Any] | None = None
    answer: type[Any] | None = None
    query: tuple[str, ...] = ()
    streams: str = ""


def _get(path: str, needs: Needs, summary: str, **more: Any) -> Row:
    return Row(method="GET", path=path, needs=needs, summary=summary, **more)


def _post(path: str, needs: Needs, summary: str, **more: Any) -> Row:
    return Row(method="POST", path=path, needs=needs, summary=summary, **more)


_PAGE = ("cursor", "limit")
_RECEIPTS = (
    *_PAGE,
    *("conversation_id", "tool", "status", "since", "until", "risk", "workspace", "host"),
)

_OWN = (
    _get("/page/{name}", PUBLIC, "A file of the page."),
    _post("/page/login", LOGIN, "Change a one-time link of the page, as the key, for a key."),
    _post(
        "/methods/{name}",
        ADMIN,
        "Run a method of the control socket: its parameters and its report as JSON.",
    ),
    _post(
        "/clawctl/{act}",
        ADMIN,
        "Let clawctl recommend models or use one, or change the MCP servers of the config.",
    ),
    _get("/health", PUBLIC, "Say whether requests can be answered."),
    _get("/v1/health", PUBLIC, "Say whether requests can be answered."),
    _get("/openapi.json", ANY, "This document."),
    _get("/metrics", ANY, "Counters and gauges as Prometheus text."),
    _get("/status", ANY, "What the daemon is and does.", answer=StatusReport),
    _get("/models/local", ANY, "The local models of this machine.", answer=ModelList),
    _get("/tools", TOOLS, "The tools.", answer=ToolList),
    _get("/tools/{name}", TOOLS, "One tool.", answer=ToolLine),
    _post(
        "/tools/{name}/run",
        TOOLS,
        "Make one tool call through the gate; it leaves a receipt and may wait for an approval.",
        body=RunBody,
        answer=ToolOutcome,
        streams="asked",
    ),
    _get("/v1/tools", TOOLS, "The tools as OpenAI functions."),
    _get("/v1/preset", CHAT, "The sampling presets and their values."),
    _post("/v1/preset", CHAT, "Check a preset and return its values.", body=PresetBody),
    _post(
        "/chat",
        BOTH,
        "Send a message; clawd's own tools run in the daemon.",
        body=ChatBody,
        answer=TurnFinished,
        streams="asked",
    ),
    _get(
        "/conversations",
        CHAT,
        "Conversations, newest first.",
        answer=ConversationPage,
        query=_PAGE,
    ),
    _get(
        "/conversations/{id}",
        CHAT,
        "One conversation and its messages.",
        answer=ConversationDetail,
        query=_PAGE,
    ),
    _get("/conversations/{id}/events", CHAT, "Follow a conversation.", streams="always"),
    _post("/conversations/{id}/cancel", CHAT, "Cancel its running turn.", answer=Done),
    _post(
        "/hook",
        HOOK,
        "Begin the schedule whose secret is shown as the key; the body is untrusted text for it.",
    ),
    _get(
        "/memory/search",
        CHAT,
        "Search the stored messages.",
        answer=MemoryHits,
        query=("q", "limit"),
    ),
    _get("/receipts", TOOLS, "Receipts, newest first.", answer=ReceiptPage, query=_RECEIPTS),
    _get(
        "/receipts/verify",
        TOOLS,
        "Verify the receipt log.",
        answer=Verification,
        query=("public_key", "anchor"),
    ),
    _get("/receipts/head", TOOLS, "The end of the receipt log.", answer=ReceiptHead),
    _get("/receipts/{id}", TOOLS, "One receipt and what it hashed.", answer=ReceiptDetail),
    _get("/approvals", TOOLS, "Calls that wait for an answer.", answer=ApprovalList),
    _post("/approvals/{id}", ADMIN, "Answer a call that waits.", body=AnswerBody, answer=Done),
    _post("/questions/{id}", CHAT, "Reply to a question of a tool.", body=ReplyBody, answer=Done),
    _get("/estop", ANY, "Whether the emergency stop is set.", answer=EstopReport),
    _post(
        "/estop",
        ANY,
        "Set the emergency stop (scope tools or admin); `set` false clears it (admin).",
        body=StopBody,
        answer=EstopReport,
    ),
    _get("/events", CHAT, "Follow everything that the caller may see.", streams="always"),
)


_OF_MODELS = ("push", "create", "copy", "blobs/{digest}")


def _dialect(family: str, needs: Needs, *routes: tuple[str, str]) -> tuple[Row, ...]:
    found = []
    for route, summary in routes:
        method, path = route.split()
        found.append(Row(method=method, path=path, needs=needs, summary=summary, family=family))
    return tuple(found)


_RERANKING = ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking")

_OTHERS = (
    _post(
        "/infill",
        MODELS,
        "Fill in a gap between two texts.",
        family="llama.cpp",
        body=InfillBody,
        answer=InfillReport,
        streams="asked",
    ),
    *(
        _post(
            path,
            MODELS,
            "Rank documents by how well they answer a query.",
            family="rerank",
            body=RerankBody,
            answer=RerankAnswer,
        )
        for path in _RERANKING
    ),
    *_dialect(
        "openai",
        MODELS,
        ("GET /v1/models", "List models."),
        ("GET /v1/models/{model}", "One model."),
        ("GET /models", "List models."),
        ("POST /v1/chat/completions", "Answer a chat."),
        ("POST /chat/completions", "Answer a chat."),
        ("POST /v1/chat/completions/input_tokens", "Count the tokens of a chat."),
        ("POST /chat/completions/input_tokens", "Count the tokens of a chat."),
        ("POST /v1/completions", "Complete a text."),
        ("POST /completions", "Complete a text."),
        ("POST /v1/responses", "Answer, in the form of the Responses API."),
        ("POST /responses", "Answer, in the form of the Responses API."),
        ("POST /v1/responses/input_tokens", "Count the tokens of an input."),
        ("POST /responses/input_tokens", "Count the tokens of an input."),
    ),
    *_dialect(
        "embeddings",
        MODELS,
        ("POST /v1/embeddings", "Embed texts."),
        ("POST /embeddings", "Embed texts."),
    ),
    *_dialect(
        "llama.cpp",
        MODELS,
        ("POST /tokenize", "Make tokens of a text."),
        ("POST /detokenize", "Make text of tokens."),
        ("POST /apply-template", "Return the prompt that messages become."),
        ("GET /props", "What is loaded."),
        ("GET /slots", "What runs."),
    ),
    *_dialect(
        "anthropic",
        MODELS,
        ("POST /v1/messages", "Answer messages."),
        ("POST /v1/messages/count_tokens", "Count the tokens of a prompt."),
    ),
    *_dialect(
        "ollama",
        MODELS,
        ("POST /api/chat", "Answer a chat."),
        ("POST /api/generate", "Complete a prompt."),
        ("POST /api/embed", "Embed texts."),
        ("POST /api/embeddings", "Embed one text."),
        ("POST /api/show", "What a model is."),
        ("POST /api/pull", "Bring a model into the folder of models."),
        ("GET /api/tags", "List models."),
        ("GET /api/ps", "List loaded models."),
        ("GET /api/version", "The version."),
        *((f"* /api/{name}", "Refused: models are files here.") for name in _OF_MODELS),
    ),
    *_dialect("ollama", ADMIN, ("DELETE /api/delete", "Remove a model's files.")),
    *_dialect("ollama", PUBLIC, ("GET /", "Say that somebody is there.")),
    *_dialect(
        "mcp",
        TOOLS,
        ("POST /mcp", "Speak MCP."),
        ("GET /mcp", "Follow an MCP session, where there are sessions."),
        ("DELETE /mcp", "End an MCP session, where there are sessions."),
    ),
)


_STARTING = frozenset(
    {
        "/chat",
        "/hook",
        "/v1/chat/completions",
        "/chat/completions",
        "/v1/completions",
        "/completions",
        "/v1/responses",
        "/responses",
        "/v1/embeddings",
        "/embeddings",
        "/infill",
        *_RERANKING,
        "/v1/messages",
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/embeddings",
        "/api/pull",
    }
)


def starts_work(method: str, path: str) -> bool:
    """Return whether a route sets a model to work, which nothing may under the emergency stop.

    Tool calls are not of them: dispatch refuses each, and writes its receipt.
    """
    return method == "POST" and path in _STARTING


def key_of(method: str, path: str) -> tuple[str, str]:
    """Return by what a route is found: what a place in its path is called does not matter."""
    return ("GET" if method == "HEAD" else method, _PLACE.sub("{}", path))


ROWS: tuple[Row, ...] = (*_OWN, *_OTHERS)
TABLE: dict[tuple[str, str], Row] = {key_of(row.method, row.path): row for row in ROWS}


def row_of(method: str, path: str) -> Row | None:
    """Return what the table says of a route, `*` standing for every method."""
    return TABLE.get(key_of(method, path)) or TABLE.get(key_of("*", path))


REF = "#/components/schemas/{name}"
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_JSON = "application/json"
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "integer", "null"]},
            },
        }
    },
}


def document_of(router: web.UrlDispatcher, version: str) -> dict[str, Any]:
    """Return the document of the routes of a router, each with what the table says of it."""
    served = sorted(
        {
            (resource.canonical, route.method)
            for route in router.routes()
            if (resource := route.resource) is not None and route.method not in {"HEAD", "*"}
        }
    )
    rows = {place: row_of(place[1], place[0]) for place in served}
    kinds = [kind for row in rows.values() if row for kind in (row.body, row.answer) if kind]
    (_, schemas) = msgspec.json.schema_components(
        dict.fromkeys(kinds), schema_hook=_any, ref_template=REF
    )
    paths: dict[str, dict[str, Any]] = {}
    for (path, method), row in rows.items():
        paths.setdefault(path, {})[method.lower()] = _operation(path, method, row)
    keys = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "clawd", "version": version},
        "paths": paths,
        "components": {"schemas": {**schemas, "Error": _ERROR}, "securitySchemes": keys},
    }


def _operation(path: str, method: str, row: Row | None) -> dict[str, Any]:
    """Return what the document says of one route."""
    if row is None:
        row = Row(method=method, path=path, needs=frozenset({"admin"}), summary="")
    told: dict[str, Any] = {
        "operationId": _identity(method, path),
        "summary": row.summary,
        "tags": [row.family],
        "parameters": _parameters(path, row),
        "responses": {"200": _answer(row), "default": _error()},
        # An empty list of needs is a claim as well: without a key, anybody is answered.
        "security": [] if row.needs is PUBLIC else [{"bearer": []}, {"x-api-key": []}],
    }
    if row.needs:
        told["x-clawd-scopes"] = sorted(row.needs)
    if method == "POST":
        schema = _ref(row.body) if row.body is not None else {"type": "object"}
        told["requestBody"] = {"content": {_JSON: {"schema": schema}}}
    return told


def _parameters(path: str, row: Row) -> list[dict[str, Any]]:
    placed = [(name, "path") for name in _PLACEHOLDER.findall(path)]
    asked = [(name, "query") for name in row.query]
    return [
        {"name": name, "in": where, "required": where == "path", "schema": {"type": "string"}}
        for name, where in (*placed, *asked)
    ]


def _answer(row: Row) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if row.streams != "always":
        content[_JSON] = {"schema": _ref(row.answer) if row.answer is not None else {}}
    if row.streams:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    if row.path == "/metrics":
        content = {"text/plain": {"schema": {"type": "string"}}}
    return {"description": row.summary or "The answer.", "content": content}


def _error() -> dict[str, Any]:
    schema = {"$ref": REF.format(name="Error")}
    return {"description": "What went wrong.", "content": {_JSON: {"schema": schema}}}


def _ref(kind: type[Any]) -> dict[str, str]:
    return {"$ref": REF.format(name=kind.__name__)}


def _identity(method: str, path: str) -> str:
    words = re.findall(r"[A-Za-z0-9]+", path)
    return "_".join([method.lower(), *words])


def _any(_kind: type[Any]) -> dict[str, Any]:
    return {}
