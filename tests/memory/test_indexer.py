"""The indexer: newest first, a few at once, giving way, going on where it was; notes as well."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clawd.config.sections import KnowledgeSection
from clawd.errors import ProviderError
from clawd.memory.indexer import BATCH, Indexer
from clawd.memory.knowledge.entries import Author
from clawd.memory.knowledge.keywords import entry_name, searched_keywords, wanted_entries
from clawd.memory.knowledge.store import Knowledge
from clawd.memory.store import Memory
from clawd.memory.vectors import UNRELATED
from tests.memory.embedders import UNREADABLE, Subjects
from tests.memory.samples import ANNA, BEN, begun

LIMIT_S = 60.0


@pytest.fixture
def model() -> Subjects:
    return Subjects()


@pytest.fixture
async def knowledge(tmp_path: Path) -> AsyncIterator[Knowledge]:
    settings = KnowledgeSection(path=tmp_path / "knowledge")
    made = Knowledge(lambda: settings, owner_uid=ANNA)
    yield made
    made.close()


class House:
    """An indexer and what it works with; `is_idle` says whether it may."""

    def __init__(self, memory: Memory, model: Subjects, knowledge: Knowledge | None = None) -> None:
        self.is_idle = True
        self.vectors = memory.search_by_meaning(model)
        if knowledge is not None:
            knowledge.meaning = memory.search.meaning
        self.indexer = Indexer(
            self.vectors,
            knowledge,
            model,
            may_work=lambda: self.is_idle,
            settle_s=0.0,
            look_s=0.02,
        )

    async def until(self, indexed: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while (await self.vectors.counts(owner=None)).indexed < indexed:
                await asyncio.sleep(0.005)


async def test_the_newest_messages_come_first_in_small_batches_and_new_ones_before_the_rest(
    memory: Memory, model: Subjects
) -> None:
    await begun(memory, *[f"old {number}" for number in range(2 * BATCH + 3)])
    house = House(memory, model)
    indexer = house.indexer
    vectors = await indexer._current()
    assert await indexer._some_messages(vectors)
    await begun(memory, "said meanwhile")
    while await indexer._some_messages(vectors):
        pass
    batches = [texts for texts in model.seen if texts != list(UNRELATED)]
    assert max(map(len, batches)) == BATCH
    assert batches[0][0] == f"old {2 * BATCH + 2}"
    assert batches[1] == ["said meanwhile"]
    assert batches[-1][-1] == "old 0"
    counted = await house.vectors.counts(owner=None)
    assert (counted.indexed, counted.wanted) == (2 * BATCH + 4, 2 * BATCH + 4)
    assert (await house.vectors.counts(owner=BEN)).wanted == 0


async def test_real_work_ends_a_batch_at_once_and_its_texts_are_taken_up_again(
    memory: Memory, model: Subjects
) -> None:
    await begun(memory, "one", "two")
    house = House(memory, model)
    model.held.clear()
    house.indexer.start()
    try:
        async with asyncio.timeout(LIMIT_S):
            await model.begun.wait()
        house.is_idle = False
        house.indexer.give_way()
        model.begun.clear()
        model.held.set()
        await asyncio.sleep(0.1)
        assert not model.begun.is_set()  # nothing is asked for while it may not work
        assert (await house.vectors.counts(owner=None)).indexed == 0
        house.is_idle = True
        house.indexer.wake()
        await house.until(2)
        assert house.indexer.problem == ""
    finally:
        await house.indexer.close()


async def test_another_daemon_goes_on_where_the_one_before_it_ended(
    memory: Memory, model: Subjects
) -> None:
    await begun(memory, *[f"text {number}" for number in range(BATCH + 1)])
    first = House(memory, model).indexer
    await first._some_messages(await first._current())
    model.seen.clear()
    await House(memory, model).indexer._work()
    assert model.seen == [["text 0"]]
    model.seen.clear()
    await House(memory, model).indexer._work()
    assert model.seen == []


async def test_a_failure_is_logged_once_with_the_model_and_is_over_when_it_is_over(
    memory: Memory, model: Subjects, caplog: pytest.LogCaptureFixture
) -> None:
    await begun(memory, "one")
    house = House(memory, model)
    model.error = ProviderError("the server is down", kind="network")
    waits = [await house.indexer._tried() for _ in range(4)]
    assert waits == [0.02, 0.04, 0.08, 0.16]
    assert house.indexer.problem == "fake/subjects: the server is down"
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in told] == [
        "texts are not indexed for searches by meaning: fake/subjects: the server is down"
    ]
    model.error = None
    await house.indexer._tried()
    assert house.indexer.problem == ""
    assert (await house.vectors.counts(owner=None)).indexed == 1


async def test_a_text_that_the_model_cannot_read_is_left_aside_and_does_not_stop_the_others(
    memory: Memory, model: Subjects
) -> None:
    await begun(memory, "one", UNREADABLE, "a car")
    house = House(memory, model)
    await house.indexer._work()
    assert (await house.vectors.counts(owner=None)).indexed == 3
    model.seen.clear()
    await house.indexer._work()
    assert model.seen == []
    assert len(await memory.search.find("vehicle", owner=ANNA)) == 1


async def test_notes_are_found_by_meaning_by_their_owner_alone_and_go_with_their_files(
    memory: Memory, model: Subjects, knowledge: Knowledge
) -> None:
    house = House(memory, model, knowledge)
    woken = 0

    def wake() -> None:
        nonlocal woken
        woken += 1
        house.indexer.wake()

    knowledge.changed = wake

    async def found(question: str, uid: int = ANNA) -> list[str]:
        page = await knowledge.search(searched_keywords(question), uid=uid, question=question)
        assert page.total == len(page.hits)
        return [hit.card.file for hit in page.hits]

    async def write(keywords: str, text: str, uid: int = ANNA) -> None:
        await knowledge.save(entry_name(keywords), text, Author(uid=uid))

    await write("garage", "The car stands there.")
    await write("kitchen", "Onions are in the left drawer.")
    await write("secret", "My vehicle is red.", uid=BEN)
    await write("vehicle", "A word.")
    await house.indexer._work()
    assert woken == 4
    assert await found("vehicle") == ["vehicle.md", "garage.md"]
    assert await found("cooking") == ["kitchen.md"]
    assert await found("nonsense") == []
    assert await found("motorway", BEN) == ["secret.md"]

    # What changed since it was read does not count by what it meant before.
    await write("kitchen", "Nothing is left in the drawer any more.")
    assert await found("cooking") == []
    await knowledge.delete(wanted_entries("garage"), uid=ANNA, may_be_fixed=False)
    await knowledge.delete(wanted_entries("secret"), uid=BEN, may_be_fixed=False)
    house.is_idle = False  # vectors of what is gone go even while there is other work
    await house.indexer._tried()
    assert await found("motorway") == ["vehicle.md"]
    noted = await house.vectors.noted()
    assert {uid: set(files) for uid, files in noted.items()} == {ANNA: {"kitchen.md", "vehicle.md"}}


async def test_a_note_that_is_touched_is_not_embedded_again(
    memory: Memory, model: Subjects, knowledge: Knowledge, tmp_path: Path
) -> None:
    house = House(memory, model, knowledge)
    await knowledge.save(entry_name("garage"), "The car stands there.", Author(uid=ANNA))
    await house.indexer._work()
    model.seen.clear()
    (tmp_path / "knowledge" / "garage.md").touch()
    await house.indexer._work()
    page = await knowledge.search(("motorway",), uid=ANNA, question="motorway")
    assert [hit.card.file for hit in page.hits] == ["garage.md"]
    assert model.seen == [["motorway"]]


async def test_a_model_that_was_replaced_under_its_name_begins_anew(
    memory: Memory, model: Subjects, caplog: pytest.LogCaptureFixture
) -> None:
    await begun(memory, "a car")
    house = House(memory, model)
    await house.indexer._work()
    model.size = 32
    await begun(memory, "another car")
    await house.indexer._tried()
    assert "fake/subjects is another model now" in caplog.text
    await house.indexer._tried()
    assert (await house.vectors.counts(owner=None)).indexed == 2
    assert len(await memory.search.find("vehicle", owner=ANNA)) == 2
