"""clawd's own routes on a whole daemon: what they give, to whom, and what they refuse."""

import asyncio
import contextlib
import json
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from clawd.channels.http.app import DRAINING
from clawd.channels.http.gateway import EventStream
from clawd.channels.http.model_api import Caller
from clawd.security.principal import Principal
from clawd.wire.daemon import Status, StatusReport
from clawd.wire.tools import ListTools, ToolList
from tests.channels.http.rig import EVERYTHING, LIMIT_S, Served, events_of, served
from tests.support.inprocess import OWNER
from tests.support.rows import each_row

ADA = Principal(uid=70_010, gid=70_010, pid=1)
BOB = Principal(uid=70_011, gid=70_011, pid=2)
WRITE = {"path": "a.txt", "content": "x"}


def as_user(door: Served, who: Principal, *scopes: str) -> None:
    door.caller = Caller(principal=who, scopes=frozenset(scopes))


class Reading:
    """The events of an open stream, one by one."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._left = ""

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(LIMIT_S):
            while True:
                head, mark, rest = self._left.partition("\n\n")
                if not mark:
                    chunk = await self._response.content.readany()
                    assert chunk, "the stream ended"
                    self._left += chunk.decode()
                    continue
                self._left = rest
                if found := events_of(head + "\n\n"):
                    ((name, value),) = found
                    assert name == value["type"]
                    assert isinstance(value, dict)
                    return value

    async def until(self, kind: str) -> dict[str, Any]:
        while (event := await self.next())["type"] != kind:
            pass
        return event


@contextlib.asynccontextmanager
async def reading(door: Served, path: str) -> AsyncIterator[Reading]:
    async with door.session.get(door.url + path) as response:
        assert response.status == 200, await response.text()
        assert response.content_type == "text/event-stream"
        yield Reading(response)


async def test_reports_are_those_of_the_control_socket(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        status, told = await door.get("/status")
        assert status == 200
        by_socket = await door.inside.ask(Status(), OWNER)
        over_http = msgspec.convert(told, StatusReport)
        assert msgspec.structs.replace(over_http, uptime_s=0) == msgspec.structs.replace(
            by_socket, uptime_s=0
        )
        status, told = await door.get("/tools")
        assert msgspec.convert(told, ToolList) == await door.inside.ask(ListTools(), OWNER)
        status, told = await door.get("/models/local")
        assert status == 200 and [line["name"] for line in told["items"]] == ["embedded"]


async def test_one_tool_is_found_by_its_name_and_by_another_name_of_it(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        assert (await door.get("/tools/time"))[1]["name"] == "time"
        assert (await door.get("/tools/datetime"))[1]["name"] == "time"
        status, told = await door.get("/tools/nope")
        assert status == 404 and "nope" in told["error"]["message"]


async def test_tools_are_told_as_openai_functions(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        _, tools = await door.get("/tools")
        _, functions = await door.get("/v1/tools")
        assert [each["function"] for each in functions["data"]] == [
            {name: line[name] for name in ("name", "description", "parameters")}
            for line in tools["items"]
        ]
        assert {each["type"] for each in functions["data"]} == {"function"}


async def test_what_the_channel_does_not_allow_is_neither_shown_nor_run(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "file_write", "arguments": WRITE}]}
    only = '[security]\nautonomy = "full"\n[channels.http]\ntools_allow = ["time"]\n'
    async with served(tmp_path, call, {"text": "done"}, tables=only) as door:
        _, told = await door.get("/tools")
        assert [line["name"] for line in told["items"]] == ["time"]
        assert (await door.get("/tools/file_write"))[0] == 404
        for name in ("file_write", "write_file", "fs"):
            arguments = WRITE | {"action": "write"}
            _, told = await door.post(f"/tools/{name}/run", {"arguments": arguments})
            assert told["status"] != "allowed", told
        assert (await door.post("/tools/time/run", {}))[1]["status"] == "allowed"
        status, _ = await door.post("/chat", {"message": "write it"})
        assert status == 200
        assert not (door.inside.workspace / "a.txt").exists()


async def test_a_chat_is_of_the_gateway_and_not_of_the_socket(tmp_path: Path) -> None:
    async with served(tmp_path, tables="[channels.cli]\nenabled = false\n") as door:
        assert (await door.post("/chat", {"message": "hello"}))[0] == 200


async def test_a_tool_run_leaves_one_receipt_and_names_it(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        status, told = await door.post(
            "/tools/calculator/run", {"arguments": {"expression": "6*7"}}
        )
        assert status == 200 and told["status"] == "allowed" and "42" in told["output"]
        (receipt,) = door.inside.receipts()
        assert told["receipt_id"] == receipt.id
        status, shown = await door.get(f"/receipts/{receipt.id}")
        assert status == 200 and "42" in shown["result"]
        _, page = await door.get("/receipts?limit=1&tool=calc*")
        assert [line["id"] for line in page["items"]] == [receipt.id]
        assert (await door.get("/receipts?tool=shell"))[1]["items"] == []
        assert (await door.get("/receipts?risk=odd"))[0] == 400


@each_row("raw", ["[1]", '"{"', "null", '"not json"', '{"no": 1}'])
async def test_arguments_that_cannot_be_meant_leave_a_receipt_too(tmp_path: Path, raw: str) -> None:
    async with served(tmp_path) as door:
        body = {"arguments": json.loads(raw)}
        status, told = await door.post("/tools/calculator/run", body)
        assert (status, told["status"], told["kind"]) == (200, "failed", "bad_arguments")
        (receipt,) = door.inside.receipts()
        assert (receipt.id, receipt.status) == (told["receipt_id"], "failed")


@each_row("body", [{"argument": {}}, {"arguments": {}, "interactive": "maybe"}, {"workspace": 1}])
async def test_a_body_that_is_not_understood_runs_nothing(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    async with served(tmp_path) as door:
        status, told = await door.post("/tools/time/run", body)
        assert status == 400 and told["error"]["type"] == "invalid_request_error"
        assert door.inside.receipts() == []


async def test_a_call_waits_for_the_approval_that_another_request_gives(tmp_path: Path) -> None:
    async with served(tmp_path) as door, reading(door, "/events") as events:
        run = asyncio.create_task(door.post("/tools/file_write/run", {"arguments": WRITE}))
        asked = await events.until("approval_requested")
        _, listed = await door.get("/approvals")
        (line,) = listed["items"]
        assert (line["id"], line["digest"]) == (asked["approval_id"], asked["digest"])
        wrong = {"answer": "once", "digest": "0" * 64}
        status, told = await door.post(f"/approvals/{line['id']}", wrong)
        assert status == 400 and "other bytes" in told["error"]["message"]
        assert not (door.inside.workspace / "a.txt").exists()
        answer = {"answer": "once", "digest": line["digest"]}
        assert (await door.post(f"/approvals/{line['id']}", answer))[0] == 200
        status, outcome = await run
        assert outcome["status"] == "allowed"
        assert (door.inside.workspace / "a.txt").read_text() == "x"
        assert (await events.until("approval_resolved"))["answer"] == "once"
        assert (await events.until("tool_finished"))["receipt_id"] == outcome["receipt_id"]


async def test_without_interactive_a_call_that_would_ask_is_denied_at_once(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        body = {"arguments": WRITE, "interactive": False}
        status, told = await door.post("/tools/file_write/run", body)
        assert (status, told["status"], told["unanswered"]) == (200, "denied", True)
        assert not (door.inside.workspace / "a.txt").exists()


async def test_an_answer_takes_the_scope_admin(tmp_path: Path) -> None:
    async with served(tmp_path) as door, reading(door, "/events") as events:
        run = asyncio.create_task(door.post("/tools/file_write/run", {"arguments": WRITE}))
        asked = await events.until("approval_requested")
        as_user(door, OWNER, "chat", "tools")
        path = f"/approvals/{asked['approval_id']}"
        answer = {"answer": "once", "digest": asked["digest"]}
        assert (await door.post(path, answer))[0] == 403
        assert not run.done()
        as_user(door, OWNER, "admin")
        assert (await door.post(path, answer | {"answer": "deny"}))[0] == 200
        assert (await run)[1]["status"] == "denied"


async def test_a_client_that_leaves_withdraws_its_call(tmp_path: Path) -> None:
    async with served(tmp_path) as door, reading(door, "/events") as events:
        run = asyncio.create_task(door.post("/tools/file_write/run", {"arguments": WRITE}))
        await events.until("approval_requested")
        run.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await run
        finished = await events.until("tool_finished")
        assert finished["status"] == "denied"
        (receipt,) = door.inside.receipts()
        assert "cancelled" in receipt.reason
        assert (await door.get("/approvals"))[1]["items"] == []


async def test_a_streamed_run_tells_its_events_and_then_the_outcome(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        body = {"arguments": {}, "stream": True}
        status, text = await door.stream("/tools/time/run", body)
        names = [name for name, _ in events_of(text)]
        assert status == 200 and names == ["tool_started", "tool_finished", "tool_outcome"]
        assert events_of(text)[-1][1]["receipt_id"] == door.inside.receipts()[0].id


async def test_chat_is_the_same_whole_and_as_a_stream(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "calculator", "arguments": {"expression": "6*7"}}]}
    async with served(tmp_path, call, {"text": "It is 42."}) as door:
        status, whole = await door.post("/chat", {"message": "6*7?"})
        assert status == 200 and whole["text"] == "It is 42."
        status, text = await door.stream("/chat", {"message": "6*7?", "stream": True})
        events = events_of(text)
        names = [name for name, _ in events]
        assert names[0] == "turn_started" and names[-1] == "turn_finished"
        assert "".join(value["text"] for name, value in events if name == "text") == whole["text"]
        assert names.index("tool_requested") < names.index("tool_finished")
        assert events[-1][1]["text"] == whole["text"]
        assert [r.status for r in door.inside.receipts()] == ["allowed", "allowed"]


async def test_a_chat_goes_on_in_its_conversation(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        _, first = await door.post("/chat", {"message": "remember purple"})
        name = first["conversation_id"]
        _, second = await door.post("/chat", {"message": "again", "conversation_id": name})
        assert second["conversation_id"] == name
        _, shown = await door.get(f"/conversations/{name}")
        assert [m["role"] for m in shown["messages"]] == ["user", "assistant"] * 2
        _, page = await door.get(f"/conversations/{name}?limit=1")
        assert len(page["messages"]) == 1 and page["cursor"]
        _, listed = await door.get("/conversations")
        assert [line["id"] for line in listed["items"]] == [name]
        _, hits = await door.get("/memory/search?q=purple")
        assert {hit["conversation_id"] for hit in hits["items"]} == {name}
        assert (await door.get("/conversations?limit=none"))[0] == 400


async def test_a_chat_that_cannot_begin_is_a_status_also_as_a_stream(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        for extra in ({}, {"stream": True}):
            body = {"message": "hi", "conversation_id": "nope"} | extra
            assert (await door.post("/chat", body))[0] == 404
            assert (await door.post("/chat", {"message": " "} | extra))[0] == 400
            assert (await door.post("/chat", {"message": "x", "preset": "y"} | extra))[0] == 400


async def test_a_turn_that_fails_midway_says_so_in_the_stream(tmp_path: Path) -> None:
    async with served(tmp_path, {"error": {"kind": "http", "status": 400}}) as door:
        status, text = await door.stream("/chat", {"message": "hi", "stream": True})
        names = [name for name, _ in events_of(text)]
        assert status == 200 and names[-1] == "turn_failed" and names.count("turn_failed") == 1
        assert (await door.post("/chat", {"message": "hi"}))[0] == 400


async def test_followers_see_a_turn_and_its_cancelling(tmp_path: Path) -> None:
    async with served(tmp_path, {"text": "first"}, {"text": "late", "delay_s": 60}) as door:
        _, first = await door.post("/chat", {"message": "one"})
        name = first["conversation_id"]
        async with reading(door, f"/conversations/{name}/events") as events:
            body = {"message": "two", "conversation_id": name}
            chat = asyncio.create_task(door.post("/chat", body))
            await events.until("turn_started")
            status, told = await door.post(f"/conversations/{name}/cancel", {})
            assert status == 200 and told["message"] == "cancelled 1 turn"
            assert (await events.until("turn_failed"))["code"] == "cancelled"
            assert (await chat)[0] == 499


async def test_a_client_that_leaves_a_chat_ends_its_turn_unless_it_is_detached(
    tmp_path: Path,
) -> None:
    slow = {"text": "answered all the same", "delay_s": 1, "when": "detached"}
    late = {"text": "never", "delay_s": 60, "when": "mine"}
    async with served(tmp_path, late, slow) as door, reading(door, "/events") as events:
        for message, end in (("mine", "turn_failed"), ("detached", "turn_finished")):
            body = {"message": message, "stream": True, "detach": message == "detached"}
            chat = asyncio.create_task(door.post("/chat", body))
            await events.until("turn_started")
            chat.cancel()
            assert await events.until(end)


async def test_everybody_sees_the_events_of_their_own_alone(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        as_user(door, BOB, *EVERYTHING)
        async with reading(door, "/events") as of_bob:
            as_user(door, ADA, *EVERYTHING)
            async with reading(door, "/events") as of_ada:
                _, told = await door.post("/chat", {"message": "purple elephant"})
                finished = await of_ada.until("turn_finished")
                assert finished["conversation_id"] == told["conversation_id"]
                await door.post("/tools/time/run", {})
                assert (await of_ada.until("tool_finished"))["conversation_id"] == ""
                await door.post("/estop", {"reason": "stop it"})
                assert (await of_ada.until("estop_changed"))["is_set"]
            assert (await of_bob.next())["type"] == "estop_changed"


async def test_another_users_conversation_is_not_there(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        as_user(door, ADA, *EVERYTHING)
        _, told = await door.post("/chat", {"message": "purple elephant"})
        name = told["conversation_id"]
        _, run = await door.post("/tools/time/run", {})
        as_user(door, BOB, *EVERYTHING)
        for path in (f"/conversations/{name}", f"/conversations/{name}/events"):
            assert (await door.get(path))[0] == 404
        assert (await door.post(f"/conversations/{name}/cancel", {}))[0] == 404
        assert (await door.get("/conversations"))[1]["items"] == []
        assert (await door.get("/memory/search?q=purple"))[1]["items"] == []
        assert (await door.get(f"/receipts/{run['receipt_id']}"))[0] == 404
        assert (await door.get("/receipts"))[1]["items"] == []


async def test_whoever_may_use_tools_stops_and_an_admin_clears(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        as_user(door, OWNER, "chat")
        assert (await door.post("/estop", {"reason": "smoke"}))[0] == 403
        as_user(door, OWNER, "tools")
        status, told = await door.post("/estop", {"reason": "smoke"})
        assert status == 200 and told["is_set"]
        status, told = await door.post("/tools/time/run", {})
        assert told["status"] == "denied" and "emergency stop" in told["output"]
        assert (await door.post("/estop", {"set": False}))[0] == 403
        assert (await door.post("/estop", {"sett": False}))[0] == 400
        # A scope alone is not enough: the principal has to be an admin as well.
        as_user(door, ADA, "admin")
        assert (await door.post("/estop", {"set": False}))[0] == 403
        assert (await door.get("/estop"))[1]["is_set"]
        as_user(door, OWNER, "admin")
        assert (await door.post("/estop", {"set": False}))[1] == {"is_set": False, "reason": ""}
        as_user(door, OWNER, "tools")
        assert (await door.post("/tools/time/run", {}))[1]["status"] == "allowed"


async def test_the_receipt_log_is_verified_and_a_changed_one_is_not_believed(
    tmp_path: Path,
) -> None:
    async with served(tmp_path) as door:
        await door.post("/tools/time/run", {})
        _, head = await door.get("/receipts/head")
        assert head["seq"] == 1
        _, found = await door.get("/receipts/verify")
        assert found["ok"] and found["receipts"] == 1
        _, found = await door.get(f"/receipts/verify?anchor=1:{head['receipt_hash']}")
        assert found["ok"] and found["level"] == "anchored"
        assert (await door.get("/receipts/verify?anchor=x"))[0] == 400
        path = door.inside.daemon.loaded.config.receipts.path
        path.chmod(path.stat().st_mode | stat.S_IWUSR)
        path.write_text(path.read_text().replace('"allowed"', '"denied"'))
        assert not (await door.get("/receipts/verify"))[1]["ok"]


async def test_presets_are_listed_and_a_name_is_checked(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        _, told = await door.get("/v1/preset")
        assert told["presets"]["deterministic"]["temperature"] == 0.0
        status, one = await door.post("/v1/preset", {"preset": "wild"})
        assert status == 200 and one["values"] == told["presets"]["wild"]
        for body in ({"preset": "tame"}, {"preset": ""}, {}):
            status, refused = await door.post("/v1/preset", body)
            assert status == 400, refused


async def test_a_silent_stream_is_kept_alive_by_comments(tmp_path: Path) -> None:
    async with served(tmp_path) as door, door.session.get(door.url + "/events") as response:
        async with asyncio.timeout(LIMIT_S):
            assert await response.content.readline() == b": ping\n"


@each_row("path", ["/events", "/conversations/{}/events"])
async def test_streams_without_an_end_end_with_the_daemon(tmp_path: Path, path: str) -> None:
    async with served(tmp_path) as door:
        _, told = await door.post("/chat", {"message": "one"})
        place = door.url + path.format(told["conversation_id"])
        async with door.session.get(place) as response:
            door.app[DRAINING].set()
            async with asyncio.timeout(LIMIT_S):
                await response.read()
        assert not door.inside.daemon.hub._subscriptions


async def test_a_client_that_takes_nothing_is_cut_off(tmp_path: Path) -> None:
    cut_off: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def flood(request: web.Request) -> web.StreamResponse:
        async with EventStream(request, stall_s=0.1) as stream:
            try:
                while True:
                    await stream.send("text", {"type": "text", "text": "x" * 100_000})
            except ConnectionError:
                cut_off.set_result(True)
        return stream.response

    async with (
        served(tmp_path, routes=[web.get("/flood", flood)]) as door,
        door.session.get(door.url + "/flood"),
        asyncio.timeout(LIMIT_S),
    ):
        assert await cut_off
