"""Pictures in turns: shown to models that see, told to those that do not, and counted."""

import msgspec
import pytest

from clawd.config.sections import CompressionSection
from clawd.errors import InvalidRequestError
from clawd.providers.base import Capabilities, ChatRequest, Message, without_pictures
from clawd.providers.ledger import estimated, picture_tokens
from clawd.runtime.compression import count_request
from clawd.runtime.housekeeping import message_text
from clawd.runtime.incoming import IncomingMessage, check
from clawd.runtime.transcript import transcript
from clawd.tools.base import Arguments, ToolContext, ToolResult, succeeded
from clawd.wire.events import Notice
from tests.runtime.inboxes import House, events_of
from tests.runtime.models import PlannedModel, calls, says
from tests.security.fakes import ADA
from tests.support.dispatching import Bench, Probe
from tests.support.pictures import picture, png

ONE, TWO = picture(), picture(4, 4)


class SeeingModel(PlannedModel):
    """A planned model that sees, until it is told not to."""

    has_eyes = True

    def sees(self, _model: str) -> bool:
        return self.has_eyes


class Gallery(House):
    """A daemon's runtime whose model sees."""

    def __init__(self, bench: Bench, *texts: str) -> None:
        super().__init__(bench)
        self.eyes = SeeingModel(*map(says, texts or ("I see.",)), name="mock")
        self.model = self.eyes

    @property
    def asked(self) -> tuple[Message, ...]:
        return self.model.requests[-1].messages


async def test_a_model_sees_them_and_those_before_also_after_a_restart(bench: Bench) -> None:
    house = Gallery(bench)
    name = (await house.say("what is it?", pictures=(ONE,))).conversation_id
    assert house.asked[-1].pictures == (ONE,)
    house.restart()
    await house.say("and this?", name, pictures=(TWO,))
    assert [each.pictures for each in house.asked] == [(ONE,), (), (TWO,)]


async def test_they_may_come_without_words_and_taint(bench: Bench) -> None:
    house = Gallery(bench)
    name = (await house.say("", pictures=(ONE,))).conversation_id
    assert house.asked[-1].pictures == (ONE,)
    assert bench.taint.sources(name) == (ONE.label,)


async def test_a_model_that_sees_none_refuses_them_and_nothing_is_kept(bench: Bench) -> None:
    house = Gallery(bench)
    house.eyes.has_eyes = False
    ticket = await house.send("what is it?", pictures=(ONE,))
    with pytest.raises(InvalidRequestError, match="mock/small sees no pictures"):
        await ticket.finished()
    page = await bench.memory.conversations.list(owner=ADA.uid)
    assert page.conversations == ()


async def test_a_model_that_sees_none_is_told_of_those_before(bench: Bench) -> None:
    house = Gallery(bench)
    name = (await house.say("what is it?", pictures=(ONE,))).conversation_id
    house.eyes.has_eyes = False
    await house.say("and now?", name)
    assert house.asked[0].pictures == ()
    assert (house.asked[0].content or "").endswith(
        f"what is it?\n[{ONE.label}: this model sees no pictures]"
    )


@pytest.mark.sandbox
async def test_what_a_tool_shows_is_in_the_next_request_and_after_a_restart(bench: Bench) -> None:
    async def act(_arguments: Arguments, _context: ToolContext) -> ToolResult:
        return msgspec.structs.replace(succeeded("taken"), images=(png(3, 2),))

    house = Gallery(bench)
    house.model = SeeingModel(calls(("probe", '{"text":"a"}')), says("seen"), name="mock")
    house.tools = [Probe(act=act)]
    house.restart()
    name = (await house.say("look")).conversation_id
    (seen,) = house.asked[-1].pictures
    assert (house.asked[-1].role, seen.width, seen.height) == ("tool", 3, 2)
    assert seen.sha256 in (house.asked[-1].content or "")
    house.restart()
    await house.say("again", name)
    assert [each.pictures for each in house.asked if each.role == "tool"] == [(seen,)]


async def test_an_export_refers_to_them_by_their_hash(bench: Bench) -> None:
    house = Gallery(bench)
    name = (await house.say("what is it?", pictures=(ONE,))).conversation_id
    first, *_ = await bench.memory.messages.history(name, owner=ADA.uid)
    told = msgspec.json.decode(message_text(first, "jsonl"))
    assert told["pictures"] == [msgspec.to_builtins(ONE.facts)]
    assert f"({ONE.label})" in message_text(first, "markdown")


def test_too_many_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="21 pictures"):
        check(IncomingMessage(text="x", pictures=(ONE,) * 21))


async def test_they_count_against_the_context() -> None:
    large = picture(560, 280)
    assert picture_tokens(large) == 200
    plain, shown = (
        ChatRequest(messages=(Message(role="user", content="x", pictures=pictures),))
        for pictures in ((), (large, ONE))
    )
    assert sum(estimated(shown).counts) - sum(estimated(plain).counts) == 201
    model = PlannedModel(says("x"))
    counted = await count_request(model, shown, known_tokens=0)
    assert counted.total - (await count_request(model, plain, known_tokens=0)).total == 201


async def test_what_is_compressed_is_no_longer_shown_and_a_notice_says_so(bench: Bench) -> None:
    house = Gallery(bench, *["The user showed a grey rectangle and asked what it is."] * 20)
    house.change(compression=CompressionSection(at_messages=8, keep_least=2, keep_most=4))
    name = (await house.say("what is it?", pictures=(ONE, TWO))).conversation_id
    notices: list[str] = []
    for number in range(6):
        ticket = await house.send(f"more {number}", conversation_id=name)
        events = await events_of(ticket)
        notices += [event.text for event in events if isinstance(event, Notice)]
    assert "2 pictures are no longer shown to the model" in notices
    assert all(each.pictures == () for each in house.asked)


class LocalModel(SeeingModel):
    """A model of this machine, which sums up by going on with the conversation."""

    def capabilities(self) -> Capabilities:
        return Capabilities(local=True, context_size=100_000)

    def reads_tools(self, _model: str) -> bool:
        return True

    reads_schemas = reads_tools


async def test_a_blind_model_sums_up_what_it_was_shown(bench: Bench) -> None:
    house = Gallery(bench)
    text = "The user showed a grey rectangle and asked what it is."
    house.model = eyes = LocalModel(says(text), name="mock")
    house.change(compression=CompressionSection(at_messages=8, keep_least=2, keep_most=4))
    name = (await house.say("what is it?", pictures=(ONE,))).conversation_id
    eyes.has_eyes = False
    for number in range(4):
        await house.say(f"more {number}", name)
    live = house.book.live(name)
    assert live is not None and live.checkpoint is not None and live.checkpoint.is_summary
    blind = [message for request in eyes.requests[1:] for message in request.messages]
    assert {message.pictures for message in blind} == {()}
    assert any("sees no pictures" in (message.content or "") for message in blind)


def test_a_transcript_and_a_blind_model_are_told_what_was_there() -> None:
    message = Message(role="user", content="look", pictures=(ONE,))
    assert transcript([message], 1_000) == f"[user] look\n[{ONE.label}]"
    assert without_pictures(Message(role="user", pictures=(ONE,))).content == (
        f"[{ONE.label}: this model sees no pictures]"
    )
