"""What the methods of the control socket give back. Lists come in pages; a cursor leads on."""

from typing import Any, Literal

import msgspec

from clawd.wire.changes import FileDiff
from clawd.wire.extension_reports import ToolProblem
from clawd.wire.status import StatusReport as StatusReport
from clawd.wire.status import WorkerLine as WorkerLine


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a method that has nothing to tell but a sentence."""

    message: str = ""


class SteerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a text for a running turn; one that did not join is the caller's to send."""

    joined: bool


# --- service


class ProviderLine(msgspec.Struct, frozen=True, kw_only=True):
    """One configured provider."""

    name: str
    kind: str
    model: str
    is_default: bool = False


# --- approvals


class ApprovalLine(msgspec.Struct, frozen=True, kw_only=True):
    """One pending approval.

    Attributes:
        expires_in_s: silence that long is a no; 0 while it waits without end, or has timed out.
        timed_out: nobody answered in time; it can still be answered, and its turn goes on then.
        answerable_until: until when, UTC; empty while it waits.
    """

    id: str
    digest: str
    tool: str
    arguments: str
    risk: str
    reason: str
    workspace: str
    conversation_id: str
    owner: int
    asked_at: str
    expires_in_s: float
    environment: dict[str, str] = {}
    rule: str = ""
    changes: tuple[FileDiff, ...] = ()
    timed_out: bool = False
    answerable_until: str = ""


class ApprovalList(msgspec.Struct, frozen=True, kw_only=True):
    """Pending approvals, oldest first."""

    items: tuple[ApprovalLine, ...]


class SamplingLine(msgspec.Struct, frozen=True, kw_only=True):
    """One value of sampling, as JSON, and who says so: the message, its preset, or the config."""

    name: str
    value: str
    origin: Literal["message", "preset", "config"]


class SamplingReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a message would be sampled.

    Attributes:
        items: the values in force; of a provider elsewhere those that it would be asked for.
        is_whole: nothing else counts; else the provider has its own way in what is not named.
    """

    provider: str
    model: str
    items: tuple[SamplingLine, ...]
    is_whole: bool


class RuleLine(msgspec.Struct, frozen=True, kw_only=True):
    """One approval rule in force; `conversation_id` is empty for one that holds in all of them.

    Attributes:
        granted_by: who granted it, `uid 1000`; "" where nobody wrote it down.
        receipt_id: the receipt of the grant, or of when it was found in the file of rules.
    """

    id: str
    tool: str
    pattern: str
    owner: int
    created_at: str
    expires_at: str
    conversation_id: str = ""
    granted_by: str = ""
    receipt_id: str = ""


class RuleList(msgspec.Struct, frozen=True, kw_only=True):
    """Standing approval rules."""

    items: tuple[RuleLine, ...]


# --- tools


class ToolLine(msgspec.Struct, frozen=True, kw_only=True):
    """One tool.

    Attributes:
        offered_as: how a model calls it in the mode in force: `file_read`, `fs(action="read")`.
        aliases: other names that lead to it.
        example: arguments of a call that works.
    """

    name: str
    short: str
    description: str
    parameters: dict[str, Any]
    source: str = "builtin"
    offered_as: str = ""
    aliases: tuple[str, ...] = ()
    example: dict[str, Any] = {}


class ToolList(msgspec.Struct, frozen=True, kw_only=True):
    """The tools, by name, and (for an admin) what of the tools of others was left out.

    `mode` says how they are offered to models: split, unified, both.
    """

    items: tuple[ToolLine, ...]
    mode: str = "split"
    problems: tuple[ToolProblem, ...] = ()


class ToolOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call outside a conversation."""

    status: Literal["allowed", "denied", "failed"]
    kind: str
    output: str
    receipt_id: str
    risk: str
    duration_ms: int
    exit_code: int | None = None
    unanswered: bool = False


# --- providers


class ProviderList(msgspec.Struct, frozen=True, kw_only=True):
    """The configured providers."""

    items: tuple[ProviderLine, ...]


# --- models


class ModelLine(msgspec.Struct, frozen=True, kw_only=True):
    """One model of this machine.

    Attributes:
        size_bytes: of all its files.
        profile: the pattern of the `[model."pattern"]` that applies to it; empty for none.
        state: loading, ready, or stopped after its worker died; empty when it is not loaded.
        pid: the worker's, 0 without one.
    """

    name: str
    path: str
    size_bytes: int
    profile: str = ""
    state: str = ""
    pid: int = 0


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The embedded model and those of the folder, by name.

    Attributes:
        default: the one that answers where nobody names one, by name, or by path where it lies
            elsewhere, whether it is there or not; "" where that is none of this machine.
    """

    folder: str
    items: tuple[ModelLine, ...]
    default: str = ""


class ModelDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's file tells of it, without loading it; "" and 0 for what it does not.

    Attributes:
        context_size: what it was trained for.
        template_family: how it writes tool calls, as its chat template says; "" without one.
        tools: whether its chat template takes tools.
        reasoning: whether its chat template knows of thinking.
        embeddings: whether it is made for vectors.
        vision: the file that it needs for images, "" without one.
        pin: `right`, `changed`, or `none` where no digest was noted.
        sha256: the digest that was noted.
        source: where it came from.
        adapters: the LoRA adapters over it.
        adapter_sha256: of the packaged one, as its card tells it.
        card: what is told of how it was made and how good it is; by table and key.
        reads: what of a request it does not read, "" where its template takes all.
    """

    name: str
    path: str
    size_bytes: int
    profile: str = ""
    state: str = ""
    title: str = ""
    architecture: str = ""
    parameters: int = 0
    quantization: str = ""
    licence: str = ""
    context_size: int = 0
    template_family: str = ""
    tools: bool = False
    reasoning: bool = False
    embeddings: bool = False
    vision: str = ""
    pin: Literal["none", "right", "changed"] = "none"
    sha256: str = ""
    source: str = ""
    adapters: tuple[str, ...] = ()
    adapter_sha256: str = ""
    card: dict[str, Any] = {}
    reads: str = ""


class LoadedModel(msgspec.Struct, frozen=True, kw_only=True):
    """One model in memory, or on its way there.

    Attributes:
        pid: the worker's, 0 without one.
        running: generations that run or wait.
        parallel: sequences that may run at the same time.
        deaths: of its worker, in a row.
        fence: what holds its worker, as `landlock+seccomp`, none or off.
        processor: the processors that llama.cpp's loaded code is for, as `zen4`; "" where it was
            built for one machine.
        prompt_tokens: of all its prompts so far; `cached_tokens` of these were not evaluated.
        completion_tokens: generated so far; `accepted_tokens` of them, of `drafted_tokens`, were
            guessed ahead.
        template_notes: what had to be done otherwise with its chat template, a sentence each.
        warm_tokens: of system prompt and tools, which prompts begin with; 0 where nothing is read
            ahead. `warm_ready` of these are evaluated; `warm_restored` were on disk or in RAM.
    """

    name: str
    path: str
    pid: int
    state: str
    running: int = 0
    context_size: int = 0
    parallel: int = 0
    parameters: int = 0
    size_bytes: int = 0
    load_ms: float = 0.0
    fence: str = ""
    processor: str = ""
    last_used_at: str = ""
    deaths: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    warm_tokens: int = 0
    warm_ready: int = 0
    warm_restored: int = 0
    template_notes: tuple[str, ...] = ()


class LoadedModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The models in memory, the one used last first."""

    items: tuple[LoadedModel, ...]


# --- memory


class MemoryHit(msgspec.Struct, frozen=True, kw_only=True):
    """One message that matched."""

    conversation_id: str
    title: str
    message_id: int
    timestamp: str
    role: str
    snippet: str


class MemoryHits(msgspec.Struct, frozen=True, kw_only=True):
    """Matches, best first."""

    items: tuple[MemoryHit, ...]


# --- receipts


class ReceiptLine(msgspec.Struct, frozen=True, kw_only=True):
    """One receipt for people: fields of `receipts.record.Receipt`."""

    seq: int
    id: str
    timestamp: str
    conversation_id: str
    tool: str
    status: str
    risk: str
    approval: str
    reason: str
    duration_ms: int
    receipt_hash: str


class ReceiptPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of receipts, newest first."""

    items: tuple[ReceiptLine, ...]
    cursor: str = ""


class ReceiptDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A receipt whole, with what it hashed (redacted, at most 1 MiB of each), and its place.

    The sizes are those of the whole, or None for what is no longer kept. `next_hash` is empty for
    the last receipt, `head_seq` is its number.
    """

    receipt: dict[str, Any]
    arguments: str
    result: str
    arguments_bytes: int | None = None
    result_bytes: int | None = None
    next_hash: str = ""
    head_seq: int = 0


class ReceiptVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What verification found."""

    ok: bool
    receipts: int
    level: str
    message: str
    head_seq: int
    head_hash: str
    first_bad: int | None = None
    kind: str = ""
    signed: int = 0
    signatures: str = ""


class ReceiptHead(msgspec.Struct, frozen=True, kw_only=True):
    """The end of the chain, unverified.

    Attributes:
        seq: number of the last receipt, 0 for none; and its hash.
        first_public_key: hex; "" when it is not known.
        signed: number of the receipt that the last checkpoint signs, 0 without one; and when.
    """

    seq: int
    receipt_hash: str
    first_public_key: str = ""
    signed: int = 0
    signed_at: str = ""


# --- emergency stop


class EstopReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the emergency stop is set, and why."""

    is_set: bool
    reason: str = ""


# --- config and policy


class OverrideLine(msgspec.Struct, frozen=True, kw_only=True):
    """A variable of a client's environment that the daemon does not have.

    Attributes:
        key: the config's key, dotted.
        wanted: the variable's value as TOML; hidden for a secret, as is `effective`.
        effective: the value in force as TOML; empty where there is none.
    """

    variable: str
    key: str
    wanted: str
    effective: str


class EnvironmentReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a client's environment asks for and the daemon does not have."""

    items: tuple[OverrideLine, ...]


class ConfigText(msgspec.Struct, frozen=True, kw_only=True):
    """The effective configuration as JSON-like data, secrets redacted."""

    path: str
    values: dict[str, Any]
