"""The models that can be asked for over HTTP, and which one a name means.

    "" and clawd           what the configuration has as default
    embedded, tiny:latest  a model of this machine, as `clawctl model list` names it, or by its path
    cloud                  a provider, with its own default model
    cloud/large            a model of a provider

Every other name is refused, with those that are there: no other model answers in its place.

GET /v1/models and /v1/models/{id} say what there is in a form that all dialects read: OpenAI's
clients read `id`, `created` and `owned_by`, llama.cpp's `meta`, Anthropic's `display_name`,
`has_more` and their kin.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from clawd.channels.http.app import GATEWAY, Gateway
from clawd.errors import ClawError, ModelNotFoundError
from clawd.providers.base import Provider, able, sees
from clawd.providers.ledger import ContextTeller
from clawd.providers.local import LocalProvider
from clawd.runtime.settings import RuntimeSettings
from clawd.wire.models import ModelLine, ModelList, ProviderLine

DEFAULT = "clawd"
LATEST = ":latest"
GGUF = ".gguf"
MAX_NAME = 512

_T = TypeVar("_T")
_REMOTE = frozenset({"openai-compatible", "anthropic"})


class OfferedModel(msgspec.Struct, frozen=True, kw_only=True):
    """A model that can be asked for.

    Attributes:
        name: what to ask for.
        provider: who answers.
        model: the provider's own name of it; "" for the provider's default.
        context_size: in tokens, 0 for unknown.
        size_bytes: of the files of a local model, 0 for others.
        path: of the file of a local model.
        state: of a local model: loading, ready, or stopped after its worker died; empty when it
            is not loaded.
        is_default: it answers where a request names none.
        stands_for: the model of this machine that the default is.
        capabilities: completion, tools, vision.
    """

    name: str
    provider: str
    model: str = ""
    context_size: int = 0
    size_bytes: int = 0
    path: str = ""
    state: str = ""
    is_default: bool = False
    stands_for: str = ""
    capabilities: tuple[str, ...] = ("completion",)

    @property
    def is_local(self) -> bool:
        """Whether its file lies on this machine."""
        return bool(self.path)


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers a request.

    Attributes:
        name: to answer with: as it was asked for, or what stands for the default.
        provider: who answers.
        model: the provider's own name of the model; "" for its default.
    """

    name: str
    provider: Provider
    model: str


class ModelCatalogue:
    """The models behind a gateway, looked at anew with every question.

    Args:
        providers: returns the providers by name.
        settings: returns the settings in force.
        lines: returns what the configuration says of the providers.
        models: reads the folder of local models; called off the loop.
    """

    def __init__(
        self,
        *,
        providers: Callable[[], Mapping[str, Provider]],
        settings: Callable[[], RuntimeSettings],
        lines: Callable[[], tuple[ProviderLine, ...]],
        models: Callable[[], ModelList],
    ) -> None:
        self._providers = providers
        self._settings = settings
        self._lines = lines
        self._models = models

    async def listed(self) -> tuple[OfferedModel, ...]:
        """Return what can be asked for, each by one name: the default, local models, others.

        What `clawd` stands for is not listed once more, under its own name or its provider's; all
        of these names are answered.
        """
        settings, providers = self._settings(), self._providers()
        default = providers.get(settings.default_provider)
        found = [
            OfferedModel(
                name=DEFAULT,
                provider=settings.default_provider,
                model=settings.default_model,
                context_size=_size(default, ""),
                is_default=True,
                capabilities=capabilities_of(default, settings.default_model),
            )
        ]
        local = self._local()
        if local is not None:
            there = await self._there()
            meant = settings.default_model or local.default_model
            stood_for = _named(meant, there) if local is default else None
            if stood_for is not None:
                found[0] = msgspec.structs.replace(
                    found[0],
                    size_bytes=stood_for.size_bytes,
                    path=stood_for.path,
                    stands_for=stood_for.name,
                )
            found += [_offered(line, local) for line in there.items if line is not stood_for]
        for line in self._lines():
            provider = providers.get(line.name)
            is_meant = provider is default and settings.default_model in {"", line.model}
            if provider is None or is_meant or isinstance(provider, LocalProvider):
                continue
            found.append(
                OfferedModel(
                    name=line.name,
                    provider=line.name,
                    context_size=_size(provider, ""),
                    capabilities=capabilities_of(provider, ""),
                )
            )
        first = {each.name: each for each in reversed(found)}
        return tuple(each for each in found if first[each.name] is each)

    async def find(self, name: str) -> ModelChoice:
        """Return who answers to a name.

        Raises:
            ModelNotFoundError: nobody does; says which names are there.
        """
        asked = name.strip()
        choice = self._configured(asked) or await self._on_this_machine(asked)
        choice = choice or await self._of_provider(asked)
        if choice is None:
            names = ", ".join(
                f"{each.name} ({each.stands_for})" if each.stands_for else each.name
                for each in await self.listed()
            )
            raise ModelNotFoundError(
                f"there is no model {asked[:MAX_NAME]!r}; there are: {names}",
                hint="Ask for one of them, or for PROVIDER/MODEL.",
            )
        return msgspec.structs.replace(choice, name=asked or choice.name)

    def _configured(self, asked: str) -> ModelChoice | None:
        """Return who has a name by the configuration alone."""
        settings, providers = self._settings(), self._providers()
        plain = asked.removesuffix(LATEST)
        default = providers.get(settings.default_provider)
        is_default = plain in {"", DEFAULT, settings.default_model, settings.default_provider}
        if is_default and default is not None:
            name = settings.default_model or settings.default_provider
            return ModelChoice(name=name, provider=default, model=settings.default_model)
        for known in (asked, plain):
            if known in providers:
                return ModelChoice(name=known, provider=providers[known], model="")
        for line in self._lines():
            is_named = line.kind in _REMOTE and line.model in {asked, plain}
            if is_named and line.name in providers:
                return ModelChoice(name=line.model, provider=providers[line.name], model="")
        return None

    async def _on_this_machine(self, asked: str) -> ModelChoice | None:
        local = self._local()
        if local is None:
            return None
        there = await self._there()
        line = (
            _named(asked, there)
            or _named(asked.removesuffix(LATEST), there)
            or _named(asked.replace(":", "-"), there)  # as a pull names what has a tag
        )
        if line is None:
            return None
        return ModelChoice(name=line.name, provider=local, model=line.name)

    async def _of_provider(self, asked: str) -> ModelChoice | None:
        """Return who has a name `provider/model`; of a local one only models that are there."""
        name, _, model = asked.partition("/")
        provider = self._providers().get(name)
        if provider is None or not model:
            return None
        if isinstance(provider, LocalProvider):
            there = await self._there()
            line = _named(model, there) or _named(model.removesuffix(LATEST), there)
            return ModelChoice(name=asked, provider=provider, model=line.name) if line else None
        return ModelChoice(name=asked, provider=provider, model=model)

    def _local(self) -> LocalProvider | None:
        """Return who runs models of this machine: the default provider if it is such a one."""
        settings, providers = self._settings(), self._providers()
        default = providers.get(settings.default_provider)
        if isinstance(default, LocalProvider):
            return default
        return next((each for each in providers.values() if isinstance(each, LocalProvider)), None)

    async def _there(self) -> ModelList:
        return await asyncio.to_thread(self._models)


def catalogue_of(gateway: Gateway) -> ModelCatalogue:
    """Return the catalogue of a gateway."""
    return ModelCatalogue(
        providers=gateway.providers,
        settings=gateway.settings,
        lines=gateway.provider_lines,
        models=gateway.models,
    )


async def listed(gateway: Gateway) -> tuple[OfferedModel, ...]:
    """Return what can be asked for, and which of the local models are loaded."""
    states = {each.path: each.state for each in gateway.engine.status()}
    return tuple(
        msgspec.structs.replace(model, state=states[model.path]) if model.path in states else model
        for model in await catalogue_of(gateway).listed()
    )


async def find(gateway: Gateway, name: str) -> ModelChoice:
    """Return who answers to a name.

    Raises:
        ModelNotFoundError: nobody does; says which names are there.
    """
    return await catalogue_of(gateway).find(name)


async def find_able(
    gateway: Gateway, name: str, ability: type[_T], lack: str
) -> tuple[_T, str, str]:
    """Return a provider with an ability, its name of the model, and the name to answer with.

    Args:
        gateway: what handlers work with.
        name: as the client named the model.
        ability: a protocol of providers/base.py.
        lack: what the provider lacks otherwise, for the error.

    Raises:
        ModelNotFoundError: there is no such model.
        ClawError: who answers to the name cannot do this; a 501 to the client.
    """
    choice = await find(gateway, name)
    found = able(choice.provider, ability, choice.model)
    if found is None:
        raise ClawError(
            f"provider {choice.provider.name()} {lack}",
            code="not_supported",
            hint="Ask for a model of this machine: GET /v1/models lists them.",
        )
    return *found, choice.name


def _named(asked: str, there: ModelList) -> ModelLine | None:
    """Return the local model of a name, or of a path to its file; never a file that lies elsewhere.

    A path is absolute, or begins at the folder of models.
    """
    if not asked:
        return None
    plain = asked[: -len(GGUF)] if asked.lower().endswith(GGUF) else asked
    for line in there.items:
        paths = {line.path, line.path.removeprefix(f"{there.folder}/")}
        if plain == line.name or not paths.isdisjoint({asked, f"{asked}{GGUF}"}):
            return line
    alike = [line for line in there.items if line.name.lower() == plain.lower()]
    return alike[0] if len(alike) == 1 else None


def _offered(line: ModelLine, local: LocalProvider) -> OfferedModel:
    return OfferedModel(
        name=line.name,
        provider=local.name(),
        model=line.name,
        context_size=_size(local, line.name),
        size_bytes=line.size_bytes,
        path=line.path,
        capabilities=capabilities_of(local, line.name),
    )


def capabilities_of(provider: Provider | None, model: str) -> tuple[str, ...]:
    """Return what a model can do, by Ollama's words."""
    if provider is None:
        return ("completion",)
    tools = ("tools",) if provider.capabilities().tools else ()
    return ("completion", *tools, *(("vision",) if sees(provider, model) else ()))


def _size(provider: Provider | None, model: str) -> int:
    """Return the size of a model's context as far as it is known."""
    if provider is None:
        return 0
    try:
        if isinstance(provider, ContextTeller):
            return provider.context_size_of(model)
        return provider.capabilities().context_size if not model else 0
    except ClawError:
        return 0


_STARTED = int(time.time())


async def get_models(request: web.Request) -> web.Response:
    """Answer GET /v1/models."""
    models = [_told(model) for model in await listed(request.app[GATEWAY])]
    return web.json_response(
        {
            "object": "list",
            "data": models,
            "has_more": False,
            "first_id": models[0]["id"] if models else None,
            "last_id": models[-1]["id"] if models else None,
        }
    )


async def get_model(request: web.Request) -> web.Response:
    """Answer GET /v1/models/{id}; an id may hold slashes."""
    name = request.match_info["name"]
    gateway = request.app[GATEWAY]
    chosen = await find(gateway, name)
    provider = chosen.provider.name()
    models = await listed(gateway)
    for model in models:
        if model.name == name or (model.provider, model.model) == (provider, chosen.model):
            return web.json_response(_told(msgspec.structs.replace(model, name=name)))
    able = capabilities_of(chosen.provider, chosen.model)
    return web.json_response(_told(OfferedModel(name=name, provider=provider, capabilities=able)))


def _told(model: OfferedModel) -> dict[str, Any]:
    sees = "vision" in model.capabilities
    meta: dict[str, Any] = {"n_ctx": model.context_size or None, "size": model.size_bytes or None}
    return {
        "id": model.name,
        "object": "model",
        "type": "model",
        "created": _STARTED,
        "created_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_STARTED)),
        "owned_by": model.provider or "clawd",
        "display_name": model.name,
        "aliases": [model.stands_for] if model.stands_for else [],
        "meta": {name: value for name, value in meta.items() if value is not None},
        "context_window": model.context_size or None,
        "architecture": {
            "input_modalities": ["text", "image"] if sees else ["text"],
            "output_modalities": ["text"],
        },
        "capabilities": list(model.capabilities),
        "status": {"value": model.state or "unloaded"} if model.is_local else {"value": "remote"},
    }


ROUTES = [
    web.get("/v1/models", get_models),
    web.get("/models", get_models),
    web.get("/v1/models/{name:.+}", get_model),
]
