"""The configuration as typed sections: every key with its default, its range and its meaning.

A field's description is what the written config file and the JSON Schema say about the key.
`config.load` fills paths in, so that what it returns holds absolute ones only.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr

from clawd.config import defaults
from clawd.config.section import Section

MAX_SYSTEM_APPEND = 16 * 1024
MAX_CONTEXT = 1 << 24
MAX_THREADS = 512  # more than that ends llama.cpp

Autonomy = Literal["readonly", "supervised", "full"]
SandboxMode = Literal["required", "preferred", "off"]
ProviderKind = Literal["local", "mock", "openai-compatible", "reliable", "router"]
CacheType = Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"]
SplitMode = Literal["none", "layer", "row", "tensor"]
RopeScaling = Literal["", "none", "linear", "yarn"]

Words = Annotated[tuple[str, ...], Field(strict=False)]
Paths = Annotated[tuple[Annotated[Path, Field(strict=False)], ...], Field(strict=False)]
OnePath = Annotated[Path, Field(strict=False)]


class SecuritySection(Section):
    """What the model may do without a person, with one, and not at all."""

    autonomy: Autonomy = Field(
        default="supervised",
        description="How far the model may go alone: readonly (low risk runs, nothing else), "
        "supervised (medium risk asks, high is refused), full (all runs that is not blocked).",
    )
    workspace_only: bool = Field(
        default=True,
        description="Keep file tools inside the workspace. false lets them out, one risk up.",
    )
    forbidden_paths: Paths = Field(
        description="Never touched, with all that lies under them, whatever the autonomy."
    )
    forbidden_commands: Words = Field(
        default=defaults.FORBIDDEN_COMMANDS, description="Commands that never run, by name."
    )
    allowed_commands: Words = Field(
        default=defaults.ALLOWED_COMMANDS,
        description='Shell commands of medium risk: a name, or with a subcommand as in "git log".',
    )
    allowed_domains: Words = Field(
        default=(),
        description='Where web tools may go and POST; "*.example.org" means subdomains too.',
    )
    allowed_addresses: Words = Field(
        default=(),
        description='Private or loopback "host:port" pairs that web tools may reach all the same.',
    )
    workspace_roots: Paths = Field(
        description="A workspace chosen per conversation must lie under one of these."
    )
    sandbox: SandboxMode = Field(
        default="required",
        description="required refuses tools that start a process when there is no sandbox, "
        "preferred runs them with what there is, off runs them bare.",
    )
    audit_log: bool = Field(
        default=True,
        description="Log every decision about a tool call (names and verdicts, no contents).",
    )
    approval_timeout_s: float = Field(
        default=120.0, gt=0, le=86_400, description="Silence that long is a no."
    )


class ProviderLabels(Section):
    """What requests may ask of a provider behind a router; empty says nothing."""

    model: str = Field(default="", description="Its model; empty is the section's model.")
    cost: str = Field(default="", description="Any word, as low.")
    privacy: str = Field(default="", description="Any word, as local.")
    size: str = Field(default="", description="Any word, as small.")


class ProviderSection(Section):
    """One source of answers: [providers.models.<name>]."""

    kind: ProviderKind = Field(
        description="local (the built-in engine), mock (scripted), openai-compatible, reliable "
        "(a list of others, tried in order) or router (a list of equals, the least loaded answers)."
    )
    model: str = Field(
        default="",
        description="The model's name; for local: embedded, a file name in models/ or a path.",
    )
    base_url: str = Field(
        default="", description="openai-compatible: the API's address, as http://localhost:8080/v1."
    )
    api_key_env: str = Field(
        default="",
        description="openai-compatible: the environment variable, or systemd credential, that "
        "holds the key.",
    )
    api_key_file: OnePath | None = Field(
        default=None, description="openai-compatible: a file of mode 0600 that holds the key."
    )
    api_key: SecretStr | None = Field(
        default=None,
        strict=False,
        description="The key itself; taken from a config of mode 0600 only.",
    )
    script: OnePath | None = Field(
        default=None, description="mock: the JSON script of replies; without one it echoes."
    )
    stream: bool = Field(default=True, description="openai-compatible: ask for a streamed answer.")
    use_tool_role: bool = Field(
        default=True,
        description="Send tool results in role tool; false for templates that refuse it.",
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
        description="router: a conversation leaves its backend when that one has so many "
        "requests more in flight than the least loaded.",
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


class ProvidersSection(Section):
    """The sources of answers."""

    models: dict[str, ProviderSection]


class CliSection(Section):
    """The channel of clawctl: the control socket."""

    enabled: bool = Field(
        default=True, description="Whether conversations may be held over the socket."
    )
    tools_allow: Words = Field(
        default=("*",),
        description='Tools offered to the model on this channel; "file_*" works too.',
    )


class ChannelsSection(Section):
    """The doors through which people and programs talk to the model."""

    cli: CliSection = CliSection()


class MemorySection(Section):
    """Where conversations are kept."""

    backend: Literal["sqlite"] = Field(default="sqlite", description="The kind of store.")
    path: OnePath = Field(description="The database file.")


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
        description="The month the model's knowledge ends, YYYY-MM; empty says nothing.",
    )
    max_tool_rounds: int = Field(
        default=8,
        ge=1,
        le=99_999,
        description="Rounds of tool calls in one turn. Over 100 needs autonomy full and a "
        "wall_clock_budget_s.",
    )
    wall_clock_budget_s: float = Field(
        default=0.0, ge=0, description="A turn that takes longer is stopped; 0 is no limit."
    )


class AgentProfile(Section):
    """A named agent: [agents.<name>], chosen by `clawctl agent --agent`."""

    system_prompt: str = Field(default="", description="Its own prompt, after the base prompt.")
    model: str = Field(default="", description="Its model; empty is default_model.")
    tools_allow: Words = Field(default=("*",), description="The tools offered to it.")


class ModelProfile(Section):
    """Overrides for models whose file name contains the pattern: [model."pattern"]."""

    temperature: float | None = Field(default=None, ge=0, le=10)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repeat_penalty: float | None = Field(default=None, ge=0, le=10)
    frequency_penalty: float | None = Field(default=None, ge=0, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    max_tokens: int | None = Field(default=None, ge=0)
    ctx_size: int | None = Field(default=None, ge=0, le=MAX_CONTEXT)
    n_gpu_layers: int | None = Field(default=None, ge=-1)
    split_mode: SplitMode | None = None
    rope_scaling: RopeScaling | None = None
    rope_freq_scale: float | None = Field(default=None, ge=0)
    yarn_orig_ctx: int | None = Field(default=None, ge=0)


class EngineSection(Section):
    """The built-in engine (llama.cpp) and how it samples."""

    keep_alive_s: float = Field(
        default=300.0,
        ge=0,
        description="An idle model is unloaded after that long; 0 keeps it loaded.",
    )
    max_loaded: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Models loaded at once; the least recently used one goes.",
    )
    n_gpu_layers: int = Field(
        default=-1, ge=-1, description="Layers on the GPU; -1 is all, 0 none."
    )
    ctx_size: int = Field(
        default=0, ge=0, le=MAX_CONTEXT, description="Context in tokens; 0 is the model's own."
    )
    n_batch: int = Field(default=512, ge=1, description="Tokens of one decode call, at most.")
    n_ubatch: int = Field(
        default=512, ge=1, description="Tokens computed at once, at most n_batch."
    )
    n_threads: int = Field(default=0, ge=0, le=MAX_THREADS, description="CPU threads; 0 chooses.")
    n_parallel: int = Field(
        default=4, ge=1, le=256, description="Sequences that run at the same time."
    )
    cache_type_k: CacheType = Field(default="f16", description="Type of the key cache.")
    cache_type_v: CacheType = Field(default="f16", description="Type of the value cache.")
    flash_attn: Literal["auto", "on", "off"] = Field(default="auto", description="Flash attention.")
    mlock: bool = Field(default=False, description="Keep the model in memory, never swapped.")
    mmap: bool = Field(default=True, description="Map the model's file instead of reading it.")
    split_mode: SplitMode = Field(default="layer", description="How a model is split over GPUs.")
    rope_scaling: RopeScaling = Field(
        default="", description="none, linear or yarn; empty is the model's."
    )
    rope_freq_scale: float = Field(
        default=0.0, ge=0, description="RoPE frequency scale; 0 is the model's."
    )
    yarn_orig_ctx: int = Field(
        default=0, ge=0, description="Context before YaRN; 0 is the model's."
    )
    max_queue: int = Field(
        default=64, ge=1, description="Requests that may wait; more are told to retry."
    )
    prefill_chunk: int = Field(
        default=128,
        ge=1,
        description="Prompt tokens taken per step while other sequences generate.",
    )
    load_timeout_s: float = Field(default=300.0, gt=0, description="To load a model.")
    watchdog_s: float = Field(
        default=30.0, gt=0, description="A worker silent that long is replaced."
    )
    seed: int = Field(default=-1, description="Seed of sampling; below 0 draws one each time.")
    temperature: float = Field(default=0.8, ge=0, le=10, description="Randomness; 0 is greedy.")
    top_k: int = Field(default=40, ge=0, description="Only the k likeliest tokens; 0 is all.")
    top_p: float = Field(
        default=0.95, ge=0, le=1, description="Nucleus: the likeliest with this share."
    )
    min_p: float = Field(
        default=0.05, ge=0, le=1, description="Drop tokens below this share of the best."
    )
    repeat_penalty: float = Field(default=1.0, ge=0, le=10, description="1 is none.")
    frequency_penalty: float = Field(default=0.0, ge=0, le=2, description="0 is none.")
    presence_penalty: float = Field(default=0.0, ge=-2, le=2, description="0 is none.")
    max_tokens: int = Field(
        default=0, ge=0, description="Tokens of one answer; 0 is to the end of context."
    )
    prefix_cache_ram_mb: int = Field(
        default=1024,
        ge=0,
        description="RAM of each model for conversations that are idle; 0 keeps none outside the "
        "context, on disk neither.",
    )
    prefix_cache_disk_mb: int = Field(
        default=0,
        ge=0,
        description="Disk for conversations of all models, so that they go on where they were "
        "after a restart; 0 keeps none.",
    )


class LimitsSection(Section):
    """Bounds on time and size."""

    max_response_bytes: int = Field(
        default=1_000_000, ge=1_024, description="One answer of a model."
    )
    tool_timeout_s: float = Field(default=30.0, gt=0, le=86_400, description="One tool call.")
    shell_timeout_s: float = Field(default=15.0, gt=0, le=86_400, description="One shell command.")
    http_timeout_s: float = Field(default=20.0, gt=0, le=86_400, description="One web request.")
    max_tool_output_bytes: int = Field(
        default=65_536,
        ge=1_024,
        description="Tool output that the model is given; the cut is marked.",
    )
    shutdown_grace_s: float = Field(
        default=10.0,
        ge=0,
        le=3_600,
        description="Running turns get that long when the daemon ends.",
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
        default=defaults.LOCAL_PROVIDER,
        description="The provider that answers: a name below providers.",
    )
    default_model: str = Field(default="", description="Its model; empty is the provider's own.")
    security: SecuritySection
    providers: ProvidersSection
    channels: ChannelsSection = ChannelsSection()
    memory: MemorySection
    receipts: ReceiptsSection
    agent: AgentSection = AgentSection()
    agents: dict[str, AgentProfile] = Field(default_factory=dict)
    engine: EngineSection = EngineSection()
    model: dict[str, ModelProfile] = Field(default_factory=dict)
    limits: LimitsSection = LimitsSection()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the file, for editors; every key is optional there but `kind`."""
    schema = Config.model_json_schema()
    for part in (schema, *schema.get("$defs", {}).values()):
        if part.get("title") != ProviderSection.__name__:
            part.pop("required", None)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "clawd configuration"
    return schema
