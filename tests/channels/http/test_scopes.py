"""Which scope is for which route: every route by every caller."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from clawd.channels.http.app import needs_of, require
from clawd.channels.http.model_api import Caller
from clawd.channels.http.routes_table import ADMIN, ANY, PUBLIC, ROWS, TABLE, key_of
from clawd.errors import ForbiddenError
from clawd.security.principal import Principal
from clawd.service.http import routes_of
from tests.channels.http.rig import EVERYTHING, served
from tests.support.inprocess import OWNER

# Who is let in, written down here once more: a route that nobody gave a scope fails the test.
_WANTED = """
public      GET / | GET /page/{name} | GET /health | GET /v1/health
any         GET /openapi.json | GET /metrics | GET /status | GET /models/local | GET /estop
any         POST /estop
tools       GET /tools | GET /tools/{name} | POST /tools/{name}/run | GET /v1/tools | GET /receipts
tools       GET /receipts/verify | GET /receipts/head | GET /receipts/{id} | GET /approvals
tools       POST /mcp | GET /mcp | DELETE /mcp
chat        GET /v1/preset | POST /v1/preset | GET /conversations | GET /conversations/{id}
chat        GET /conversations/{id}/events | POST /conversations/{id}/cancel | GET /memory/search
chat        POST /questions/{id} | GET /events
chat+tools  POST /chat
login       POST /page/login
hook        POST /hook
admin       POST /approvals/{id} | POST /methods/{name} | POST /clawctl/{act}
models      GET /v1/models | GET /v1/models/{name:.+} | GET /models | POST /v1/chat/completions
models      POST /chat/completions | POST /v1/chat/completions/input_tokens
models      POST /chat/completions/input_tokens | POST /v1/completions | POST /completions
models      POST /v1/responses | POST /responses | POST /v1/responses/input_tokens
models      POST /responses/input_tokens | POST /v1/embeddings | POST /embeddings | POST /tokenize
models      POST /detokenize | POST /apply-template | GET /props | GET /slots | POST /v1/messages
models      POST /v1/messages/count_tokens | POST /api/chat | POST /api/generate | POST /api/embed
models      POST /api/embeddings | POST /api/show | GET /api/tags | GET /api/ps | GET /api/version
models      POST /api/pull | * /api/push | * /api/create | * /api/copy
admin       DELETE /api/delete
models      * /api/blobs/{digest} | POST /infill | POST /v1/rerank | POST /rerank
models      POST /v1/reranking | POST /reranking
"""
WANTS: dict[tuple[str, str], str] = {}
for _line in _WANTED.split("\n"):
    _scope, _, _routes = _line.partition(" ")
    for _route in filter(None, map(str.strip, _routes.split("|"))):
        _method, _path = _route.split()
        WANTS[_method, _path] = _scope
# What each set of scopes opens.
CALLERS = {
    "": set[str](),
    "models": {"models"},
    "chat": {"any", "models", "chat"},
    "tools": {"any", "tools"},
    "admin": {"any", "admin"},
    "models tools": {"any", "models", "tools"},
    "chat tools": {"any", "models", "chat", "tools", "chat+tools"},
    "models chat tools admin": {"any", "models", "chat", "tools", "chat+tools", "admin"},
}
# Of these a GET waits for what happens next.
FOLLOWING = {"/events", "/conversations/{id}/events"}


def place(route: web.RouteDef) -> str:
    return re.sub(r"\{[^{}]*\}", "x", route.path)


def method_of(route: web.RouteDef) -> str:
    return "POST" if route.method == "*" else route.method


def test_every_route_has_a_row_and_no_two_rows_are_of_one_route() -> None:
    assert len(TABLE) == len(ROWS)
    for route in routes_of():
        assert key_of(route.method, route.path) in TABLE, (route.method, route.path)


def test_a_family_of_routes_is_served_whole_or_not_at_all() -> None:
    served_keys = {key_of(route.method, route.path) for route in routes_of()}
    for family in {row.family for row in ROWS}:
        rows = {key_of(row.method, row.path) for row in ROWS if row.family == family}
        assert rows <= served_keys or not rows & served_keys, (family, rows - served_keys)


def test_what_is_unknown_needs_an_admin_and_head_is_as_get() -> None:
    assert needs_of("GET", "/made/up") == ADMIN
    assert needs_of("DELETE", "/status") == ADMIN
    assert needs_of("DELETE", "/api/delete") == ADMIN != needs_of("POST", "/api/pull")
    assert needs_of("HEAD", "/health") is PUBLIC
    assert needs_of("HEAD", "/status") == needs_of("GET", "/status") == ANY
    assert needs_of("POST", "/approvals/{other}") == ADMIN


def test_what_changes_what_others_decided_needs_an_admin() -> None:
    public = {(row.method, row.path) for row in ROWS if row.needs is PUBLIC}
    assert public == {
        ("GET", "/"),
        ("GET", "/page/{name}"),
        ("GET", "/health"),
        ("GET", "/v1/health"),
    }
    assert needs_of("POST", "/approvals/{id}") == ADMIN
    for row in ROWS:
        if "/tools" in row.path or "/receipts" in row.path or row.path == "/approvals":
            assert row.needs == frozenset({"tools"}), row


async def test_h1_each_route_lets_in_whoever_has_its_scopes_and_nobody_else(
    tmp_path: Path,
) -> None:
    wrong = []
    async with served(tmp_path) as door:
        for scopes, opened in CALLERS.items():
            door.caller = Caller(principal=OWNER, scopes=frozenset(scopes.split()), key_id="k1")
            for route in routes_of():
                stated = WANTS.get((route.method, route.path))
                is_welcome = stated == "public" or stated in opened
                if is_welcome and route.path in {*FOLLOWING, "/estop"}:
                    continue
                asked = door.session.request(method_of(route), door.url + place(route))
                async with asked as response:
                    told = await response.text()
                refused = response.status == 403 and "has not the scope" in told
                if stated is None or refused is is_welcome:
                    wrong.append((scopes, route.method, route.path, stated, response.status))
    assert not wrong, "\n".join(map(str, wrong))


async def test_whom_nobody_vouches_for_reaches_the_public_routes_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        door.caller = None  # type: ignore[assignment]
        for route in routes_of():
            async with door.session.request(method_of(route), door.url + place(route)) as response:
                is_public = needs_of(route.method, route.path) is PUBLIC
                told = await response.text()
                assert ("nobody vouches" in told) is not is_public, route.path
                assert is_public or response.status == 403, route.path


async def test_a_route_without_a_row_is_for_admins(tmp_path: Path) -> None:
    async def hello(_request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async with served(tmp_path, routes=[web.get("/hello", hello)]) as door:
        door.caller = Caller(principal=OWNER, scopes=frozenset({"chat", "tools"}))
        assert (await door.get("/hello"))[0] == 403
        door.caller = Caller(principal=OWNER, scopes=EVERYTHING)
        assert (await door.stream("/hello", {}))[0] == 405
        assert (await door.session.get(door.url + "/hello")).status == 200


def test_the_refusal_names_what_is_missing_and_whose() -> None:
    with pytest.raises(ForbiddenError, match="a request without a key has not the scope admin"):
        require(Caller(principal=OWNER, scopes=frozenset({"chat"})), "admin")
    with pytest.raises(ForbiddenError, match="key k1 has not the scope chat and tools"):
        require(Caller(principal=OWNER, scopes=frozenset({"admin"}), key_id="k1"), "chat", "tools")
    for few in ((), ("models",)):
        with pytest.raises(ForbiddenError, match="scope chat"):
            require(Caller(principal=OWNER, scopes=frozenset(few)))


ADA = Principal(uid=77_001, gid=77_001, pid=0)


def with_key(key: str, *scopes: str, who: Principal = ADA) -> Caller:
    principal = msgspec.structs.replace(who, key_id=key)
    return Caller(principal=principal, scopes=frozenset(scopes), key_id=key)


async def test_h1_a_key_sees_what_was_made_with_it_and_nothing_else_of_its_owner(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as door:
        door.caller = Caller(principal=ADA, scopes=frozenset({"chat", "tools"}))
        _, private = await door.post("/chat", {"message": "purple elephant of the owner"})
        _, by_owner = await door.post("/tools/time/run", {})
        door.caller = with_key("k1", "chat", "tools")
        _, first = await door.post("/chat", {"message": "purple elephant of the first key"})
        _, by_first = await door.post("/tools/time/run", {})
        at = {
            "private": private["conversation_id"],
            "by_owner": by_owner["receipt_id"],
            "first": first["conversation_id"],
            "by_first": by_first["receipt_id"],
        }

        async def seen() -> dict[str, Any]:
            found = (await door.get("/memory/search?q=purple"))[1]["items"]
            listed = (await door.get("/conversations"))[1]["items"]
            receipts = (await door.get("/receipts"))[1]["items"]
            statuses: dict[str, Any] = {
                f"{name} {way}": (await door.get(f"/{way}/{at[name]}"))[0]
                for name, way in (
                    ("private", "conversations"),
                    ("first", "conversations"),
                    ("by_owner", "receipts"),
                    ("by_first", "receipts"),
                )
            }
            for name in ("private", "first"):
                way = f"/conversations/{at[name]}/cancel"
                statuses[f"{name} cancel"] = (await door.post(way, {}))[0]
                going_on = {"message": "more", "conversation_id": at[name]}
                statuses[f"{name} goes on"] = (await door.post("/chat", going_on))[0]
                statuses[f"{name} run"] = (
                    await door.post("/tools/time/run", {"conversation_id": at[name]})
                )[0]
            searched = await door.post(
                "/tools/memory_search/run", {"arguments": {"query": "eleph"}}
            )
            return {
                "hits": {each["conversation_id"] for each in found},
                "conversations": {each["id"] for each in listed},
                "receipts": {each["id"] for each in receipts},
                "by the tool": {
                    name for name in ("private", "first") if at[name] in searched[1]["output"]
                },
            } | statuses

        own = {"private": 404, "by_owner": 404, "first": 200, "by_first": 200}
        ways = ("conversations", "receipts", "cancel", "goes on", "run")
        expected: dict[str, Any] = {
            f"{name} {way}": status
            for name, status in own.items()
            for way in ways
            if (way == "receipts") is name.startswith("by_")
        }
        assert await seen() == expected | {
            "hits": {at["first"]},
            "conversations": {at["first"]},
            "receipts": {at["by_first"]},
            "by the tool": {"first"},
        }
        door.caller = with_key("k2", "chat", "tools")
        strange = await seen()
        assert strange["hits"] == strange["conversations"] == strange["receipts"] == set()
        assert {strange[name] for name in expected} == {404}
        door.caller = Caller(principal=ADA, scopes=frozenset({"chat", "tools"}))
        everything = await seen()
        assert everything["hits"] == everything["conversations"] == {at["private"], at["first"]}
        assert {everything[name] for name in expected} == {200}
        door.caller = with_key("k3", "chat", "tools", "admin", who=OWNER)
        assert (await seen())["hits"] == {at["private"], at["first"]}


async def test_h1_a_key_is_not_told_what_happens_elsewhere_and_finds_no_place_there(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as door:
        door.caller = Caller(principal=ADA, scopes=frozenset({"chat", "tools"}))
        hub = door.inside.daemon.inbox.book.hub
        told = {key: hub.subscribe(with_key(key).principal) for key in ("", "k1", "k2")}
        first = [{"role": "user", "content": "purple elephant"}]
        asked = {"model": "clawd", "messages": first}
        body = {"model": "clawd", "messages": first}
        door.caller = with_key("k1", "chat", "tools")
        async with door.session.post(door.url + "/v1/chat/completions", json=body) as response:
            place = response.headers["X-Clawd-Conversation"]
            answer = (await response.json())["choices"][0]["message"]["content"]
        more = [*first, {"role": "assistant", "content": answer}, {"role": "user", "content": "x"}]
        for key, is_there in (("k2", False), ("k1", True)):
            door.caller = with_key(key, "chat", "tools")
            asked = {"model": "clawd", "messages": more}
            async with door.session.post(door.url + "/v1/chat/completions", json=asked) as again:
                assert (again.headers["X-Clawd-Conversation"] == place) is is_there, key
            headers = {"X-Clawd-Conversation": place}
            status, _ = await door.post("/v1/chat/completions", body, **headers)
            assert status == (200 if is_there else 404)
        for subscription in told.values():
            subscription.close()
        seen = {key: {each.conversation_id async for each in told[key]} for key in told}
        assert place in seen["k1"] and place not in seen["k2"]
        assert seen[""] == seen["k1"] | seen["k2"]


async def test_h1_a_key_for_models_gets_the_model_alone_and_nothing_is_kept(
    tmp_path: Path,
) -> None:
    call = {"tool_calls": [{"name": "file_list", "arguments": {"path": "."}}], "text": "I look."}
    async with served(tmp_path, *[call] * 4) as door:
        door.caller = with_key("k1", "models", "tools")
        hello = {"model": "clawd", "messages": [{"role": "user", "content": "what is here?"}]}
        told = [
            (await door.post("/v1/chat/completions", hello))[0],
            (await door.post("/v1/messages", hello | {"max_tokens": 9}))[0],
            (await door.post("/api/chat", hello | {"stream": False}))[0],
            (await door.post("/v1/responses", {"model": "clawd", "input": "what is here?"}))[0],
        ]
        assert told == [200] * 4
        assert door.inside.receipts() == []
        counts = await door.inside.daemon.memory.conversations.counts(owner=None)
        assert counts.conversations == 0
