"""The configuration in force, and what the parts of a daemon are told of it. A reload swaps it.

At the end are the limits: what it says to the parts that hold calls, files and memory in bounds.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from clawd.config.engine import EngineSection, split_adapter
from clawd.config.load import Loaded, engine_settings, matching_pattern
from clawd.config.schema import ProviderSection, SandboxMode
from clawd.config.secrets import provider_key
from clawd.config.sections import HookEntry
from clawd.engine.client import EngineSettings
from clawd.engine.models import (
    ASSISTANT,
    AUTO,
    EMBEDDED,
    MERGE,
    CallThresholds,
    ModelFolder,
    projector_of,
    size_bytes,
)
from clawd.engine.protocol import LOOP_TOKENS, LoraAdapter, ModelConfig, Sampling
from clawd.engine.supervisor import Engine
from clawd.errors import ConfigError, ModelNotFoundError
from clawd.memory.changes import ChangeLimits
from clawd.memory.upkeep import KeepLimits
from clawd.paths import Layout, user_home
from clawd.providers.base import Provider
from clawd.providers.local import LocalModel, LocalProvider
from clawd.providers.local_request import LocalOptions
from clawd.providers.presets import preset_values
from clawd.providers.reliable import ReliableProvider, RetrySettings, UnavailableProvider
from clawd.providers.router import RoutedProvider, RouterProvider, RouterSettings
from clawd.providers.scripted import ScriptedProvider, load_script
from clawd.runtime.prompt import PromptSettings
from clawd.runtime.settings import RuntimeSettings
from clawd.security.network import NetworkRules
from clawd.security.peer import ADMIN_GROUP, USER_GROUP, PeerPolicy, group_id
from clawd.security.policy import PolicySettings
from clawd.security.sandbox.limits import ToolsCgroup
from clawd.security.sandbox.plan import ResourceLimits
from clawd.security.sandbox.run import SandboxSettings
from clawd.tools.audit import DispatchSettings
from clawd.tools.call_hosts import ReachSettings
from clawd.tools.changes import CommandLog
from clawd.tools.hooks import Hook, HookEvent
from clawd.tools.outcome import CallOutcome
from clawd.tools.session_files import SessionStore
from clawd.wire.codec import mirror
from clawd.wire.models import ModelLine, ModelList, ProviderLine
from clawd.wire.safe_text import NAME_LIMIT, single_line

# Providers that are servers, made of their sections and keys.
#
# The HTTP client that they need is a fifth of what a daemon imports, so it is loaded with the
# first.

_REMOTE_KINDS = frozenset({"openai-compatible", "anthropic"})

_log = logging.getLogger(__name__)


def _remote_provider(
    name: str, section: ProviderSection, environ: Mapping[str, str], retry: RetrySettings
) -> Provider:
    """Return the provider of a section; one that says why where its key is not to be had."""
    try:
        key = provider_key(name, section, environ) or ""
    except ConfigError as error:
        _log.warning("a provider is not available: %s", error.message)
        return UnavailableProvider(name, error)
    if section.kind == "anthropic":
        from clawd.providers.anthropic import AnthropicProvider

        return AnthropicProvider(name, section, key=key, retry=retry)
    from clawd.providers.openai import OpenAICompatibleProvider

    return OpenAICompatibleProvider(name, section, key=key, retry=retry)


_MOCK_SCRIPT = "CLAWD_MOCK_SCRIPT"
MAX_ADDRESSES = 16  # that messages named
_EMBEDDED_MAX_TOKENS = 320  # it answers in one sentence; a loop of its should end soon
_ASSISTANT_MAX_TOKENS = 1_024  # a file that it writes is in it


class State:
    """What the config says, as each part wants it; replaced as a whole by `adopt`."""

    def __init__(self, loaded: Loaded, engine: Engine, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self._engine = engine
        self._retired: list[Provider] = []
        self._change: Callable[[RuntimeSettings], RuntimeSettings] = lambda runtime: runtime
        self.loaded = loaded
        # Why the last signal to reload changed nothing, until a reload succeeds.
        self.reload_refused = ""
        self.redact: Callable[[str], str] = str
        self.policy, self.hooks = policy_of(loaded), hooks_of(loaded)
        self.runtime = runtime_of(loaded)
        self.providers = self._build(loaded)

    def refuse_reload(self, why: str) -> None:
        """Keep why a reload changed nothing; a file that is wrong may show a secret there."""
        self.reload_refused = self.redact(why)

    def adopt(self, loaded: Loaded) -> str:
        """Put another configuration in force; return what takes a restart, or "".

        Raises:
            ConfigError: a provider of it cannot be built; the old one stays in force.
        """
        before = self.loaded.config
        if any(
            getattr(loaded.config, name) != getattr(before, name)
            for name in ("providers", "engine", "model", "default_provider", "default_model")
        ):
            providers = self._build(loaded)
            self._retired += self.providers.values()
            self.providers = providers
        self.policy, self.hooks = policy_of(loaded), hooks_of(loaded)
        self.loaded, self.reload_refused = loaded, ""
        self.runtime = self._change(runtime_of(loaded))
        late = [
            name
            for name in ("memory", "receipts", "channels", "notify")
            if getattr(loaded.config, name) != getattr(before, name)
        ]
        late += [
            f"security.{name}"
            for name in ("sandbox", "approval_timeout_s", "approval_rule_days")
            if getattr(loaded.config.security, name) != getattr(before.security, name)
        ]
        return f"a restart is needed for: {', '.join(late)}" if late else ""

    def overlay(self, change: Callable[[RuntimeSettings], RuntimeSettings]) -> None:
        """Change what the config says to the runtime, now and after every reload.

        It is for a program that holds the daemon; it takes the place of the change before.
        """
        self._change = change
        self.runtime = change(runtime_of(self.loaded))

    def provider_lines(self) -> tuple[ProviderLine, ...]:
        """Return the configured providers for people."""
        config = self.loaded.config
        return tuple(
            ProviderLine(
                name=name,
                kind=section.kind,
                model=_model_of(name, section, self.loaded) or ", ".join(section.providers),
                is_default=name == config.default_provider,
            )
            for name, section in sorted(config.providers.models.items())
        )

    def answering(self) -> tuple[str, str]:
        """Return the default model where it is a local one, and what to know of it; blocks."""
        name = local_default(self.loaded)
        if not name:
            return "", ""
        config = self.loaded.config
        section = config.providers.models[config.default_provider]
        meant = _configured(config.default_provider, section, self.loaded) or AUTO
        return name, LocalModels(self.loaded).shortfall(meant)

    def provider_at(self, url: str) -> str:
        """Return the name of the provider at an address as OpenAI's; it lasts until a reload.

        Raises:
            ConfigError: it is no address, or holds a password.
        """
        if url in self.providers:
            return url
        if urlsplit(url).scheme not in {"http", "https"} or not urlsplit(url).hostname:
            raise ConfigError(
                f"{url[:200]!r} is no address of an API",
                hint="Give it as http://localhost:8080/v1",
            )
        section = ProviderSection(kind="openai-compatible", base_url=url)
        retry = RetrySettings(extra_attempts=self.loaded.config.providers.retries)
        made = _remote_provider(url, section, self.environ, retry)
        known = self.loaded.config.providers.models
        if len(others := [name for name in self.providers if name not in known]) >= MAX_ADDRESSES:
            self._retired.append(self.providers.pop(others[0]))
        self.providers[url] = made
        return url

    async def close(self) -> None:
        """Close every provider."""
        # Those in front of others first: a router must not probe what is closed already.
        for provider in reversed((*self._retired, *self.providers.values())):
            await provider.close()

    def _build(self, loaded: Loaded) -> dict[str, Provider]:
        """Build the providers; those that stand in front of others last."""
        sections = loaded.config.providers.models
        built: dict[str, Provider] = {}

        def build(name: str) -> Provider:
            if name not in built:
                section = sections[name]
                chained = [build(each) for each in section.providers]
                built[name] = self._provider(name, section, loaded, chained)
            return built[name]

        for name in sections:
            build(name)
        return built

    def _provider(
        self, name: str, section: ProviderSection, loaded: Loaded, chained: list[Provider]
    ) -> Provider:
        retry = RetrySettings(extra_attempts=loaded.config.providers.retries)
        match section.kind:
            case "local":
                models = LocalModels(loaded)
                return LocalProvider(
                    name,
                    self._engine,
                    models.find,
                    default_model=_configured(name, section, loaded) or AUTO,
                    resolve=models.resolved,
                    options=LocalOptions(
                        allow_request_penalties=loaded.config.engine.allow_request_penalties,
                        use_tool_role=section.use_tool_role,
                        tools=section.tools,
                    ),
                )
            case "mock":
                path = section.script or self.environ.get(_MOCK_SCRIPT)
                script = load_script(Path(path)) if path else None
                return ScriptedProvider(
                    name, script, tools=section.tools, vision=section.vision != "no"
                )
            case "openai-compatible" | "anthropic":
                return _remote_provider(name, section, self.environ, retry)
            case "reliable":
                return ReliableProvider(name, chained, retry=retry)
            case "router":
                return _router(name, section, loaded.config.providers.models, chained)
            case _:
                raise ConfigError(f"provider {name}: kind {section.kind!r} is unknown")


def _router(
    name: str,
    section: ProviderSection,
    sections: Mapping[str, ProviderSection],
    over: list[Provider],
) -> Provider:
    backends: list[RoutedProvider] = []
    for provider in over:
        own = sections[provider.name()]
        labels = own.labels.model_copy(update={"model": own.labels.model or own.model})
        # To check another kind than a server costs more than a list of models: it may load one.
        is_probed = own.kind in _REMOTE_KINDS
        backends.append(RoutedProvider(provider=provider, labels=labels, is_probed=is_probed))
    settings = RouterSettings(
        probe_interval_s=section.probe_interval_s, overload_lead=section.overload_lead
    )
    return RouterProvider(name, backends, settings)


def local_default(loaded: Loaded) -> str:
    """Return which model of this machine answers where nobody names one; "" where none does."""
    config = loaded.config
    section = config.providers.models.get(config.default_provider)
    if section is None or section.kind != "local":
        return ""
    return _model_of(config.default_provider, section, loaded)


def _model_of(name: str, section: ProviderSection, loaded: Loaded) -> str:
    """Return the model that a provider answers from where a request names none."""
    found = _configured(name, section, loaded)
    return LocalModels(loaded).resolved(found or AUTO) if section.kind == "local" else found


def _configured(name: str, section: ProviderSection, loaded: Loaded) -> str:
    config = loaded.config
    return (config.default_model if name == config.default_provider else "") or section.model


class LocalModels:
    """Finds a local model by name, and how it is loaded and sampled."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self._folder = ModelFolder(loaded.layout.models)

    def find(self, name: str) -> LocalModel:
        """Return the model.

        Raises:
            ModelNotFoundError: there is none of this name; says which are there.
        """
        path = self._folder.find(name)
        settings = engine_settings(self._loaded, path.name, preset_values())
        # One name for each file, whatever it was asked for by: no model is loaded twice.
        alias = self._folder.name_of(path)
        limit = {EMBEDDED: _EMBEDDED_MAX_TOKENS, ASSISTANT: _ASSISTANT_MAX_TOKENS}.get(alias)
        shape = settings
        if limit is not None:  # the models of the package are sampled as they were judged
            shape = EngineSection(
                temperature=0.0, seed=settings.seed, max_tokens=settings.max_tokens or limit
            )
        folder = self._loaded.layout.cache / "prefix"
        # Who did not ask for it has no text of conversations on the disk but in memory.
        is_asked = self._loaded.source_of("engine.prefix_cache_disk_mb") != "default"
        config = _model_config(alias, path, settings, folder)
        config = msgspec.structs.replace(config, prefix_cache_conversations=is_asked)
        calls = CallThresholds()
        if alias == ASSISTANT:
            self._folder.assistant.check(path)
            config = _adapted(config, self._folder)
            calls = self._folder.assistant.call_thresholds()
        return LocalModel(
            config=config,
            sampling=_sampling(shape),
            template_kwargs=settings.template_kwargs,
            calls=calls,
        )

    def resolved(self, name: str) -> str:
        """Return which model a name means now: `auto` is the assistant or the embedded one."""
        return self._folder.resolved(name)

    def shortfall(self, name: str) -> str:
        """Return why a name means the embedded model, or a slower assistant, though it need not.

        "" where it means neither.
        """
        wanted = name.strip().lower()
        told = self._folder.shortfall() if wanted == AUTO else ""
        return told or (self._folder.merged()[1] if wanted in {AUTO, ASSISTANT} else "")

    def form(self) -> str:
        """Return in which form the assistant is loaded, and what would make a slower one faster."""
        path, told = self._folder.merged()
        if path is not None:
            return f"base and adapter in one file, {path.name}"
        return told or f"base and adapter; `{MERGE}` makes one file of them, which answers faster"

    def listed(self) -> ModelList:
        """Return what is there, read anew."""
        names = self._folder.paths()
        default = local_default(self._loaded)
        if default:
            with contextlib.suppress(ModelNotFoundError):
                path = self._folder.find(default)
                default = next((name for name in names if names[name] == path), str(path))
        return ModelList(
            folder=str(self._loaded.layout.models),
            items=tuple(
                ModelLine(
                    name=name,
                    path=str(path),
                    size_bytes=size_bytes(path),
                    profile=matching_pattern(self._loaded.config, path.name) or "",
                )
                for name, path in names.items()
            ),
            default=default,
        )


def forbidden_paths_of(loaded: Loaded) -> tuple[Path, ...]:
    """Return what no tool may touch: of the config, and the knowledge where the home is not.

    Its headers say what is untrusted; write access there would vouch for anything.
    """
    config = loaded.config
    folder = config.knowledge.path
    is_covered = folder.is_relative_to(loaded.layout.home) and not folder.is_relative_to(
        config.workspace_dir
    )
    own = () if is_covered else (folder,)
    return (*config.security.forbidden_paths, *own)


def hooks_of(loaded: Loaded) -> tuple[Hook, ...]:
    """Return the owner's hooks, in the order of the events and of each one's list."""
    section = loaded.config.hooks
    entries: dict[HookEvent, tuple[HookEntry, ...]] = {
        "before_tool": section.before_tool,
        "after_tool": section.after_tool,
        "turn_start": section.turn_start,
        "turn_end": section.turn_end,
        "on_question": section.on_question,
    }
    return tuple(
        Hook(
            name=single_line(Path(entry.command[0]).name, NAME_LIMIT),
            event=event,
            command=entry.command,
            tools=entry.tools,
            timeout_s=entry.timeout_s,
            where=entry.where,
            may=frozenset(entry.may),
        )
        for event, listed in entries.items()
        for entry in listed
    )


def policy_of(loaded: Loaded) -> PolicySettings:
    """Return the policy's part of a configuration."""
    security = loaded.config.security
    return mirror(
        PolicySettings,
        security,
        forbidden_paths=tuple(map(str, forbidden_paths_of(loaded))),
        sandbox_required=security.sandbox == "required",
    )


def runtime_of(loaded: Loaded) -> RuntimeSettings:
    """Return the runtime's part of a configuration."""
    config = loaded.config
    return mirror(
        RuntimeSettings,
        config,
        home=loaded.layout.home,
        workspace=config.workspace_dir,
        workspace_roots=config.security.workspace_roots,
        prompt=PromptSettings(
            base=config.agent.system_prompt,
            operator=config.agent.system_append,
            knowledge_cutoff=config.agent.knowledge_cutoff,
            parts=config.prompt,
        ),
        loop=config.agent,
        limits=config.limits,
        compression=config.compression,
        agents=config.agents,
    )


def engine_of(loaded: Loaded) -> EngineSettings:
    """Return the supervisor's part of a configuration."""
    engine = loaded.config.engine
    return EngineSettings(
        keep_alive_s=engine.keep_alive_s or -1.0,
        max_loaded=engine.max_loaded,
        load_timeout_s=engine.load_timeout_s,
        step_timeout_s=engine.watchdog_s,
    )


def _model_config(
    name: str, path: Path, settings: EngineSection, prefix_folder: Path
) -> ModelConfig:
    projector = settings.mmproj or str(projector_of(path) or "")
    return ModelConfig(
        path=str(path),
        alias=name,
        n_ctx=settings.ctx_size,
        lora=tuple(map(_adapter, settings.lora)),
        prefix_cache_folder=str(prefix_folder),
        mmproj="" if projector == "off" else projector,
        # The seed is the requests', as the default of all samplings.
        **_of_one_name(settings, ModelConfig, but=("lora", "mmproj", "seed")),
    )


def _of_one_name(
    settings: EngineSection, kind: type[msgspec.Struct], *, but: tuple[str, ...]
) -> dict[str, Any]:
    """Return the settings that a struct has fields of one name for."""
    return {
        name: value
        for name, value in settings
        if name in kind.__struct_fields__ and name not in but
    }


def _adapted(config: ModelConfig, folder: ModelFolder) -> ModelConfig:
    """Return how the assistant is loaded: base and adapter, or both in one, and what users add.

    One person talks to it: cells that sequences share take a quarter of the memory.
    """
    merged, assistant = folder.merged()[0], folder.assistant
    own = () if merged else (LoraAdapter(path=str(assistant.adapter)),)
    unified = "on" if config.kv_unified == "auto" else config.kv_unified
    return msgspec.structs.replace(
        config,
        path=str(merged or config.path),
        lora=(*own, *config.lora),
        template_file=str(assistant.template),
        kv_unified=unified,
    )


def _adapter(text: str) -> LoraAdapter:
    path, scale = split_adapter(text)
    return LoraAdapter(path=path, scale=scale)


def _sampling(settings: EngineSection) -> Sampling:
    # A preset is in the values already, and the variables go with requests.
    given = _of_one_name(settings, Sampling, but=("preset", "template_kwargs"))
    return Sampling(loop_tokens=LOOP_TOKENS, **given)


def peer_policy_of(layout: Layout, tools: ToolsCgroup | None) -> PeerPolicy:
    """Return who may talk to a daemon of this layout, but nobody in the cgroup of its tools."""
    return PeerPolicy(
        mode="system" if layout.is_system else "user",
        owner_uid=os.geteuid(),
        user_gid=group_id(USER_GROUP),
        admin_gid=group_id(ADMIN_GROUP),
        tools_cgroup=tools.name if tools is not None else "",
    )


def sandbox_settings_of(
    loaded: Loaded, *, mode: SandboxMode, tools_cgroup: ToolsCgroup | None
) -> SandboxSettings:
    """Return the sandbox's part of a configuration.

    Args:
        loaded: the configuration.
        mode: the one that the daemon was started with.
        tools_cgroup: where what tools start is put.
    """
    config = loaded.config
    return SandboxSettings(
        mode=mode,
        home=loaded.layout.home,
        forbidden_paths=forbidden_paths_of(loaded),
        limits=ResourceLimits(
            disk_bytes=config.limits.max_command_disk_bytes,
            cpu_s=max(ResourceLimits().cpu_s, int(config.limits.max_command_s)),
        ),
        writable_run_later=config.security.writable_run_later,
        tools_cgroup=tools_cgroup,
        toolchains=config.sandbox.toolchains,
        person=user_home(os.environ),
        caches=loaded.layout.cache / "projects" if config.sandbox.cache_mb else None,
        cache_bytes=config.sandbox.cache_mb << 20,
    )


def dispatch_settings_of(
    loaded: Loaded,
    sandbox_level: str,
    sessions: SessionStore,
    commands: CommandLog,
    count: Callable[[str, CallOutcome], None],
    reach: ReachSettings,
) -> DispatchSettings:
    """Return dispatch's part of a configuration; `count` is told of every call."""
    config = loaded.config
    return DispatchSettings(
        sandbox_level=sandbox_level,
        output_limit_bytes=config.limits.max_tool_output_bytes,
        audit_log=config.security.audit_log,
        sessions=sessions,
        commands=commands,
        count=count,
        reach=reach,
    )


def change_limits_of(loaded: Loaded) -> ChangeLimits:
    """Return how much is kept for undo."""
    limits = loaded.config.limits
    return ChangeLimits(max_bytes=limits.undo_mb << 20, max_age_days=limits.undo_days)


def command_limit_of(loaded: Loaded) -> int:
    """Return how many bytes of workspaces are kept so that undo covers commands."""
    limits = loaded.config.limits
    return limits.undo_commands_mb << 20 if limits.undo_mb else 0


def hidden_paths_of(loaded: Loaded) -> frozenset[str]:
    """Return the paths that no command sees, resolved: no look for undo goes there either."""
    hidden = (*forbidden_paths_of(loaded), loaded.layout.home)
    return frozenset(str(path.expanduser().resolve()) for path in hidden)


def keep_limits_of(loaded: Loaded) -> KeepLimits:
    """Return how much memory keeps, and how long."""
    memory = loaded.config.memory
    return KeepLimits(max_age_days=memory.retention_days, max_bytes=memory.quota_mb << 20)


def network_rules_of(loaded: Loaded) -> NetworkRules:
    """Return where the tools of the web and the processes of calls may go."""
    security = loaded.config.security
    return NetworkRules(
        allowed_domains=security.allowed_domains, allowed_addresses=security.allowed_addresses
    )
