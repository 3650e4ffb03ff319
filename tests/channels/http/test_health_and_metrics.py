"""`/health` and `/metrics`: what they say of a daemon that does well, and of one that does not."""

import asyncio
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from clawd.channels.http import answering
from clawd.channels.http.app import COUNTS, GATEWAY, caller_of
from clawd.channels.http.metrics import text_of
from clawd.channels.http.model_api import Caller, Folding, ModelRequest
from clawd.providers.base import Message
from clawd.service.http import routes_of
from clawd.wire.daemon import MetricFamily, MetricSample, MetricsReport, ShowMetrics
from clawd.wire.events import TextDelta
from tests.channels.http.rig import LIMIT_S, Served, served
from tests.channels.http.told import Told, ToldGeneration, finished
from tests.support.inprocess import OWNER

Numbers = dict[tuple[str, frozenset[tuple[str, str]]], float]


async def scraped(door: Served) -> Numbers:
    async with door.session.get(door.url + "/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = await response.text()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def number(numbers: Numbers, name: str, **labels: str) -> float:
    return numbers[name, frozenset(labels.items())]


async def test_health_is_public_and_says_what_is_there(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        door.caller = None  # type: ignore[assignment]
        for path in ("/health", "/v1/health"):
            status, told = await door.get(path)
            assert (status, told["status"], told["model_loaded"]) == (200, "ok", True)
            async with door.session.head(door.url + path) as response:
                assert response.status == 200 and await response.read() == b""


async def test_a_chain_that_cannot_be_written_is_no_health(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        chain = door.inside.daemon.chain
        assert chain is not None
        chain._failure = "No space left on device"
        status, told = await door.get("/health")
        assert status == 503
        assert told["error"]["code"] == 503 and told["error"]["type"] == "unavailable_error"
        assert "No space left on device" in told["error"]["message"]
        assert number(await scraped(door), "clawd_receipt_chain_valid") == 0


async def test_numbers_move_with_what_happens(tmp_path: Path) -> None:
    call = {"tool_calls": [{"name": "time", "arguments": {}}]}
    broken = {"when": "break", "error": {"kind": "http", "status": 500}}
    async with served(tmp_path, call, {"text": "done"}, broken) as door:
        before = await scraped(door)
        assert number(before, "clawd_conversations_total") == 0
        await door.post("/chat", {"message": "go"})
        body = {"arguments": {"path": "a", "content": ""}, "interactive": False}
        await door.post("/tools/file_write/run", body)
        await door.post("/tools/made_up/run", {})
        await door.get("/nowhere")
        after = await scraped(door)
    assert number(after, "clawd_conversations_total") == 1
    assert number(after, "clawd_tool_calls_total", tool="time", status="allowed") == 1
    assert number(after, "clawd_tool_calls_total", tool="file_write", status="denied") == 1
    assert number(after, "clawd_tool_calls_total", tool="unknown", status="failed") == 1
    assert number(after, "clawd_tool_denials_total") == 1
    assert number(after, "clawd_turns_total", end="stop") == 1
    assert number(after, "clawd_model_answers_total", provider="mock", cache="miss") == 2
    assert number(after, "clawd_turn_seconds_count") == 1
    assert number(after, "clawd_first_token_seconds_count") == 1
    assert number(after, "clawd_tool_call_seconds_count") == 3
    assert number(after, "clawd_receipt_chain_valid") == 1
    assert number(after, "clawd_estop") == 0
    assert number(after, "clawd_worker_restarts_total") == 0
    assert number(after, "clawd_generated_tokens_total") == number(
        after, "llamacpp:tokens_predicted_total"
    )
    assert number(after, "llamacpp:requests_processing") == 0
    route = {"method": "POST", "route": "/tools/{name}/run", "status": "200"}
    assert number(after, "clawd_http_requests_total", **route) == 2
    none = {"method": "GET", "route": "none", "status": "404"}
    assert number(after, "clawd_http_requests_total", **none) == 1
    assert number(after, "clawd_http_requests_open") == 1


async def test_h8_how_long_requests_took_is_told_by_route(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        for _ in range(2):
            await door.post(
                "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]}
            )
        await door.post("/tools/time/run", {})
        await door.get("/nowhere/7")
        numbers = await scraped(door)
    name = "clawd_http_request_seconds"
    counts = {
        dict(labels)["route"]: value
        for (sample, labels), value in numbers.items()
        if sample == f"{name}_count"
    }
    assert counts == {"/v1/chat/completions": 2, "/tools/{name}/run": 1, "none": 1}
    for route, count in counts.items():
        assert number(numbers, f"{name}_bucket", route=route, le="+Inf") == count
        assert number(numbers, f"{name}_sum", route=route) > 0


async def test_a_provider_that_fails_is_counted(tmp_path: Path) -> None:
    async with served(tmp_path, {"error": {"kind": "http", "status": 400}}) as door:
        await door.post("/chat", {"message": "go"})
        numbers = await scraped(door)
        assert number(numbers, "clawd_provider_errors_total", provider="mock", code="provider") == 1


async def say(request: web.Request) -> web.StreamResponse:
    asked = ModelRequest(messages=(Message(role="user", content="hi"),), is_plain=True)
    generation = await request.app[GATEWAY].generations.open(asked, caller_of(request))
    folding = Folding()
    async for event in generation:
        if (answered := folding.add(event)) is not None:
            return web.json_response({"text": answered.text})
    raise AssertionError


async def test_what_is_forwarded_to_a_model_is_counted_without_a_turn(tmp_path: Path) -> None:
    routes = [*routes_of(), web.post("/say", say)]
    broken = {"error": {"kind": "http", "status": 400}}
    async with served(tmp_path, {"text": "hello"}, broken, routes=routes) as door:
        assert (await door.post("/say", {}))[0] == 200
        assert (await door.post("/say", {}))[0] == 400
        numbers = await scraped(door)
    answered = {"provider": "mock", "cache": "miss"}
    assert number(numbers, "clawd_model_answers_total", **answered) == 1
    failed = {"provider": "mock", "code": "provider"}
    assert number(numbers, "clawd_provider_errors_total", **failed) == 1
    assert number(numbers, "clawd_first_token_seconds_count") == 1
    assert number(numbers, "clawd_turn_seconds_count") == 0


async def test_an_open_stream_and_a_waiting_approval_are_seen(tmp_path: Path) -> None:
    async with served(tmp_path) as door, door.session.get(door.url + "/events") as events:
        body = {"arguments": {"path": "a", "content": ""}}
        run = asyncio.create_task(door.post("/tools/file_write/run", body))
        while b"approval_requested" not in await events.content.readline():
            pass
        numbers = await scraped(door)
        assert number(numbers, "clawd_http_streams_open") == 1
        assert number(numbers, "clawd_approvals_pending") == 1
        await door.post("/estop", {})
        assert (await run)[1]["status"] == "denied"
        assert number(await scraped(door), "clawd_estop") == 1


async def test_a_receipt_log_that_was_changed_shows(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        await door.post("/tools/time/run", {})
        assert number(await scraped(door), "clawd_receipt_chain_valid") == 1
        path = door.inside.daemon.loaded.config.receipts.path
        path.write_text(path.read_text().replace('"allowed"', '"denied" '))
        assert number(await scraped(door), "clawd_receipt_chain_valid") == 0


async def test_requests_are_counted_also_those_that_nobody_vouches_for(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        door.caller = None  # type: ignore[assignment]
        await door.get("/status")
        door.caller = Caller(principal=OWNER, scopes=frozenset({"chat"}))
        refused = {"method": "GET", "route": "/status", "status": "403"}
        assert number(await scraped(door), "clawd_http_requests_total", **refused) == 1


async def test_the_control_socket_gives_the_same_numbers(tmp_path: Path) -> None:
    async with served(tmp_path) as door:
        await door.post("/tools/time/run", {})
        report = await door.inside.ask(ShowMetrics(), OWNER)
        numbers = await scraped(door)
        assert isinstance(report, MetricsReport)
        for family in report.families:
            for sample in family.samples:
                assert number(numbers, family.name, **sample.labels) == sample.value
        assert msgspec.json.decode(msgspec.json.encode(report), type=MetricsReport) == report


def test_labels_cannot_forge_lines() -> None:
    evil = 'x"} 1\nclawd_estop 0\n\\'
    sample = MetricSample(value=1, labels={"tool": evil})
    family = MetricFamily(name="clawd_x_total", kind="counter", help="a\nb", samples=(sample,))
    (found,) = text_string_to_metric_families(text_of([family]).decode())
    assert [s.labels["tool"] for s in found.samples] == [evil]


def test_the_library_is_loaded_for_the_page_alone() -> None:
    code = "import clawd.service.http, sys; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


class _ClosingSlowly(Told):
    """Its generations are not closed before their clients have left."""

    async def open(self, request: ModelRequest, caller: Caller) -> ToldGeneration:
        class Lingering(ToldGeneration):
            async def aclose(self) -> None:
                await super().aclose()
                await asyncio.Event().wait()

        return Lingering(self)


async def test_who_leaves_at_the_last_event_has_got_the_answer_and_who_leaves_before_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Codex closes its connection at response.completed, without reading to the end of the body.
    monkeypatch.setattr(answering, "CLOSE_LIMIT_S", 0.1)
    part = Told(TextDelta(text="a part"), asyncio.Event(), finished())
    for told, mark, status in (
        (_ClosingSlowly(TextDelta(text="all"), finished()), b"response.completed", "200"),
        (part, b"a part", "499"),
    ):
        (tmp_path / status).mkdir()
        async with served(tmp_path / status, generations=told) as door:
            body = b'{"input": "hello", "stream": true}'
            split = urlsplit(door.url)
            reader, writer = await asyncio.open_connection(split.hostname, split.port)
            head = f"POST /v1/responses HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await reader.readuntil(mark)
            writer.close()
            counts = door.app[COUNTS]
            async with asyncio.timeout(LIMIT_S):
                while counts.open:
                    await asyncio.sleep(0.01)
            assert counts.requests.values() == {("POST", "/v1/responses", status): 1}


async def test_what_a_client_calls_a_model_is_no_label(tmp_path: Path) -> None:
    reply = {"error": {"kind": "http", "status": 500}}
    async with served(tmp_path, reply) as door:
        for number in range(3):
            body = {
                "model": f"mock/made-up-{number}",
                "messages": [{"role": "user", "content": "x"}],
                "tool_choice": "none",
            }
            assert (await door.post("/v1/chat/completions", body))[0] == 502
        errors = door.inside.daemon.activity.models.errors.values()
        assert errors == {("mock", "provider"): 3.0}
