"""Search by meaning beside words: what is found, whose it is, what is left without the model."""

import logging
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from clawd.errors import ProviderError
from clawd.memory.indexer import Indexer
from clawd.memory.rows import MADE_BY, TAINT, Conversation
from clawd.memory.search import PER_CONVERSATION, SNIPPET_CHARS
from clawd.memory.store import Memory
from clawd.memory.vectors import (
    Meaning,
    QuestionVector,
    VectorModel,
    _likeness,
    fused,
    least_of,
    packed,
)
from tests.memory.embedders import MiniLM, Subjects
from tests.memory.paraphrases import ABOUT, NONSENSE, OTHER
from tests.memory.samples import ANNA, BEN, begun, said
from tests.support.minilm import MINILM

CAR = "My car broke down on the motorway."
SOUP = "Simmer the onions for the soup."


@pytest.fixture
def model() -> Subjects:
    return Subjects()


async def indexed(memory: Memory, model: Subjects | MiniLM) -> Indexer:
    """Let searches go by meaning, and index all there is."""
    indexer = Indexer(memory.search_by_meaning(model), None, model, may_work=lambda: True)
    await indexer._work()
    return indexer


async def _found(memory: Memory, query: str, *, owner: int | None = ANNA) -> list[str]:
    return [hit.snippet for hit in await memory.search.find(query, owner=owner)]


async def test_other_words_of_the_same_meaning_find_a_message_with_its_beginning(
    memory: Memory, model: Subjects
) -> None:
    await begun(memory, CAR + " " + "It was late. " * 40)
    await begun(memory, SOUP)
    assert await _found(memory, "vehicle") == []
    await indexed(memory, model)
    (snippet,) = await _found(memory, "vehicle")
    assert snippet.startswith(CAR)
    assert len(snippet) <= SNIPPET_CHARS + 1
    assert await _found(memory, "cooking") == [SOUP]


async def test_words_stay_first_what_has_all_of_them_and_what_means_the_same_before_some_of_them(
    memory: Memory, model: Subjects
) -> None:
    await begun(memory, CAR)
    await begun(memory, "the word vehicle in a list")
    await begun(memory, "new brakes for the vehicle")
    await indexed(memory, model)
    assert await _found(memory, "vehicle") == [
        "new brakes for the vehicle",
        "the word vehicle in a list",
        CAR,
    ]
    await begun(memory, "a list of names")
    await indexed(memory, model)
    # "list" alone is some of the terms: less than the same meaning.
    assert (await _found(memory, "list motorway brakes"))[-1] == "a list of names"


async def test_nonsense_finds_nothing(memory: Memory, model: Subjects) -> None:
    await begun(memory, CAR)
    await begun(memory, "ok")
    await indexed(memory, model)
    assert await _found(memory, "qwxz blorf") == []


async def test_a_message_of_another_owner_is_never_found_by_its_meaning(
    memory: Memory, model: Subjects
) -> None:
    for _ in range(50):
        await begun(memory, CAR, owner=BEN)
    await begun(memory, SOUP)
    await indexed(memory, model)
    assert await _found(memory, "vehicle") == []
    assert await _found(memory, "cooking", owner=BEN) == []
    assert CAR in await _found(memory, "vehicle", owner=BEN)
    assert CAR in await _found(memory, "vehicle", owner=None)


async def test_a_key_a_running_turn_and_one_conversation_are_bounded_as_by_words(
    memory: Memory, model: Subjects
) -> None:
    mine = await memory.conversations.create(
        Conversation(owner=ANNA, workspace="/w", metadata={MADE_BY: "key-1", TAINT: ["a page"]})
    )
    await memory.messages.append(mine.id, [said(CAR)], owner=ANNA, turn_id="t")
    many = await begun(memory, *[f"{CAR} {number}" for number in range(PER_CONVERSATION + 3)])
    await indexed(memory, model)
    find = memory.search.find
    (hit,) = await find("vehicle", owner=ANNA, made_by="key-1")
    assert (hit.conversation_id, hit.untrusted_sources) == (mine.id, ("a page",))
    assert await find("vehicle", owner=ANNA, made_by="key-2") == []
    by_conversation = [hit.conversation_id for hit in await find("vehicle", owner=ANNA)]
    assert by_conversation.count(many.id) == PER_CONVERSATION
    assert mine.id not in {
        hit.conversation_id for hit in await find("vehicle", owner=ANNA, asked_in=mine.id)
    }
    assert len(await find("vehicle", owner=ANNA, limit=2)) == 2


async def test_a_model_that_fails_or_is_late_leaves_the_words_and_the_debug_log_says_so(
    memory: Memory, model: Subjects, caplog: pytest.LogCaptureFixture
) -> None:
    await begun(memory, CAR)
    await indexed(memory, model)
    caplog.set_level(logging.DEBUG, "clawd.memory.vectors")
    model.error = ProviderError("the server is down", kind="network")
    assert await _found(memory, "vehicle") == []
    assert await _found(memory, "car") == [CAR]
    assert "by words only: the server is down" in caplog.text
    model.error = None
    model.held.clear()
    memory.search.meaning = Meaning(memory._database, model, limit_s=0.01)
    assert await _found(memory, "car") == [CAR]
    assert "took over 0.01 s" in caplog.text


async def test_before_the_first_text_is_indexed_words_alone_are_asked(
    memory: Memory, model: Subjects
) -> None:
    await begun(memory, CAR)
    memory.search_by_meaning(model)
    assert await _found(memory, "car") == [CAR]
    assert model.seen == []


async def test_vectors_go_with_what_they_are_of_whatever_deletes_it(
    memory: Memory, model: Subjects
) -> None:
    def count() -> int:
        row = memory._database.read_here(
            lambda c: c.execute("SELECT count(*) FROM message_vectors").fetchone()
        )
        return int(row[0])

    def rewrite(text: str, old: str) -> object:
        return memory._database.write(
            lambda c: (
                c.execute("UPDATE messages SET content = ? WHERE content = ?", (text, old)).rowcount
            )
        )

    one = await begun(memory, CAR, SOUP)
    await begun(memory, CAR, owner=BEN)
    await begun(memory, "last", owner=BEN)
    await indexed(memory, model)
    assert count() == 4
    await rewrite("mended", "last")  # type: ignore[misc]
    assert count() == 3
    await memory.conversations.delete(one.id, owner=ANNA)
    assert count() == 1
    await memory.conversations.clear(owner=BEN)
    assert count() == 0


async def test_vectors_of_another_model_go_and_are_made_anew_and_none_are_left_without_a_model(
    memory: Memory, model: Subjects
) -> None:
    await begun(memory, CAR)
    await indexed(memory, model)
    other = Subjects("fake/another", size=32)
    vectors = memory.search_by_meaning(other)
    assert await _found(memory, "vehicle") == []
    await Indexer(vectors, None, other, may_work=lambda: True)._work()
    assert await _found(memory, "vehicle") == [CAR]
    rows = "SELECT length(vector) FROM message_vectors"
    assert await memory._database.read(lambda c: c.execute(rows).fetchall()) == [(4 + 32,)]
    await memory.forget_vectors()
    assert await memory._database.read(lambda c: c.execute(rows).fetchall()) == []
    assert await vectors.model("fake/another") is None


async def test_a_backup_holds_the_vectors_too(
    memory: Memory, model: Subjects, tmp_path: Path
) -> None:
    await begun(memory, CAR)
    await indexed(memory, model)
    await memory.upkeep.backup(tmp_path / "copy.sqlite")
    copy = await Memory.open(tmp_path / "copy.sqlite")
    try:
        copy.search_by_meaning(model)
        assert await _found(copy, "vehicle") == [CAR]
        assert await copy.upkeep.check() == ()
    finally:
        await copy.close()


def test_what_is_kept_of_a_vector_gives_the_same_cosines() -> None:
    random = np.random.default_rng(3)
    model = VectorModel(id=1, size=384, least=0.0)
    vectors = random.standard_normal((200, model.size))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype("<f4")
    asked = QuestionVector(model=model, vector=vectors[0].tobytes())
    found = _likeness(asked, [packed(each.tobytes()) for each in vectors])
    assert np.abs(found - vectors @ vectors[0]).max() < 0.01
    assert packed(b"") == packed(b"\0" * 16) == b""


def test_ranks_are_fused_and_the_first_ranking_wins_a_tie() -> None:
    assert fused([{"a": 1.0, "b": 1.0}, {"c": 1.0, "b": 1.0}]) == ["b", "a", "c"]
    assert fused([{"a": 0.5}, {"b": 1.0}]) == ["b", "a"]
    assert fused([]) == []


def test_what_counts_as_near_is_measured_on_the_model(model: Subjects) -> None:
    far = [model._vector("car"), model._vector("soup"), model._vector("cello")]
    near = [model._vector("car"), model._vector("vehicle")]
    assert least_of(far) == pytest.approx(0.23)
    assert least_of(near) == pytest.approx(1.0)


def test_without_a_model_nothing_of_it_is_imported() -> None:
    program = (
        "import sys, clawd.service.build\n"
        "print([name for name in ('clawd.memory.vectors', 'clawd.memory.indexer', "
        "'clawd.service.embedding') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert answer.stdout == b"[]\n"


@pytest.fixture
async def minilm() -> AsyncIterator[MiniLM]:
    made = MiniLM(MINILM)
    yield made
    await made.close()


@pytest.mark.real_model
@pytest.mark.minilm
async def test_questions_in_other_words_find_their_messages_where_words_do_not(
    memory: Memory, minilm: MiniLM
) -> None:
    for text in (*(message for message, _ in ABOUT), *OTHER):
        await begun(memory, text)

    async def missed() -> list[str]:
        return [
            question
            for message, question in ABOUT
            if message not in (await _found(memory, question))[:3]
        ]

    by_words = await missed()
    await indexed(memory, minilm)
    assert await missed() == []
    assert [question for _, question in ABOUT if question not in by_words] == []
    assert [text for text in NONSENSE if await _found(memory, text)] == []
    # Words that are there are found first, as before.
    assert (await _found(memory, "thermostat"))[0].startswith("Raise the thermostat")
