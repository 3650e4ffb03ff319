"""Hops of a real runtime on a real worker: each extends the one before, or is found out."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from clawd.engine.client import EngineSettings
from clawd.engine.protocol import ModelConfig
from clawd.engine.supervisor import Engine
from clawd.errors import ContextFullError
from clawd.memory.tools import MemorySearch
from clawd.providers.base import (
    Capabilities,
    ChatRequest,
    Delta,
    Message,
    Provider,
    strip_context_block,
)
from clawd.providers.ledger import estimate_tokens
from clawd.providers.local import LocalModel, LocalProvider
from clawd.runtime.summariser import NoTextError
from clawd.runtime.transcript import summary_order
from clawd.tools.base import Arguments, ToolContext, ToolResult, succeeded
from clawd.wire.events import HopFinished, HopUsage, PromptEvaluated, TurnFinished
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import says
from tests.security.fakes import ADA
from tests.support.calling_model import call, write_calling_gguf
from tests.support.dispatching import LIMIT_S, Bench, Probe, bench_in
from tests.support.engines import GREEDY
from tests.support.hops import lost_prefixes

pytestmark = pytest.mark.real_model

LOAD_LIMIT_S = 60.0
ANSWER = "That is all I found about it."
Spoil = Callable[[ChatRequest], ChatRequest]


@pytest.fixture(scope="session")
def calling_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that looks into memory, probes, and answers."""
    path = tmp_path_factory.mktemp("model") / "caller.gguf"
    search = call("memory_search", '{"query": "adapter"}')
    return write_calling_gguf(path, search, call("probe", '{"text": "a"}'), ANSWER)


class Spoiled:
    """A provider whose requests are changed on their way, as a careless runtime would make them."""

    def __init__(self, inner: Provider, spoil: Spoil) -> None:
        self._inner = inner
        self._spoil = spoil

    def name(self) -> str:
        return self._inner.name()

    def capabilities(self) -> Capabilities:
        return self._inner.capabilities()

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        async for delta in self._inner.chat(self._spoil(request)):
            yield delta

    async def check(self) -> str:
        return await self._inner.check()

    async def close(self) -> None:
        await self._inner.close()


class RealHouse(House):
    """A runtime on a real engine."""

    def __init__(self, bench: Bench, engine: Engine, model: Path, n_ctx: int) -> None:
        self.engine = engine
        self.config = ModelConfig(path=str(model), alias="caller", n_threads=1, n_ctx=n_ctx)
        self.caller = LocalProvider(
            "mock",
            engine,
            lambda _name: LocalModel(config=self.config, sampling=GREEDY),
            default_model="caller",
        )
        self.local: Provider = self.caller
        super().__init__(bench, says("noted"), tools=[Probe(), MemorySearch(bench.memory.search)])
        self.hops: list[HopUsage] = []
        self.evaluated: list[PromptEvaluated] = []

    @property
    def providers(self) -> dict[str, Provider]:
        return {"mock": self.local}

    async def turn(self, text: str, conversation_id: str = "") -> TurnFinished:
        """Run a turn and keep what its hops cost."""
        ticket = await self.send(text, conversation_id=conversation_id)
        for event in await events_of(ticket):
            if isinstance(event, HopFinished):
                self.hops.append(event.usage)
            elif isinstance(event, PromptEvaluated):
                self.evaluated.append(event)
        async with asyncio.timeout(LIMIT_S):
            return await ticket.finished()

    async def converse(self) -> list[TurnFinished]:
        """Nine hops; in between a memory write, a change of date, a new load of the history."""
        first = await self.turn("what do we know of the adapter?")
        await self.say("the adapter has a green plug, remember that")
        self.later(hours=30)
        second = await self.turn("and now?", first.conversation_id)
        self.restart()
        self.later(hours=2)
        return [first, second, await self.turn("one more time", first.conversation_id)]


@asynccontextmanager
async def house_of(folder: Path, model: Path, n_ctx: int = 8192) -> AsyncIterator[RealHouse]:
    engine = Engine(EngineSettings())
    try:
        async with bench_in(folder) as bench:
            house = RealHouse(bench, engine, model, n_ctx)
            async with asyncio.timeout(LOAD_LIMIT_S):
                await engine.load(house.config)
            yield house
    finally:
        await engine.close()


class Overheard(LocalProvider):
    """The provider, which keeps what the prompts of summaries cost."""

    async def chat(self, request: ChatRequest) -> AsyncGenerator[Delta, None]:
        async for delta in super().chat(request):
            if isinstance(delta, PromptEvaluated) and request.keeps_tools:
                self.summed_up.append(delta)
            yield delta

    summed_up: ClassVar[list[PromptEvaluated]] = []


async def test_r10_what_a_summary_is_written_from_was_read_before(
    tmp_path: Path, calling_model: Path
) -> None:
    async with house_of(tmp_path, calling_model) as house:
        Overheard.summed_up.clear()
        house.caller.__class__ = Overheard
        first = await house.turn("what do we know of the adapter?")
        for text in ("and now?", "one more time", "and again"):
            await house.turn(text, first.conversation_id)
        # The model answers with its next call: no summary, and so nothing changes.
        with pytest.raises(NoTextError, match="two summaries were refused"):
            await house.housekeeping.compress(first.conversation_id, ADA)
        prompts = Overheard.summed_up
    order = estimate_tokens(summary_order([], words=360)[-1].content or "")
    assert len(prompts) == 2
    for asked in prompts:
        assert asked.cached > house.hops[0].prompt_tokens
        assert asked.tokens - asked.cached < 3 * order


async def test_every_hop_evaluates_what_is_new_and_at_most_one_token(
    tmp_path: Path, calling_model: Path
) -> None:
    async with house_of(tmp_path, calling_model) as house:
        turns = await house.converse()
        kept = await house.book.load(turns[0].conversation_id, ADA)
        said = [m.content or "" for m in kept.context.messages if m.role == "user"]
        results = [m.content or "" for m in kept.context.messages if m.role == "tool"]
    assert [turn.text for turn in turns] == [ANSWER] * 3
    assert len(house.hops) == 9
    # What the story promises did happen: dates, what memory had meanwhile, results of tools.
    assert ["2026-11-21" in said[0], "2026-11-22" in said[1]] == [True, True]
    assert "date:" not in said[2] and "time: about 16:00" in said[2]
    assert "green plug" not in results[0] and "green plug" in results[2]
    assert lost_prefixes(house.hops) == []
    assert [hop.reevaluated_tokens for hop in house.hops] == [0] * 9
    assert all(hop.new_tokens > 0 for hop in house.hops)
    for hop in house.hops:
        parts = hop.cached_tokens + hop.new_tokens + hop.reevaluated_tokens
        assert parts == hop.prompt_tokens
    assert [(e.tokens, e.cached, e.new, e.reevaluated) for e in house.evaluated] == [
        (h.prompt_tokens, h.cached_tokens, h.new_tokens, h.reevaluated_tokens) for h in house.hops
    ]


def _date_in_the_system_prompt(request: ChatRequest) -> ChatRequest:
    """As if the date stood in the system prompt; it changes with the newest block that has one."""
    dates = [
        line
        for message in request.messages
        for line in (message.content or "").splitlines()
        if message.role == "user" and line.startswith("date:")
    ]
    return msgspec.structs.replace(request, system=f"{dates[-1]}\n{request.system}")


def _block_on_the_newest_message_only(request: ChatRequest) -> ChatRequest:
    """As if the block moved along instead of staying where it was shown."""
    users = [i for i, message in enumerate(request.messages) if message.role == "user"]
    messages = [
        msgspec.structs.replace(message, content=strip_context_block(message.content or ""))
        if index in users[:-1]
        else message
        for index, message in enumerate(request.messages)
    ]
    return msgspec.structs.replace(request, messages=tuple(messages))


def _earlier_results_shortened(request: ChatRequest) -> ChatRequest:
    results = [i for i, message in enumerate(request.messages) if message.role == "tool"]
    messages = [
        msgspec.structs.replace(message, content="[cut]") if index in results[:-1] else message
        for index, message in enumerate(request.messages)
    ]
    return msgspec.structs.replace(request, messages=tuple(messages))


def _tools_in_another_order(request: ChatRequest) -> ChatRequest:
    """As if the tools came from a set: in every hop in another order than in the one before."""
    is_turned = len(request.messages) % 4 == 1
    return msgspec.structs.replace(
        request, tools=request.tools[::-1] if is_turned else request.tools
    )


@pytest.mark.parametrize(
    ("spoil", "hops"),
    [
        (_date_in_the_system_prompt, [4]),
        (_block_on_the_newest_message_only, [4, 7]),
        (_earlier_results_shortened, [3, 5, 6, 8, 9]),
        (_tools_in_another_order, [2, 3, 4, 5, 6, 7, 8, 9]),
    ],
)
async def test_a_prompt_that_changes_in_front_is_found_out(
    spoil: Spoil, hops: list[int], tmp_path: Path, calling_model: Path
) -> None:
    async with house_of(tmp_path, calling_model) as house:
        house.local = Spoiled(house.local, spoil)
        await house.converse()
    assert [line.partition(":")[0] for line in lost_prefixes(house.hops)] == [
        f"hop {number}" for number in hops
    ]
    again = [n for n, hop in enumerate(house.hops, start=1) if hop.reevaluated_tokens > 1]
    assert again == hops


async def test_the_ledger_adds_up_by_the_models_own_tokens(
    tmp_path: Path, calling_model: Path
) -> None:
    async with house_of(tmp_path, calling_model) as house:
        turns = await house.converse()
        kept = await house.book.load(turns[0].conversation_id, ADA)
    for turn, last in zip(turns, house.hops[2::3], strict=True):
        ledger = turn.ledger
        tokens = {part.name: part.tokens for part in ledger.parts}
        assert list(tokens) == ["system", "tools", "memory", "history", "template"]
        assert sum(tokens.values()) == last.prompt_tokens + last.completion_tokens
        assert ledger.free == ledger.context_size - turn.usage.context_used
        assert (ledger.context_size, ledger.is_estimate) == (8192, False)
    first, _, third = ({part.name: part.tokens for part in turn.ledger.parts} for turn in turns)
    assert first["system"] == third["system"]
    assert first["tools"] == third["tools"]
    assert first["memory"] < third["memory"]
    assert first["history"] < third["history"]
    assert len(kept.context.messages) == 18


LONG = Message(role="user", content="the green bridge is long " * 200)


async def _long_result(_arguments: Arguments, _context: ToolContext) -> ToolResult:
    return succeeded(LONG.content or "")


async def test_a_result_that_would_fill_the_context_is_shown_in_part_and_kept_whole(
    tmp_path: Path, calling_model: Path
) -> None:
    async with house_of(tmp_path, calling_model, n_ctx=1024) as house:
        house.tools[0] = Probe(act=_long_result)
        house.restart()
        finished = await house.turn("what do we know of the adapter?")
        stored = await house.bench.memory.messages.history(finished.conversation_id, owner=ADA.uid)
    assert len(house.hops) > 1  # it went on after the long result, whatever this model made of it
    assert all(hop.prompt_tokens < 1024 for hop in house.hops)
    assert LONG.content in [each.message.content for each in stored]


async def test_a_full_context_names_its_biggest_parts_and_the_conversation_lives_on(
    tmp_path: Path, calling_model: Path
) -> None:
    async with house_of(tmp_path, calling_model, n_ctx=1024) as house:
        with pytest.raises(ContextFullError) as caught:
            await house.turn(LONG.content or "")
        alone = await house.caller.count_parts(ChatRequest(messages=(LONG,), model="caller"))
        finished = await house.turn("what do we know of the adapter?")
    found = re.fullmatch(
        r"the prompt has (\d+) tokens, the context holds 1024 and needs room for an answer; its "
        r"biggest parts: system prompt (\d+), tools (\d+), "
        r"message 1 \(user\) ([\d,]+) tokens",
        caught.value.message,
    )
    assert found is not None, caught.value.message
    prompt, system, tools, message = (int(group.replace(",", "")) for group in found.groups())
    assert message >= alone.counts[0] > 1000
    assert 0.9 * prompt < system + tools + message < prompt
    assert finished.text == ANSWER
