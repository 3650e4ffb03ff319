"""A model's file that is replaced, overwritten or removed while its worker runs, or is dead."""

from pathlib import Path

import msgspec
import pytest

from clawd.engine.protocol import ModelConfig
from clawd.errors import EngineError, ModelLoadError, WorkerDiedError
from tests.support.engines import (
    FAST,
    LIMIT_S,
    WATCHFUL,
    eventually,
    fake_engine,
    is_running,
    prompt,
    text_of,
)


def a_model(folder: Path, name: str = "good") -> ModelConfig:
    path = folder / f"{name}.gguf"
    path.write_bytes(b"first")
    return ModelConfig(path=str(path), alias=name)


def put_another(config: ModelConfig) -> None:
    """Replace a model's file as `clawctl model add --force` does."""
    fresh = Path(config.path).with_suffix(".part")
    fresh.write_bytes(b"second")
    fresh.replace(config.path)


async def test_the_next_request_loads_the_new_file(tmp_path: Path) -> None:
    config = a_model(tmp_path)
    async with fake_engine(tmp_path) as (engine, journal):
        for way in ("renamed over", "written into"):
            assert await text_of(engine, "say x", config) == "x"
            old = engine.status()[0].pid
            if way == "renamed over":
                put_another(config)
            else:
                Path(config.path).write_bytes(b"the third")
            assert await text_of(engine, "say x", config) == "x"
            assert engine.status()[0].pid != old
            assert not is_running(old)
        assert await text_of(engine, "say x", config) == "x"
        assert len(journal.having("start")) == 3


async def test_what_runs_ends_on_the_file_that_it_began_with(tmp_path: Path) -> None:
    config = a_model(tmp_path)
    async with fake_engine(tmp_path) as (engine, journal):
        running = engine.generate(config, prompt("endless"))
        await anext(running)
        put_another(config)
        assert await text_of(engine, "say beside", config) == "beside"
        assert len(journal.having("start")) == 1
        await anext(running)
        await running.aclose()
        assert await text_of(engine, "say after", config) == "after"
        assert len(journal.having("start")) == 2


async def test_a_file_that_is_gone_or_only_looked_at_changes_nothing(tmp_path: Path) -> None:
    config = a_model(tmp_path)
    async with fake_engine(tmp_path) as (engine, journal):
        await engine.load(config)
        path = Path(config.path)
        path.read_bytes()
        path.chmod(0o600)
        path.with_name("link.gguf").hardlink_to(path)
        await engine.load(config)
        path.unlink()
        assert await text_of(engine, "say x", config) == "x"
        assert len(journal.having("start")) == 1


async def test_a_file_that_changes_while_it_is_loaded_is_not_used(tmp_path: Path) -> None:
    config = a_model(tmp_path, "grows")
    async with fake_engine(tmp_path) as (engine, journal):
        with pytest.raises(ModelLoadError, match="its file changed while it was loaded") as caught:
            await text_of(engine, "say x", config)
        assert "still being copied" in caught.value.hint
        pid = journal.having("start")[0]["pid"]
        await eventually(lambda: not is_running(pid))
        assert await text_of(engine, "say x", config) == "x"


async def test_another_file_has_no_record_of_deaths(tmp_path: Path) -> None:
    config = a_model(tmp_path)
    patient = msgspec.structs.replace(FAST, backoff_initial_s=0.01, backoff_max_s=600.0)
    async with fake_engine(tmp_path, patient) as (engine, _):
        for _ in range(2):
            with pytest.raises(WorkerDiedError):
                await text_of(engine, "die", config)
        with pytest.raises(EngineError, match="this prompt is refused"):
            await text_of(engine, "die", config)
        put_another(config)
        with pytest.raises(WorkerDiedError):
            await text_of(engine, "die", config)
        assert engine.status()[0].deaths == 1


async def test_another_file_has_another_template(tmp_path: Path) -> None:
    config = a_model(tmp_path)
    settings = msgspec.structs.replace(WATCHFUL, step_timeout_s=LIMIT_S)
    async with fake_engine(tmp_path, settings) as (engine, _):
        with pytest.raises(WorkerDiedError, match="template was not rendered"):
            await text_of(engine, "template", config)
        with pytest.raises(EngineError, match="is marked bad"):
            await text_of(engine, "say x", config)
        put_another(config)
        assert await text_of(engine, "say x", config) == "x"
