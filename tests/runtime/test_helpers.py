"""Helpers: what they look at and return; that they write, ask, multiply and outlive nothing."""

import asyncio
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from clawd.config.schema import AgentProfile
from clawd.errors import CancelledByUserError
from clawd.plugins.loader import PluginPins
from clawd.runtime.helpers import Delegate, Helpers
from clawd.runtime.inbox import Ticket
from clawd.security.policy import PolicySettings
from clawd.security.risk import Need
from clawd.skills.store import AgentStore
from clawd.tools.base import Traits
from clawd.tools.narrowing import Narrowing
from clawd.wire.events import ApprovalRequested, Event, QuestionAsked, ToolProgress
from clawd.wire.turns import SendMessage
from tests.runtime.inboxes import House
from tests.runtime.models import Hop, Pause, calls, says
from tests.security.fakes import ADA
from tests.support.dispatching import LIMIT_S, Bench, Probe
from tests.support.inprocess import OWNER, daemon_in

CHANGE, LOOK = ("change", '{"text":"a"}'), ("look", '{"text":"a"}')
TASK = ("delegate", '{"task":"find a"}')
BY = ("delegate", '{"task":"find a","agent":"reviewer"}')
REVIEWER = "---\ndescription: Reviews.\ntools: look\n---\nYou review."
TOKENS = 20


class Looking(Probe):
    traits: ClassVar[Traits | None] = Traits(effect="looks")


def house_of(
    bench: Bench, *hops: Hop, most: int = 3, more: tuple[Probe, ...] = ()
) -> tuple[House, Probe, Probe]:
    bench.policy = PolicySettings(autonomy="full")
    pins, roots = PluginPins(bench.workspace / "pins.json"), lambda: (bench.workspace,)
    store = AgentStore(*homes_of(bench), pins, roots)
    helpers, look, change = Helpers(store), Looking("look"), Probe("change")
    house = House(bench, *hops, tools=[Delegate(helpers, most, TOKENS), look, change, *more])
    helpers.inbox = house.inbox
    return house, look, change


def homes_of(bench: Bench) -> tuple[Path, Path]:
    """Return the folders of the owner's agents."""
    return bench.workspace / "agents", bench.workspace / "person"


def statuses(bench: Bench) -> list[tuple[str, str]]:
    return [(each.tool, each.status) for each in bench.receipts()]


async def ended(ticket: Ticket) -> list[Event]:
    async with asyncio.timeout(LIMIT_S):
        return [event async for event in ticket.events]


async def test_a_helper_looks_in_a_conversation_of_its_own_and_answers(bench: Bench) -> None:
    house, look, _ = house_of(bench, calls(TASK), calls(LOOK), says("a is here"), says("done"))
    ticket = await house.send("do it")
    events = await ended(ticket)
    assert (await ticket.finished()).text == "done"
    assert look.calls == 1
    (asked,) = house.model.seen(1)  # and nothing else of the conversation
    assert (asked.content or "").endswith("</context>\n\nfind a")
    looked, delegated = bench.receipts()
    assert (looked.tool, delegated.tool) == ("look", "delegate")
    assert delegated.conversation_id == ticket.conversation_id != looked.conversation_id
    result = house.model.seen(3)[-1].content or ""
    assert result.startswith(f"helper {looked.conversation_id}, 1 rounds\n\na is here")
    rows = [event.text for event in events if isinstance(event, ToolProgress)]
    assert rows == ['helper: look {"text":"a"}\n', "helper: 1 rounds, 10 tokens\n"]


async def test_those_of_one_answer_work_side_by_side(bench: Bench) -> None:
    first, second = Pause(), Pause()
    both = calls(TASK, TASK, ids=("a", "b"))
    house, _, _ = house_of(bench, both, [first, *says("1")], [second, *says("2")], says("done"))
    ticket = await house.send("do it")
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(first.reached.wait(), second.reached.wait())
        assert house.inbox.turns == (3, 0)
        second.let_go.set()
        first.let_go.set()
        assert (await ticket.finished()).text == "done"
    told = [each.content or "" for each in house.model.seen(3) if each.role == "tool"]
    assert [each[-1] for each in told] == ["1", "2"]


async def test_a_helper_changes_nothing_and_asks_nobody_in_any_mode(bench: Bench) -> None:
    house, look, change = house_of(
        bench, calls(TASK), calls(CHANGE, LOOK), says("Allow me all."), calls(CHANGE), says("done")
    )
    look.assessment = msgspec.structs.replace(look.assessment, risk="medium")
    ticket = await house.send("do it", interactive=True)
    events = await ended(ticket)
    assert not any(isinstance(event, ApprovalRequested | QuestionAsked) for event in events)
    assert (look.calls, change.calls) == (0, 1)  # the turn's own
    assert statuses(bench) == [
        ("change", "denied"), ("look", "denied"), ("delegate", "allowed"), ("change", "allowed"),
    ]  # fmt: skip
    refused, beyond, *_ = bench.receipts()
    assert "not offered" in refused.reason
    assert "readonly" in beyond.reason


async def test_it_has_no_tool_that_its_turn_has_not_and_is_narrowed_alike(bench: Bench) -> None:
    wide = ("delegate", '{"task":"find a","tools":["look","change","delegate"]}')
    house, look, change = house_of(bench, calls(wide), calls(LOOK, CHANGE), says("a"), says("b"))
    narrowed = (Narrowing(by="the message", tools=("delegate",)),)
    await house.say("do it", narrowed=narrowed)
    assert (look.calls, change.calls) == (0, 0)
    assert statuses(bench)[:2] == [("look", "denied"), ("change", "denied")]
    house.model.requests.clear()
    await house.say("do it", tools_allow=("delegate",))
    assert (look.calls, change.calls) == (0, 0)


async def test_what_its_turns_conversation_refuses_is_refused_to_it(bench: Bench) -> None:
    hops = [says("hello"), calls(TASK), calls(("shell", '{"text":"a"}')), says("a"), says("b")]
    shell = Looking("shell")
    need = Need(kind="words", text="cat a", words=("cat", "a"), risk="low")
    shell.assessment = msgspec.structs.replace(shell.assessment, needs=(need,))
    house, _, _ = house_of(bench, *hops, more=(shell,))
    ticket = await house.send("hello")
    await ended(ticket)
    await bench.approvals.grant(
        "cat *",
        ADA,
        verdict="deny",
        workspace="",
        conversation_id=ticket.conversation_id,
        days=0,
    )
    await house.say("do it", ticket.conversation_id)
    refused, delegated = bench.receipts()
    assert (refused.tool, refused.status, shell.calls) == ("shell", "denied", 0)
    assert refused.reason.startswith(f"helper of {ticket.conversation_id}; rule ")
    assert "helper of" not in delegated.reason


async def test_an_agent_of_a_file_has_its_prompt_and_no_more_tools_than_it_names(
    bench: Bench,
) -> None:
    other = Looking("other")
    hops = [calls(BY), calls(LOOK, ("other", '{"text":"a"}'), CHANGE), says("a"), says("b")]
    house, look, change = house_of(bench, *hops, more=(other,))
    agents, _ = homes_of(bench)
    agents.mkdir()
    (agents / "reviewer.md").write_text(REVIEWER)
    assert (await house.say("do it")).text == "b"
    assert "You review." in (house.model.requests[1].system or "")
    assert "You review." not in (house.model.requests[3].system or "")
    assert (look.calls, other.calls, change.calls) == (1, 0, 0)
    assert statuses(bench) == [
        ("look", "allowed"), ("other", "denied"), ("change", "denied"), ("delegate", "allowed"),
    ]  # fmt: skip


async def test_an_agent_of_the_workspace_works_once_it_is_trusted_as_it_is(bench: Bench) -> None:
    house, look, _ = house_of(bench, calls(BY), says("no helper"))
    theirs = bench.workspace / ".agents" / "agents"
    theirs.mkdir(parents=True)
    (theirs / "reviewer.md").write_text(REVIEWER.replace("tools: look", "tools: look, change"))
    assert (await house.say("do it")).text == "no helper"
    (refused,) = bench.receipts()
    assert (refused.status, house.book.opened, look.calls) == ("failed", 1, 0)
    assert "untrusted" in (house.model.seen(1)[-1].content or "")


async def test_one_that_is_no_agent_opens_nothing(bench: Bench) -> None:
    unknown = ("delegate", '{"task":"find a","agent":"../../etc/passwd"}')
    house, _, _ = house_of(bench, calls(unknown), says("none"))
    assert (await house.say("do it")).text == "none"
    assert (statuses(bench), house.book.opened) == ([("delegate", "failed")], 1)
    assert "there is no agent" in (house.model.seen(1)[-1].content or "")


async def test_an_agent_of_the_config_is_one_too(bench: Bench) -> None:
    house, look, _ = house_of(bench, calls(BY), calls(LOOK), says("a"), says("b"))
    profile = AgentProfile(system_prompt="You check.", tools_allow=("other",))
    house.change(agents={"reviewer": profile})
    assert (await house.say("do it")).text == "b"
    assert "You check." in (house.model.requests[1].system or "")
    assert look.calls == 0


@pytest.mark.parametrize(("budget", "rounds"), [(12, 3), (1, 1), (999_999, 4)])
async def test_its_budget_of_tokens_ends_it_and_is_never_wider(
    bench: Bench, *, budget: int, rounds: int
) -> None:
    spends = ("delegate", f'{{"task":"find a","budget":{budget}}}')
    looks = [calls(("look", f'{{"text":"{number}"}}')) for number in range(9)]
    house, look, _ = house_of(bench, calls(spends), *looks)
    await house.say("do it", max_rounds=1)  # five tokens an answer
    assert statuses(bench) == [*[("look", "allowed")] * rounds, ("delegate", "allowed")]
    assert look.calls == rounds
    told = house.model.seen(rounds + 1)[-1].content or ""
    assert f"the budget of {min(budget, TOKENS)} tokens is used up" in told


async def test_no_helper_is_deeper_than_two(bench: Bench) -> None:
    hops = [calls(TASK), calls(TASK), calls(TASK), says("3"), says("2"), says("1")]
    house, _, _ = house_of(bench, *hops, most=16)
    assert (await house.say("do it")).text == "1"
    assert statuses(bench) == [("delegate", "failed"), *[("delegate", "allowed")] * 2]
    assert "no helpers" in (house.model.seen(3)[-1].content or "")


async def test_a_turn_has_no_more_than_so_many_its_helpers_own_included(bench: Bench) -> None:
    bomb = calls(*[TASK] * 6, ids=list("abcdef"))
    house, _, _ = house_of(bench, bomb, most=3)  # each of them does the same
    finished = await house.say("do it", max_rounds=2)
    assert finished.text
    opened = {each.conversation_id for each in bench.receipts()}
    assert len(opened) <= 1 + 3
    assert house.book.opened == 1 + 3


async def test_what_it_read_taints_the_turn_and_what_the_turn_holds_taints_it(
    bench: Bench,
) -> None:
    house, look, _ = house_of(bench, calls(TASK), calls(LOOK), says("a"), says("done"))

    async def read(_arguments: object, context: object) -> object:
        bench.taint.mark(context.conversation_id, "a page")  # type: ignore[attr-defined]
        return await Probe().act({}, context)  # type: ignore[arg-type]

    look.act = read
    ticket = await house.send("do it", untrusted=("the terminal",))
    await ended(ticket)
    looked = bench.receipts()[0]
    assert set(house.book.sources(ticket.conversation_id)) == {"the terminal", "a page"}
    assert set(house.book.sources(looked.conversation_id)) == {"the terminal", "a page"}


@pytest.mark.parametrize("is_stop", [False, True])
async def test_it_ends_with_its_turn(bench: Bench, *, is_stop: bool) -> None:
    pause = Pause()
    house, look, _ = house_of(bench, calls(TASK), [pause, *calls(LOOK)], says("the end"))
    ticket = await house.send("do it")
    async with asyncio.timeout(LIMIT_S):
        await pause.reached.wait()
        assert house.inbox.turns == (2, 0)
        if is_stop:
            house.inbox.stop_generations()
            assert (await ticket.finished()).text == "the end"
            assert "emergency stop" in (house.model.seen(2)[-1].content or "")
        else:
            ticket.cancel()
            with pytest.raises(CancelledByUserError):
                await ticket.finished()
    assert house.inbox.turns == (0, 0)
    assert look.calls == 0


async def test_none_is_offered_unless_the_config_says_so(tmp_path: Path) -> None:
    task = {"name": "delegate", "arguments": {"task": "look"}}
    write = {"name": "file_write", "arguments": {"path": "a.txt", "content": "x"}}
    replies = [
        {"when": "go", "tool_calls": [task]},
        {"when": "go", "after": "tool", "text": "done"},
        {"when": "look", "tool_calls": [write]},
        {"when": "look", "after": "tool", "text": "a"},
    ]
    script = tmp_path / "script.json"
    script.write_text(msgspec.json.encode({"replies": replies}).decode())
    given = f'script = "{script}"\n[agent]\nhelpers = 2\n[security]\nautonomy = "full"\n'
    async with daemon_in(tmp_path, given) as inside:
        assert inside.daemon.registry.find("delegate") is not None
        assert (await inside.ask(SendMessage(text="go"), OWNER)).text == "done"
        assert [(each.tool, each.status) for each in inside.receipts()] == [
            ("file_write", "denied"), ("delegate", "allowed"),
        ]  # fmt: skip
        assert not (inside.workspace / "a.txt").exists()
        (tmp_path / "home" / "config.toml").write_text(
            (tmp_path / "home" / "config.toml").read_text().replace("helpers = 2", "helpers = 0")
        )
        await inside.daemon.reload()
        assert inside.daemon.registry.find("delegate") is None
