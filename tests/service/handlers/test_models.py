"""The handlers about models, over a real engine with workers that only play one."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from clawd.channels.rpc.connection import Call
from clawd.engine.embedded import embedded_model_path
from clawd.engine.protocol import ModelConfig
from clawd.engine.supervisor import Engine
from clawd.errors import CancelledByUserError, ModelLoadError, ModelNotFoundError, NotFoundError
from clawd.providers.local import LocalModel
from clawd.service.handlers import models
from clawd.wire.models import (
    ListLoadedModels,
    ListModels,
    LoadedModel,
    LoadModel,
    ModelLine,
    ModelList,
    ModelPin,
    ShowModel,
    UnloadModel,
    encode_pin,
    pin_of,
)
from tests.support.engines import fake_engine, prompt

CALL = cast("Call", None)
NAMES = ("good", "other", "refuses")


class Desk:
    """The handlers, with a folder of models that is only told."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.names = list(NAMES)
        self.daemon: Any = SimpleNamespace(engine=engine, models=self)

    def listed(self) -> ModelList:
        return ModelList(
            folder="/models",
            items=tuple(
                ModelLine(name=name, path=f"/models/{name}.gguf", size_bytes=1)
                for name in self.names
            ),
        )

    def find(self, name: str) -> LocalModel:
        alias = name.lower().removesuffix(".gguf")
        if alias not in self.names:
            raise ModelNotFoundError(f"no model named {name!r}")
        return LocalModel(config=ModelConfig(path=f"/models/{alias}.gguf", alias=alias))

    async def load(self, name: str) -> LoadedModel:
        return await models.load_model(self.daemon, LoadModel(name=name), CALL)

    async def unload(self, name: str) -> str:
        return (await models.unload_model(self.daemon, UnloadModel(name=name), CALL)).message

    async def states(self) -> dict[str, str]:
        listed = await models.list_models(self.daemon, ListModels(), CALL)
        return {line.name: line.state for line in listed.items}

    async def loaded(self) -> list[LoadedModel]:
        return list((await models.list_loaded_models(self.daemon, ListLoadedModels(), CALL)).items)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with fake_engine(tmp_path) as (engine, _journal):
        yield Desk(engine)


async def test_load_list_and_unload(desk: Desk) -> None:
    assert await desk.states() == {"good": "", "other": "", "refuses": ""}
    line = await desk.load("GOOD.gguf")
    assert (line.name, line.state, line.path) == ("good", "ready", "/models/good.gguf")
    assert line.pid > 0
    assert await desk.load("good") == (await desk.loaded())[0]
    assert await desk.states() == {"good": "ready", "other": "", "refuses": ""}
    assert await desk.unload("Good.gguf") == "unloaded good"
    assert await desk.loaded() == []
    with pytest.raises(NotFoundError, match="model good is not loaded; none is"):
        await desk.unload("good")


async def test_what_was_used_last_is_shown_first(desk: Desk) -> None:
    for name in ("good", "other", "good"):
        await desk.load(name)
    assert [line.name for line in await desk.loaded()] == ["good", "other"]
    desk.names.append("third")
    with pytest.raises(NotFoundError, match="model third is not loaded; loaded are: good, other"):
        await desk.unload("third")


async def test_a_model_whose_file_is_gone_can_be_unloaded(desk: Desk) -> None:
    await desk.load("good")
    desk.names.remove("good")
    assert await desk.unload("good") == "unloaded good"
    with pytest.raises(ModelNotFoundError):
        await desk.unload("good")


async def test_unloading_cancels_what_runs(desk: Desk) -> None:
    config = desk.find("good").config
    async with (
        asyncio.timeout(60),
        aclosing(desk.engine.generate(config, prompt("endless"))) as run,
    ):
        await anext(run)
        (line,) = await desk.loaded()
        assert line.running == 1
        await desk.unload("good")
        with pytest.raises(CancelledByUserError, match="was unloaded"):
            async for _ in run:
                pass


async def test_a_model_that_cannot_be_loaded_is_an_error(desk: Desk) -> None:
    with pytest.raises(ModelLoadError):
        await desk.load("refuses")
    assert (await desk.states())["refuses"] == ""


async def test_show_tells_what_a_file_says_of_itself_and_loads_nothing(desk: Desk) -> None:
    path = embedded_model_path()
    config = ModelConfig(path=str(path), alias="embedded")
    shelf = SimpleNamespace(listed=desk.listed, find=lambda _: LocalModel(config=config))
    daemon: Any = SimpleNamespace(engine=desk.engine, models=shelf)
    shown = await models.show_model(daemon, ShowModel(name="embedded"), CALL)
    assert (shown.architecture, shown.quantization, shown.context_size) == ("llama", "Q8_0", 1024)
    assert (shown.template_family, shown.tools, shown.reasoning) == ("hermes", True, False)
    assert (shown.size_bytes, shown.pin) == (path.stat().st_size, "none")
    assert desk.engine.status() == []
    assert (shown.vision, shown.vision_pin, shown.vision_sha256) == ("", "none", "")


async def test_show_tells_the_projector_and_how_it_is_to_its_pin(
    desk: Desk, tmp_path: Path
) -> None:
    projector = tmp_path / "mmproj-embedded.gguf"
    projector.write_bytes(b"eyes")
    digest = hashlib.sha256(b"eyes").hexdigest()
    pin_of(projector).write_bytes(encode_pin(ModelPin(sha256=digest)))
    config = ModelConfig(path=str(embedded_model_path()), alias="e", mmproj=str(projector))
    shelf = SimpleNamespace(listed=desk.listed, find=lambda _: LocalModel(config=config))
    daemon: Any = SimpleNamespace(engine=desk.engine, models=shelf)

    async def seen() -> tuple[str, str, str]:
        shown = await models.show_model(daemon, ShowModel(name="e"), CALL)
        return shown.vision, shown.vision_pin, shown.vision_sha256

    assert await seen() == (str(projector), "right", digest)
    projector.write_bytes(b"other")
    assert await seen() == (str(projector), "changed", digest)
