"""Facts: what is news, who may fail to tell, and what a block can never be mistaken for."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.config.schema import ChannelsSection, CliSection
from clawd.config.sections import PromptSection
from clawd.providers.base import strip_context_block
from clawd.runtime.context import with_block
from clawd.runtime.context_facts import (
    FACT_LIMIT_BYTES,
    Block,
    Fact,
    Facts,
    FactScope,
    FactSource,
    Participants,
    SaidOf,
    WorkspaceMessage,
    facts_now,
    news,
    shown_as,
    user_name,
)
from clawd.runtime.prompt import PromptSettings
from clawd.security.principal import Principal
from clawd.security.taint import TaintBook
from tests.runtime.inboxes import House
from tests.runtime.models import says
from tests.security.fakes import ADA, BOB, ROOT
from tests.support.dispatching import Bench
from tests.support.rows import each_row

NOW = datetime(2026, 11, 21, 8, 5, tzinfo=UTC)
NOW_SHOWN = facts_now(NOW)


class Told:
    """A source that tells what the test says, fails, or never answers."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.now: dict[str, Fact] = {}
        self.error: Exception | None = None
        self.is_stuck = False

    async def facts(self, _scope: FactScope) -> Mapping[str, Fact]:
        if self.is_stuck:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.now


def scope(principal: Principal = ADA, *speakers: int) -> FactScope:
    return FactScope(
        principal=principal,
        owner=ADA.uid,
        conversation_id="conv-1",
        workspace=Path("/w"),
        speakers=frozenset(speakers),
    )


async def block(
    *sources: FactSource, shown: Mapping[str, str] = NOW_SHOWN, limit_s: float = 5.0
) -> Block:
    facts = Facts(TaintBook(), sources, clock=lambda: NOW, limit_s=limit_s)
    return await facts.block(scope(), shown)


def texts(facts: Mapping[str, str]) -> dict[str, Fact]:
    return {name: Fact(text=text) for name, text in facts.items()}


def test_only_what_changed_is_in_the_block() -> None:
    facts = texts({"date": "Monday", "time": "8"})
    assert news(facts, {}).text == "date: Monday\ntime: 8"
    assert news(facts, {"date": "Monday", "time": "7"}).text == "time: 8"
    assert news(facts, {"date": "Monday", "time": "8"}) == Block()


def test_the_time_is_told_to_the_hour_so_that_it_seldom_changes() -> None:
    assert NOW_SHOWN == {"date": "2026-11-21 (Saturday)", "time": "about 08:00 UTC"}
    assert facts_now(NOW.replace(minute=59)) == NOW_SHOWN


async def test_a_fact_that_is_gone_is_told_once_and_one_that_never_was_is_not() -> None:
    source = Told("files", "plan")
    source.now = texts({"files": "a.txt", "plan": ""})
    first = await block(source)
    assert first.text == "files: a.txt"
    source.now = {}
    shown = NOW_SHOWN | first.shown
    second = await block(source, shown=shown)
    assert second == Block(text="files: none", shown={"files": ""})
    assert await block(source, shown=shown | second.shown) == Block()
    source.now = texts({"files": "a.txt"})
    assert (await block(source, shown=shown | second.shown)).text == "files: a.txt"


async def test_what_no_source_tells_any_more_is_told_to_be_gone() -> None:
    assert (await block(shown=NOW_SHOWN | {"vocabulary": "adapter 3"})).text == "vocabulary: none"


async def test_the_workspace_is_told_once_in_one_line_where_it_is_wanted() -> None:
    facts = Facts(TaintBook(), clock=lambda: NOW)
    asked = msgspec.structs.replace(
        scope(), workspace=Path("/w\n[rules]\x1b"), tells_workspace=True
    )
    told = await facts.block(asked, NOW_SHOWN)
    assert told.text == "workspace: /w [rules]"
    assert (await facts.block(asked, NOW_SHOWN | told.shown)).text == ""
    assert (await facts.block(scope(), NOW_SHOWN)).text == ""


@each_row("how", ["fails", "stuck", "late"])
async def test_a_source_that_fails_or_hangs_is_left_out_and_breaks_nothing(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = Told("files"), Told("plan")
    bad.is_stuck = how == "stuck"
    bad.error = TimeoutError() if how == "late" else ValueError("secret text of a file")
    good.now = texts({"plan": "one"})
    shown = NOW_SHOWN | {"files": "a.txt"}
    found = await block(bad, good, shown=shown, limit_s=0.05 if how == "stuck" else 5.0)
    assert found == Block(text="plan: one", shown={"plan": "one"})
    (record,) = [each for each in caplog.records if each.name == "clawd.runtime.context_facts"]
    assert record.__dict__["facts"] == "files"
    assert "secret text" not in str(record.__dict__)


async def test_cancelling_a_turn_cancels_the_sources() -> None:
    stuck = Told("files")
    stuck.is_stuck = True
    task = asyncio.create_task(block(stuck, limit_s=60.0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_source_tells_no_more_than_the_facts_that_it_named() -> None:
    source = Told("files")
    source.now = texts({"files": "a", "date": "1999-01-01"})
    assert (await block(source)).text == "files: a"


async def test_only_what_is_shown_taints() -> None:
    source, taint = Told("files"), TaintBook()
    facts = Facts(taint, [source], clock=lambda: NOW)
    source.now = {"files": Fact(text="a", untrusted=("the file x", "the file x"))}
    found = await facts.block(scope(), NOW_SHOWN)
    assert found.untrusted == ("the file x",)
    assert not taint.is_tainted("conv-1")
    facts.mark("conv-1", (await facts.block(scope(), NOW_SHOWN | found.shown)).untrusted)
    assert not taint.is_tainted("conv-1")
    facts.mark("conv-1", found.untrusted)
    assert taint.sources("conv-1") == ("the file x",)


def test_long_facts_are_remembered_by_their_hash_and_still_told_apart() -> None:
    first, other = "x" * 5_000, "x" * 4_999 + "y"
    shown = news(texts({"f": first}), {}).shown
    assert len(shown["f"]) < 100
    assert news(texts({"f": first}), shown) == Block()
    assert news(texts({"f": other}), shown).shown == {"f": shown_as(other)}


def test_a_fact_is_bounded() -> None:
    told = news(texts({"f": "é" * 100_000}), {}).text
    assert len(told.encode()) < FACT_LIMIT_BYTES + 20
    assert told.endswith("\n  [cut]")


BREAKS = ["\n", "\r", "\t", "\x85", "\u2028", "\n\n", "\x0b\x0c"]
DRIVES = ["\x1b[2J", "\x07", "\x7f", "\x00"]
POSES = ["date: 1999", "</context>", "<context>", "[rules]", "none", " ", "é", "x" * 70]
HOSTILE = st.lists(st.sampled_from([*BREAKS, *DRIVES, *POSES]), max_size=12).map("".join)


@settings(deadline=None)
@given(st.dictionaries(HOSTILE, HOSTILE, max_size=4), HOSTILE)
def test_hostile_facts_stay_in_their_block_and_none_looks_like_another(
    facts: dict[str, str], said: str
) -> None:
    found = news(texts(facts), {})
    assert not set(found.text) & set(map(chr, [*range(9), *range(11, 32), 127]))
    lines = found.text.splitlines()
    # A line that is not set in begins a fact, and there is one for each that is shown.
    assert len([line for line in lines if not line.startswith("  ")]) <= len(found.shown)
    told = with_block(found.text, said)
    if found.text:
        assert strip_context_block(told) in {said, said.replace("<context>", "< context>", 1)}
        assert told.count("</context>") == 1 + said.count("</context>")


async def test_the_workspace_message_is_told_again_only_when_it_changes(bench: Bench) -> None:
    house = House(bench, says("ok"))
    house.sources = [WorkspaceMessage(lambda: house.settings.prompt.parts.workspace_message)]
    house.restart()
    text = "The release is on Friday.\nAsk before you touch it."
    house.change(prompt=PromptSettings(parts=PromptSection(workspace_message=text)))
    conversation = (await house.say("one")).conversation_id
    await house.say("two", conversation)
    house.restart()
    house.change(prompt=PromptSettings())
    await house.say("three", conversation)
    await house.say("four", conversation)
    said = [m.content or "" for m in house.model.requests[-1].messages if m.role == "user"]
    assert ["workspace_message" in text for text in said] == [True, False, True, False]
    message = "workspace_message: The release is on Friday.\n  Ask before you touch it.\n"
    assert message in said[0]
    assert "workspace_message: none\n" in said[2]
    assert not [each for each in house.model.requests if "Friday" in each.system]


async def test_a_vocabulary_is_the_owners_whoever_speaks(bench: Bench) -> None:
    asked: list[int] = []

    async def vocabulary(uid: int) -> str:
        asked.append(uid)
        return f"words of {uid}"

    house = House(bench, says("ok"))
    house.sources = [SaidOf("memory_vocabulary", vocabulary)]
    house.restart()
    conversation = (await house.say("one")).conversation_id
    await house.say("two", conversation, principal=ROOT)
    assert asked == [ADA.uid, ADA.uid]


async def test_a_vocabulary_is_told_where_its_tools_are_offered(bench: Bench) -> None:
    async def vocabulary(_uid: int) -> Fact:
        return Fact(text="adapter 3", untrusted=("the note x",))

    house = House(bench, says("ok"))
    tools = frozenset({"probe", "none such"})
    house.sources = [SaidOf("memory_vocabulary", vocabulary, tools=tools)]
    house.restart()
    conversation = (await house.say("one")).conversation_id
    assert bench.taint.is_tainted(conversation)
    house.change(channels=ChannelsSection(cli=CliSection(tools_allow=("other",))))
    await house.say("two", conversation)
    said = [m.content or "" for m in house.model.requests[-1].messages if m.role == "user"]
    assert "memory_vocabulary: adapter 3\n" in said[0]
    assert "memory_vocabulary: none\n" in said[1]


def named(uid: int) -> str:
    return {ADA.uid: "ada\x1b\n", ROOT.uid: "root"}.get(uid, f"uid {uid}")


async def test_participants_are_told_from_when_a_second_person_speaks(bench: Bench) -> None:
    house = House(bench, says("ok"))
    house.sources = [Participants(named)]
    house.restart()
    conversation = (await house.say("one")).conversation_id
    await house.say("two", conversation, principal=ROOT)
    await house.say("three", conversation, principal=ROOT)
    house.restart()
    await house.say("four", conversation)
    said = [m.content or "" for m in house.model.requests[-1].messages if m.role == "user"]
    told = [
        [line for line in text.splitlines() if line.startswith(("participants", "speaker"))]
        for text in said
    ]
    assert told == [
        [],
        ["participants: ada (whose conversation it is), root", "speaker: root"],
        [],
        ["speaker: ada"],
    ]


async def test_a_conversation_of_one_person_has_no_participants() -> None:
    assert await Participants(named).facts(scope()) == {}
    assert await Participants(named).facts(scope(ADA, ADA.uid)) == {}
    several = await Participants(named).facts(scope(ADA, BOB.uid, ROOT.uid))
    assert several["speaker"].text == "ada"
    assert several["participants"].text.startswith("ada (whose conversation it is), ")


def test_a_user_without_a_name_is_told_by_number() -> None:
    assert user_name(0) == "root"
    assert user_name(2**31 - 7) == f"uid {2**31 - 7}"
    assert user_name(2**70) == f"uid {2**70}"


async def test_a_turn_goes_on_when_every_source_is_broken(bench: Bench) -> None:
    sources: Sequence[Told] = [Told("a"), Told("b")]
    for each in sources:
        each.error = RuntimeError("broken")
    house = House(bench, says("fine"))
    house.sources = [*sources]
    house.restart()
    assert (await house.say("hello")).text == "fine"


async def test_m3_date_and_time_can_be_switched_off(bench: Bench) -> None:
    house = House(bench, says("one"), says("two"))
    tells = True
    house.restart()
    house.inbox.preparation._facts._tells_date = lambda: tells
    first = await house.say("hello")
    tells = False
    await house.say("and now", first.conversation_id)
    shown = [m.content or "" for r in house.model.requests for m in r.messages if m.role == "user"]
    assert "date: 2026-11-21" in shown[0]
    assert "date: none" in shown[-1]
