"""LoRA adapters in llama.cpp: what they change, what they must not, and bad ones."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from clawd.engine.protocol import LoadFailed, LoraAdapter, ModelConfig, Sampling
from tests.engine_real.conftest import TEMPLATE, StartWorker
from tests.support.engine_worker import LIMIT_S, WorkerClient
from tests.support.gguf_models import write_random_gguf, write_random_lora
from tests.support.rows import each_row
from tests.support.smollm2 import SMOLLM2

pytestmark = pytest.mark.real_model

GREEDY = Sampling(temperature=0, max_tokens=16)
QUESTION = "the river runs under the green bridge at seven " * 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose head is random, one of another shape, and two adapters of the first."""
    folder = tmp_path_factory.mktemp("adapters")
    base = write_random_gguf(folder / "base.gguf", chat_template=TEMPLATE, chain=False)
    wide = write_random_gguf(folder / "wide.gguf", chat_template=TEMPLATE, n_embd=192, n_head=6)
    write_random_lora(folder / "one.gguf", base)
    write_random_lora(folder / "two.gguf", base, seed=2)
    write_random_lora(folder / "of-wide.gguf", wide)
    return folder


@pytest.fixture
def bad(folder: Path, tmp_path: Path) -> Path:
    """Files that are no adapter of the model, beside it."""
    base, good = folder / "base.gguf", (folder / "one.gguf").read_bytes()
    (tmp_path / "text.gguf").write_text("no adapter at all")
    (tmp_path / "header.gguf").write_bytes(b"GGUF" + b"\xff" * 400)
    (tmp_path / "half.gguf").write_bytes(good[: len(good) // 2])
    (tmp_path / "folder.gguf").mkdir()
    write_random_lora(tmp_path / "other.gguf", base, architecture="qwen2")
    write_random_lora(tmp_path / "kind.gguf", base, adapter_type="control_vector")
    write_random_lora(tmp_path / "activated.gguf", base, invocation=(5, 6))
    shutil.copy(base, tmp_path / "model.gguf")
    shutil.copy(folder / "of-wide.gguf", tmp_path / "of-wide.gguf")
    return tmp_path


def config_of(folder: Path, *adapters: tuple[str, float], **options: Any) -> ModelConfig:
    lora = tuple(LoraAdapter(path=str(folder / name), scale=scale) for name, scale in adapters)
    return ModelConfig(path=str(folder / "base.gguf"), lora=lora, **options)


def said(start_worker: StartWorker, config: ModelConfig) -> str:
    return start_worker(config).ask(QUESTION, GREEDY).text


def test_an_adapter_changes_the_answer_and_one_of_scale_0_does_not(
    folder: Path, start_worker: StartWorker
) -> None:
    plain = said(start_worker, config_of(folder))
    one = said(start_worker, config_of(folder, ("one.gguf", 1.0)))
    assert one != plain
    assert said(start_worker, config_of(folder, ("one.gguf", 1.0))) == one
    assert said(start_worker, config_of(folder, ("one.gguf", 0.0))) == plain


def test_several_adapters_count_together_each_by_its_scale(
    folder: Path, start_worker: StartWorker
) -> None:
    one = said(start_worker, config_of(folder, ("one.gguf", 1.0)))
    two = said(start_worker, config_of(folder, ("two.gguf", 1.0)))
    both = said(start_worker, config_of(folder, ("one.gguf", 1.0), ("two.gguf", 1.0)))
    assert len({one, two, both}) == 3
    swapped = said(start_worker, config_of(folder, ("two.gguf", 1.0), ("one.gguf", 0.0)))
    assert swapped == two


@each_row(
    ("name", "reason"),
    [
        ("absent.gguf", "does not exist"),
        ("text.gguf", "is no GGUF file"),
        ("folder.gguf", "cannot be read"),
        ("header.gguf", "could not load"),
        ("half.gguf", "incomplete"),
        ("model.gguf", "expect general.type to be 'adapter'"),
        ("kind.gguf", "expect adapter.type to be 'lora'"),
        ("activated.gguf", "is an activated LoRA adapter"),
        ("other.gguf", "arch mismatch"),
        ("of-wide.gguf", "wrong base model"),
    ],
)
def test_a_bad_adapter_is_a_clean_failure_that_names_it(
    folder: Path, bad: Path, name: str, reason: str
) -> None:
    adapter = LoraAdapter(path=str(bad / name))
    with WorkerClient() as worker:
        failed = worker.load(ModelConfig(path=str(folder / "base.gguf"), lora=(adapter,)))
        assert isinstance(failed, LoadFailed)
        assert failed.code == "model_load"
        assert str(bad / name) in failed.message
        assert reason in failed.message
        assert worker.process.wait(LIMIT_S) == 0


def test_a_saved_state_is_used_with_the_same_adapters_only(
    folder: Path, start_worker: StartWorker, tmp_path: Path
) -> None:
    kept: dict[str, Any] = {"prefix_cache_disk_mb": 100, "prefix_cache_folder": str(tmp_path)}
    saving = start_worker(config_of(folder, ("one.gguf", 1.0), **kept))
    saving.ask(QUESTION, GREEDY)
    saving.quit()
    assert any(tmp_path.iterdir())

    def cached(*adapters: tuple[str, float]) -> int:
        worker = start_worker(config_of(folder, *adapters, **kept))
        return worker.ask(QUESTION, GREEDY).evaluated.cached

    assert cached(("one.gguf", 1.0)) > 0
    assert cached() == 0
    assert cached(("one.gguf", 0.5)) == 0
    assert cached(("two.gguf", 1.0)) == 0


@pytest.mark.smollm2
def test_on_a_real_base_an_adapter_answers_by_another_template_and_its_states_are_its_own(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    write_random_lora(tmp_path / "real.gguf", SMOLLM2)
    (tmp_path / "half.gguf").write_bytes((tmp_path / "real.gguf").read_bytes()[:9_000])
    (tmp_path / "own.jinja").write_text("{{ 'Q: ' + messages[-1].content + ' A:' }}")
    (kept := tmp_path / "kept").mkdir()

    def config(*adapters: str, template: str = "own.jinja") -> ModelConfig:
        lora = tuple(LoraAdapter(path=str(tmp_path / name)) for name in adapters)
        return ModelConfig(
            path=str(SMOLLM2),
            lora=lora,
            template_file=str(tmp_path / template) if template else "",
            n_ctx=512,
            n_parallel=1,
            n_threads=1,
            prefix_cache_disk_mb=100,
            prefix_cache_folder=str(kept),
        )

    texts, cached = [], []
    for adapters in [(), ("real.gguf",), ("real.gguf",)]:
        worker = start_worker(config(*adapters))
        answer = worker.ask(QUESTION, GREEDY)
        assert answer.evaluated.tokens < 110  # no ChatML around it
        texts.append(answer.text)
        cached.append(answer.evaluated.cached)
        worker.quit()
    assert texts[0] != texts[1] == texts[2]
    assert cached[:2] == [0, 0]
    assert cached[2] > 0

    (tmp_path / "nothing.jinja").touch()
    for adapters, template, told in [
        (("half.gguf",), "own.jinja", str(tmp_path / "half.gguf")),
        ((), "absent.jinja", f"{tmp_path / 'absent.jinja'} cannot be read"),
        ((), "nothing.jinja", f"{tmp_path / 'nothing.jinja'} is empty"),
    ]:
        with WorkerClient() as client:
            failed = client.load(config(*adapters, template=template))
            assert isinstance(failed, LoadFailed), template
            assert told in failed.message
