"""`clawd --checkup`: what can be told of this clawd without starting it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from clawd.config.load import Loaded, load
from clawd.engine.models import ASSISTANT
from clawd.errors import ClawError, ConfigError
from clawd.paths import has_module, install_line, layout
from clawd.security.sandbox.run import Sandbox
from clawd.service.state import LocalModels, hooks_of, local_default, sandbox_settings_of
from clawd.tools.hooks import Hook
from clawd.wire.daemon import Checkup


async def checkup(config: Path | None, environ: Mapping[str, str]) -> Checkup:
    """Read the config, try the sandbox, look for the model; nothing is written."""
    path = config or layout(environ).config
    try:
        loaded = load(config, environ)
    except ConfigError as error:
        problems = error.problems or (error.message,)
        return Checkup(
            config=str(path), config_exists=path.exists(), problems=problems, hint=error.hint
        )
    settings = sandbox_settings_of(loaded, mode=loaded.config.security.sandbox, tools_cgroup=None)
    sandbox = Sandbox(settings)
    found, toolchains = await sandbox.probe(), await sandbox.toolchains()
    model, model_problem, model_hint = _model(loaded)
    form = LocalModels(loaded).form() if model == ASSISTANT and not model_problem else ""
    values = loaded.config
    section = values.providers.models.get(values.default_provider)
    http = values.channels.http
    return Checkup(
        config=str(loaded.path),
        config_exists=loaded.path.exists(),
        sandbox=found.level,
        sandbox_reason=found.reason,
        sandbox_layers=found.layers,
        sandbox_unbounded=found.unbounded,
        toolchains=tuple(map(str, toolchains.shown)),
        toolchains_left_out=toolchains.left_out,
        old_networks=tuple(alias for alias, server in values.mcp.servers.items() if server.network),
        hooks=tuple(f"{hook.event}: {hook.name} ({hook.where})" for hook in hooks_of(loaded)),
        hooks_missing=tuple(_missing_programs(hooks_of(loaded))),
        workspace=str(values.workspace_dir),
        memory=str(values.memory.path),
        receipts=str(values.receipts.path),
        receipts_enabled=values.receipts.enabled,
        provider=values.default_provider,
        provider_kind=section.kind if section is not None else "",
        provider_url=section.base_url if section is not None else "",
        key_variable=_missing_key(section.api_key_env if section is not None else "", environ),
        model=model,
        model_problem=model_problem,
        model_hint=model_hint,
        model_form=form,
        gateway=(str(http.host), http.port) if http.enabled else ("", 0),
    )


def _model(loaded: Loaded) -> tuple[str, str, str]:
    """Return the local model of the default provider, what is wrong with it and what to do."""
    name = local_default(loaded)
    if not name:
        return "", "", ""
    if not has_module("llama_cpp"):
        told = f"provider {loaded.config.default_provider} cannot answer: llama-cpp-python is not "
        line = install_line("local")
        return name, f"{told}installed", f"Install it with: {line}, or name a server as provider."
    try:
        LocalModels(loaded).find(name)
    except ClawError as error:
        return name, error.message, ""
    return name, "", ""


def _missing_programs(hooks: tuple[Hook, ...]) -> Iterator[str]:
    """Return the programs of hooks that are named by a path where no program is."""
    for hook in hooks:
        program = Path(hook.command[0])
        if program.is_absolute() and not (program.is_file() and os.access(program, os.X_OK)):
            yield f"{hook.event}: {program}"


def _missing_key(variable: str, environ: Mapping[str, str]) -> str:
    """Return the name of a variable that should hold a key and does not."""
    if not variable or environ.get(variable):
        return ""
    credentials = environ.get("CREDENTIALS_DIRECTORY", "")
    if credentials and os.access(Path(credentials) / variable, os.R_OK):
        return ""
    return variable
