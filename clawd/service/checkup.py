"""`clawd --checkup`: what can be told of this clawd without starting it."""

import os
from collections.abc import Mapping
from pathlib import Path

from clawd.config.load import Loaded, load
from clawd.errors import ClawError, ConfigError
from clawd.paths import has_module, install_line, layout
from clawd.security.sandbox import Sandbox
from clawd.service.bounds import sandbox_settings_of
from clawd.service.state import LocalModels
from clawd.wire.checkup import Checkup


async def checkup(config: Path | None, environ: Mapping[str, str]) -> Checkup:
    """Read the config, try the sandbox, look for the model; nothing is written."""
    path = config or layout(environ).config
    try:
        loaded = load(config)
    except ConfigError as error:
        problems = error.problems or (error.message,)
        return Checkup(
            config=str(path), config_exists=path.exists(), problems=problems, hint=error.hint
        )
    settings = sandbox_settings_of(loaded, mode=loaded.config.security.sandbox, tools_cgroup=None)
    found = await Sandbox(settings).probe()
    model, model_problem, model_hint = _model(loaded)
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
        workspace=str(values.workspace_dir),
        memory=str(values.memory.path),
        receipts=str(values.receipts.path),
        receipts_enabled=values.receipts.enabled,
        provider=values.default_provider,
        provider_kind=section.kind if section is not None else "",
        key_variable=_missing_key(section.api_key_env if section is not None else "", environ),
        model=model,
        model_problem=model_problem,
        model_hint=model_hint,
        gateway=(str(http.host), http.port) if http.enabled else ("", 0),
    )


def _model(loaded: Loaded) -> tuple[str, str, str]:
    """Return the local model of the default provider, what is wrong with it and what to do."""
    section = loaded.config.providers.models.get(loaded.config.default_provider)
    if section is None or section.kind != "local":
        return "", "", ""
    name = loaded.config.default_model or section.model
    if not has_module("llama_cpp"):
        told = f"provider {loaded.config.default_provider} cannot answer: llama-cpp-python is not "
        line = install_line("local")
        return name, f"{told}installed", f"Install it with: {line}, or name a server as provider."
    try:
        LocalModels(loaded).find(name)
    except ClawError as error:
        return name, error.message, ""
    return name, "", ""


def _missing_key(variable: str, environ: Mapping[str, str]) -> str:
    """Return the name of a variable that should hold a key and does not."""
    if not variable or environ.get(variable):
        return ""
    credentials = environ.get("CREDENTIALS_DIRECTORY", "")
    if credentials and os.access(Path(credentials) / variable, os.R_OK):
        return ""
    return variable
