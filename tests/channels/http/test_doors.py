"""What a request passes before a handler, over raw sockets: what is let in, and what is not."""

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from clawd.errors import ForbiddenError
from clawd.security.principal import Principal
from clawd.service.http import invoke_of
from clawd.wire.daemon import CreateKey, Ping
from clawd.wire.policy import AnswerApproval, RevokeRule
from tests.channels.http.door import LIMIT_S, guarded, reply_of, statuses
from tests.support.inprocess import OWNER
from tests.support.rows import each_row

PAGE = "http://localhost:3000"
CORS = f'cors_origins = ["{PAGE}"]'
EVIL = "http://evil.example"


async def test_a_request_with_a_key_reaches_its_handler_as_the_owner_of_the_key(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as door:
        reply = await door.ask()
        assert reply.status == 200
        key_id = door.key.split("_")[1]
        scopes = ["admin", "chat", "models", "tools"]
        expected = {"uid": OWNER.uid, "role": "admin", "scopes": scopes, "key": key_id}
        assert reply.json() == expected
        assert reply.headers["x-request-id"].startswith("req_")
        assert "access-control-allow-origin" not in reply.headers
        shown = await door.ask(key="none", X_Api_Key=door.key)
        assert shown.json() == expected


@each_row(
    ("path", "told"),
    [
        ("/who", {"error": {"type": "authentication_error", "code": "unauthenticated"}}),
        ("/v1/messages", {"type": "error", "error": {"type": "authentication_error"}}),
        ("/api/chat", {"error": "the key is not known"}),
        ("/nothing/here", {"error": {"type": "authentication_error"}}),
    ],
)
async def test_a_wrong_key_is_told_in_the_words_of_the_dialect(
    tmp_path: Path, path: str, told: dict[str, object]
) -> None:
    async with guarded(tmp_path) as door:
        wrong = door.key[:-1] + ("0" if door.key[-1] != "0" else "1")
        for key in (wrong, "guess", "clawd_aaaaaaaaaa_" + "0" * 64, door.key.upper()):
            reply = await door.ask("POST", path, body=b"{}", key=key)
            assert reply.status == 401
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert key not in reply.body.decode()
            found = reply.json()
            if isinstance(told["error"], str):
                assert found["error"].startswith(told["error"])
            else:
                assert isinstance(told["error"], dict)
                assert told["error"].items() <= found["error"].items()
        assert door.reached == []


async def test_a_key_in_the_address_is_none(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        reply = await door.ask(path=f"/who?key={door.key}&api_key={door.key}", key="none")
        assert reply.status == 401


async def test_health_is_public_and_nothing_else(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        door.key = ""
        for path in ("/health", "/v1/health", "/"):
            assert (await door.ask(path=path)).status == 200
            assert (await door.ask("POST", path, body=b"{}")).status == 401
        head = await door.ask("HEAD", "/")
        assert (head.status, head.body) == (200, b"")
        for path in ("/who", "/metrics", "/health/", "//health", "/health/../who", "/slots"):
            assert (await door.ask(path=path)).status == 401
        assert (await door.ask(path="/health", host="evil.example")).status == 403
        assert (await door.ask(path="/health", Origin=EVIL)).status == 403


async def test_expired_and_revoked_keys_let_nobody_in_and_open_no_door(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        keys = door.inside.daemon.keys
        other = await door.make_key()
        assert (await door.ask(path="/status", key=other)).status == 200
        await keys.revoke(other.split("_")[1], OWNER)
        assert (await door.ask(key=other)).status == 401
        await keys.revoke(door.key.split("_")[1], OWNER)
        for key in (None, ""):
            reply = await door.ask(key=key)
            assert reply.status == 401
            assert b"does not talk to itself" not in reply.body
        assert door.reached == ["/status"]


async def test_s12_keyless_access_is_open_until_the_first_key_or_where_the_config_says_so(
    tmp_path: Path,
) -> None:
    # The test's process is the daemon's own: the open door looks who it is, and refuses it then.
    looked = b"does not talk to itself"
    for number, (line, before, after) in enumerate(
        (("", True, False), ('keyless = "on"', True, True), ('keyless = "off"', False, False))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with guarded(folder, line, with_key=False) as door:
            assert (looked in (await door.ask()).body) is before, line
            assert (looked in (await door.ask(key="anything")).body) is before, line
            key = await door.make_key()
            assert (await door.ask(path="/status", key=key)).status == 200
            for _ in range(2):
                assert (looked in (await door.ask()).body) is after, line
                assert looked not in (await door.ask(key=key + "0")).body
                await door.inside.daemon.keys.revoke(key.split("_")[1], OWNER)
                key = await door.make_key()
            await door.inside.daemon.keys.revoke(key.split("_")[1], OWNER)
            assert (looked in (await door.ask()).body) is after, line
            assert looked not in (await door.ask(key=key)).body


async def test_a_stream_ends_at_once_when_its_key_is_revoked(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door, asyncio.timeout(LIMIT_S):
        other, keys = await door.make_key(), door.inside.daemon.keys
        streaming = asyncio.create_task(door.ask(path="/stream", key=other))
        await door.begun.wait()
        await keys.revoke(other.split("_")[1], OWNER)
        await door.cancelled.wait()
        assert b"data: two" not in (await streaming).body
        assert (await door.ask()).status == 200


async def test_a_stream_ends_when_its_key_expires(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door, asyncio.timeout(LIMIT_S):
        almost = datetime.now(UTC) + timedelta(days=1, seconds=-1)  # or less: a key takes a while
        other, keys = await door.make_key(days=1), door.inside.daemon.keys
        keys._now = lambda: almost
        streaming = asyncio.create_task(door.ask(path="/stream", key=other))
        await door.begun.wait()
        await door.cancelled.wait()
        assert b"data: two" not in (await streaming).body


async def test_what_waits_when_its_key_is_revoked_is_told_so(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door, asyncio.timeout(LIMIT_S):
        other, keys = await door.make_key(), door.inside.daemon.keys
        waiting = asyncio.create_task(door.ask(path="/wait", key=other))
        await door.begun.wait()
        await keys.revoke(other.split("_")[1], OWNER)
        assert (await waiting).status == 401
        assert door.cancelled.is_set()


@each_row("http", ['insecure_bind = true\nhost = "0.0.0.0"'])
async def test_without_keys_only_loopback_is_open(tmp_path: Path, http: str) -> None:
    async with guarded(tmp_path, http) as door:
        await door.inside.daemon.keys.revoke(door.key.split("_")[1], OWNER)
        reply = await door.ask(key="")
        assert (reply.status, b"there is no key" in reply.body) == (401, True)


async def test_in_the_system_mode_a_key_is_always_needed(tmp_path: Path) -> None:
    async with guarded(tmp_path, mode="system", with_key=False) as door:
        reply = await door.ask(key="any")
        assert (reply.status, b"clawctl key create" in reply.body) == (401, True)


async def test_a_key_of_somebody_who_may_not_talk_to_the_daemon_any_more_is_refused(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as door:
        key = await door.make_key(Principal(uid=70_010, gid=70_010, pid=1))
        assert (await door.ask(key=key)).status == 403
        assert door.reached == []


async def test_admin_takes_scope_and_owner(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        plain = await door.make_key()
        told = (await door.ask(path="/status", key=plain)).json()
        assert (told["role"], told["scopes"]) == ("user", ["chat", "tools"])
        with pytest.raises(ForbiddenError):
            await door.make_key(Principal(uid=70_010, gid=70_010, pid=1), "admin")


@each_row(
    "params",
    [
        AnswerApproval(approval_id="a", digest="d", answer="once"),
        RevokeRule(rule_id="r"),
        CreateKey(),
    ],
)
async def test_who_is_no_admin_answers_no_approval_and_makes_no_key_over_http(
    tmp_path: Path, params: AnswerApproval | RevokeRule | CreateKey
) -> None:
    async with guarded(tmp_path) as door:
        invoke = invoke_of(door.inside.daemon)
        with pytest.raises(ForbiddenError, match="key with scope admin"):
            await invoke(params, Principal(uid=OWNER.uid, gid=OWNER.gid, pid=0))
        await invoke(Ping(), Principal(uid=OWNER.uid, gid=OWNER.gid, pid=0))


@each_row("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@each_row("path", ["/who", "/take", "/nothing", "/health"])
async def test_where_it_comes_from_is_judged_first_for_every_method_and_path(
    tmp_path: Path, method: str, path: str
) -> None:
    async with guarded(tmp_path, CORS) as door:
        refused = [
            await door.ask(method, path, body=b"{}", Origin=EVIL),
            await door.ask(method, path, body=b"{}", Origin="null"),
            await door.ask(method, path, body=b"{}", host="evil.example"),
            await door.ask(method, path, body=b"{}", host=" "),
            await door.ask(method, path, body=b"{}", Sec_Fetch_Site="cross-site"),
            await door.ask(method, path, body=b"{}", host="evil.example", Origin=PAGE),
        ]
        assert [reply.status for reply in refused] == [403] * 6
        assert not [r for r in refused if "access-control-allow-origin" in r.headers]
        assert door.reached == []


async def test_a_request_names_one_host(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        right = f"127.0.0.1:{door.port}"
        assert (await door.ask(host=None)).status in {400, 403}
        assert (await door.ask(host=right, Host="evil.example")).status in {400, 403}
        assert (await door.ask(path="http://evil.example/who")).status == 403
        assert (await door.ask(path=f"http://{right}/who")).status == 200
        old = await door.raw(b"GET /who HTTP/1.0\r\n\r\n")
        assert reply_of(old.replace(b"HTTP/1.0", b"HTTP/1.1")).status == 403
        assert door.reached == [f"http://{right}/who"]


async def test_a_configured_page_may_ask_and_read_errors_and_streams_too(tmp_path: Path) -> None:
    async with guarded(tmp_path, CORS) as door:
        door.go_on.set()
        replies = [
            await door.ask(Origin=PAGE),
            await door.ask(path="/stream", Origin=PAGE),
            await door.ask(path="/nothing", Origin=PAGE),
            await door.ask(path="/defect", Origin=PAGE),
            await door.ask(Origin=PAGE, key="wrong"),
            await door.ask("POST", "/take", body=b"[", Origin=PAGE),
        ]
        assert [reply.status for reply in replies] == [200, 200, 404, 500, 401, 400]
        for reply in replies:
            assert reply.headers["access-control-allow-origin"] == PAGE
            assert "Origin" in reply.headers["vary"]
            assert "access-control-allow-credentials" not in reply.headers
        assert b"a secret of ours" not in replies[3].body


async def test_a_preflight_is_answered_to_configured_pages_only(tmp_path: Path) -> None:
    async with guarded(tmp_path, CORS) as door:
        door.key = ""
        wanted = "authorization,content-type,x-stainless-lang"
        reply = await door.ask(
            "OPTIONS",
            "/v1/messages",
            Origin=PAGE,
            Access_Control_Request_Method="POST",
            Access_Control_Request_Headers=wanted,
        )
        assert reply.status == 204
        assert reply.headers["access-control-allow-origin"] == PAGE
        assert reply.headers["access-control-allow-methods"] == "POST"
        assert reply.headers["access-control-allow-headers"].replace(" ", "") == wanted
        assert "Origin" in reply.headers["vary"]
        for origin in (EVIL, "null", "http://localhost:3001"):
            refused = await door.ask(
                "OPTIONS", "/take", Origin=origin, Access_Control_Request_Method="POST"
            )
            assert refused.status == 403
            assert not [name for name in refused.headers if name.startswith("access-control")]
        plain = await door.ask("OPTIONS", "*")
        assert (plain.status, plain.headers.get("access-control-allow-origin")) == (204, None)


async def test_each_key_has_its_rate(tmp_path: Path) -> None:
    async with guarded(tmp_path, "requests_per_minute = 2") as door:
        other = await door.make_key()
        replies = [await door.ask("POST", "/v1/messages", body=b"{}") for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 429]
        assert 1 <= int(replies[2].headers["retry-after"]) <= 30
        assert replies[2].json()["error"]["type"] == "rate_limit_error"
        assert (await door.ask(path="/status", key=other)).status == 200
        assert (await door.ask(path="/health")).status == 200


async def test_a_check_that_breaks_lets_nobody_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_given: object) -> None:
        raise RuntimeError("broken")

    for target in (
        "clawd.channels.http.guard.refusal",
        "clawd.security.keys.KeyBook.find",
        "clawd.channels.http.guard.Rates.take",
    ):
        with monkeypatch.context() as patched:
            patched.setattr(target, broken)
            async with guarded(tmp_path) as door:
                assert (await door.ask()).status == 500
                assert door.reached == []


async def test_keys_and_forged_lines_do_not_get_into_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with guarded(tmp_path) as door:
        forged = "/x%0d%0aINFO%20clawd:%20forged?key="
        await door.ask(path=forged + door.key)
        await door.ask(path=forged + door.key, Origin="http://x\udc85INFO forged")
        await door.ask(key="clawd_bbbbbbbbbb_" + "a" * 64)
        texts = [str(vars(record)) for record in caplog.records if "clawd" in record.name]
        lines = [getattr(record, "target", "") for record in caplog.records]
    assert any("forged" in line for line in lines)
    assert not [line for line in lines if "\n" in line or "\r" in line]
    secret = door.key.rpartition("_")[2]
    assert not [text for text in texts if secret in text or "a" * 64 in text]


async def test_a_daemon_that_ends_refuses_what_is_new_and_lets_the_rest_finish(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as door, asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        head = f"Host: localhost\r\nAuthorization: Bearer {door.key}\r\n\r\n"
        writer.write(f"GET /who HTTP/1.1\r\n{head}".encode())
        await reader.readuntil(b"\r\n\r\n")
        streaming = asyncio.create_task(door.ask(path="/stream"))
        await door.begun.wait()
        door.server.stop_listening()
        writer.write(f"GET /who HTTP/1.1\r\n{head}".encode())
        late = await reader.read()
        assert statuses(late) == [503]
        with pytest.raises(ConnectionError):
            await door.raw(b"GET / HTTP/1.1\r\n\r\n")
        settling = asyncio.create_task(door.server.settle(LIMIT_S))
        door.go_on.set()
        assert b"data: two" in (await streaming).body
        await settling
        writer.close()


async def test_what_does_not_finish_in_its_grace_is_cancelled(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door, asyncio.timeout(LIMIT_S):
        streaming = asyncio.create_task(door.ask(path="/stream"))
        await door.begun.wait()
        await door.server.settle(0.01)
        await door.server.close()
        assert door.cancelled.is_set()
        assert b"data: two" not in (await streaming).body


async def test_a_client_that_leaves_cancels_its_handler(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door, asyncio.timeout(LIMIT_S):
        _, writer = await asyncio.open_connection("127.0.0.1", door.port)
        text = f"GET /stream HTTP/1.1\r\nHost: localhost\r\nX-Api-Key: {door.key}\r\n\r\n"
        writer.write(text.encode())
        await door.begun.wait()
        writer.close()
        await door.cancelled.wait()


async def test_names_that_are_configured_may_be_asked(tmp_path: Path) -> None:
    async with guarded(tmp_path, 'allowed_hosts = ["Clawd.lan"]') as door:
        assert (await door.ask(host="clawd.lan:80")).status == 200
        assert (await door.ask(host="x.clawd.lan")).status == 403


async def test_the_use_of_a_key_is_remembered(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        (key,) = door.inside.daemon.keys.visible_to(OWNER)
        assert key.used_at == ""
        await door.ask()
        (used,) = await door.inside.daemon.memory.keys.load()
        assert used.used_at >= used.created_at
        assert json.dumps(door.key) not in str(used)
