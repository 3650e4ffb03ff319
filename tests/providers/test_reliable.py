"""The chain of providers: who is asked next, and when nobody is."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from clawd.config.schema import ProviderSection
from clawd.errors import ClawError, ConfigError, EngineError, ProviderError
from clawd.providers.base import Capabilities, ChatRequest, Delta, Failed, Finished, Message
from clawd.providers.openai import OpenAICompatibleProvider
from clawd.providers.reliable import ReliableProvider, RetrySettings
from clawd.providers.scripted import ScriptedProvider, parse_script
from clawd.wire.events import ModelLoading, PromptProgress, TextDelta
from tests.support.chat_server import HELLO, Answer, ChatServer, serving, streamed
from tests.support.collecting import collect
from tests.support.rows import each_row

ASK = ChatRequest(messages=(Message(role="user", content="Hi"),), model="first-model")


def scripted(name: str, reply: dict[str, Any]) -> ScriptedProvider:
    return ScriptedProvider(name, parse_script(json.dumps({"replies": [reply]})))


class GivenProvider:
    """Yields what it is given, and remembers what it was asked and whether it was closed."""

    def __init__(self, name: str, *deltas: Delta, hangs: bool = False) -> None:
        self._name = name
        self._deltas = deltas
        self._hangs = hangs
        self.asked: list[ChatRequest] = []
        self.ended = 0

    def name(self) -> str:
        return self._name

    def capabilities(self) -> Capabilities:
        return Capabilities(context_size=7)

    async def chat(self, request: ChatRequest) -> AsyncIterator[Delta]:
        self.asked.append(request)
        try:
            for delta in self._deltas:
                yield delta
            if self._hangs:
                await asyncio.sleep(3600)
        finally:
            self.ended += 1

    async def check(self) -> str:
        raise EngineError("no engine here")

    async def close(self) -> None:
        raise AssertionError("a chain does not own its providers")


@each_row("kind", ["network", "auth", "timeout"])
async def test_the_next_is_asked_when_one_cannot_be_reached(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    chain = ReliableProvider(
        "chain", [scripted("a", {"error": {"kind": kind}}), scripted("b", {"text": "from b"})]
    )
    with caplog.at_level(logging.WARNING):
        response = await collect(chain.chat(ASK))
    assert (response.final_text, response.provider) == ("from b", "b")
    assert [record.getMessage() for record in caplog.records] == [
        f"provider chain: a failed ({kind}), asking b"
    ]


BUSY = [429, 408, 500, 502, 503, 529]


def refusing(name: str, status: int, *, retry_after_s: float | None = None) -> GivenProvider:
    error = ProviderError("no", kind="http", status=status, retry_after_s=retry_after_s)
    return GivenProvider(name, Failed(error=error))


async def test_r8_a_busy_or_broken_server_is_left_for_the_next_and_both_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for status in BUSY:
        chain = ReliableProvider("chain", [refusing("a", status), scripted("b", {"text": "b"})])
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert (await collect(chain.chat(ASK))).provider == "b", status
        assert [record.getMessage() for record in caplog.records] == [
            f"provider chain: a failed (http, status {status}), asking b"
        ]


async def test_r8_when_all_are_busy_they_are_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lost, first, second = scripted("a", {"error": {"kind": "auth"}}), *busy_then_answering()
    retry = RetrySettings(extra_attempts=2, initial_s=0.001, jitter_s=0.0)
    chain = ReliableProvider("chain", [lost, first, second], retry=retry)
    with caplog.at_level(logging.WARNING):
        response = await collect(chain.chat(ASK))
    assert response.final_text == "at last"
    assert [record.getMessage() for record in caplog.records] == [
        "provider chain: a failed (auth), asking b",
        "provider chain: b failed (http, status 429), asking c",
        "provider chain: c failed (http, status 503), asking b, retry 1 of 2 in 0.0 s",
        "provider chain: b failed (http, status 429), asking c",
    ]


def busy_then_answering() -> tuple[GivenProvider, ScriptedProvider]:
    replies = [{"error": {"kind": "http", "status": 503}}, {"text": "at last"}]
    script = parse_script(json.dumps({"replies": replies}))
    return refusing("b", 429), ScriptedProvider("c", script)


async def test_r8_retries_end_and_a_server_that_wants_a_long_wait_is_not_waited_for() -> None:
    busy = refusing("a", 503)
    retry = RetrySettings(extra_attempts=2, initial_s=0.001, jitter_s=0.0)
    with pytest.raises(ProviderError, match="every provider of chain failed"):
        await collect(ReliableProvider("chain", [busy], retry=retry).chat(ASK))
    assert len(busy.asked) == 3
    patient = refusing("a", 429, retry_after_s=3_600.0)
    with pytest.raises(ProviderError):
        await collect(ReliableProvider("chain", [patient], retry=retry).chat(ASK))
    assert len(patient.asked) == 1


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_a_refused_request_is_not_asked_elsewhere(status: int) -> None:
    second = GivenProvider("b")
    refusal = {"error": {"kind": "http", "status": status}}
    chain = ReliableProvider("chain", [scripted("a", refusal), second])
    with pytest.raises(ProviderError, match=f"HTTP {status}"):
        await collect(chain.chat(ASK))
    assert second.asked == []


async def test_after_content_nobody_else_is_asked() -> None:
    second = GivenProvider("b")
    first = scripted("a", {"text": "half", "error": {"kind": "network"}})
    deltas = [delta async for delta in ReliableProvider("chain", [first, second]).chat(ASK)]
    assert deltas[0] == TextDelta(text="half")
    assert isinstance(deltas[-1], Failed)
    assert deltas[-1].partial
    assert second.asked == []


async def test_progress_is_no_content() -> None:
    lost = Failed(error=ProviderError("lost", kind="network"))
    loading = ModelLoading(model="m", loaded_bytes=1, total_bytes=2)
    first = GivenProvider("a", loading, PromptProgress(processed=1, cached=0, total=2), lost)
    chain = ReliableProvider("chain", [first, scripted("b", {"text": "ok"})])
    assert (await collect(chain.chat(ASK))).final_text == "ok"


async def test_the_model_is_the_first_providers_own() -> None:
    lost = Failed(error=ProviderError("lost", kind="network"))
    first, second = GivenProvider("a", lost), GivenProvider("b", Finished(reason="stop"))
    await collect(ReliableProvider("chain", [first, second]).chat(ASK))
    assert [request.model for request in (*first.asked, *second.asked)] == ["first-model", ""]
    assert second.asked[0].messages == ASK.messages


async def test_when_all_fail_each_is_named() -> None:
    chain = ReliableProvider(
        "chain",
        [scripted("a", {"error": {"kind": "auth"}}), scripted("b", {"error": {"kind": "timeout"}})],
    )
    with pytest.raises(ProviderError) as caught:
        await collect(chain.chat(ASK))
    assert caught.value.kind == "timeout"
    assert caught.value.message.splitlines()[1:] == [
        "a: scripted failure of kind auth",
        "b: scripted failure of kind timeout",
    ]


async def test_a_provider_that_says_nothing_is_left_after_the_limit() -> None:
    silent = GivenProvider("a", hangs=True)
    chain = ReliableProvider(
        "chain", [silent, scripted("b", {"text": "ok"})], first_delta_timeout_s=0.05
    )
    assert (await collect(chain.chat(ASK))).final_text == "ok"
    assert silent.ended == 1


async def test_the_limit_is_for_the_first_delta_only() -> None:
    slow = GivenProvider("a", TextDelta(text="x"), hangs=True)
    chain = ReliableProvider("chain", [slow], first_delta_timeout_s=0.05)
    async with aclosing(chain.chat(ASK)) as stream:
        assert await anext(stream) == TextDelta(text="x")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await anext(stream)


async def test_closing_the_chain_closes_the_one_that_answers() -> None:
    running = GivenProvider("a", TextDelta(text="x"), hangs=True)
    async with aclosing(ReliableProvider("chain", [running]).chat(ASK)) as stream:
        await anext(stream)
    assert running.ended == 1


async def test_inside_a_chain_nothing_is_tried_again() -> None:
    broken, good = ChatServer(Answer(cut=True)), ChatServer(streamed(*HELLO))
    async with serving(broken) as broken_url, serving(good) as good_url:
        members = [
            OpenAICompatibleProvider(
                name, ProviderSection(kind="openai-compatible", base_url=url, model="m")
            )
            for name, url in (("a", broken_url), ("b", good_url))
        ]
        chain = ReliableProvider("chain", members)
        response = await collect(chain.chat(ASK))
        await chain.close()
        for member in members:
            await member.close()
    assert response.final_text == "Hello"
    assert len(broken.requests) == 1


async def test_check_tells_of_each_and_fails_when_none_answers() -> None:
    chain = ReliableProvider("chain", [GivenProvider("a"), ScriptedProvider("b")])
    assert await chain.check() == "a: failed: no engine here\nb: b echoes: it has no script"
    with pytest.raises(ClawError, match="no engine here"):
        await ReliableProvider("chain", [GivenProvider("a")]).check()


def test_a_chain_of_nobody_is_refused_and_capabilities_are_the_firsts() -> None:
    with pytest.raises(ConfigError):
        ReliableProvider("chain", [])
    chain = ReliableProvider("chain", [GivenProvider("a"), ScriptedProvider("b")])
    assert chain.name() == "chain"
    assert chain.capabilities() == Capabilities(context_size=7, local=False)
