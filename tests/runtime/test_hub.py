"""The hub: who is told what, and that nobody's slowness costs more than a bounded queue."""

import asyncio

from clawd.runtime.hub import DaemonEvent, Hub, HubSubscription
from clawd.security.principal import Principal
from clawd.wire.events import EstopChanged, Notice, TextDelta

ADA = Principal(uid=1, gid=1, pid=1)
BOB = Principal(uid=2, gid=2, pid=2)
ADMIN = Principal(uid=3, gid=3, pid=3, role="admin")


async def taken(subscription: HubSubscription) -> list[DaemonEvent]:
    subscription.close()
    return [event async for event in subscription]


async def test_each_is_told_of_their_own_and_admins_of_all() -> None:
    hub = Hub()
    followers = [hub.subscribe(who) for who in (ADA, BOB, ADMIN)]
    hub.teller(owner=1, conversation_id="a")(Notice(level="info", text="of ada"))
    hub.teller(owner=2)(Notice(level="info", text="of bob"))
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
    first, second = (hub.teller(owner=1, conversation_id=name) for name in "ab")
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
