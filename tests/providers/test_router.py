"""The router over providers that are scripted, and what it does when they fail and come back."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from clawd.config.schema import ProviderLabels
from clawd.errors import ConfigError, EngineError, ProviderError
from clawd.providers.base import (
    Capabilities,
    ChatRequest,
    Delta,
    Failed,
    Finished,
    Message,
    Provider,
    Tokenizing,
    TokenList,
    WrittenPrompt,
    able,
)
from clawd.providers.reliable import ReliableProvider
from clawd.providers.router import RoutedProvider, RouterProvider, RouterSettings
from clawd.providers.scripted import ScriptedProvider
from clawd.wire.events import ModelLoading, TextDelta
from tests.support.collecting import collect

LIMIT_S = 60.0
LOST = ProviderError("lost", kind="network")
# Long enough that no probe comes in between.
QUIET = RouterSettings(probe_interval_s=3600, backoff_initial_s=3600, backoff_max_s=3600)
QUICK = RouterSettings(probe_interval_s=3600, probe_timeout_s=0.05, backoff_initial_s=0.01)


class Cutter(ScriptedProvider):
    """A provider with a tokenizer: tokens are the letters; tells of which model it was asked."""

    async def tokenize(
        self, model: str, text: str, *, add_special: bool, parse_special: bool
    ) -> TokenList:
        said = f"{self.name()}:{model}:{text}"
        return TokenList(tokens=tuple(map(ord, said)), pieces=tuple(map(str.encode, said)))

    async def detokenize(self, model: str, tokens: Sequence[int]) -> bytes:
        return "".join(map(chr, tokens)).encode()

    async def render(self, request: ChatRequest) -> WrittenPrompt:
        return WrittenPrompt(text=request.model, tokens=1)


async def cut_by(provider: Provider, model: str) -> str:
    found = able(provider, Tokenizing, model)  # type: ignore[type-abstract]
    if found is None:
        return "nobody"
    cut = await found[0].tokenize(found[1], "hi", add_special=False, parse_special=False)
    return b"".join(cut.pieces).decode()


class Server:
    """Answers with its name, or fails as it is told; keeps what it was asked."""

    def __init__(self, name: str, *, capabilities: Capabilities | None = None) -> None:
        self._name = name
        self._capabilities = capabilities or Capabilities()
        self.failure: Exception | None = None
        self.check_failure: Exception | None = None
        self.fails_late = False
        self.loads = False
        self.gate: asyncio.Event | None = None
        self.asked: list[ChatRequest] = []
        self.ended = 0
        self.checks: asyncio.Queue[str] = asyncio.Queue()
        self.check_hangs = False

    def name(self) -> str:
        return self._name

    def capabilities(self) -> Capabilities:
        return self._capabilities

    async def chat(self, request: ChatRequest) -> AsyncIterator[Delta]:
        self.asked.append(request)
        try:
            if self.loads:
                yield ModelLoading(model="m", loaded_bytes=1, total_bytes=2)
            if self.failure is not None and not self.fails_late:
                yield Failed(error=self.failure)
                return
            yield TextDelta(text=self._name)
            if self.gate is not None:
                await self.gate.wait()
            if self.failure is not None:
                yield Failed(error=self.failure, partial=True)
                return
            yield Finished(reason="stop", provider=self._name)
        finally:
            self.ended += 1

    async def check(self) -> str:
        self.checks.put_nowait(self._name)
        if self.check_hangs:
            await asyncio.sleep(3600)
        if self.check_failure is not None:
            raise self.check_failure
        return "it is there"

    async def close(self) -> None:
        raise AssertionError("a router does not own its backends")


def ask(conversation: str = "", **hints: str) -> ChatRequest:
    if conversation:
        hints["conversation_id"] = conversation
    return ChatRequest(messages=(Message(role="user", content="Hi"),), metadata=hints)


@asynccontextmanager
async def routing(
    *servers: Server,
    settings: RouterSettings = QUIET,
    labels: Sequence[ProviderLabels] = (),
    is_probed: bool = True,
    clock: Callable[[], float] | None = None,
) -> AsyncIterator[RouterProvider]:
    carried = [*labels, *(ProviderLabels() for _ in servers)]
    backends = [
        RoutedProvider(provider=server, labels=label, is_probed=is_probed)
        for server, label in zip(servers, carried, strict=False)
    ]
    named = {"clock": clock} if clock is not None else {}
    router = RouterProvider("fleet", backends, settings, **named)
    try:
        yield router
    finally:
        await router.close()


async def answer_of(router: Provider, request: ChatRequest) -> str:
    async with asyncio.timeout(LIMIT_S):
        return (await collect(router.chat(request))).final_text


async def test_conversations_are_spread_and_return_to_where_they_were() -> None:
    async with routing(Server("a"), Server("b")) as router:
        first = [await answer_of(router, ask(str(number))) for number in range(4)]
        second = [await answer_of(router, ask(str(number))) for number in (3, 1, 2, 0)]
    assert first == ["a", "b", "a", "b"]
    assert second == ["b", "b", "a", "a"]


async def test_the_one_with_the_fewest_requests_in_flight_is_asked() -> None:
    a, b = Server("a"), Server("b")
    a.gate = asyncio.Event()
    async with routing(a, b) as router, aclosing(router.chat(ask())) as held:
        assert await anext(held) == TextDelta(text="a")
        assert [await answer_of(router, ask()) for _ in range(3)] == ["b", "b", "b"]
        a.gate.set()
        assert isinstance(await anext(held), Finished)
        assert await answer_of(router, ask()) == "a"


async def test_a_closed_stream_counts_no_more_and_ends_the_backends() -> None:
    a, b = Server("a"), Server("b")
    a.gate = asyncio.Event()
    async with routing(a, b) as router:
        async with aclosing(router.chat(ask())) as held:
            await anext(held)
        assert a.ended == 1
        a.gate.set()
        assert await answer_of(router, ask()) == "a"


async def test_a_conversation_leaves_a_backend_that_is_overloaded() -> None:
    a, b = Server("a"), Server("b")
    settings = RouterSettings(probe_interval_s=3600, overload_lead=1)
    async with routing(a, b, settings=settings) as router:
        assert await answer_of(router, ask("1")) == "a"
        a.gate = asyncio.Event()
        async with aclosing(router.chat(ask("1"))) as held:
            await anext(held)
            assert await answer_of(router, ask("1")) == "b"
        assert await answer_of(router, ask("1")) == "b"


async def test_hints_narrow_the_choice() -> None:
    a, b = Server("a"), Server("b")
    labels = [
        ProviderLabels(privacy="local", size="small"),
        ProviderLabels(privacy="cloud", size="big"),
    ]
    async with routing(a, b, labels=labels) as router:
        assert await answer_of(router, ask(size="big")) == "b"
        assert await answer_of(router, ask("1", privacy="local")) == "a"
        assert await answer_of(router, ask("1", privacy="cloud")) == "b"
        with pytest.raises(ProviderError, match="carries privacy=local, size=big"):
            await answer_of(router, ask(privacy="local", size="big"))


async def test_a_private_request_fails_rather_than_leave_for_another_backend() -> None:
    a, b = Server("a"), Server("b")
    a.failure = LOST
    async with routing(a, b, labels=[ProviderLabels(privacy="local")]) as router:
        with pytest.raises(ProviderError, match="every backend of fleet failed:\na: lost"):
            await answer_of(router, ask(privacy="local"))
    assert b.asked == []


async def test_a_backend_with_a_model_of_its_own_is_asked_for_that_one() -> None:
    a, b, other = Server("a"), Server("b"), Server("c")
    labels = [ProviderLabels(model="big"), ProviderLabels(), ProviderLabels(model="other")]
    request = ChatRequest(messages=(), model="big")
    async with routing(a, b, other, labels=labels) as router:
        assert await answer_of(router, request) == "a"
        a.failure = LOST
        assert await answer_of(router, request) == "b"
    assert [each.model for each in (*a.asked, *b.asked)] == ["", "", "big"]
    assert other.asked == []


async def test_another_is_asked_before_the_first_delta(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Server("a"), Server("b")
    async with routing(a, b) as router:
        assert await answer_of(router, ask("1")) == "a"
        a.failure = LOST
        with caplog.at_level(logging.WARNING):
            assert await answer_of(router, ask("1")) == "b"
        assert await answer_of(router, ask("2")) == "b"
        a.failure = None
        assert await answer_of(router, ask("1")) == "b"
    assert len(a.asked) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "provider fleet: a is down (network)",
        "provider fleet: a failed (network), asking another",
    ]


async def test_a_model_that_cannot_be_loaded_is_asked_for_elsewhere() -> None:
    a, b = Server("a"), Server("b")
    a.failure, a.loads = LOST, True
    async with routing(a, b) as router:
        assert await answer_of(router, ask("1")) == "b"
    assert (len(a.asked), len(b.asked)) == (1, 1)


async def test_after_the_first_delta_nobody_else_is_asked_and_the_next_turn_goes_elsewhere() -> (
    None
):
    a, b = Server("a"), Server("b")
    a.failure, a.fails_late = LOST, True
    async with routing(a, b) as router:
        deltas = [delta async for delta in router.chat(ask("1"))]
        assert deltas == [TextDelta(text="a"), Failed(error=LOST, partial=True)]
        assert b.asked == []
        assert await answer_of(router, ask("1")) == "b"


async def test_a_refused_request_is_an_answer_and_takes_nobody_down() -> None:
    a, b = Server("a"), Server("b")
    a.failure = ProviderError("HTTP 500: a bad prompt", kind="http", status=500)
    async with routing(a, b) as router:
        with pytest.raises(ProviderError, match="bad prompt"):
            await answer_of(router, ask())
        a.failure = None
        assert b.asked == []
        assert await answer_of(router, ask()) == "a"


async def test_a_backend_that_is_only_busy_stays_up() -> None:
    a, b = Server("a"), Server("b")
    a.failure = ProviderError("HTTP 429", kind="http", status=429)
    async with routing(a, b) as router:
        assert await answer_of(router, ask()) == "b"
        a.failure = None
        assert await answer_of(router, ask()) == "a"


async def test_when_all_fail_each_is_named_and_the_next_request_tries_again() -> None:
    a, b = Server("a"), Server("b")
    a.failure = LOST
    b.failure = ProviderError("HTTP 503", kind="http", status=503)
    async with routing(a, b) as router:
        with pytest.raises(ProviderError) as caught:
            await answer_of(router, ask())
        assert caught.value.message == "every backend of fleet failed:\na: lost\nb: HTTP 503"
        assert (caught.value.kind, caught.value.status) == ("http", 503)
        b.failure = None
        assert await answer_of(router, ask()) == "b"


async def test_a_probe_brings_a_backend_back(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Server("a"), Server("b")
    a.failure = a.check_failure = LOST
    with caplog.at_level(logging.INFO):
        async with routing(a, b, settings=QUICK) as router, asyncio.timeout(LIMIT_S):
            assert await answer_of(router, ask("1")) == "b"
            await a.checks.get()
            await a.checks.get()
            assert await answer_of(router, ask("2")) == "b"
            a.failure = a.check_failure = None
            while "a is back" not in caplog.text:
                await a.checks.get()
            assert await answer_of(router, ask("3")) == "a"
            assert await answer_of(router, ask("1")) == "b"


async def test_a_probe_without_an_answer_takes_a_backend_down() -> None:
    a, b = Server("a"), Server("b")
    a.check_hangs = True
    settings = RouterSettings(probe_interval_s=0.01, probe_timeout_s=0.01, backoff_initial_s=0.01)
    async with routing(a, b, settings=settings) as router, asyncio.timeout(LIMIT_S):
        assert await answer_of(router, ask()) == "a"
        await a.checks.get()
        await a.checks.get()
        assert [await answer_of(router, ask()) for _ in range(2)] == ["b", "b"]


async def test_a_server_that_knows_no_list_of_models_is_up() -> None:
    a, b = Server("a"), Server("b")
    a.check_failure = ProviderError("HTTP 404", kind="http", status=404)
    settings = RouterSettings(probe_interval_s=0.01)
    async with routing(a, b, settings=settings) as router, asyncio.timeout(LIMIT_S):
        assert await answer_of(router, ask()) == "a"
        await a.checks.get()
        await a.checks.get()
        assert await answer_of(router, ask()) == "a"


async def test_probes_end_when_nobody_asks_and_begin_again_with_the_next_request() -> None:
    a, now = Server("a"), [0.0]
    settings = RouterSettings(probe_interval_s=0.01, probe_idle_s=0.1)
    async with (
        routing(a, settings=settings, clock=lambda: now[0]) as router,
        asyncio.timeout(LIMIT_S),
    ):
        for _ in range(2):
            before = asyncio.all_tasks()
            await answer_of(router, ask())
            (probing,) = asyncio.all_tasks() - before
            now[0] += 0.05
            await a.checks.get()
            now[0] += 0.1
            await asyncio.wait({probing})
            while not a.checks.empty():
                a.checks.get_nowait()


async def test_a_closed_router_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with routing(Server("a"), Server("b")) as router:
        await answer_of(router, ask())
        await asyncio.sleep(0)
        assert asyncio.all_tasks() != before
    assert asyncio.all_tasks() == before


async def test_one_that_is_not_probed_is_tried_again_when_its_wait_is_over() -> None:
    now = [0.0]
    a, b = Server("a"), Server("b")
    a.failure = LOST
    settings = RouterSettings(backoff_initial_s=10)
    async with routing(a, b, settings=settings, is_probed=False, clock=lambda: now[0]) as router:
        assert await answer_of(router, ask()) == "b"
        a.failure = None
        now[0] = 9.9
        assert await answer_of(router, ask()) == "b"
        now[0] = 10.0
        assert await answer_of(router, ask()) == "a"
    assert a.checks.empty()


async def test_check_tells_of_each_and_fails_when_none_answers() -> None:
    a, b = Server("a"), Server("b")
    a.check_failure = EngineError("no engine here")
    async with routing(a, b) as router:
        assert await router.check() == "a: failed: no engine here\nb: it is there"
        assert await answer_of(router, ask()) == "b"
        b.check_failure = LOST
        with pytest.raises(ProviderError, match="a: no engine here\nb: lost"):
            await router.check()
        a.check_failure = None
        await router.check()
        assert await answer_of(router, ask()) == "a"


async def test_a_chain_goes_on_when_a_whole_router_is_gone() -> None:
    a = Server("a")
    a.failure = LOST
    async with routing(a) as router:
        assert await answer_of(ReliableProvider("safe", [router, Server("b")]), ask()) == "b"


def test_capabilities_are_what_every_backend_can() -> None:
    small = Server("a", capabilities=Capabilities(tools=False, local=True, context_size=10))
    big = Server("b", capabilities=Capabilities(streaming=False, context_size=20))
    unknown = Server("c")
    router = RouterProvider(
        "fleet", [RoutedProvider(provider=each) for each in (small, big, unknown)]
    )
    assert router.name() == "fleet"
    assert router.capabilities() == Capabilities(
        streaming=False, tools=False, context_size=10, heeds_hints=True
    )


def test_a_router_over_nobody_is_refused() -> None:
    with pytest.raises(ConfigError):
        RouterProvider("fleet", [])


async def test_what_backends_can_do_beside_chatting_the_router_and_the_chain_can_do() -> None:
    plain, first, second = ScriptedProvider("plain"), Cutter("first"), Cutter("second")
    router = RouterProvider("r", [RoutedProvider(provider=each) for each in (plain, first, second)])
    assert await cut_by(router, "m") == "first:m:hi"
    labelled = RoutedProvider(provider=first, labels=ProviderLabels(model="m"))
    assert await cut_by(RouterProvider("r", [labelled]), "m") == "first::hi"
    assert await cut_by(RouterProvider("r", [labelled]), "other") == "nobody"
    assert await cut_by(RouterProvider("r", [RoutedProvider(provider=plain)]), "m") == "nobody"
    # In a chain the others answer with models of their own, so their tokens are others.
    assert await cut_by(ReliableProvider("c", [router, plain]), "m") == "first:m:hi"
    assert await cut_by(ReliableProvider("c", [plain, first]), "m") == "nobody"
