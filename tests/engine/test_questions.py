"""What is asked of workers beside answers: replies, failures, deaths, cancelling."""

import asyncio
import contextlib
from pathlib import Path

import msgspec
import pytest

from clawd.engine.protocol import (
    ChatMessage,
    Embed,
    Embedded,
    Rendered,
    RenderPrompt,
    Tokenize,
)
from clawd.engine.supervisor import Engine
from clawd.errors import ContextFullError, EngineError, StoppedError, WorkerDiedError
from tests.support.engines import (
    LIMIT_S,
    WATCHFUL,
    Journal,
    eventually,
    fake_engine,
    model,
    text_of,
)


def embed(*inputs: str) -> Embed:
    return Embed(id=0, inputs=inputs)


def rendering(text: str) -> RenderPrompt:
    return RenderPrompt(id=0, messages=(ChatMessage(role="user", content=text),))


async def embedding(engine: Engine, *inputs: str) -> Embedded:
    async with asyncio.timeout(LIMIT_S):
        return await engine.embed(model(), embed(*inputs))


async def hanging(engine: Engine, journal: Journal) -> "asyncio.Task[Embedded]":
    task = asyncio.create_task(engine.embed(model(), embed("hang")))
    await eventually(lambda: bool(journal.having("question")))
    return task


async def test_questions_are_answered_and_load_the_model(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        found = await engine.tokenize(model(), Tokenize(id=0, text="a b"))
        assert (found.tokens, found.pieces) == ((0, 1), (b"a", b"b"))
        assert await engine.detokenize(model(), [4, 5]) == b"4 5"
        assert await engine.count_tokens(model(), ["a b", "c"]) == (2, 1)
        rendered = await engine.render(model(), rendering("hi"))
        assert rendered == Rendered(id=rendered.id, text="user: hi", tokens=2)
        assert (await embedding(engine, "x", "y")).counts == (2, 2)


async def test_answers_of_many_questions_do_not_mix(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        texts = [f"t{number}" for number in range(50)]
        rendered = await asyncio.gather(
            *(engine.render(model(), rendering(text)) for text in texts)
        )
        assert [each.text for each in rendered] == [f"user: {text}" for text in texts]


async def test_a_refusal_comes_as_an_error_with_the_counts(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        with pytest.raises(ContextFullError) as caught:
            await embedding(engine, "fail")
        assert caught.value.data == {"n_prompt_tokens": 9, "n_ctx": 4}


async def test_inputs_that_killed_it_twice_are_refused(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, _):
        for _attempt in range(2):
            with pytest.raises(WorkerDiedError):
                await embedding(engine, "die")
        with pytest.raises(EngineError, match="refused"):
            await embedding(engine, "die")
        assert (await embedding(engine, "fine")).counts == (2,)


async def test_a_runaway_template_is_killed_when_only_the_prompt_is_asked_for(
    tmp_path: Path,
) -> None:
    # A busy machine may give it less than a core, so the time of a step must not end it first.
    settings = msgspec.structs.replace(WATCHFUL, step_timeout_s=LIMIT_S)
    async with fake_engine(tmp_path, settings) as (engine, _):
        await engine.load(model())
        with pytest.raises(WorkerDiedError, match="chat template"):
            await engine.render(model(), rendering("template"))
        with pytest.raises(EngineError, match="marked bad"):
            await engine.render(model(), rendering("hi"))


async def test_a_cancelled_request_for_vectors_is_cancelled_in_the_worker(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        task = await hanging(engine, journal)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        number = journal.having("question")[0]["id"]
        await eventually(lambda: [each["cancel"] for each in journal.having("cancel")] == [number])


async def test_the_emergency_stop_ends_a_request_for_vectors(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        task = await hanging(engine, journal)
        engine.cancel_all(lambda: StoppedError("the emergency stop is set"))
        with pytest.raises(StoppedError):
            await task
        await eventually(lambda: bool(journal.having("cancel")))
        assert (await embedding(engine, "x")).counts == (2,)


async def test_what_a_worker_does_is_told_and_nothing_is_loaded_for_it(tmp_path: Path) -> None:
    async with fake_engine(tmp_path) as (engine, journal):
        assert await engine.working(model()) is None
        assert journal.lines() == []
        await text_of(engine, "say hello")
        doing = await engine.working(model())
        assert doing is not None
        assert (doing.running, doing.queued) == (0, 0)
