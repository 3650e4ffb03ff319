"""Compressions after compressions, and what is known of a prompt when messages came back."""

import itertools

import msgspec

from clawd.memory.checkpoints import Checkpoint, Shown
from clawd.memory.rows import StoredMessage
from clawd.providers.base import ChatRequest, Message
from clawd.runtime.compression import Choice
from clawd.runtime.cut import Cut
from clawd.runtime.transcript import OPENING
from tests.runtime.counting_model import is_whole
from tests.runtime.models import Hop, calls, says
from tests.runtime.test_compressor import (
    BUDGET,
    counting,
    last_user,
    made,
    model_of,
)
from tests.support.dispatching import Bench


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


def cut(found: Shown, choice: Choice) -> Checkpoint:
    kept = [stored.message for stored in found.messages]
    return Cut(found=found, kept=kept, tokens=[9] * len(kept), choice=choice).checkpoint()


def test_a_message_that_stays_behind_a_checkpoint_stays_when_results_alone_are_cut() -> None:
    before = Checkpoint(text="earlier", upto=20, anchor=11, seen=22, replaced=19)
    stored = [*rows("user", first=11), *rows("assistant", "tool", first=21)]
    made = cut(Shown(messages=tuple(stored), checkpoint=before), Choice(start=0, cuts={2: 4}))
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
    house.change(limits=msgspec.structs.replace(house.settings.limits, max_tool_rounds=40))
    finished = await house.say("please read it all")
    model = model_of(house)
    first, *_, last = await made(house, finished.conversation_id)
    assert first.anchor
    assert last.cuts
    assert all("please read it all" in last_user(request) for request in model.asked)
    assert all(is_whole(request.messages) for request in model.asked)
    assert max(model.sizes) <= BUDGET
