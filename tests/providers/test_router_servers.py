"""The router over two real servers on loopback, one of which is killed mid-run."""

import asyncio
import itertools
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from clawd.config.schema import ProviderSection
from clawd.errors import ProviderError
from clawd.providers.base import ChatRequest, Failed, Message
from clawd.providers.openai import OpenAICompatibleProvider
from clawd.providers.router import RoutedProvider, RouterProvider, RouterSettings
from clawd.wire.events import TextDelta
from tests.support.collecting import collect

LIMIT_S = 60.0
SETTINGS = RouterSettings(
    probe_interval_s=0.05, probe_timeout_s=LIMIT_S, backoff_initial_s=0.05, backoff_max_s=0.2
)


class ServerProcess:
    """A chat server in a process of its own, always on the same port."""

    def __init__(self, name: str) -> None:
        self.name = name
        # Bound, so that nobody else takes the port while the server is dead; it never listens.
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind(("127.0.0.1", 0))
        self.port = int(self._held.getsockname()[1])
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.support.chat_server_program", self.name, str(self.port)),
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(LIMIT_S):
            assert int(await self._process.stdout.readline()) == self.port

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.communicate()

    async def end(self) -> None:
        await self.kill()
        self._held.close()


class Fleet:
    """Two server processes behind a router."""

    def __init__(self) -> None:
        self.servers = {name: ServerProcess(name) for name in ("a", "b")}
        self.router: RouterProvider

    async def ask(self, conversation: str) -> str:
        async with asyncio.timeout(LIMIT_S):
            return (await collect(self.router.chat(request(conversation)))).final_text

    async def until_back(self, answer: str) -> None:
        """Open conversations until one is answered so."""
        async with asyncio.timeout(LIMIT_S):
            for number in itertools.count():
                if await self.ask(f"new {number}") == answer:
                    return
                await asyncio.sleep(0.01)


def request(conversation: str, text: str = "hello") -> ChatRequest:
    message = Message(role="user", content=text)
    return ChatRequest(messages=(message,), metadata={"conversation_id": conversation})


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    made = Fleet()
    try:
        await asyncio.gather(*(server.start() for server in made.servers.values()))
        async with providers(made) as members:
            made.router = RouterProvider(
                "fleet", [RoutedProvider(provider=each) for each in members], SETTINGS
            )
            try:
                yield made
            finally:
                await made.router.close()
    finally:
        for server in made.servers.values():
            await server.end()


@asynccontextmanager
async def providers(fleet: Fleet) -> AsyncIterator[list[OpenAICompatibleProvider]]:
    made = [
        OpenAICompatibleProvider(
            name,
            ProviderSection(
                kind="openai-compatible", base_url=f"http://127.0.0.1:{server.port}/v1", model="m"
            ),
        )
        for name, server in fleet.servers.items()
    ]
    try:
        yield made
    finally:
        for each in made:
            await each.close()


async def test_one_is_killed_mid_run_and_comes_back(fleet: Fleet) -> None:
    conversations = [str(number) for number in range(8)]
    before = {each: await fleet.ask(each) for each in conversations}
    assert sorted(before.values()) == ["from a"] * 4 + ["from b"] * 4
    assert {each: await fleet.ask(each) for each in conversations} == before

    await fleet.servers["a"].kill()
    after = {each: await fleet.ask(each) for each in conversations}
    assert set(after.values()) == {"from b"}

    await fleet.servers["a"].start()
    await fleet.until_back("from a")
    assert {each: await fleet.ask(each) for each in conversations} == after


async def test_answers_under_way_fail_readably_and_the_others_go_on(fleet: Fleet) -> None:
    streams = [fleet.router.chat(request(str(number), "long")) for number in range(4)]
    async with asyncio.timeout(LIMIT_S):
        firsts = [await anext(stream) for stream in streams]
        assert firsts == [TextDelta(text=f"from {name}") for name in "abab"]
        await fleet.servers["a"].kill()
        for stream in (streams[0], streams[2]):
            last = [delta async for delta in stream][-1]
            assert isinstance(last, Failed)
            assert last.partial
            assert isinstance(last.error, ProviderError)
            assert str(fleet.servers["a"].port) in last.error.message
        for stream in (streams[1], streams[3]):
            async with aclosing(stream):
                assert await anext(stream) == TextDelta(text=" more")
        assert [await fleet.ask(each) for each in "0123"] == ["from b"] * 4


async def test_under_load_every_request_is_answered_or_fails_readably_when_one_dies(
    fleet: Fleet,
) -> None:
    requests = [asyncio.create_task(fleet.ask(str(number))) for number in range(200)]
    async with asyncio.timeout(LIMIT_S):
        await asyncio.wait(requests, return_when=asyncio.FIRST_COMPLETED)
        await fleet.servers["a"].kill()
        answers = await asyncio.gather(*requests, return_exceptions=True)
    failed = [each for each in answers if isinstance(each, BaseException)]
    # Cut after its first words an answer fails, and says so; all others are whole.
    assert all(isinstance(each, ProviderError) for each in failed), failed
    assert {each for each in answers if isinstance(each, str)} <= {"from a", "from b"}
    assert len(failed) < 100
    assert await fleet.ask("after") == "from b"


async def test_with_both_gone_the_failure_names_both_and_nothing_hangs(fleet: Fleet) -> None:
    for server in fleet.servers.values():
        await server.kill()
    with pytest.raises(ProviderError) as caught:
        await fleet.ask("1")
    lines = caught.value.message.splitlines()
    assert lines[0] == "every backend of fleet failed:"
    assert sorted(line[:2] for line in lines[1:]) == ["a:", "b:"]
    await fleet.servers["b"].start()
    assert await fleet.ask("1") == "from b"
