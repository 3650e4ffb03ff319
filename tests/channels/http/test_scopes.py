"""Which scope is for which route: every route by every caller."""

import re
from itertools import chain, combinations
from pathlib import Path

import pytest
from aiohttp import web

from clawd.channels.http.exchange import Caller
from clawd.channels.http.routes_table import ADMIN, ANY, PUBLIC, ROWS, TABLE, key_of
from clawd.channels.http.scopes import needs_of, require
from clawd.errors import ForbiddenError
from clawd.service.http import routes_of
from tests.channels.http.rig import EVERYTHING, served
from tests.support.inprocess import OWNER
from tests.support.rows import each_row

SCOPES = ("chat", "tools", "admin")
SETS = [
    frozenset(some)
    for some in chain.from_iterable(combinations(SCOPES, n) for n in range(len(SCOPES) + 1))
]
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
    assert needs_of("DELETE", "/api/delete") == needs_of("POST", "/api/chat") != ADMIN
    assert needs_of("HEAD", "/health") is PUBLIC
    assert needs_of("HEAD", "/status") == needs_of("GET", "/status") == ANY
    assert needs_of("POST", "/approvals/{other}") == ADMIN


def test_what_changes_what_others_decided_needs_an_admin() -> None:
    public = {(row.method, row.path) for row in ROWS if row.needs is PUBLIC}
    assert public == {("GET", "/"), ("GET", "/health"), ("GET", "/v1/health")}
    assert needs_of("POST", "/approvals/{id}") == ADMIN
    for row in ROWS:
        if "/tools" in row.path or "/receipts" in row.path or row.path == "/approvals":
            assert row.needs == frozenset({"tools"}), row


@each_row("scopes", SETS, ids=lambda scopes: "+".join(sorted(scopes)) or "none")
async def test_each_route_lets_in_whoever_has_its_scopes_and_nobody_else(
    tmp_path: Path, scopes: frozenset[str]
) -> None:
    async with served(tmp_path) as door:
        door.caller = Caller(principal=OWNER, scopes=scopes, key_id="k1")
        for route in routes_of():
            if route.path == "/estop":
                continue
            needs = needs_of(route.method, route.path)
            is_public = needs is PUBLIC
            is_welcome = is_public or (bool(scopes) and (needs or frozenset()) <= scopes)
            if is_welcome and route.path in FOLLOWING:
                continue
            async with door.session.request(method_of(route), door.url + place(route)) as response:
                told = await response.text()
                refused = response.status == 403 and "has not the scope" in told
            assert refused is not is_welcome, (route.method, route.path, response.status)


async def test_whom_nobody_vouches_for_reaches_the_public_routes_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        door.caller = None  # type: ignore[assignment]
        for route in routes_of():
            async with door.session.request(method_of(route), door.url + place(route)) as response:
                is_public = needs_of(route.method, route.path) is PUBLIC
                assert (response.status == 200) is is_public, route.path
                if not is_public:
                    assert "nobody vouches" in await response.text()


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
    with pytest.raises(ForbiddenError, match="any"):
        require(Caller(principal=OWNER))
