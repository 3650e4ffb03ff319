"""Writes configuration out: the commented default file, and what is in force with its sources.

Sets a home up with it: folders and a commented config. What is there already is kept.
"""

import json
import os
import stat
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import PydanticUndefined

from clawd.config import schema, sections
from clawd.config.engine import EngineSection, ModelProfile
from clawd.config.load import Loaded, overrides_of
from clawd.config.mcp import McpAutoApproveSection, McpSection, McpServerSection
from clawd.config.problems import TOP_LEVEL_KEYS, Key, dotted
from clawd.config.sections import (
    CompressionSection,
    ExternalToolsSection,
    HooksSection,
    HttpSection,
    KnowledgeSection,
    PluginsSection,
    PromptSection,
    SchedulesSection,
    Section,
    SessionFilesSection,
    ToolsSection,
    WebSection,
)
from clawd.errors import ConfigError
from clawd.paths import Layout
from clawd.wire.daemon import OverrideLine

REDACTED = "(set, not shown)"
_WIDTH = 96
_HEAD = """\
# The configuration of clawd. A line that begins with # and a key shows the built-in value; remove
# the # to set another one. Check it with: clawctl config validate
# Every key can also be set in the environment: CLAWD_SECURITY__AUTONOMY=readonly. ~ and $VARIABLES
# are filled in wherever a path stands. Secrets belong in the environment, in a systemd credential
# or in a file of mode 0600, never here.
"""
_ACTIVE = frozenset(
    {*TOP_LEVEL_KEYS}
    | {f"security.{name}" for name in schema.SecuritySection.model_fields}
    | {"channels.cli.enabled", "channels.cli.tools_allow", "memory.backend", "receipts.enabled"}
) - {
    f"security.{name}"
    for name in (
        "allowed_addresses",
        "approval_timeout_s",
        "approval_rule_days",
        "egress",
        "egress_hosts",
        "policy_cases",
        "writable_run_later",
    )
}
_NOT_OF_A_SERVER = frozenset({
    "script", "api_key", "api_key_file", "max_tokens", "thinking", "providers", "probe_interval_s",
    "overload_lead",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value in force: its dotted key, the value (secrets hidden) and who set it."""

    key: str
    value: Any
    source: str


def render_default_config(layout: Layout) -> str:
    """Return the config file that `clawctl init` writes: every key, with what it means."""
    special = {
        "workspace_dir": _with_tilde(layout.workspace),
        "memory.path": _with_tilde(layout.database),
        "knowledge.path": _with_tilde(layout.knowledge),
        "receipts.path": _with_tilde(layout.receipts),
        "external_tools.dir": _with_tilde(layout.external_tools),
        "security.policy_cases": _with_tilde(layout.config.with_name(sections.POLICY_CASES)),
        "security.forbidden_paths": list(sections.FORBIDDEN_PATHS),
        "security.workspace_roots": list(sections.WORKSPACE_ROOTS),
    }
    plain: list[tuple[Key, type[Section]]] = [
        (("security",), schema.SecuritySection),
        (("sandbox",), schema.SandboxSection),
        (("channels", "cli"), schema.CliSection),
        (("channels", "http"), HttpSection),
        (("memory",), schema.MemorySection),
        (("knowledge",), KnowledgeSection),
        (("receipts",), schema.ReceiptsSection),
        (("agent",), schema.AgentSection),
        (("compression",), CompressionSection),
        (("tools",), ToolsSection),
        (("prompt",), PromptSection),
        (("engine",), EngineSection),
        (("limits",), schema.LimitsSection),
        (("session_files",), SessionFilesSection),
        (("external_tools",), ExternalToolsSection),
        (("plugins",), PluginsSection),
        (("web",), WebSection),
        (("notify",), schema.NotifySection),
        (("hooks",), HooksSection),
        (("schedules",), SchedulesSection),
    ]
    parts = [_HEAD]
    parts.append("\n".join(_keys((), schema.Config, special, TOP_LEVEL_KEYS)))
    parts.append(_providers())
    parts += [_section(key, kind, special) for key, kind in plain]
    parts += [_agents(), _mcp(), _models()]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts)


def settings(loaded: Loaded) -> list[Setting]:
    """Return every value in force with its source, in the order of the schema."""
    return [
        Setting(key=dotted(key), value=value, source=loaded.source_of(dotted(key)))
        for key, value in _leaves(redacted(loaded))
    ]


def redacted(loaded: Loaded) -> dict[str, Any]:
    """Return the configuration as JSON-like data without secrets."""
    values = loaded.config.model_dump(mode="json", exclude_none=True)
    for name, section in loaded.config.providers.models.items():
        if section.api_key is not None:
            values["providers"]["models"][name]["api_key"] = REDACTED
    for alias, server in loaded.config.mcp.servers.items():
        shown = values["mcp"]["servers"][alias]
        shown["env"] = dict.fromkeys(shown["env"], REDACTED)
        if server.auth_token is not None:
            shown["auth_token"] = REDACTED
    return values


def overridden(loaded: Loaded, environ: Mapping[str, str]) -> tuple[OverrideLine, ...]:
    """Return which variables of another environment ask for what is not in force."""
    return tuple(
        OverrideLine(
            variable=variable,
            key=dotted(key),
            wanted=_hidden(key, wanted),
            effective=_hidden(key, effective),
        )
        for variable, key, wanted, effective in overrides_of(loaded, environ)
    )


def _hidden(key: Key, value: object) -> str:
    if value is None:
        return ""
    is_secret = key[-1] in {"api_key", "auth_token"} or "env" in key
    return REDACTED if is_secret else toml_value(value)


def toml_value(value: object) -> str:
    """Return a value as TOML text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, dict):
        pairs = [f"{dotted((name,))} = {toml_value(item)}" for name, item in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)


def _section(key: Key, kind: type[Section], special: dict[str, Any]) -> str:
    lines = [*_comment(kind.__doc__ or ""), f"[{dotted(key)}]"]
    return "\n".join([*lines, *_keys(key, kind, special, tuple(kind.model_fields))])


def _keys(
    at: Key, kind: type[Section], special: dict[str, Any], names: tuple[str, ...]
) -> Iterator[str]:
    for name in names:
        field = kind.model_fields[name]
        key = dotted((*at, name))
        value = special.get(key, field.default)
        yield from _comment(field.description or "")
        yield from _assignment(name, value, is_active=key in _ACTIVE)


def _assignment(name: str, value: object, *, is_active: bool) -> list[str]:
    mark = "" if is_active else "#"
    line = f"{mark}{name} = {toml_value(value)}"
    if len(line) <= _WIDTH or not isinstance(value, list | tuple):
        return [line]
    rows = textwrap.wrap(
        ", ".join(toml_value(item).replace(" ", "\0") for item in value), _WIDTH - 4
    )
    inner = [f"{mark}    {row}".replace("\0", " ") for row in rows]
    return [f"{mark}{name} = [", *inner, f"{mark}]"]


def _comment(text: str) -> list[str]:
    words = " ".join(text.split())
    return textwrap.wrap(words, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _providers() -> str:
    lines = [
        "[providers]",
        *_keys(("providers",), schema.ProvidersSection, {}, ("retries",)),
        "",
        "# The sources of answers, one section each: [providers.models.<name>]. local is the",
        "# built-in engine with the packaged models, mock answers from a script without a model.",
    ]
    for name, values in sections.PROVIDERS.items():
        lines += ["", f"[providers.models.{name}]"]
        lines += [f"{key} = {toml_value(value)}" for key, value in values.items()]
    lines += [
        "",
        "# Any server that speaks the OpenAI API. Remove the # and make it the default_provider.",
        "#[providers.models.server]",
    ]
    example = {
        "kind": "openai-compatible",
        "model": "gpt-oss-20b",
        "base_url": "http://localhost:8080/v1",
        "api_key_env": "SERVER_API_KEY",
        "labels": {"privacy": "local", "size": "20b"},
    }
    for name, field in schema.ProviderSection.model_fields.items():
        if name in _NOT_OF_A_SERVER:
            continue
        lines += _comment(field.description or "")
        lines.append(f"#{name} = {toml_value(example.get(name, field.default))}")
    lines += [
        "# Instead of api_key_env: api_key_file, a file of mode 0600.",
        "",
        "# Anthropic's messages, there or at another server that speaks them.",
        "#[providers.models.claude]",
        '#kind = "anthropic"',
        '#model = "claude-opus-5-5"',
        '#api_key_env = "ANTHROPIC_API_KEY"',
        *_fields("max_tokens", "thinking"),
        "",
        "# Several providers, tried in order when one cannot be reached, is too busy or fails.",
        "#[providers.models.safe]",
        '#kind = "reliable"',
        '#providers = ["server", "local"]',
        "",
        "# Several equals: the least loaded answers; a conversation goes back where it was.",
        "#[providers.models.fleet]",
        '#kind = "router"',
        '#providers = ["server"]',
        *_fields("probe_interval_s", "overload_lead"),
        "",
        "# mock with replies from a JSON file.",
        "#[providers.models.scripted]",
        '#kind = "mock"',
        '#script = "replies.json"',
    ]
    return "\n".join(lines)


def _fields(*names: str) -> Iterator[str]:
    for name in names:
        field = schema.ProviderSection.model_fields[name]
        yield from _comment(field.description or "")
        yield f"#{name} = {toml_value(field.default)}"


def _mcp() -> str:
    lines = [*_comment(McpSection.__doc__ or ""), "[mcp]"]
    names = tuple(
        name for name in McpSection.model_fields if name not in {"servers", "auto_approve"}
    )
    lines += _keys(("mcp",), McpSection, {}, names)
    lines += ["", *_comment(McpAutoApproveSection.__doc__ or ""), "[mcp.auto_approve]"]
    lines += _keys(("mcp", "auto_approve"), McpAutoApproveSection, {}, ("tools",))
    lines += ["", *_comment(McpServerSection.__doc__ or ""), "#[mcp.servers.files]"]
    example = {"command": ["mcp-server-filesystem", "~/notes"], "readonly_paths": ["~/notes"]}
    for name, field in McpServerSection.model_fields.items():
        if name == "auth_token":
            continue
        lines += _comment(field.description or "")
        default = field.get_default(call_default_factory=True)
        lines.append(f"#{name} = {toml_value(example.get(name, default))}")
    lines += [
        "# Instead of auth_env: auth_token, in a config of mode 0600 only.",
        "",
        "#[mcp.servers.remote]",
        '#url = "https://mcp.example.org/mcp"',
        '#auth_env = "REMOTE_TOKEN"',
    ]
    return "\n".join(lines)


def _agents() -> str:
    example = {"system_prompt": "You review code.", "tools_allow": ["file_read", "grep", "glob"]}
    lines = [*_comment(schema.AgentProfile.__doc__ or ""), "#[agents.reviewer]"]
    for name, field in schema.AgentProfile.model_fields.items():
        lines += _comment(field.description or "")
        lines.append(f"#{name} = {toml_value(example.get(name, field.default))}")
    return "\n".join(lines)


def _models() -> str:
    lines = [
        *_comment(f"{ModelProfile.__doc__} The longest pattern wins. Each key as in [engine]."),
        '#[model."qwen3"]',
    ]
    for name in ModelProfile.model_fields:
        default = EngineSection.model_fields[name].default
        lines.append(f"#{name} = {toml_value(default)}")
    return "\n".join(lines)


def _leaves(values: dict[str, Any], at: Key = ()) -> Iterator[tuple[Key, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*at, name))
        elif value is not PydanticUndefined:
            yield (*at, name), value


def _with_tilde(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


def initialise(layout: Layout) -> list[str]:
    """Create home, config and workspace; return a sentence for each thing made or kept.

    Raises:
        ConfigError: something cannot be created, or the home is another user's.
    """
    try:
        return [
            _private_folder(layout.home),
            *(_folder(folder) for folder in (layout.models, layout.cache)),
            _config(layout),
            _folder(layout.workspace),
        ]
    except OSError as error:
        raise ConfigError(
            f"cannot set up {layout.home}: {error}",
            hint="Choose another home with CLAWD_HOME, or correct the permissions.",
        ) from error


def _private_folder(folder: Path) -> str:
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        about = folder.stat()
        if not stat.S_ISDIR(about.st_mode):
            raise
        if about.st_uid not in {os.geteuid(), 0} and os.geteuid() != 0:
            raise ConfigError(
                f"{folder} belongs to uid {about.st_uid}, not to you (uid {os.geteuid()})",
                hint="Choose another home with CLAWD_HOME.",
            ) from None
        if about.st_mode & 0o077 and about.st_uid == os.geteuid():
            folder.chmod(0o700)
            return f"closed {folder} to others (0700)"
        return f"kept {folder}"
    return f"created {folder} (0700)"


def _folder(folder: Path) -> str:
    if folder.is_dir():
        return f"kept {folder}"
    folder.mkdir(parents=True)
    return f"created {folder}"


def _config(layout: Layout) -> str:
    text = render_default_config(layout)
    layout.config.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        descriptor = os.open(layout.config, flags, 0o640 if layout.is_system else 0o600)
    except FileExistsError:
        return f"kept {layout.config}"
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    return f"wrote {layout.config}"
