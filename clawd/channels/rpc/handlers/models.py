"""Handlers about local models: which are there, which are loaded; load and unload."""

import asyncio
from contextlib import aclosing

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.engine.slot import ModelStatus
from clawd.errors import NotFoundError
from clawd.wire.events import ModelLoading
from clawd.wire.methods import ListLoadedModels, ListModels, LoadModel, UnloadModel
from clawd.wire.reports import Done, LoadedModel, LoadedModelList, ModelList


class ModelHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def list_models(self, _params: ListModels, _call: Call) -> ModelList:
        """List the models of this machine, loaded or not."""
        there = await asyncio.to_thread(self.parts.models)
        known = {each.path: each for each in self.parts.engine.status()}
        items = tuple(
            msgspec.structs.replace(line, state=status.state, pid=status.pid)
            if (status := known.get(line.path))
            else line
            for line in there.items
        )
        return ModelList(folder=there.folder, items=items)

    async def load_model(self, params: LoadModel, call: Call) -> LoadedModel:
        """Load a model if it is not loaded, and tell how far that is."""
        model = await asyncio.to_thread(self.parts.find_model, params.name)
        async with aclosing(self.parts.engine.loading(model.config)) as steps:
            async for step in steps:
                await call.emit(
                    ModelLoading(
                        model=model.config.alias,
                        loaded_bytes=step.loaded_bytes,
                        total_bytes=step.total_bytes,
                    )
                )
        info = await self.parts.engine.load(model.config)
        for status in self.parts.engine.status():
            if status.alias == info.alias and status.info == info:
                return _line(status)
        raise NotFoundError(f"model {info.alias} was loaded and is gone again")

    async def unload_model(self, params: UnloadModel, _call: Call) -> Done:
        """Unload a model, by the name it was loaded under or any other of its names."""
        name = await self._loaded_name(params.name.strip())
        if not await self.parts.engine.unload(name):
            loaded = [status.alias for status in self.parts.engine.status()]
            raise NotFoundError(
                f"model {name} is not loaded; "
                + (f"loaded are: {', '.join(loaded)}" if loaded else "none is")
            )
        return Done(message=f"unloaded {name}")

    async def list_loaded_models(self, _params: ListLoadedModels, _call: Call) -> LoadedModelList:
        """List the models that are loaded, are being loaded, or whose worker died."""
        known = sorted(self.parts.engine.status(), key=lambda each: each.last_used_at)
        return LoadedModelList(items=tuple(_line(status) for status in reversed(known)))

    async def _loaded_name(self, name: str) -> str:
        # First what is loaded: its file may be gone by now.
        if any(status.alias == name for status in self.parts.engine.status()):
            return name
        model = await asyncio.to_thread(self.parts.find_model, name)
        return model.config.alias


def _line(status: ModelStatus) -> LoadedModel:
    info = status.info
    line = LoadedModel(
        name=status.alias,
        path=status.path,
        pid=status.pid,
        state=status.state,
        running=status.running,
        last_used_at=status.last_used_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        deaths=status.deaths,
        **msgspec.structs.asdict(status.usage),
    )
    if info is None:
        return line
    return msgspec.structs.replace(
        line,
        context_size=info.n_ctx,
        parallel=info.n_parallel,
        parameters=info.n_params,
        size_bytes=info.size_bytes,
        load_ms=info.load_ms,
        fence=info.fence,
        processor=info.processor,
    )
