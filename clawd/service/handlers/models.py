"""Handlers about providers and local models."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec

from clawd.channels.rpc.connection import Call
from clawd.engine.gguf import files_of, read_head
from clawd.engine.models import (
    ASSISTANT,
    EMBEDDED,
    TOY_LIMIT,
    fact,
    packaged_assistant,
    pin_state,
    size_bytes,
)
from clawd.engine.protocol import ModelConfig
from clawd.engine.slot import ModelStatus
from clawd.errors import NotFoundError
from clawd.providers.toolcalls.families import family_for
from clawd.service.build import Daemon
from clawd.wire import models
from clawd.wire.events import ModelLoading
from clawd.wire.method import Done

# What the templates of the package's models leave out.
_READS = {
    ASSISTANT: "the conversation, and the names of tools and of their arguments; not the system "
    "prompt, rules, AGENTS.md, or the block of changing facts (date, files)",
    EMBEDDED: f"the last message, {TOY_LIMIT:,} characters of it, and what followed; no tools but "
    "the built-in ones, nor anything else",
}
MAX_COUNT = 2**63 - 1
_THINKING = ("<think>", "enable_thinking", "reasoning_content", "reasoning_effort", "[THINK]")


async def list_models(daemon: Daemon, _params: models.ListModels, _call: Call) -> models.ModelList:
    """List the models of this machine, loaded or not."""
    there = await asyncio.to_thread(daemon.models.listed)
    known = {each.alias: each for each in daemon.engine.status()}
    items = tuple(
        msgspec.structs.replace(line, state=status.state, pid=status.pid)
        if (status := known.get(line.name))
        else line
        for line in there.items
    )
    return msgspec.structs.replace(there, items=items)


async def show_model(daemon: Daemon, params: models.ShowModel, _call: Call) -> models.ModelDetail:
    """Tell what a model's file says of it; nothing is loaded for that."""
    model = await asyncio.to_thread(daemon.models.find, params.name)
    there = await asyncio.to_thread(daemon.models.listed)
    name = model.config.alias
    known = {each.alias: each.state for each in daemon.engine.status()}
    line = next((each for each in there.items if each.name == name), None)
    detail = await asyncio.to_thread(_detail, model.config)
    return msgspec.structs.replace(
        detail,
        profile=line.profile if line else "",
        state=known.get(name, ""),
        form=await asyncio.to_thread(daemon.models.form) if name == ASSISTANT else "",
    )


async def load_model(daemon: Daemon, params: models.LoadModel, call: Call) -> models.LoadedModel:
    """Load a model if it is not loaded, and tell how far that is."""
    model = await asyncio.to_thread(daemon.models.find, params.name)
    async with aclosing(daemon.engine.loading(model.config)) as steps:
        async for step in steps:
            await call.emit(
                ModelLoading(
                    model=model.config.alias,
                    loaded_bytes=step.loaded_bytes,
                    total_bytes=step.total_bytes,
                )
            )
    info = await daemon.engine.load(model.config)
    for status in daemon.engine.status():
        if status.alias == info.alias and status.info == info:
            return _line(status)
    raise NotFoundError(f"model {info.alias} was loaded and is gone again")


async def unload_model(daemon: Daemon, params: models.UnloadModel, _call: Call) -> Done:
    """Unload a model, by the name it was loaded under or any other of its names."""
    name = await _loaded_name(daemon, params.name.strip())
    if not await daemon.engine.unload(name):
        loaded = [status.alias for status in daemon.engine.status()]
        raise NotFoundError(
            f"model {name} is not loaded; "
            + (f"loaded are: {', '.join(loaded)}" if loaded else "none is")
        )
    return Done(message=f"unloaded {name}")


async def list_loaded_models(
    daemon: Daemon, _params: models.ListLoadedModels, _call: Call
) -> models.LoadedModelList:
    """List the models that are loaded, are being loaded, or whose worker died."""
    known = sorted(daemon.engine.status(), key=lambda each: each.last_used_at)
    return models.LoadedModelList(items=tuple(_line(status) for status in reversed(known)))


async def list_providers(
    daemon: Daemon, _params: models.ListProviders, _call: Call
) -> models.ProviderList:
    """List the configured providers."""
    return models.ProviderList(items=daemon.state.provider_lines())


async def check_provider(daemon: Daemon, params: models.CheckProvider, _call: Call) -> Done:
    """Reach a provider with the smallest request."""
    lines = daemon.state.provider_lines()
    name = params.name or next((line.name for line in lines if line.is_default), "")
    provider = daemon.state.providers.get(name)
    if provider is None:
        known = ", ".join(line.name for line in lines)
        raise NotFoundError(f"there is no provider {name!r}; configured: {known}")
    return Done(message=await provider.check())


async def _loaded_name(daemon: Daemon, name: str) -> str:
    # First what is loaded: its file may be gone by now.
    if any(status.alias == name for status in daemon.engine.status()):
        return name
    model = await asyncio.to_thread(daemon.models.find, name)
    return model.config.alias


def _detail(config: ModelConfig) -> models.ModelDetail:
    """Read what there is to know of a model; blocks."""
    path = Path(config.path)
    heads = [read_head(part) for part in files_of(path)]
    head = heads[0]
    template = head.chat_template
    if config.template_file:
        template = Path(config.template_file).read_text("utf-8")
    state, pin = pin_state(path)
    eyes = pin_state(Path(config.mmproj)) if config.mmproj else ("none", None)
    card: dict[str, Any] = {}
    if config.alias == ASSISTANT:
        card = packaged_assistant().read_card()
        state = "right" if state == "none" else state  # it was compared with the card
    return models.ModelDetail(
        name=config.alias,
        path=config.path,
        size_bytes=size_bytes(path),
        title=head.name,
        architecture=head.architecture,
        parameters=min(sum(each.parameters for each in heads), MAX_COUNT),
        quantization=head.quantization,
        licence=head.licence,
        context_size=head.context_size,
        template_family=family_for(template).name if template else "",
        tools="tools" in template,
        reasoning=any(mark in template for mark in _THINKING),
        embeddings=head.is_embedding,
        vision=config.mmproj,
        vision_pin=eyes[0],
        vision_sha256=eyes[1].sha256 if eyes[1] else "",
        pin=state,
        sha256=pin.sha256 if pin else fact(card, "base", "sha256"),
        source=pin.source if pin else "",
        adapters=tuple(each.path for each in config.lora),
        adapter_sha256=fact(card, "adapter", "sha256"),
        card=card,
        reads=_READS.get(config.alias, ""),
    )


def _line(status: ModelStatus) -> models.LoadedModel:
    info = status.info
    line = models.LoadedModel(
        name=status.alias,
        path=status.path,
        pid=status.pid,
        state=status.state,
        running=status.running,
        last_used_at=status.last_used_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        deaths=status.deaths,
        template_notes=status.template_notes,
        **msgspec.structs.asdict(status.usage),
    )
    if status.warmth is not None:
        line = msgspec.structs.replace(
            line,
            warm_tokens=status.warmth.tokens,
            warm_ready=status.warmth.ready,
            warm_restored=status.warmth.restored,
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
