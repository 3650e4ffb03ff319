"""Events to many readers: order, merging, stalls; nobody's slowness stops anybody."""

import asyncio

from clawd.runtime.broadcast import Broadcast, Subscription, merge
from clawd.wire.events import (
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
    async with asyncio.timeout(30):
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
    assert not broadcast.is_followed
    early = broadcast.subscribe()
    broadcast.emit(note(1))
    late = broadcast.subscribe()
    broadcast.emit(note(2))
    for subscription in (early, late):
        broadcast.unsubscribe(subscription)
    assert not broadcast.is_followed
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
    assert broadcast.is_followed
    broadcast.unsubscribe(fast)
    assert not broadcast.is_followed
