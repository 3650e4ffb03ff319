"""The health of a daemon whose default model is a local one."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from clawd.engine.slot import ModelState, ModelStatus, ModelUsage
from clawd.engine.supervisor import Engine
from clawd.service.build import Daemon
from clawd.service.http import health_of
from clawd.service.state import LocalModels
from tests.channels.http.rig import Served, served
from tests.support.rows import each_row

LOCAL = '[providers.models.local]\nkind = "local"\nmodel = "embedded"\n'


class FakeEngine:
    """Says what a test wants of its models."""

    def __init__(self, *models: ModelStatus) -> None:
        self._models = list(models)

    def status(self) -> list[ModelStatus]:
        return self._models


def status_of(path: str, state: ModelState) -> ModelStatus:
    return ModelStatus(
        alias="embedded",
        path=path,
        pid=0,
        state=state,
        info=None,
        running=1,
        last_used_at=datetime.now(UTC),
        deaths=0,
        usage=ModelUsage(),
    )


@asynccontextmanager
async def with_local_default(folder: Path) -> AsyncIterator[tuple[Served, Daemon]]:
    async with served(folder, tables=LOCAL) as door:
        daemon = door.inside.daemon
        state, engine = daemon.state, daemon.engine
        config = state.loaded.config.model_copy(update={"default_provider": "local"})
        state.loaded = dataclasses.replace(state.loaded, config=config)
        try:
            yield door, daemon
        finally:
            daemon.engine = engine


@each_row(
    ("state", "status", "is_loaded"),
    [("loading", 503, False), ("ready", 200, True), ("stopped", 200, False)],
)
async def test_a_default_model_that_is_being_loaded_is_waited_for(
    tmp_path: Path, state: ModelState, status: int, *, is_loaded: bool
) -> None:
    async with with_local_default(tmp_path) as (door, daemon):
        path = LocalModels(daemon.state.loaded).find("embedded").config.path
        daemon.engine = cast("Engine", FakeEngine(status_of(path, state)))
        answered, told = await door.get("/health")
        assert (answered, told["model"], told["model_loaded"]) == (status, "embedded", is_loaded)
        if status == 503:
            error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
            assert told["error"] == error


async def test_another_model_that_is_being_loaded_is_nobodys_trouble(tmp_path: Path) -> None:
    async with with_local_default(tmp_path) as (_, daemon):
        daemon.engine = cast("Engine", FakeEngine(status_of("/elsewhere.gguf", "loading")))
        found = await health_of(daemon)()
        assert (found.problem, found.model_loaded) == ("", False)
