"""The OpenAPI 3.1 document of the routes that are served, made from the table of routes."""

import re
from typing import Any

import msgspec
from aiohttp import web

from clawd.channels.http.routes_table import PUBLIC, Row, row_of

REF = "#/components/schemas/{name}"
_PLACE = re.compile(r"\{([^{}]*)\}")
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
    placed = [(name, "path") for name in _PLACE.findall(path)]
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
