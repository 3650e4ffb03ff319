"""What show-prompt shows is what a turn would send, whatever the model can do."""

from clawd.providers.base import Capabilities
from clawd.runtime.prompt import PromptSettings
from tests.runtime.inboxes import House
from tests.runtime.models import PlannedModel, says
from tests.security.fakes import ADA
from tests.support.dispatching import Bench, Probe
from tests.support.rows import each_row


class Plain(PlannedModel):
    """A model that can call no tools."""

    def capabilities(self) -> Capabilities:
        return Capabilities(tools=False)


@each_row("kind", [PlannedModel, Plain], fresh=["bench"])
async def test_the_preview_is_what_the_next_turn_sends(
    bench: Bench, kind: type[PlannedModel]
) -> None:
    house = House(bench, tools=[Probe("shell"), Probe()])
    house.model = kind(says("ok"), name="mock")
    new = await house.inbox.preview(ADA, conversation_id="", agent="", workspace="")
    conversation = (await house.say("one")).conversation_id
    house.later(3)
    own = await house.inbox.preview(ADA, conversation_id=conversation, agent="", workspace="")
    await house.say("two", conversation)
    first, second = house.model.requests
    assert [first.system, second.system] == [new.system, own.system]
    assert first.messages[-1].content == f"{new.block}\n\none"
    assert second.messages[-1].content == f"{own.block}\n\ntwo"
    for shown in (new, own):
        assert "\n\n".join(text for _, text in shown.fragments) == shown.system
    assert ("CMD: " in new.system) == (kind is Plain)


async def test_a_preview_asks_no_text_anew_that_is_in_use(bench: Bench) -> None:
    asked: list[int] = []

    def operator() -> str:
        asked.append(1)
        return f"asked {len(asked)}"

    house = House(bench, says("ok"))
    house.change(prompt=PromptSettings(operator=operator))
    conversation = (await house.say("one")).conversation_id
    own = await house.inbox.preview(ADA, conversation_id=conversation, agent="", workspace="")
    assert own.system == house.model.requests[-1].system
    live = await house.book.load(conversation, ADA)
    assert live.preamble is not None
    live.preamble.mark_dirty("operator")
    await house.say("two", conversation)
    assert "asked 2" in house.model.requests[-1].system
    assert len(live.context.messages) == 4
