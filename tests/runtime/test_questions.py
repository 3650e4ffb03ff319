"""Questions of a tool to the person: asked, answered, timed out, withdrawn."""

import asyncio

from clawd.runtime.approval_prompts import MAX_PENDING, Questions
from clawd.wire.events import Event, QuestionAsked
from tests.security.fakes import ADA, BOB, ROOT


def question_of(text: str, *options: str) -> QuestionAsked:
    return QuestionAsked(question_id="", text=text, options=options)


class Asked:
    """A question under way."""

    def __init__(self, questions: Questions) -> None:
        self.events: list[Event] = []
        self.task = asyncio.create_task(
            questions.ask(question_of("Which?", "a", "b"), asker=ADA, emit=self.events.append)
        )

    async def id(self) -> str:
        await asyncio.sleep(0)
        (event,) = self.events
        assert isinstance(event, QuestionAsked)
        assert (event.text, event.options) == ("Which?", ("a", "b"))
        return event.question_id


async def test_an_answer_ends_the_wait() -> None:
    questions = Questions()
    asked = Asked(questions)
    question = await asked.id()
    assert questions.answer(question, "b", ADA)
    assert await asked.task == "b"


async def test_only_the_owner_or_an_admin_may_answer() -> None:
    questions = Questions()
    asked = Asked(questions)
    question = await asked.id()
    assert not questions.answer(question, "b", BOB)
    assert not asked.task.done()
    assert questions.answer(question, "a", ROOT)
    assert await asked.task == "a"


async def test_the_first_answer_counts_and_late_ones_are_told_so() -> None:
    questions = Questions()
    asked = Asked(questions)
    question = await asked.id()
    assert questions.answer(question, "first", ADA)
    assert not questions.answer(question, "second", ADA)
    assert await asked.task == "first"
    assert not questions.answer(question, "third", ADA)
    assert not questions.answer("question-unknown", "x", ROOT)


async def test_silence_is_no_answer() -> None:
    questions = Questions(timeout_s=0.01)
    asked = Asked(questions)
    question = await asked.id()
    assert await asked.task is None
    assert not questions.answer(question, "late", ADA)


async def test_a_cancelled_question_is_withdrawn() -> None:
    questions = Questions()
    asked = Asked(questions)
    question = await asked.id()
    asked.task.cancel()
    await asyncio.wait([asked.task])
    assert not questions.answer(question, "late", ADA)


async def test_too_many_questions_are_not_asked() -> None:
    questions = Questions()
    waiting = [Asked(questions) for _ in range(MAX_PENDING)]
    for asked in waiting:
        await asked.id()
    assert await questions.ask(question_of("more?"), asker=ADA, emit=lambda _event: None) is None
    for asked in waiting:
        asked.task.cancel()
    await asyncio.wait([asked.task for asked in waiting])
    assert (
        await Questions(timeout_s=0.001).ask(question_of("?"), asker=ADA, emit=lambda _e: None)
        is None
    )
