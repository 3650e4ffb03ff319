"""Results on their way: kept, tried again, in order, and never more than are kept."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from typing_extensions import override

from clawd.config.sections import SchedulesSection
from clawd.errors import ForbiddenError, StorageError
from clawd.memory.schedules import (
    MAX_HELD,
    MAX_KEPT,
    MAX_UNDELIVERED,
    Delivery,
    JobRun,
    RunClaim,
    Schedule,
    ScheduledJob,
    Schedules,
)
from clawd.memory.store import Memory
from clawd.runtime.conversation import ConversationBook
from clawd.runtime.hub import DaemonEvent, Hub
from clawd.schedules.delivery import MAX_SIDE_BY_SIDE, Deliverer, DeliveryMeans
from clawd.schedules.scheduler import RunEnd, TurnWorker
from clawd.security.network import NetworkRules
from tests.schedules.test_scheduler import Hands, Switch
from tests.security.fakes import ADA

LIMIT_S = 60.0
CLAIM = RunClaim(by="x", at=0.0, max_running=10_000)


class Turns:
    """Knows as whom jobs run."""

    def __init__(self) -> None:
        self.is_let_in = True

    async def principal_of(self, _schedule: Schedule) -> Any:
        if not self.is_let_in:
            raise ForbiddenError("the key that the job was made with is not in force")
        return ADA


class SmallDisk(Schedules):
    """Those of a memory whose disk may be too full to write to, or to read from."""

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory._database)
        self.takes_writes = self.gives_reads = True

    @override
    async def tried(self, delivery: Delivery) -> None:
        if not self.takes_writes:
            raise StorageError("the disk is full")
        await super().tried(delivery)

    @override
    async def delivery(self, number: int) -> Delivery | None:
        if not self.gives_reads:
            raise StorageError("the disk cannot be read")
        return await super().delivery(number)


class Post:
    """A deliverer whose mails go through a program."""

    def __init__(self, memory: Memory, folder: Path) -> None:
        self.store, self.folder = SmallDisk(memory), folder
        self.hands, self.turns, self.stop = Hands(), Turns(), Switch()
        self.told: list[DaemonEvent] = []
        hub = Hub()
        hub.add_listener(self.told.append)
        self.section = SchedulesSection(
            mail_command=("sh", "-c", f"cat >> '{folder}/mails'; test -e '{folder}/ok'"),
            retry_after_s=(0.01, 0.01),
        )
        self.deliverer = Deliverer(
            self.hands,
            cast("TurnWorker", self.turns),
            self.store,
            DeliveryMeans(
                book=cast("ConversationBook", SimpleNamespace(hub=hub)),
                calls=cast("Any", None),
                section=lambda: self.section,
                rules=NetworkRules,
                environ={"PATH": "/usr/bin:/bin"},
                redact=lambda text: text.replace("s3cret", "…"),
                stop=self.stop,
            ),
        )
        self.deliverer.start(lambda _task, _name: None)

    async def add(self, **facts: Any) -> Schedule:
        job = ScheduledJob(prompt="p", workspace="/w", overlap="parallel", **facts)
        return await self.store.add(Schedule(name="job", owner=ADA.uid, job=job))

    async def run(self, schedule: Schedule, text: str = "done") -> JobRun:
        self.hands.end = RunEnd(state="finished", detail="stop", text=text)
        run = await self.store.fire(schedule, "hand", CLAIM)
        assert run is not None

        async def begun(_conversation_id: str) -> None:
            return

        end = await self.deliverer.run(schedule, run, begun)
        await self.store.ended(run, end.state, end.detail, 1.0, end.to)
        return run

    async def until(self, schedule: Schedule, is_so: Callable[[list[Delivery]], bool]) -> None:
        async with asyncio.timeout(LIMIT_S):
            while not is_so(await self.store.deliveries(schedule.id)):
                await asyncio.sleep(0.01)


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    memory = await Memory.open(tmp_path / "memory.sqlite")
    made = Post(memory, tmp_path)
    yield made
    await made.deliverer.close()
    await memory.close()


def ended(found: list[Delivery]) -> bool:
    return all(each.state != "waiting" for each in found)


async def test_a_mail_that_failed_is_sent_again_with_its_id(post: Post) -> None:
    schedule = await post.add(mail="ada@example.org")
    post.section = SchedulesSection(
        mail_command=post.section.mail_command, retry_after_s=(0.01,) * 20
    )
    await post.run(schedule, "the s3cret")
    await post.until(schedule, lambda found: found[0].tries >= 2)
    (post.folder / "ok").touch()
    await post.until(schedule, ended)
    (done,) = await post.store.deliveries(schedule.id)
    assert (done.state, done.problem) == ("delivered", "")
    mails = (post.folder / "mails").read_text()
    assert mails.count(f"Message-ID: <{done.key}@clawd>") == done.tries > 2
    assert "s3cret" not in mails
    assert post.told == []


async def test_what_is_given_up_is_told_once(post: Post) -> None:
    schedule = await post.add(mail="ada@example.org")
    await post.run(schedule)
    await post.until(schedule, ended)
    (done,) = await post.store.deliveries(schedule.id)
    assert (done.state, done.tries) == ("given_up", 3)
    assert done.problem == "mail_command ended with 1"
    (told,) = post.told
    assert told.is_news
    assert await post.store.delivery(done.number) is None


async def test_an_owner_who_is_not_let_in_any_more_gets_nothing(post: Post) -> None:
    schedule = await post.add(mail="ada@example.org")
    post.stop.set_ = True
    await post.run(schedule)
    post.turns.is_let_in, post.stop.set_ = False, False
    post.store.to_deliver.set()
    await post.until(schedule, ended)
    (done,) = await post.store.deliveries(schedule.id)
    assert (done.state, done.tries) == ("given_up", 1)
    assert not (post.folder / "mails").exists()


async def test_an_older_result_does_not_replace_a_newer_one(post: Post) -> None:
    post.stop.set_ = True
    schedule = await post.add(to_file="out.md")
    first, second = await post.run(schedule), await post.run(schedule)
    waiting = await post.store.deliveries(schedule.id)
    assert [await post.deliverer._is_old(each) for each in waiting] == [True, False]
    assert [each.run for each in waiting] == [first.number, second.number]


async def test_no_more_wait_than_are_kept_and_no_time_goes_whose_result_waits(post: Post) -> None:
    post.section = SchedulesSection(mail_command=("false",), retry_after_s=(3_600,) * 6)
    schedule = await post.add(mail="ada@example.org")
    post.stop.set_ = True
    for _ in range(MAX_UNDELIVERED + 3):
        await post.run(schedule)
    post.stop.set_ = False
    post.store.to_deliver.set()
    await post.until(schedule, lambda found: sum(each.tries > 0 for each in found) == len(found))
    found = await post.store.deliveries(schedule.id)
    # The tries that go on meanwhile make nobody give up more than are too many.
    assert [each.state for each in found] == ["given_up"] * 3 + ["waiting"] * MAX_UNDELIVERED
    assert found[0].problem == f"{MAX_UNDELIVERED} newer ones wait"
    assert all(each.next_at > time.time() + 3_000 for each in found[3:])
    lone = msgspec.structs.replace(CLAIM, max_running=0)
    dropped = (post.store.fire(schedule, "hand", lone) for _ in range(MAX_KEPT + MAX_HELD))
    await asyncio.gather(*dropped)
    assert len(await post.store.deliveries(schedule.id)) == MAX_UNDELIVERED
    await post.store.remove(schedule.id)
    assert await post.store.undelivered() == []


async def test_results_that_could_not_be_noted_are_not_sent_again_and_hold_up_no_others(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    (post.folder / "ok").touch()
    schedule = await post.add(mail="ada@example.org")
    post.store.takes_writes = False
    for _ in range(MAX_SIDE_BY_SIDE):
        await post.run(schedule, "not noted")
    async with asyncio.timeout(LIMIT_S):
        while caplog.text.count("not on record") < MAX_SIDE_BY_SIDE:
            await asyncio.sleep(0.01)
    post.store.takes_writes = True
    await post.run(schedule, "noted")
    await post.until(schedule, lambda found: found[-1].state == "delivered")
    mails = (post.folder / "mails").read_text()
    assert (mails.count("not noted"), mails.count("Message-ID")) == (
        MAX_SIDE_BY_SIDE,
        MAX_SIDE_BY_SIDE + 1,
    )


async def test_a_result_that_could_not_be_read_was_not_sent_and_is_tried_again(
    post: Post, caplog: pytest.LogCaptureFixture
) -> None:
    (post.folder / "ok").touch()
    schedule = await post.add(mail="ada@example.org")
    post.store.gives_reads = False
    await post.run(schedule)
    async with asyncio.timeout(LIMIT_S):
        while "cannot be read" not in caplog.text:
            await asyncio.sleep(0.01)
    post.store.gives_reads = True
    post.store.to_deliver.set()
    await post.until(schedule, ended)
    assert (post.folder / "mails").read_text().count("Message-ID") == 1
