"""A client that leaves, wherever its request is, and what must be left of it: nothing that runs."""

import asyncio
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from clawd.channels.http.app import COUNTS
from tests.channels.http.plain import ROUTES, Chat, lines_of
from tests.channels.http.rig import LIMIT_S, Served, served
from tests.support.gguf_models import write_random_gguf
from tests.support.rows import Rows

TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{{ '<|im_start|>assistant\\n' }}"
)
# One place to generate in: whatever still ran there would keep the next one waiting for ever.
ENGINE = """
[engine]
temperature = 0.0
n_parallel = 1
max_tokens = 1000000
prefill_chunk = 64
prefix_cache_disk_mb = 0
ctx_size = 8192
"""
WRITE = {"tool_calls": [{"name": "file_write", "arguments": {"path": "made", "content": "x"}}]}
FULL = (
    '[security]\nautonomy = "full"\nallowed_commands = ["sleep"]\n[limits]\nshell_timeout_s = 900\n'
)


@pytest.fixture(scope="session")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose answers never end."""
    pytest.importorskip("llama_cpp")
    path = tmp_path_factory.mktemp("models") / "endless.gguf"
    return write_random_gguf(path, chat_template=TEMPLATE, context_length=8192)


@asynccontextmanager
async def endlessly(folder: Path, model: Path, tables: str = "") -> AsyncIterator[Served]:
    models = folder / "home" / "models"
    models.mkdir(parents=True)
    (folder / "home").chmod(0o700)
    (models / "endless.gguf").symlink_to(model)
    async with served(folder, tables=ENGINE + tables, routes=ROUTES) as door:
        yield door


def asking(text: str = "hello", **fields: Any) -> dict[str, Any]:
    return {"model": "endless", "messages": [["user", text]], **fields}


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not is_so():
            await asyncio.sleep(0.01)


def running(door: Served) -> int:
    return sum(status.running for status in door.inside.daemon.engine.status())


def _is_running(door: Served, wanted: int) -> bool:
    return running(door) == wanted


async def answers_again(door: Served) -> None:
    """Make sure that the one place of the model is free."""
    await until(lambda: not running(door))
    short = asking(is_plain=True, sampling={"max_tokens": 2})
    status, told = await door.post("/say", short)
    assert (status, told["end"]) == (200, "length")
    # What a turn leaves is written down after its place in the model is free.
    await until(lambda: door.inside.daemon.inbox.turns == (0, 0))


async def read_until(response: aiohttp.ClientResponse, key: str) -> dict[str, Any]:
    async for data in response.content:
        found: dict[str, Any] = json.loads(data)
        if key in found:
            return found
    raise AssertionError(f"no {key} came")


@pytest.mark.real_model
async def test_one_who_leaves_stops_the_model(tmp_path: Path, endless: Path) -> None:
    rows = Rows()
    async with endlessly(tmp_path, endless) as door:
        for number, (place, is_plain) in enumerate(
            itertools.product(("stream", "prefill", "whole"), (True, False))
        ):
            with rows.row((place, is_plain)):
                await _leave(door, place, number, is_plain=is_plain)
    rows.check()


async def _leave(door: Served, place: str, number: int, *, is_plain: bool) -> None:
    # Each of its own beginning: nothing of a prompt is to be there from the one before.
    text = f"{number} hello"
    if place == "prefill":
        text = f"{number} " * (1000 if is_plain else 100)
    body = asking(text, is_plain=is_plain, stream=place != "whole")
    if place == "whole":
        waiting = asyncio.create_task(door.post("/say", body))
        await until(lambda: running(door) == 1)
        waiting.cancel()
    else:
        response = await door.session.post(door.url + "/say", json=body)
        await read_until(response, "text" if place == "stream" else "progress")
        response.close()
    await answers_again(door)


@pytest.mark.real_model
async def test_one_who_leaves_the_queue_is_no_longer_in_it(tmp_path: Path, endless: Path) -> None:
    async with endlessly(tmp_path, endless) as door:
        for stream in (True, False):
            body = asking(is_plain=True, stream=True)
            first = await door.session.post(door.url + "/say", json=body)
            await read_until(first, "text")
            body = asking("second", is_plain=True, stream=stream)
            second = asyncio.create_task(door.stream("/say", body))
            await until(lambda: running(door) == 2)
            second.cancel()
            await until(lambda: running(door) == 1)
            first.close()
            await answers_again(door)


@pytest.mark.real_model
async def test_the_emergency_stop_ends_every_answer(tmp_path: Path, endless: Path) -> None:
    async with endlessly(tmp_path, endless) as door:
        for is_plain in (True, False):
            response = await door.session.post(
                door.url + "/say", json=asking(is_plain=is_plain, stream=True)
            )
            await read_until(response, "text")
            door.inside.daemon.estop.set("enough", by="a test")
            told = await read_until(response, "error")
            assert "emergency stop" in told["error"]
            assert await response.content.read() == b""
            door.inside.daemon.estop.clear()
        await answers_again(door)


@pytest.mark.real_model
async def test_a_prompt_that_does_not_fit_is_a_status_also_of_a_stream(
    tmp_path: Path, endless: Path
) -> None:
    async with endlessly(tmp_path, endless) as door:
        for stream in (False, True):
            body = asking("word " * 9000, is_plain=True, stream=stream)
            status, text = await door.stream("/say", body)
            assert status == 400
            assert json.loads(text)["error"]["code"] == "context_length_exceeded"


@pytest.mark.real_model
async def test_a_full_queue_is_a_status_also_of_a_stream(tmp_path: Path, endless: Path) -> None:
    async with endlessly(tmp_path, endless, "max_queue = 1\n") as door:
        streams = []
        for number in range(2):
            body = asking(is_plain=True, stream=True)
            streams.append(asyncio.create_task(door.stream("/say", body)))
            await until(partial(_is_running, door, number + 1))
        async with door.session.post(
            door.url + "/say", json=asking(is_plain=True, stream=True)
        ) as response:
            assert response.status == 503
            assert int(response.headers["Retry-After"]) >= 1
        for stream in streams:
            stream.cancel()
        await answers_again(door)


@pytest.mark.sandbox
@pytest.mark.parametrize("stream", [True, False])
async def test_one_who_leaves_while_a_tool_runs_leaves_no_process(
    tmp_path: Path, *, stream: bool
) -> None:
    sleep = f"sleep 613.{secrets.randbelow(10**12)}"  # of this test alone, on this machine

    def sleepers() -> list[int]:
        found = psutil.process_iter(["cmdline"])
        return [each.pid for each in found if (each.info["cmdline"] or [])[:2] == sleep.split()]

    call = {"tool_calls": [{"name": "shell", "arguments": {"command": sleep}}]}
    async with served(tmp_path, call, tables=FULL, routes=ROUTES) as door:
        body = {"messages": [["user", "sleep"]], "stream": stream}
        asked = asyncio.create_task(door.stream("/say", body))
        await until(lambda: bool(sleepers()))
        asked.cancel()
        await until(lambda: not sleepers())
        await until(lambda: len(door.inside.receipts()) == 1)
        (receipt,) = door.inside.receipts()
        assert (receipt.tool, receipt.status) == ("shell", "failed")
        await until(lambda: door.inside.daemon.inbox.turns == (0, 0))


async def test_one_who_leaves_with_the_last_event_loses_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, routes=ROUTES) as door:
        body = {"messages": [["user", "keep this"]], "stream": True}
        response = await door.session.post(door.url + "/say", json=body)
        await read_until(response, "end")
        response.close()
        name = response.headers["X-Clawd-Conversation"]
        rows = await door.inside.daemon.memory.messages.history(name, owner=None)
        assert [row.message.content for row in rows] == ["keep this", "keep this"]
        chat = Chat(door)
        chat.messages = [("user", "keep this"), ("assistant", "keep this")]
        await chat.say("and go on")
        assert chat.conversation == name


async def test_an_approval_is_waited_for_and_given_from_elsewhere(tmp_path: Path) -> None:
    async with served(tmp_path, WRITE, {"text": "Done."}, routes=ROUTES) as door:
        body = {"messages": [["user", "make it"]], "stream": True}
        response = await door.session.post(door.url + "/say", json=body)
        asked = await read_until(response, "approval")
        door.inside.daemon.approvals.answer(
            asked["approval"], "once", door.caller.principal, digest=asked["digest"]
        )
        assert (await read_until(response, "end"))["end"] == "stop"
        (receipt,) = door.inside.receipts()
        assert (receipt.status, receipt.approval) == ("allowed", "user")
        assert (door.inside.workspace / "made").exists()


async def test_an_approval_that_nobody_gives_is_a_no(tmp_path: Path) -> None:
    tables = "[security]\napproval_timeout_s = 0.3\n"
    async with served(tmp_path, WRITE, {"text": "No."}, tables=tables, routes=ROUTES) as door:
        body = {"messages": [["user", "make it"]], "stream": True}
        _, text = await door.stream("/say", body)
        lines = lines_of(text)
        assert [each for each in lines if "approval" in each]
        assert {"status": "denied"} in lines and lines[-1]["end"] == "stop"
        assert not (door.inside.workspace / "made").exists()


async def test_whoever_leaves_at_any_moment_leaves_nothing_behind(tmp_path: Path) -> None:
    reply = {"text": "one two three", "delay_s": 0.005}
    async with served(tmp_path, reply, routes=ROUTES) as door:
        daemon = door.inside.daemon
        chat = Chat(door)
        await chat.say("first")
        known = [*chat.messages, ["user", "go on"]]
        foreign = [["user", "a"], ["assistant", "b"], ["user", "c"]]

        async def leave(number: int) -> None:
            messages = (known, foreign, [["user", f"new {number}"]])[number % 3]
            body = {"messages": messages, "stream": number % 2 == 0}
            asked = asyncio.create_task(door.stream("/say", body))
            await asyncio.wait({asked}, timeout=0.004 * (number % 13))
            asked.cancel()
            await asyncio.wait({asked})

        for start in range(0, 78, 6):
            await asyncio.gather(*(leave(number) for number in range(start, start + 6)))
        await until(lambda: daemon.inbox.turns == (0, 0) and not daemon.inbox.book.in_use_ids())
        await until(lambda: not door.app[COUNTS].open)  # what they were for is taken back last
        page = await daemon.memory.conversations.list(owner=None, limit=1000)
        counts = await daemon.memory.messages.counts([each.id for each in page.conversations])
        # A message of the user's has its answer, and no conversation was kept for nothing.
        assert {count % 2 for count in counts.values()} == {0}
        assert counts.keys() == {each.id for each in page.conversations}
        assert await chat.say("second") == "one two three"
