"""Embeddings of real models: their length, their order, what they are refused for."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt
import pytest
import pytest_asyncio

from clawd.errors import ContextFullError, InvalidRequestError
from clawd.providers.base import ChatRequest, Finished, Message, RawPrompt, Sampling
from clawd.providers.local import LocalProvider
from clawd.wire.events import TextDelta
from tests.engine_real.test_local_provider import unlimited
from tests.support.collecting import collect
from tests.support.embedding_models import write_pooled, write_random_bert
from tests.support.rows import Rows

pytestmark = pytest.mark.real_model
shared = pytest.mark.asyncio(loop_scope="module")

MIXED: tuple[RawPrompt, ...] = ("hello world", (10, 20, 30), "what is 12 times 7?", "hello world")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_pooled(folder / "mean.gguf")
    write_pooled(folder / "last.gguf", gguf.PoolingType.LAST)
    write_pooled(folder / "rank.gguf", gguf.PoolingType.RANK)
    write_random_bert(folder / "bert.gguf")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider(models: Path) -> AsyncIterator[LocalProvider]:
    """One engine for all of them, with a worker for each model."""
    async with unlimited(models) as (made, _):
        yield made


async def vectors(
    provider: LocalProvider, model: str, *inputs: RawPrompt
) -> list[npt.NDArray[np.float32]]:
    made = await provider.embed(model, inputs)
    assert len(made.vectors) == len(inputs)
    return [np.frombuffer(vector, "<f4") for vector in made.vectors]


@shared
async def test_vectors_have_length_one_and_keep_their_order(provider: LocalProvider) -> None:
    rows = Rows()
    for model, size in (("mean", 256), ("last", 256), ("bert", 64)):
        with rows.row(model):
            together = await vectors(provider, model, *MIXED)
            alone = [(await vectors(provider, model, each))[0] for each in MIXED]
            assert (await provider.describe(model)).embedding_size == size
            for one, other in zip(together, alone, strict=True):
                assert one.shape == (size,)
                assert np.linalg.norm(one) == pytest.approx(1.0, abs=1e-5)
                assert np.allclose(one, other, atol=1e-6)
            assert np.array_equal(together[0], together[3])
            assert float(together[0] @ together[1]) < 0.999
    rows.check()


@shared
async def test_a_text_and_its_tokens_have_the_same_vector(provider: LocalProvider) -> None:
    cut = await provider.tokenize("mean", "hello there", add_special=True, parse_special=True)
    made = await provider.embed("mean", ["hello there", cut.tokens])
    assert made.vectors[0] == made.vectors[1]
    assert made.tokens == 2 * len(cut.tokens)


@shared
async def test_many_inputs_come_back_in_order(provider: LocalProvider) -> None:
    texts = [f"text number {number}" for number in range(70)]
    many = await vectors(provider, "bert", *texts)
    (one,) = await vectors(provider, "bert", texts[69])
    assert np.allclose(many[69], one, atol=1e-6)


@shared
async def test_models_that_make_no_embeddings_say_what_does(provider: LocalProvider) -> None:
    for model in ("embedded", "rank"):
        with pytest.raises(InvalidRequestError, match="makes no embeddings") as caught:
            await provider.embed(model, ["a"])
        assert "embedding model" in caught.value.hint


@shared
async def test_a_model_for_embeddings_alone_answers_nothing(provider: LocalProvider) -> None:
    request = ChatRequest(messages=(Message(role="user", content="hi"),), model="bert")
    with pytest.raises(InvalidRequestError, match="embeddings only"):
        await collect(provider.chat(request))
    assert not (await provider.describe("bert")).generates
    assert len(await vectors(provider, "bert", "still there")) == 1


@shared
async def test_an_input_that_is_too_long_tells_the_counts(provider: LocalProvider) -> None:
    with pytest.raises(ContextFullError, match="input 34 is too large") as caught:
        await provider.embed("bert", [*["ok"] * 33, "x " * 400])
    assert caught.value.data is not None
    assert caught.value.data["n_ctx"] == 128
    assert caught.value.data["n_prompt_tokens"] > 128


@shared
async def test_inputs_without_tokens_or_with_foreign_ones_are_refused(
    provider: LocalProvider,
) -> None:
    inputs: list[RawPrompt] = ["", (), (1536,), (-1,)]
    for wrong in inputs:
        with pytest.raises(InvalidRequestError, match="input 2"):
            await provider.embed("mean", ["ok", wrong])
    assert len(await vectors(provider, "mean", "ok")) == 1


@shared
async def test_a_stream_goes_on_beside_embeddings_and_says_the_same(
    provider: LocalProvider,
) -> None:
    request = ChatRequest(
        messages=(Message(role="user", content="what is 12 times 7?"),),
        model="mean",
        sampling=Sampling(max_tokens=30),
    )
    alone = await collect(provider.chat(request))
    task: asyncio.Task[object] | None = None
    texts: list[str] = []
    async for delta in provider.chat(request):
        if isinstance(delta, TextDelta):
            texts.append(delta.text)
            if task is None:
                task = asyncio.create_task(provider.embed("mean", ["some text " * 40] * 200))
        if isinstance(delta, Finished):
            # 200 inputs, one in a step, take longer than 30 tokens.
            assert task is not None
            assert not task.done()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
    assert "".join(texts) == alone.final_text
