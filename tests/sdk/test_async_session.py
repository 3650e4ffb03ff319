"""The session for asyncio."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from clawd.errors import ClawError, InvalidRequestError
from clawd.sdk import ApprovalRequested, AsyncSession
from clawd.wire.daemon import Status
from clawd.wire.events import ToolStarted
from tests.sdk.rig import ECHO, calling, receipt_lines, scripted
from tests.support.chat_server import HELLO, ChatServer, serving, streamed

LIMIT_S = 60.0
WRITE = calling("file_write", {"path": "a.txt", "content": "words"})


def local(folder: Path, *replies: dict[str, Any], **settings: Any) -> AsyncSession:
    return AsyncSession.local(**scripted(folder, *replies, **settings))


async def test_messages_pieces_and_history(tmp_path: Path) -> None:
    async with local(tmp_path) as session:
        assert (await session.chat("one")).text == "one"
        reply = session.stream("two words")
        with pytest.raises(ClawError, match="has not ended"):
            _ = reply.result
        pieces = [piece async for piece in reply]
        assert "".join(pieces) == reply.result.text == "two words"
        assert [said.content for said in await session.history()] == [
            "one",
            "one",
            "two words",
            "two words",
        ]
        await session.set_system("You sell maps.")
        assert (await session.render_system()).startswith("You sell maps.")
        assert await session.history() == ()


async def test_callbacks_may_be_async_or_not(tmp_path: Path) -> None:
    told: list[str] = []

    async def decide(question: ApprovalRequested) -> bool:
        await asyncio.sleep(0)
        return question.tool == "file_write"

    async def note(event: object) -> None:
        told.append(type(event).__name__)

    async with local(tmp_path, *WRITE) as session:
        session.on_approval(decide).on_event(note).on_token(told.append)
        (call,) = (await session.chat("write")).calls
    assert call.status == "allowed"
    assert {"ApprovalRequested", "TextDelta", "TurnFinished"} <= set(told)
    assert [line["approval"] for line in receipt_lines(tmp_path)] == ["user"]


async def test_a_cancelled_chat_is_cancelled_all_the_way(tmp_path: Path) -> None:
    started = asyncio.Event()
    ended = asyncio.Event()

    async def wait() -> None:
        """Wait for ever."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with local(tmp_path, *calling("wait", {}), ECHO) as session:
        session.add_tool(wait)
        chat = asyncio.create_task(session.chat("go"))
        await asyncio.wait_for(started.wait(), LIMIT_S)
        chat.cancel()
        with pytest.raises(asyncio.CancelledError):
            await chat
        await asyncio.wait_for(ended.wait(), LIMIT_S)
        await session.chat("go on")
    (receipt,) = receipt_lines(tmp_path)
    assert (receipt["tool"], receipt["status"]) == ("wait", "failed")


async def test_messages_at_once_are_answered_one_after_another(tmp_path: Path) -> None:
    async with local(tmp_path) as session:
        results = await asyncio.gather(*(session.chat(f"m{n}") for n in range(5)))
        assert [result.text for result in results] == ["m0", "m1", "m2", "m3", "m4"]
        assert len({result.conversation_id for result in results}) == 1
        assert (await session.call(Status())).conversations == 1


async def test_breaking_off_a_stream_cancels_the_turn(tmp_path: Path) -> None:
    async with local(tmp_path, {"text": "word " * 1000, "when": "long"}, ECHO) as session:
        async with session.stream("a long one") as reply:
            async for _ in reply:
                break
        assert (await session.chat("next")).text == "next"


async def test_closing_in_the_middle_of_a_turn_leaves_its_receipt(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def wait() -> None:
        """Wait for ever."""
        started.set()
        await asyncio.Event().wait()

    session = local(tmp_path, *calling("wait", {})).add_tool(wait)
    chat = asyncio.create_task(session.chat("go"))
    await asyncio.wait_for(started.wait(), LIMIT_S)
    await session.close()
    with pytest.raises(ClawError):
        await chat
    assert [line["status"] for line in receipt_lines(tmp_path)] == ["failed"]


async def test_who_leaves_while_a_wait_is_being_cancelled_waits_for_that(tmp_path: Path) -> None:
    async def wait() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    async with local(tmp_path, *calling("wait", {})).add_tool(wait) as session:
        exchange = await session._begin("go", {})
        await exchange.__aenter__()
        while not isinstance(await exchange.next(), ToolStarted):
            pass
        # All in one round of the loop, as where an interrupt comes before the wait has begun.
        waiting = asyncio.create_task(exchange.next())
        asyncio.get_running_loop().call_soon(waiting.cancel)
        leaving = asyncio.create_task(exchange.__aexit__(None, None, None))
        await asyncio.wait_for(leaving, LIMIT_S)
        assert waiting.cancelled()
    assert [line["status"] for line in receipt_lines(tmp_path)] == ["failed"]


async def test_layers_below_are_there_after_the_beginning(tmp_path: Path) -> None:
    session = local(tmp_path)
    with pytest.raises(ClawError, match="has not begun"):
        _ = session.engine
    async with session:
        await session.init()
        assert session.provider.name() == "mock"
        assert session.engine.status() == []


async def test_a_beginning_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    answers: list[Any] = [ValueError("not yet"), "well"]

    def text() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with local(tmp_path) as session:
        session.system_append(text)
        with pytest.raises(ClawError, match="not yet"):
            await session.init()
        assert (await session.chat("hello")).text == "hello"


async def test_m1_sampling_is_said_for_one_message_or_for_all_that_follow(tmp_path: Path) -> None:
    server = ChatServer(streamed(*HELLO))
    async with (
        serving(server) as url,
        AsyncSession.remote(url, "m", home=tmp_path / "home") as session,
    ):
        await session.chat("a", temperature=0.25, model="other")
        session.set_sampling(temperature=0.5, max_tokens=9, frequency_penalty=0.75)
        await session.chat("b")
        await session.chat("c", temperature=1.5, tools_allow=["file_*", "-file_write"])
        session.set_sampling(temperature=None)
        await session.chat("d")
        for wrong in ({"heat": 1}, {"temperature": 99}, {"top_p": "x"}):
            with pytest.raises(InvalidRequestError):
                session.set_sampling(**wrong)
            with pytest.raises(InvalidRequestError):
                await session.chat("e", **wrong)
    asked = [
        tuple(
            each.get(name) for name in ("model", "temperature", "max_tokens", "frequency_penalty")
        )
        for each in server.requests
    ]
    assert asked == [
        ("other", 0.25, None, None),
        ("m", 0.5, 9, 0.75),
        ("m", 1.5, 9, 0.75),
        ("m", None, 9, 0.75),
    ]
    names = {tool["function"]["name"] for tool in server.requests[2]["tools"]}
    assert "file_read" in names
    assert not names & {"file_write", "shell"}
