"""What a model thought: kept with its messages, and given back at the next hop and after a load."""

import msgspec

from clawd.memory.rows import StoredMessage
from clawd.providers.base import Finished, Message, Sampling
from clawd.runtime.context import unreadable
from clawd.runtime.housekeeping import message_text
from clawd.wire.events import HopUsage, Notice, ReasoningDelta, TextDelta
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import Hop, PlannedModel, calls, says
from tests.security.fakes import ADA
from tests.support.dispatching import Bench, Probe

HALF_A_CALL = '<tool_call>\n{"name": "probe"'


def thinks(thought: str, hop: Hop) -> Hop:
    return [ReasoningDelta(text=thought), *hop]


def thoughts(messages: tuple[Message, ...]) -> list[str]:
    return [message.reasoning for message in messages if message.role == "assistant"]


async def stored(house: House, conversation_id: str) -> list[StoredMessage]:
    return await house.bench.memory.messages.history(conversation_id, owner=ADA.uid)


async def test_r5_what_was_thought_before_a_call_is_there_at_the_next_hop_and_after_a_load(
    bench: Bench,
) -> None:
    hops = [thinks("I look.", calls(("probe", "{}"), text="Well.")), thinks("So.", says("done"))]
    house = House(bench, *hops, says("again"), tools=[Probe()])
    first = await house.say("go")
    house.restart()
    await house.say("and now?", first.conversation_id)
    requests = house.model.requests
    assert [thoughts(each.messages) for each in requests] == [[], ["I look."], ["I look.", "So."]]
    assert first.text == "done"
    kept = [each.message for each in await stored(house, first.conversation_id)]
    assert thoughts(tuple(kept)) == ["I look.", "So.", ""]
    fork = await bench.memory.forks.fork(first.conversation_id, owner=ADA.uid)
    copied = [each.message for each in await stored(house, fork.id)]
    assert copied == kept


async def test_r5_thoughts_that_became_the_answer_are_no_reasoning_as_well(bench: Bench) -> None:
    only: Hop = [ReasoningDelta(text="hm"), Finished(reason="stop", usage=HopUsage())]
    house = House(bench, only)
    finished = await house.say("go")
    assert finished.text == "hm"
    last = (await stored(house, finished.conversation_id))[-1].message
    assert (last.content, last.reasoning) == ("hm", "")


async def test_r5_an_export_has_what_was_thought_and_what_could_not_be_read(bench: Bench) -> None:
    house = House(bench, says(HALF_A_CALL), thinks("Now right.", says("done")), tools=[Probe()])
    finished = await house.say("go")
    assert finished.unreadable == (HALF_A_CALL,)
    row = (await stored(house, finished.conversation_id))[-1]
    line = msgspec.json.decode(message_text(row, "jsonl"))
    assert (line["content"], line["reasoning"]) == ("done", "Now right.")
    assert (line["unreadable"], unreadable(row)) == ([HALF_A_CALL], (HALF_A_CALL,))
    page = message_text(row, "markdown")
    assert f"\n\n```\n{HALF_A_CALL}\n```\n\n" in page
    assert "Reasoning:\n\n```\nNow right.\n```\n\ndone" in page


async def test_r1_what_could_not_be_read_stays_with_the_answer_that_tells_of_it(
    bench: Bench,
) -> None:
    house = House(bench, says("first"), [TextDelta(text=HALF_A_CALL), says("")[1]], tools=[Probe()])
    first = await house.say("hello")
    last = await house.say("go", first.conversation_id)
    assert last.unreadable == (HALF_A_CALL, HALF_A_CALL)
    rows = await stored(house, first.conversation_id)
    assert [unreadable(row) for row in rows] == [(), (), (), last.unreadable]
    assert first.unreadable == ()


class Switched(PlannedModel):
    """A local model whose chat template has a switch for thinking, and no more."""

    is_loaded = True

    def thinking_variables(self, _model: str) -> frozenset[str] | None:
        return frozenset({"enable_thinking"}) if self.is_loaded else None


def told(house: House) -> list[object]:
    """Return what each request says of thinking."""
    variables = [
        each.sampling.template_kwargs if each.sampling else None for each in house.model.requests
    ]
    return [each and (each["enable_thinking"], each.get("reasoning_effort")) for each in variables]


async def test_r5_a_conversation_keeps_what_was_said_of_thinking_until_it_is_taken_back(
    bench: Bench,
) -> None:
    house = House(bench, calls(("probe", "{}")), says("ok"), tools=[Probe()])
    house.model = Switched(*house.model._hops, name="mock")
    first = await house.say("hi", think="off")
    house.restart()
    own = Sampling(template_kwargs={"enable_thinking": True})
    await house.say("more", first.conversation_id, sampling=own)
    await house.say("more", first.conversation_id, think="low")
    await house.say("more", first.conversation_id, think="auto")
    house.restart()
    await house.say("more", first.conversation_id)
    await house.say("something else")
    off, low = (False, None), (True, "low")
    assert told(house) == [off, off, (True, None), low, None, None, None]


async def test_r5_where_a_template_cannot_be_told_how_to_think_a_notice_says_so_once(
    bench: Bench,
) -> None:
    house = House(bench)
    house.model = model = Switched(says("ok"), name="mock")
    model.is_loaded = False
    conversation_id, seen = "", []
    for wish in ("high", "high", "high", "off"):
        ticket = await house.send("hi", conversation_id=conversation_id, think=wish)
        conversation_id = ticket.conversation_id
        events = await events_of(ticket)
        seen.append([event.text for event in events if isinstance(event, Notice)])
        model.is_loaded = True
    why = "with small, think high is on and no more: the chat template reads no reasoning_effort"
    assert seen == [[], [why], [], []]
    house.model = PlannedModel(says("ok"), name="mock")
    events = await events_of(await house.send("hi", think="on"))
    far = "with small, think on changes nothing: the provider is not told of thinking"
    assert far in [event.text for event in events if isinstance(event, Notice)]
