"""Compressions after compressions, and what is known of a prompt when messages came back."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import msgspec
import pytest
from typing_extensions import override

from clawd.config.schema import AgentSection
from clawd.errors import ContextFullError
from clawd.memory.checkpoints import Checkpoint, ModelView
from clawd.memory.rows import StoredMessage
from clawd.providers.base import ChatRequest, Delta, Failed, Finished, Message
from clawd.providers.ledger import PartTokens
from clawd.runtime.compression import Cut, Selection
from clawd.runtime.prompt import PromptSettings
from clawd.runtime.transcript import OPENING
from clawd.wire.events import HopUsage, Notice, PromptEvaluated
from tests.runtime.counting_model import CountingModel, is_whole, tokens_of
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import Hop, Pause, calls, says
from tests.runtime.test_compressor import (
    BUDGET,
    CONTEXT,
    counting,
    last_user,
    made,
    model_of,
    plain,
    shown,
    talk,
    words,
)
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench
from tests.support.passing import pass_time


def rows(*roles: str, first: int = 1) -> list[StoredMessage]:
    return [
        StoredMessage(
            id=first + place,
            conversation_id="c",
            owner=1,
            turn_id="t",
            timestamp="",
            message=Message(role=role, content=f"{role} {place}"),  # type: ignore[arg-type]
        )
        for place, role in enumerate(roles)
    ]


def cut(found: ModelView, choice: Selection) -> Checkpoint:
    kept = [stored.message for stored in found.messages]
    return Cut(found=found, kept=kept, tokens=[9] * len(kept), choice=choice).checkpoint()


def test_a_message_that_stays_behind_a_checkpoint_stays_when_results_alone_are_cut() -> None:
    before = Checkpoint(text="earlier", upto=20, anchor=11, seen=22, replaced=19)
    stored = [*rows("user", first=11), *rows("assistant", "tool", first=21)]
    made = cut(
        ModelView(messages=tuple(stored), checkpoint=before), Selection(start=0, cuts={2: 4})
    )
    assert (made.anchor, made.upto, made.replaced) == (11, 20, 19)


async def test_the_words_a_turn_works_for_stay_through_all_compressions_of_it(bench: Bench) -> None:
    rounds = itertools.count()
    huge: list[int] = []

    def answer(request: ChatRequest) -> Hop:
        number = next(rounds)
        if huge:
            return says("done")
        if (request.messages[0].content or "").startswith(OPENING):
            huge.append(number)
            return calls(("probe", f'{{"text":"{number}","number":9000}}'), ids=[f"r{number}"])
        arguments = f'{{"text":"%s{number}","number":{70 + number}}}'
        two = [("probe", arguments % which) for which in "ab"]
        return calls(*two, ids=[f"a{number}", f"b{number}"])

    house = counting(bench, answer)
    house.change(loop=AgentSection(max_tool_rounds=40))
    finished = await house.say("please read it all")
    model = model_of(house)
    first, *_, last = await made(house, finished.conversation_id)
    assert first.anchor
    assert last.cuts
    assert all("please read it all" in last_user(request) for request in model.asked)
    assert all(is_whole(request.messages) for request in model.asked)
    assert max(model.sizes) <= BUDGET


async def test_what_came_back_is_counted_anew(bench: Bench) -> None:
    house = counting(bench, lambda _: says(words(400)))
    conversation_id = await talk(house, 6)
    await house.housekeeping.compress(conversation_id, ADA)
    await talk(house, 3, conversation_id)
    await house.housekeeping.undo(conversation_id, ADA, only_last=False)
    for restart in (False, True):
        if restart:
            house.restart()
        await talk(house, 1, conversation_id)
        assert model_of(house).sizes[-1] <= BUDGET
        await house.housekeeping.undo(conversation_id, ADA, only_last=False)


class Other(CountingModel):
    """Another provider's model."""

    def name(self) -> str:
        return "other"


async def test_every_summary_by_hand_is_asked_of_the_model_that_spoke_last(bench: Bench) -> None:
    house = TwoModels(bench)
    conversation_id = ""
    for number in range(8):
        finished = await house.say(f"question {number}", conversation_id, provider="other")
        conversation_id = finished.conversation_id
    for restart in (False, True, False):
        if restart:
            house.restart()
        await house.housekeeping.compress(conversation_id, ADA)
    assert len(house.other.side) == 3
    assert not house.model.requests


class TwoModels(House):
    """A house whose default model should not see what was said to the other."""

    def __init__(self, bench: Bench) -> None:
        self.other = Other(
            0,
            plain,
            says("the first of questions"),
            says("the second of questions"),
            says("the third of questions"),
        )
        super().__init__(bench, says(""))

    @property
    def providers(self) -> dict[str, CountingModel]:  # type: ignore[override]
        return {"mock": self.model, "other": self.other}  # type: ignore[dict-item]


async def test_a_summary_is_asked_for_within_the_context_of_a_smaller_model(bench: Bench) -> None:
    house = counting(bench, lambda _: says(words(400)), size=0)
    conversation_id = await talk(house, 20)
    model_of(house).context_size = CONTEXT
    await talk(house, 1, conversation_id)
    (asked, *_) = model_of(house).side
    assert asked.sampling is not None
    assert tokens_of(asked) + (asked.sampling.max_tokens or 0) <= CONTEXT


async def test_a_longer_system_prompt_is_counted_with_the_next_message(bench: Bench) -> None:
    house = counting(bench, lambda _: says(words(400)))
    conversation_id = await talk(house, 5)
    house.change(prompt=PromptSettings(operator=words(2_200)))
    await talk(house, 1, conversation_id)
    assert len(await made(house, conversation_id)) == 1
    assert model_of(house).sizes[-1] <= CONTEXT * 95 // 100


async def test_the_time_of_a_turn_holds_for_its_summaries(bench: Bench) -> None:
    hops = itertools.chain([says(words(500))] * 5, [calls(("probe", '{"text":"a","number":600}'))])
    pause = Pause()
    house = counting(bench, lambda _: next(hops), [pause, *says("late")])
    conversation_id = await talk(house, 5)
    house.change(loop=AgentSection(wall_clock_budget_s=60.0))
    ticket = await house.send("please read it all", conversation_id=conversation_id)
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
    pass_time(60.0)
    finished = await ticket.finished()
    assert finished.stop_reason == "cap"
    assert len(model_of(house).side) == 1
    assert not await made(house, conversation_id)
    assert is_whole(await shown(house, conversation_id))


class Forgetful(CountingModel):
    """A model whose template shows it the newest message alone."""

    @override
    async def chat(self, request: ChatRequest) -> AsyncIterator[Delta]:
        async for delta in super().chat(request):
            if isinstance(delta, Finished):
                delta = msgspec.structs.replace(delta, usage=HopUsage(prompt_tokens=40))
            if isinstance(delta, PromptEvaluated):
                delta = msgspec.structs.replace(delta, tokens=40, context_used=40)
            yield delta


async def test_by_hand_a_model_is_believed_about_its_prompt_as_well(bench: Bench) -> None:
    house = counting(bench, plain)
    house.model = Forgetful(
        CONTEXT, lambda _: says(words(900)), says("It was a long conversation.")
    )
    conversation_id = await talk(house, 6)
    before = await shown(house, conversation_id)
    done = await house.housekeeping.compress(conversation_id, ADA)
    assert done.checkpoint.replaced == 6
    assert (await shown(house, conversation_id))[2:] == before[6:]
    assert done.tokens_before <= CONTEXT


async def test_nothing_is_put_away_for_a_message_that_can_never_fit(bench: Bench) -> None:
    house = counting(bench, plain)
    conversation_id = await talk(house, 4)
    before = await shown(house, conversation_id)
    ticket = await house.send(words(9_000), conversation_id=conversation_id, door="http")
    events = await events_of(ticket)
    assert any(isinstance(e, Notice) and "over its budget" in e.text for e in events)
    assert not await made(house, conversation_id)
    assert not model_of(house).side
    assert (await shown(house, conversation_id))[: len(before)] == before


class Cold(CountingModel):
    """A model that counts only when it is loaded, and refuses what does not fit."""

    is_loaded = False

    @override
    async def count_parts(self, request: ChatRequest) -> PartTokens:
        counted = await super().count_parts(request)
        if self.is_loaded:
            return counted
        return msgspec.structs.replace(counted, counts=(1,) * len(counted.parts), is_estimate=True)

    @override
    async def chat(self, request: ChatRequest) -> AsyncIterator[Delta]:
        self.is_loaded = True
        if tokens_of(request) > self.context_size:
            yield Failed(error=ContextFullError("the prompt does not fit"))
            return
        async for delta in super().chat(request):
            yield delta


async def test_a_prompt_that_did_not_fit_after_all_is_made_to_fit(bench: Bench) -> None:
    house = counting(bench, plain)
    model = house.model = Cold(
        20_000, lambda _: says(words(400)), says("It was a long conversation.")
    )
    conversation_id = await talk(house, 15)
    house.restart()
    model.is_loaded, model.context_size = False, CONTEXT
    house.change(prompt=PromptSettings(operator="Be kind."))
    finished = await house.say("go on", conversation_id)
    assert finished.text == words(400)
    assert len(await made(house, conversation_id)) == 1
    assert model.sizes[-1] <= BUDGET
    with pytest.raises(ContextFullError):
        await house.say(words(9_000), conversation_id, door="http")
