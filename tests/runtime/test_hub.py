"""Events to many readers: order, merging, stalls; nobody's slowness stops anybody."""

import asyncio

import pytest

from clawd.runtime import hub as hubs
from clawd.runtime.hub import Broadcast, DaemonEvent, Hub, HubSubscription, Subscription, merge
from clawd.security.principal import Principal
from clawd.wire.events import (
    EstopChanged,
    Event,
    ModelLoading,
    Notice,
    PromptProgress,
    ReasoningDelta,
    TextDelta,
    ToolDraft,
    ToolProgress,
    ToolStarted,
)
from tests.support.rows import each_row


def text(value: str) -> TextDelta:
    return TextDelta(text=value)


def note(value: object) -> Notice:
    return Notice(level="info", text=str(value))


async def everything(subscription: Subscription) -> list[Event]:
    async with asyncio.timeout(60):
        return [event async for event in subscription]


async def test_events_come_in_order_and_the_stream_ends() -> None:
    subscription = Subscription()
    sent: list[Event] = [text("a"), note(1), text("b"), text("c")]
    for event in sent:
        subscription.put(event)
    subscription.close()
    subscription.put(note("too late"))
    assert await everything(subscription) == sent
    assert not subscription.stalled


async def test_a_reader_that_waits_is_woken() -> None:
    subscription = Subscription()
    reading = asyncio.create_task(everything(subscription))
    await asyncio.sleep(0)
    subscription.put(text("a"))
    await asyncio.sleep(0)
    subscription.put(text("b"))
    subscription.close()
    assert await reading == [text("a"), text("b")]


async def test_beyond_the_limit_text_is_merged_and_none_is_lost() -> None:
    subscription = Subscription(limit=3)
    for number in range(500):
        subscription.put(text(f"{number} "))
    subscription.close()
    events = await everything(subscription)
    assert len(events) == 3
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "".join(
        f"{number} " for number in range(500)
    )


async def test_what_cannot_be_merged_is_kept_up_to_twice_the_limit() -> None:
    subscription = Subscription(limit=3)
    sent = [note(number) for number in range(6)]
    for event in sent:
        subscription.put(event)
    assert not subscription.stalled
    subscription.put(note("one too many"))
    assert subscription.stalled
    assert await everything(subscription) == sent


@each_row("event", [text("more"), note("more")])
async def test_a_reader_that_takes_nothing_for_too_long_is_cut_off(event: Event) -> None:
    subscription = Subscription(limit=1, stall_s=0.0)
    subscription.put(text("first"))
    await asyncio.sleep(0.002)
    subscription.put(event)
    assert subscription.stalled
    assert await everything(subscription) == [text("first")]


async def test_a_slow_reader_that_takes_something_is_not_cut_off() -> None:
    subscription = Subscription(limit=2, stall_s=60.0)
    subscription.put(note(0))
    for number in range(1, 50):
        subscription.put(note(number))
        assert await anext(subscription) == note(number - 1)
    assert not subscription.stalled


@each_row(
    ("first", "second", "both"),
    [
        (text("a"), text("b"), text("ab")),
        (ReasoningDelta(text="a"), ReasoningDelta(text="b"), ReasoningDelta(text="ab")),
        (
            ModelLoading(model="m", loaded_bytes=1, total_bytes=9),
            ModelLoading(model="m", loaded_bytes=5, total_bytes=9),
            ModelLoading(model="m", loaded_bytes=5, total_bytes=9),
        ),
        (
            PromptProgress(processed=1, cached=0, total=9),
            PromptProgress(processed=5, cached=0, total=9),
            PromptProgress(processed=5, cached=0, total=9),
        ),
        (
            ToolProgress(call_id="1", text="a"),
            ToolProgress(call_id="1", text="b"),
            ToolProgress(call_id="1", text="ab"),
        ),
        (ToolProgress(call_id="1", text="a"), ToolProgress(call_id="2", text="b"), None),
        (
            ToolDraft(tool="t", text="a", index=1),
            ToolDraft(tool="t", text="b", index=1),
            ToolDraft(tool="t", text="ab", index=1),
        ),
        (ToolDraft(tool="t", text="a"), ToolDraft(tool="t", text="b", index=1), None),
        (text("a"), ReasoningDelta(text="b"), None),
        (ReasoningDelta(text="a"), text("b"), None),
        (note(1), note(1), None),
        (ToolStarted(call_id="1", tool="t"), ToolStarted(call_id="1", tool="t"), None),
    ],
)
def test_only_what_says_the_same_in_one_is_merged(
    first: Event, second: Event, both: Event | None
) -> None:
    assert merge(first, second) == both


async def test_everybody_gets_everything_from_when_they_came() -> None:
    broadcast = Broadcast()
    assert not broadcast.followers
    early = broadcast.subscribe()
    broadcast.emit(note(1))
    late = broadcast.subscribe()
    broadcast.emit(note(2))
    for subscription in (early, late):
        broadcast.unsubscribe(subscription)
    assert not broadcast.followers
    broadcast.emit(note(3))
    assert await everything(early) == [note(1), note(2)]
    assert await everything(late) == [note(2)]


async def test_a_stalled_follower_is_dropped_and_the_others_go_on() -> None:
    broadcast = Broadcast()
    fast, slow = broadcast.subscribe(), broadcast.subscribe()
    got = []
    for number in range(3000):
        broadcast.emit(note(number))
        got.append(await anext(fast))
    assert got == [note(number) for number in range(3000)]
    assert slow.stalled
    assert broadcast.followers
    broadcast.unsubscribe(fast)
    assert not broadcast.followers


ADA = Principal(uid=1, gid=1, pid=1)
BOB = Principal(uid=2, gid=2, pid=2)
ADMIN = Principal(uid=3, gid=3, pid=3, role="admin")


async def taken(subscription: HubSubscription) -> list[DaemonEvent]:
    subscription.close()
    return [event async for event in subscription]


async def test_each_is_told_of_their_own_and_admins_of_all() -> None:
    hub = Hub()
    followers = [hub.subscribe(who) for who in (ADA, BOB, ADMIN)]
    Broadcast(hub, owner=1, conversation_id="a").emit(Notice(level="info", text="of ada"))
    Broadcast(hub, owner=2).emit(Notice(level="info", text="of bob"))
    hub.emit(DaemonEvent(event=EstopChanged(is_set=True)))
    told = [[(e.owner, e.conversation_id) for e in await taken(f)] for f in followers]
    assert told == [
        [(1, "a"), (None, "")],
        [(2, ""), (None, "")],
        [(1, "a"), (2, ""), (None, "")],
    ]


async def test_a_slow_reader_gets_all_text_merged_by_conversation() -> None:
    hub = Hub()
    slow = hub.subscribe(ADA, limit=2)
    first, second = (Broadcast(hub, owner=1, conversation_id=name).emit for name in "ab")
    for tell, text in ((first, "1"), (first, "2"), (first, "3"), (second, "x"), (second, "y")):
        tell(TextDelta(text=text))
    told = [(e.conversation_id, e.event) for e in await taken(slow)]
    assert told == [
        ("a", TextDelta(text="1")),
        ("a", TextDelta(text="23")),
        ("b", TextDelta(text="xy")),
    ]


async def test_one_that_takes_nothing_is_cut_off_and_forgotten() -> None:
    hub = Hub()
    stuck, other = hub.subscribe(ADA, limit=2, stall_s=60), hub.subscribe(ADA)
    for _ in range(10):
        hub.emit(DaemonEvent(event=EstopChanged(is_set=True)))
    assert stuck.stalled and not other.stalled
    assert len(await taken(stuck)) == 4
    assert len(await taken(other)) == 10


async def test_closing_the_hub_ends_all_who_follow() -> None:
    hub = Hub()
    waiting = [asyncio.create_task(anext(hub.subscribe(ADA), None)) for _ in range(3)]
    await asyncio.sleep(0)
    hub.close()
    assert await asyncio.gather(*waiting) == [None] * 3


async def texts_of(subscription: HubSubscription) -> list[str]:
    subscription.close()
    async with asyncio.timeout(60):
        return [each.event.text async for each in subscription if isinstance(each.event, TextDelta)]


async def test_a_new_reader_gets_what_came_behind_an_event_and_only_what_is_its() -> None:
    hub, owner = Hub(), Principal(uid=1000, gid=1000, pid=1)
    for number in range(6):
        hub.emit(DaemonEvent(event=text(str(number)), owner=1000 + number % 2))
    reader = hub.subscribe(owner)
    assert hub.replay(reader, behind=f"{hub.epoch}-2")
    assert await texts_of(reader) == ["2", "4"]
    reader = hub.subscribe(owner)
    assert hub.replay(reader, behind=f"{hub.epoch}-6")
    assert await texts_of(reader) == []


async def test_what_is_kept_no_longer_is_said_to_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hubs, "KEPT_EVENTS", 3)
    hub, owner = Hub(), Principal(uid=1000, gid=1000, pid=1)
    for number in range(5):
        hub.emit(DaemonEvent(event=text(str(number)), owner=1000))
    for behind, is_whole in (("1", False), ("2", True), ("5", True), ("6", False), ("x", False)):
        assert hub.replay(hub.subscribe(owner), behind=f"{hub.epoch}-{behind}") is is_whole
    assert not hub.replay(hub.subscribe(owner), behind="other-3")
    monkeypatch.setattr(hubs, "KEPT_CHARS", 1000)
    hub.emit(DaemonEvent(event=text("x" * 700), owner=1000))
    reader = hub.subscribe(owner)
    assert hub.replay(reader, behind=f"{hub.epoch}-5")
    assert not hub.replay(reader, behind=f"{hub.epoch}-4")
