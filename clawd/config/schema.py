"""The configuration as typed sections: every key with its default, its range and its meaning.

A field's description is what the written config file and the JSON Schema say about the key.
`config.load` fills paths in, so that what it returns holds absolute ones only.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr
from typing_extensions import override

from clawd.config import sections
from clawd.config.engine import EngineSection, ModelProfile, Preset
from clawd.config.mcp import McpSection
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

MAX_SYSTEM_APPEND = 16 * 1024

Autonomy = Literal["readonly", "supervised", "edits", "full"]
SandboxMode = Literal["required", "preferred", "off"]
ProviderKind = Literal["local", "mock", "openai-compatible", "anthropic", "reliable", "router"]

Words = Annotated[tuple[str, ...], Field(strict=False)]
Paths = Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)]
OnePath = Annotated[Path, Field(strict=False)]


class SecuritySection(Section):
    """What the model may do without approval, with approval, and not at all."""

    autonomy: Autonomy = Field(
        default="supervised",
        description="How far the model may go alone: readonly (low risk runs, nothing else), "
        "supervised (medium risk asks, high is refused), edits (as supervised, but changes to "
        "files of the workspace run), full (everything that is not blocked runs).",
    )
    max_autonomy: Autonomy = Field(
        default="full",
        description="The highest mode that a user may set for a conversation. Without admin "
        "rights it is never above autonomy.",
    )
    workspace_only: bool = Field(
        default=True,
        description="Keep file tools inside the workspace. With false they may leave it, at one "
        "level of risk more.",
    )
    forbidden_paths: Paths = Field(
        description="Paths that are never touched, with everything below them, whatever the "
        "autonomy."
    )
    forbidden_commands: Words = Field(
        default=sections.FORBIDDEN_COMMANDS, description="Commands that never run, by name."
    )
    allowed_commands: Words = Field(
        default=sections.ALLOWED_COMMANDS,
        description="Shell commands of medium risk beside those of everyday work: a name, or "
        'with a subcommand as in "git log". In the full sandbox those that only read run '
        "without approval.",
    )
    allowed_domains: Words = Field(
        default=(),
        description='Domains that web tools may contact and POST to; "*.example.org" includes '
        "subdomains.",
    )
    allowed_addresses: Words = Field(
        default=(),
        description='Private or loopback "host:port" pairs that web tools may reach nevertheless.',
    )
    egress: Literal["ask", "off"] = Field(
        default="ask",
        description="Whether commands may reach hosts by name: with ask those of egress_hosts "
        "and those that the user approves, with off none.",
    )
    egress_hosts: Words = Field(
        default=(),
        description='Hosts that commands may reach without approval: "get.example.org:443", '
        '"*.example.org:443" for subdomains. Private addresses need allowed_addresses as '
        "well.",
    )
    untrusted_paths: Words = Field(
        default=(),
        description="Third-party files: reading one counts as text from outside. A name or a "
        'path, with "*" and "**" ("*.eml", "downloads", "~/Downloads"); everything below is '
        "included.",
    )
    workspace_roots: Paths = Field(
        description="A workspace chosen per conversation must lie under one of these."
    )
    sandbox: SandboxMode = Field(
        default="required",
        description="required refuses tools that start a process when there is no sandbox, "
        "preferred runs them with the protection available, off runs them without.",
    )
    writable_run_later: Words = Field(
        default=(),
        description="Files that programs outside the sandbox run later (.git/hooks, conftest.py, "
        "*.pth, shell profiles) and that commands may write nevertheless: names or paths, "
        '"*" for all.',
    )
    audit_log: bool = Field(
        default=True,
        description="Log every decision about a tool call (names and verdicts, no contents).",
    )
    approval_timeout_s: float = Field(
        default=120.0,
        gt=0,
        le=86_400,
        description="An approval without an answer for that long is denied, while no client is "
        "connected that can answer.",
    )
    approval_rule_days: int = Field(
        default=30,
        ge=1,
        le=365,
        description='How long a rule made by the answer "always" is in force.',
    )
    policy_cases: OnePath = Field(
        description="The table of cases that clawctl policy test judges when no file is named."
    )


class ProviderLabels(Section):
    """Labels by which requests choose a provider behind a router; empty is none."""

    model: str = Field(default="", description="Its model; empty is the section's model.")
    cost: str = Field(default="", description="Any word, such as low.")
    privacy: str = Field(default="", description="Any word, such as local.")
    size: str = Field(default="", description="Any word, such as small.")

    @override
    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self if value) or "no labels"


class ProviderSection(Section):
    """One source of answers: [providers.models.<name>]."""

    kind: ProviderKind = Field(
        description="local (the built-in engine), mock (scripted), openai-compatible, anthropic, "
        "reliable (a list of providers, tried in order) or router (a list of equals, the "
        "least loaded answers)."
    )
    model: str = Field(
        default="",
        description="The model's name; for local: assistant, embedded, auto (the better of these "
        "two that is installed), a file name in models/ or a path.",
    )
    base_url: str = Field(
        default="",
        description="openai-compatible: the API's address, as http://localhost:8080/v1; anthropic: "
        "empty is https://api.anthropic.com.",
    )
    api_key_env: str = Field(
        default="",
        description="openai-compatible, anthropic: the environment variable, or systemd "
        "credential, that holds the key.",
    )
    api_key_file: OnePath | None = Field(
        default=None,
        description="openai-compatible, anthropic: a file of mode 0600 that holds the key.",
    )
    api_key: SecretStr | None = Field(
        default=None,
        strict=False,
        description="The key itself; accepted only from a config of mode 0600.",
    )
    script: OnePath | None = Field(
        default=None, description="mock: the JSON script of replies; without one it echoes."
    )
    stream: bool = Field(
        default=True, description="openai-compatible, anthropic: ask for a streamed answer."
    )
    max_tokens: int = Field(
        default=16_384,
        ge=1,
        description="anthropic: the longest answer; the API requires a number.",
    )
    thinking: Literal["", "adaptive", "enabled", "disabled"] = Field(
        default="",
        description="anthropic: how the model thinks before it answers; empty leaves it to the "
        "model, enabled gives it half of max_tokens.",
    )
    use_tool_role: bool = Field(
        default=True,
        description="Send tool results in role tool; false for templates that refuse it.",
    )
    tools: bool = Field(
        default=True,
        description='Whether the model can call tools. false offers it none; lines "CMD: ..." of '
        "its answers are then shell commands, checked and approved like any other.",
    )
    vision: Literal["auto", "yes", "no"] = Field(
        default="auto",
        description="Whether a model of another server sees pictures; auto is by its name.",
    )
    providers: Words = Field(
        default=(),
        description="reliable: names of providers, first choice first; router: names of equals.",
    )
    labels: ProviderLabels = Field(
        default=ProviderLabels(),
        description="Behind a router: what requests may ask for (model, cost, privacy, size).",
    )
    probe_interval_s: float = Field(
        default=10.0,
        gt=0,
        le=3_600,
        description="router: a backend silent that long is probed.",
    )
    overload_lead: int = Field(
        default=4,
        ge=1,
        description="router: a conversation leaves its backend when that has this many more "
        "requests in flight than the least loaded.",
    )
    connect_timeout_s: float = Field(
        default=10.0, gt=0, le=3_600, description="To reach the server."
    )
    first_byte_timeout_s: float = Field(
        default=120.0,
        gt=0,
        le=86_400,
        description="From the request to the first byte of the answer.",
    )
    timeout_s: float = Field(
        default=1_800.0,
        gt=0,
        le=86_400,
        description="Silence between two pieces of a streamed answer; the whole of one that is "
        "not streamed.",
    )


class ProvidersSection(Section):
    """The sources of answers."""

    retries: int = Field(
        default=5,
        ge=0,
        le=100,
        description="How often a request is tried again before its first byte, after network "
        "errors and HTTP 408, 429 and 5xx; 0 never. A reliable one asks its next provider first.",
    )
    models: dict[str, ProviderSection]


class CliSection(Section):
    """The channel of clawctl: the control socket."""

    enabled: bool = Field(
        default=True, description="Whether conversations may be held over the socket."
    )
    tools_allow: Words = Field(
        default=("*",),
        description='Tools offered to the model on this channel; "file_*" works too, and '
        '"-evaluate" excludes one.',
    )


class ChannelsSection(Section):
    """The channels through which users and programs talk to the model."""

    cli: CliSection = CliSection()
    http: HttpSection = HttpSection()


class MemorySection(Section):
    """Where conversations are kept."""

    backend: Literal["sqlite"] = Field(default="sqlite", description="The kind of store.")
    path: OnePath = Field(description="The database file.")
    retention_days: float = Field(
        default=0.0,
        ge=0,
        le=36_500,
        description="Conversations without a message for that long are deleted, and older "
        "content that receipts hash; 0 keeps all.",
    )
    quota_mb: int = Field(
        default=0,
        ge=0,
        le=1_048_576,
        description="When memory is larger, the oldest conversations are deleted; 0 is no limit.",
    )
    embedding: str = Field(
        default="",
        max_length=1_024,
        description="PROVIDER/MODEL, or PROVIDER for its own model: messages and notes are also "
        "found by meaning, with this embedding model. A remote provider receives their text, "
        "without secrets. Empty searches by words only.",
    )


class ReceiptsSection(Section):
    """The record of every tool call."""

    enabled: bool = Field(
        default=True,
        description="false refuses medium and high risk, as nothing would be recorded.",
    )
    path: OnePath = Field(description="The chain of receipts, one JSON line each.")


class AgentSection(Section):
    """The agent loop and its prompt."""

    system_prompt: str = Field(default="", description="Replaces the base prompt; empty keeps it.")
    system_append: str = Field(
        default="", max_length=MAX_SYSTEM_APPEND, description="Added to the prompt, at most 16 KiB."
    )
    knowledge_cutoff: str = Field(
        default="",
        pattern=r"^(\d{4}-(0[1-9]|1[0-2]))?$",
        description="The month the model's knowledge ends, YYYY-MM; empty leaves it out.",
    )
    max_tool_rounds: int = Field(
        default=8,
        ge=1,
        le=99_999,
        description="Rounds of tool calls in one unattended turn. Over 100 needs autonomy full "
        "and a wall_clock_budget_s.",
    )
    max_tool_rounds_attended: int = Field(
        default=25,
        ge=1,
        le=100,
        description="Rounds after which a user who is connected is asked whether to continue; "
        "never fewer than max_tool_rounds.",
    )
    wall_clock_budget_s: float = Field(
        default=0.0, ge=0, description="A turn that takes longer is stopped; 0 is no limit."
    )
    helpers: int = Field(
        default=0,
        ge=0,
        le=16,
        description="How many helpers one turn may have, by the tool delegate; each is a "
        "conversation that only looks. 0 offers no such tool.",
    )
    helper_tokens: int = Field(
        default=128_000,
        ge=1_000,
        description="How many tokens one helper may use, read and written; a call of delegate may "
        "give it fewer.",
    )
    helper_copies: bool = Field(
        default=False,
        description="A call of delegate may give any helper a copy of the workspace to change, "
        'which is merged by a diff; an agent with workspace = "copy" has one in any case.',
    )
    titles: Literal["first-words", "model"] = Field(
        default="first-words",
        description="Where a conversation's title comes from: its first words, or the model, asked "
        "in the background after the first answer (a local one only with n_parallel over 1).",
    )
    retry_on_incomplete: bool = Field(
        default=True, description="Ask again, at most twice, when an answer is empty or broke off."
    )
    show_results: Literal["auto", "always", "never"] = Field(
        default="auto",
        description="Display the first lines of a tool's result beside the answer: auto for "
        "local models of fewer than a billion parameters, which may misreport it.",
    )


class AgentProfile(Section):
    """A named agent: [agents.<name>], chosen by `clawctl agent --agent` or `delegate`."""

    description: str = Field(
        default="", description="What it is for, for a model that may have helpers."
    )
    system_prompt: str = Field(default="", description="Its own prompt, after the base prompt.")
    model: str = Field(default="", description="Its model; empty is default_model.")
    preset: Preset = Field(
        default="", description="How it samples, as in [engine]; empty is the model's own way."
    )
    tools_allow: Words = Field(default=("*",), description="The tools offered to it.")
    workspace: Literal["read", "copy"] = Field(
        default="read",
        description="As a helper it reads the workspace, or changes a copy, which is merged.",
    )


class NotifySection(Section):
    """How a user is notified of waiting approvals and finished detached turns."""

    desktop: bool = Field(
        default=False, description="On the desktop of the daemon's user, by notify-send."
    )
    command: Words = Field(
        default=(),
        description="A program and its arguments; it receives the message as JSON on standard "
        "input.",
    )
    webhook: str = Field(
        default="", description="An address that the message is posted to, as JSON."
    )
    webhook_env: str = Field(
        default="",
        description="Instead of webhook: the environment variable, or systemd credential, that "
        "holds the address, where it is a secret.",
    )
    webhook_private: bool = Field(
        default=False,
        description="The address may lead to this machine or a private network.",
    )
    after_s: float = Field(
        default=10.0, ge=0, le=3_600, description="An approval that waits longer is reported."
    )


class SandboxSection(Section):
    """What commands see of the user's toolchains, and what is cached for them."""

    toolchains: Literal["auto", "off"] | Paths = Field(
        default="auto",
        description="The user's programs that commands see, read-only and without passwords and "
        'keys: "auto" is what the login shell has on its PATH, a list names folders, "off" '
        "leaves the system's alone.",
    )
    cache_mb: int = Field(
        default=4_096,
        ge=0,
        le=1_048_576,
        description="Caches of pip, npm, cargo and others for commands, one folder per project; "
        "the least recently used projects go first. 0 keeps none.",
    )


class LimitsSection(Section):
    """Limits of time and size."""

    max_response_bytes: int = Field(
        default=1_000_000, ge=1_024, description="One answer of a model."
    )
    tool_timeout_s: float = Field(
        default=30.0,
        gt=0,
        le=86_400,
        description="One tool call, whatever the manifest of a program or plugin says; commands, "
        "web requests and MCP servers have limits of their own.",
    )
    shell_timeout_s: float = Field(
        default=15.0,
        gt=0,
        le=86_400,
        description="How long a call waits for a shell command, which then goes on as a job of its "
        "conversation; outside of conversations it is ended.",
    )
    max_command_s: float = Field(
        default=1_800.0, gt=0, le=86_400, description="One shell command, as a job too."
    )
    http_timeout_s: float = Field(default=20.0, gt=0, le=86_400, description="One web request.")
    max_tool_output_bytes: int = Field(
        default=65_536,
        ge=1_024,
        description="Tool output that the model receives; a cut is marked, and the whole kept as "
        "a session file.",
    )
    max_inline_message_bytes: int = Field(
        default=65_536,
        ge=4_096,
        description="What a model receives of a message that does not fit its context, at most: "
        "the beginning and the end; the whole is kept as a session file.",
    )
    max_command_disk_bytes: int = Field(
        default=4_000_000_000,
        ge=1 << 20,
        description="What one command may write to the workspace; it is ended when it has more.",
    )
    shutdown_grace_s: float = Field(
        default=10.0,
        ge=0,
        le=3_600,
        description="Running turns get that long when the daemon ends.",
    )
    undo_mb: int = Field(
        default=256,
        ge=0,
        le=1_048_576,
        description="Old contents of changed files that are kept for undo, for each user; the "
        "oldest go first. 0 keeps none.",
    )
    undo_commands_mb: int = Field(
        default=1_024,
        ge=0,
        le=1_048_576,
        description="Contents of workspaces that are kept before commands run, so that undo "
        "covers them, for all workspaces together. With 0 undo covers file tools only.",
    )
    undo_days: float = Field(
        default=30.0, gt=0, le=36_500, description="How long changes can be undone."
    )
    max_queued_messages: int = Field(
        default=64,
        ge=1,
        description="Messages that may wait in one conversation; more are refused.",
    )
    max_queued_events: int = Field(
        default=1_000, ge=10, description="Events kept for a slow reader before deltas are merged."
    )
    follower_stall_s: float = Field(
        default=30.0,
        gt=0,
        description="A follower that reads nothing for that long is disconnected.",
    )


class Config(Section):
    """The whole configuration."""

    workspace_dir: OnePath = Field(description="The folder that tools work in.")
    default_provider: str = Field(
        default=sections.LOCAL_PROVIDER,
        description="The provider that answers: a name below providers.",
    )
    default_model: str = Field(default="", description="Its model; empty is the provider's own.")
    security: SecuritySection
    providers: ProvidersSection
    channels: ChannelsSection = ChannelsSection()
    memory: MemorySection
    knowledge: KnowledgeSection
    receipts: ReceiptsSection
    agent: AgentSection = AgentSection()
    compression: CompressionSection = CompressionSection()
    prompt: PromptSection = PromptSection()
    agents: dict[str, AgentProfile] = Field(default_factory=dict)
    tools: ToolsSection = ToolsSection()
    engine: EngineSection = EngineSection()
    model: dict[str, ModelProfile] = Field(default_factory=dict)
    sandbox: SandboxSection = SandboxSection()
    limits: LimitsSection = LimitsSection()
    session_files: SessionFilesSection = SessionFilesSection()
    external_tools: ExternalToolsSection
    plugins: PluginsSection = PluginsSection()
    mcp: McpSection = McpSection()
    web: WebSection = WebSection()
    notify: NotifySection = NotifySection()
    hooks: HooksSection = HooksSection()
    schedules: SchedulesSection = SchedulesSection()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file, for editors; every key is optional there but `kind`."""
    schema = Config.model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        if part.get("title") != ProviderSection.__name__:
            part.pop("required", None)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "clawd configuration"
    return schema
