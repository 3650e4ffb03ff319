"""What is no honest HTTP: answered shortly or cut, never taken for another request."""

import asyncio
import gzip
import json
import socket
import time
from pathlib import Path

import pytest

from clawd.channels.http import guard
from tests.channels.http.door import LIMIT_S, Guarded, Reply, guarded, reply_of, rest_of, statuses
from tests.support.rows import each_row

FAST = "header_timeout_s = 0.3\nbody_timeout_s = 0.3\nidle_timeout_s = 0.3"
SMUGGLED = b"GET /who?smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


def head(door: Guarded, first: str, *lines: str) -> bytes:
    given = [first, "Host: localhost", f"Authorization: Bearer {door.key}", *lines, "", ""]
    return "\r\n".join(given).encode()


async def is_alive(door: Guarded) -> bool:
    return (await door.ask()).status == 200


@each_row(
    "lines",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Content-Length: 4"),
        ("Content-Length: 4", "Content-Length: 60"),
        ("Content-Length: 4, 60",),
        ("Content-Length: +4",),
        ("Content-Length: 0x4",),
        ("Content-Length: -1",),
        ("Content-Length: 4 ", "Content-Length : 60"),
        ("Transfer-Encoding: xchunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding: \x0bchunked",),
        ("X: y\n Transfer-Encoding: chunked",),
    ],
    ids=str,
)
async def test_a_request_of_two_lengths_smuggles_no_second_one(
    tmp_path: Path, lines: tuple[str, ...]
) -> None:
    async with guarded(tmp_path, FAST) as door:
        for rest in (b"0\r\n\r\n" + SMUGGLED, b"4\r\n{ } \r\n0\r\n\r\n" + SMUGGLED):
            answer = await door.raw(head(door, "POST /take HTTP/1.1", *lines) + rest)
            assert not [target for target in door.reached if "smuggled" in target], answer
        assert await is_alive(door)


@each_row(
    "rest",
    [
        b"ffffffffffffffff1\r\n{}",
        b"-1\r\n{}\r\n0\r\n\r\n",
        b"2;" + b"x" * 100_000 + b"\r\n{}\r\n0\r\n\r\n",
        b"2\n{}\n0\n\n",
        b"2\r\n{}XX\r\n0\r\n\r\n",
        b"0x2\r\n{}\r\n0\r\n\r\n",
        b"\r\n\r\n",
        b"2\r\n{}\r\n0\r\nContent-Length: 99\r\n\r\n" + SMUGGLED,
    ],
    ids=range(8),
)
async def test_bad_chunks_are_refused_and_hide_no_request(tmp_path: Path, rest: bytes) -> None:
    async with guarded(tmp_path, FAST) as door:
        start = head(door, "POST /take HTTP/1.1", "Transfer-Encoding: chunked")
        answer = await door.raw(start + rest)
        assert 500 not in statuses(answer)
        assert not [target for target in door.reached if "smuggled" in target]
        assert await is_alive(door)


@each_row(
    "data",
    [
        b"\x00" * 1_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 200,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET  /who  HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /who\r\n\r\n",
        b"G\xc3\x84T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /who HTTP/1.1\r\nHost: local\x00host\r\n\r\n",
        b"GET /who HTTP/1.1\r\nHost\r\n\r\n",
        b"GET /who HTTP/1.1\nHost: localhost\n\n",
        b"GET /who HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n",
        b"CONNECT localhost:22 HTTP/1.1\r\nHost: localhost:22\r\n\r\n",
        b"TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /who HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=range(15),
)
async def test_rubbish_is_answered_with_an_error_or_a_closed_connection(
    tmp_path: Path, data: bytes
) -> None:
    async with guarded(tmp_path, FAST) as door:
        answer = await door.raw(data)
        assert not [status for status in statuses(answer) if status < 400 or status >= 500]
        assert door.reached == []
        assert await is_alive(door)


@each_row(
    ("data", "problem"),
    [
        (b"G@T / HTTP/1.1\r\nHost: localhost\r\n\r\n", "Invalid method encountered"),
        (b"GET /who HTTP/1.1\r\n\r\n", "Missing 'Host' header"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", "Content-Length"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX-Api-Key: SECRET\x00\r\n\r\n", "header value"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"SECRET" * 2_000 + b"\r\n\r\n", "8190 bytes"),
    ],
    ids=["method", "host", "length", "value", "long"],
)
async def test_what_is_no_request_is_told_as_json_by_clawd_without_what_came(
    tmp_path: Path, data: bytes, problem: str
) -> None:
    async with guarded(tmp_path, FAST) as door:
        head, _, body = (await door.raw(data)).partition(b"\r\n\r\n")
        assert b" 400 " in head.split(b"\r\n")[0]
        assert b"Server: clawd" in head
        assert b"application/json" in head
        error = json.loads(body)["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_request")
        assert problem in error["message"]
        assert b"SECRET" not in body
        assert door.reached == []


async def test_an_upgrade_is_not_taken_and_its_tail_is_no_request_without_a_key(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, FAST) as door:
        start = head(door, "GET /who HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket")
        assert statuses(await door.raw(start + SMUGGLED)) in ([200], [200, 401])
        assert door.reached == ["/who"]


async def test_each_of_many_requests_on_one_connection_is_judged(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        with_key = head(door, "GET /who HTTP/1.1")
        evil = with_key.replace(b"Host: localhost", b"Host: evil.example")
        last = head(door, "GET /who HTTP/1.1", "Connection: close")
        answer = await door.raw(with_key + evil + SMUGGLED + last)
        assert statuses(answer) == [200, 403, 401, 200]
        assert door.reached == ["/who", "/who"]
        flood = await door.raw(with_key * 500 + last)
        assert statuses(flood) == [200] * 501


@each_row(
    "lines",
    [
        ("X-Long: " + "x" * 20_000,),
        tuple(f"X-{number}: y" for number in range(1_000)),
        ("Cookie: " + "a=b; " * 10_000,),
    ],
    ids=["one long", "many", "cookie"],
)
async def test_a_huge_head_is_refused(tmp_path: Path, lines: tuple[str, ...]) -> None:
    async with guarded(tmp_path) as door:
        answer = await door.raw(head(door, "GET /who HTTP/1.1", *lines))
        assert statuses(answer) in ([], [400], [431])
        assert statuses(await door.raw(head(door, f"GET /{'x' * 20_000} HTTP/1.1"))) in (
            [],
            [400],
            [414],
        )
        assert door.reached == []
        assert await is_alive(door)


async def test_a_head_that_does_not_come_to_its_end_is_cut(tmp_path: Path) -> None:
    async with guarded(tmp_path, FAST) as door, asyncio.timeout(LIMIT_S):
        assert statuses(await door.raw(b"")) == [408]
        assert statuses(await door.raw(b"GET /who HTTP/1.1\r\nHost: local")) == [408]
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)

        async def drip() -> None:
            for letter in b"GET /who HTTP/1.1\r\nX: " + b"y" * 10_000:
                writer.write(bytes([letter]))
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert statuses(await rest_of(reader)) == [408]
        dripping.cancel()
        writer.close()


async def test_a_head_that_was_sent_in_time_is_answered_however_late_the_loop_is(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path, FAST) as door, asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        for _ in range(10):  # the server's end of it is there as well
            await asyncio.sleep(0)
        writer.write(head(door, "GET /who HTTP/1.1", "Connection: close"))
        time.sleep(0.5)  # the loop stands still, as on a busy machine
        assert statuses(await reader.read()) == [200]
        writer.close()


async def test_an_idle_connection_is_closed_and_a_second_slow_head_too(tmp_path: Path) -> None:
    async with guarded(tmp_path, FAST) as door, asyncio.timeout(LIMIT_S):
        assert statuses(await door.raw(head(door, "GET /who HTTP/1.1"))) == [200]
        second = head(door, "GET /who HTTP/1.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(second)
        await reader.readuntil(b"}")
        writer.write(second[:-2])
        assert statuses(await rest_of(reader)) == [408]
        writer.close()


async def test_a_second_head_has_as_long_as_the_first_one(tmp_path: Path) -> None:
    times = "header_timeout_s = 0.8\nidle_timeout_s = 0.3"
    async with guarded(tmp_path, times) as door, asyncio.timeout(LIMIT_S):
        whole = head(door, "GET /who HTTP/1.1")
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        writer.write(whole)
        await reader.readuntil(b"}")
        writer.write(whole[:-2])
        assert statuses(await rest_of(reader)) == [408]
        writer.close()


async def test_a_stream_outlives_all_these_times(tmp_path: Path) -> None:
    async with guarded(tmp_path, FAST) as door, asyncio.timeout(LIMIT_S):
        streaming = asyncio.create_task(door.ask(path="/stream"))
        await door.begun.wait()
        assert statuses(await door.raw(b"GET")) == [408]  # as long as an idle one may last
        door.go_on.set()
        assert b"data: two" in (await streaming).body


@each_row("path", ["/take", "/v1/messages", "/api/chat"])
async def test_a_body_that_does_not_come_to_its_end_is_cut(tmp_path: Path, path: str) -> None:
    async with guarded(tmp_path, FAST) as door:
        start = head(door, f"POST {path} HTTP/1.1", "Content-Length: 100")
        reply = reply_of(await door.raw(start + b'{"a":'))
        assert (reply.status, reply.headers["connection"]) == (408, "close")
        assert "took too long" in str(reply.json())
        assert door.reached == []


def told_in(path: str, reply: Reply) -> str:
    """Return what an error says, out of the JSON in which the clients of a path look for it."""
    assert reply.headers["content-type"].startswith("application/json")
    value = reply.json()
    if path.startswith("/api/"):
        return str(value["error"])
    if path == "/v1/messages":
        assert value["type"] == "error" and value["error"]["type"]
    else:
        assert set(value["error"]) >= {"message", "type", "param", "code"}
    return str(value["error"]["message"])


async def test_h8_408_417_and_503_are_told_in_the_json_of_each_dialect(tmp_path: Path) -> None:
    async with guarded(tmp_path, f"{FAST}\nmax_connections = 8") as door:
        for path in ("/take", "/v1/messages", "/api/chat"):
            begun = head(door, f"POST {path} HTTP/1.1", "Content-Length: 9", "Connection: close")
            slow = reply_of(await door.raw(begun + b"{"))
            assert (slow.status, "took too long" in told_in(path, slow)) == (408, True)
            odd = await door.ask("POST", path, body=b"{}", Expect="a-miracle")
            assert (odd.status, "Expect" in told_in(path, odd)) == (417, True)
        # Who sent no whole head has named no dialect: the fields of all of them are there.
        early = reply_of(await door.raw(b"POST /api/chat HTTP/1.1\r\n"))
        assert early.status == 408
        assert all(told_in(path, early) for path in ("/take", "/v1/messages", "/api/chat"))
        door.server._traffic.is_draining = True
        for path in ("/take", "/v1/messages", "/api/chat"):
            leaving = await door.ask("POST", path, body=b"{}")
            assert (leaving.status, leaving.headers["retry-after"]) == (503, "5")
            assert "ending" in told_in(path, leaving)


async def test_m2_a_request_that_came_too_late_is_logged_with_who_sent_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="clawd.channels.http")
    async with guarded(tmp_path, FAST) as door, asyncio.timeout(LIMIT_S):
        for begun in (b"GET /who", head(door, "POST /take HTTP/1.1", "Content-Length: 9") + b"{"):
            assert statuses(await door.raw(begun)) == [408]
    late = [each for each in caplog.records if each.getMessage().endswith("in time: 408")]
    assert [each.getMessage().split()[2] for each in late] == ["head", "body"]
    assert all("127.0.0.1" in each.__dict__["peer"] for each in late)


@each_row("path", ["/take", "/v1/messages", "/api/chat"])
async def test_a_body_that_is_too_long_is_refused(tmp_path: Path, path: str) -> None:
    async with guarded(tmp_path, "max_body_bytes = 1024") as door:
        fits = b'{"a": "%s"}' % (b"x" * 1_000)
        assert (await door.ask("POST", path, body=fits)).status == 200
        door.reached.clear()
        too_long = b'{"a": "%s"}' % (b"x" * 2_000)
        replies = [await door.ask("POST", path, body=too_long)]
        start = head(door, f"POST {path} HTTP/1.1", "Transfer-Encoding: chunked")
        chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(too_long), too_long)
        replies.append(reply_of(await door.raw(start + chunks)))
        # A length alone is enough: nobody waits for what would come.
        start = head(door, f"POST {path} HTTP/1.1", "Content-Length: 999999999999")
        replies.append(reply_of(await door.raw(start)))
        assert [reply.status for reply in replies] == [413] * 3
        for reply in replies:
            assert "1024 (max_body_bytes in [channels.http])" in str(reply.json())
        assert door.reached == []


async def test_a_body_is_read_only_of_those_who_may_ask(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        door.key = "wrong"
        start = head(door, "POST /take HTTP/1.1", "Content-Length: 8000000", "Connection: close")
        reply = reply_of(await door.raw(start))
        assert reply.status == 401


@each_row("path", ["/", "/health", "/v1/health"])
async def test_nothing_is_read_of_those_whom_nobody_vouches_for(tmp_path: Path, path: str) -> None:
    async with guarded(tmp_path) as door, asyncio.timeout(LIMIT_S):
        door.key = ""
        for line in ("Content-Length: 8000000", "Transfer-Encoding: chunked"):
            reply = reply_of(await door.raw(head(door, f"GET {path} HTTP/1.1", line)))
            assert (reply.status, reply.headers["connection"]) == (400, "close")
        assert (await door.ask(path=path, body=b"")).status == 200


async def test_long_bodies_have_a_bound_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "_TOGETHER_BYTES", 0)
    limits = "max_body_bytes = 100_000\nbody_timeout_s = 2"
    long, short = b" " * 100_000, b" " * 1_000
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(short), short)
    async with guarded(tmp_path, limits) as door, asyncio.timeout(LIMIT_S):
        held = [asyncio.create_task(door.ask("POST", "/wait", body=long)) for _ in range(4)]
        while door.waiting < 4:
            await asyncio.sleep(0.01)
        turned = await door.ask("POST", "/take", body=long)
        assert (turned.status, turned.headers["connection"]) == (503, "close")
        assert (await door.ask("POST", "/take", body=short)).status == 200
        door.go_on.set()
        assert [reply.status for reply in await asyncio.gather(*held)] == [200] * 4
        start = head(door, "POST /take HTTP/1.1", "Transfer-Encoding: chunked", "Connection: close")
        for _ in range(9):  # everything was given back, and what was not needed at once
            assert (await door.ask("POST", "/take", body=long)).status == 200
            assert reply_of(await door.raw(start + chunked)).status == 200


async def test_a_compressed_body_is_refused_before_it_grows(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        body = gzip.compress(b"[" * 50_000_000)
        reply = await door.ask("POST", "/take", body=body, Content_Encoding="gzip")
        assert reply.status == 415


async def test_json_may_be_256_deep_and_no_deeper(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        for depth, status in ((256, 200), (257, 400), (100_000, 400)):
            body = b'{"a":' * (depth - 1) + b"[]" + b"}" * (depth - 1)
            assert (await door.ask("POST", "/take", body=body)).status == status
        for body in (b"[1]", b'{"a":}', b'"x"', b"\xff", b'{"a":1}{"b":2}', b"[" * 3_000_000):
            reply = await door.ask("POST", "/take", body=body)
            assert (reply.status, "error" in reply.json()) == (400, True)


async def test_the_longest_body_does_not_hold_up_others(tmp_path: Path) -> None:
    async with guarded(tmp_path) as door:
        body = b'{"a":[' + b"[]," * 2_600_000 + b"[]]}"
        asking = asyncio.create_task(door.ask("POST", "/take", body=body))
        others = 0
        while not asking.done():
            assert (await door.ask(path="/health")).status == 200
            others += 1
        assert (await asking).status == 200
        assert others > 1


async def test_more_connections_than_may_be_are_told_so(tmp_path: Path) -> None:
    async with guarded(tmp_path, "max_connections = 3") as door, asyncio.timeout(LIMIT_S):
        held = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(3)]
        turned = reply_of(await door.raw(head(door, "GET /who HTTP/1.1")))
        assert (turned.status, turned.headers["retry-after"]) == (503, "1")
        assert turned.headers["connection"] == "close"
        assert door.reached == []
        reader, writer = held[0]
        writer.write(head(door, "GET /who HTTP/1.1", "Connection: close"))
        assert statuses(await reader.read()) == [200]
        assert await is_alive(door)
        for _, each in held:
            each.close()


async def test_a_client_that_reads_nothing_does_not_hold_its_handler(tmp_path: Path) -> None:
    async with guarded(tmp_path, FAST) as door, asyncio.timeout(LIMIT_S):
        made = socket.create_connection(("127.0.0.1", door.port))
        with made:
            made.sendall(head(door, "GET /flood HTTP/1.1"))
            await door.begun.wait()
            await door.cancelled.wait()
            assert await is_alive(door)


async def test_a_client_that_reads_slowly_is_served_to_the_end(tmp_path: Path) -> None:
    async with guarded(tmp_path, FAST) as door, asyncio.timeout(LIMIT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port, limit=1_024)
        writer.write(head(door, "GET /flood HTTP/1.1"))
        read = 0
        while read < 40_000_000:  # more than all buffers on the way hold
            if read < 1_000_000:
                time.sleep(0.4)  # longer than one may take that reads nothing
            data = await reader.read(262_144)
            assert data
            read += len(data)
        assert not door.cancelled.is_set()
        writer.close()
