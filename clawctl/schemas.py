"""What `--json` of each command prints, as types; `clawctl COMMAND --json-schema` shows the schema.

A command that fails prints `{"error": {"code", "message", "hint", "data"}}` instead. Fields may be
added; none is renamed or taken away within a major version.
"""

from types import UnionType
from typing import Any, get_args

import msgspec

from clawctl.backup_restore import Restored
from clawctl.checks import Finding
from clawctl.commands.backup import BackupChecked, BackupContents, BackupMade
from clawctl.commands.onboard import Onboarded
from clawctl.commands.receipt import CheckedLog
from clawctl.commands.service import Units
from clawctl.commands.stop import StopReport
from clawctl.config_edit import Edited
from clawctl.model_catalogue import Fit, Machine
from clawctl.receipt_bundle import About
from clawctl.service_install import ServiceReport, ServiceState
from clawctl.single_call import Rewound
from clawctl.top import Snapshot
from clawd.wire.conversations import (
    CompressionReport,
    ConversationLine,
    MessageLine,
    PromptText,
    SessionFileLine,
)
from clawd.wire.daemon import (
    CacheList,
    CachesCleared,
    EstopReport,
    KeyLine,
    LogLine,
    MetricsReport,
    NewKey,
    PageLink,
    StatusReport,
)
from clawd.wire.events import TurnFinished
from clawd.wire.mcp import McpDiff, McpServerLine, McpServerList, McpToolDetail, McpToolList
from clawd.wire.memory import KnowledgeOutcome, MemoryCheck, MemoryHit
from clawd.wire.method import Done
from clawd.wire.models import LoadedModel, ModelDetail, ModelList, ProviderLine
from clawd.wire.policy import (
    ApprovalLine,
    PolicyBoundary,
    PolicyCaseLine,
    PolicyExplanation,
    PolicyReplay,
    RuleLine,
)
from clawd.wire.receipts import ReceiptDetail, ReceiptHead, ReceiptLine
from clawd.wire.schedules import ScheduleHistory, ScheduleLine, ScheduleList, ScheduleRun
from clawd.wire.skills import SkillLine, SkillList, SkillReview
from clawd.wire.sops import SopLine, SopList, SopPlan, SopReview, SopRunList, SopRunReport
from clawd.wire.tools import (
    ChangeLine,
    JobLine,
    JobOutput,
    PluginLine,
    ToolLine,
    ToolOutcome,
    ToolProblem,
)


class AgentAnswer(TurnFinished, frozen=True, kw_only=True, tag="answer"):
    """The end of a turn, with the calls, notices and hops that were seen on the way."""

    tool_calls: list[dict[str, Any]]
    notices: list[str]
    hops: list[dict[str, Any]]


class ApprovalSettled(msgspec.Struct, frozen=True, kw_only=True):
    """An approval, the word that was given, and what came of it."""

    approval: ApprovalLine
    answer: str
    message: str


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A completion script."""

    shell: str
    script: str


class Installed(msgspec.Struct, frozen=True, kw_only=True):
    """A completion script that was written, and what is still to do."""

    shell: str
    path: str
    then: str


class Checked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A config that is valid, or that is not, with a line for each problem."""

    ok: bool
    path: str = ""
    code: str = ""
    message: str = ""
    hint: str = ""
    problems: list[str] = []


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Every value in force, by section, and for each key that was set, dotted, who set it."""

    path: str
    values: dict[str, Any]
    sources: dict[str, str]


class ConversationShown(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation with its messages, oldest first."""

    conversation: ConversationLine
    messages: list[MessageLine]


class Export(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations written out."""

    format: str
    text: str


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations written into a file."""

    format: str
    path: str


class FileText(msgspec.Struct, frozen=True, kw_only=True):
    """A session file and its text."""

    file: SessionFileLine
    text: str


class FileSaved(msgspec.Struct, frozen=True, kw_only=True):
    """A session file and where it was saved."""

    file: SessionFileLine
    path: str


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What was created or kept, a sentence each."""

    done: list[str]


class ModelAdded(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is in the folder now."""

    name: str
    path: str
    size_bytes: int
    how: str
    replaced: bool
    sha256: str = ""
    source: str = ""


class Available(msgspec.Struct, frozen=True, kw_only=True):
    """A model of the catalogue; memory is with a context of 8,192 tokens."""

    name: str
    source: str
    size_gb: float
    memory_gb: float
    context: int
    family: str
    licence: str
    good_for: list[str]


class Recommended(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine has, and the models that fit, the best first."""

    machine: Machine
    models: list[Fit]


class ModelFound(msgspec.Struct, frozen=True, kw_only=True):
    """A model of another program; `how` is how it was linked, empty where it was only found."""

    name: str
    path: str
    size_bytes: int
    program: str
    sha256: str
    how: str


class Confirmed(msgspec.Struct, frozen=True, kw_only=True):
    """What was done."""

    ok: bool
    message: str


class ProviderTested(msgspec.Struct, frozen=True, kw_only=True):
    """The provider that was asked, null for the default one, and what it said."""

    ok: bool
    provider: str | None
    message: str


class ReceiptsExported(msgspec.Struct, frozen=True, kw_only=True):
    """An export of receipts and whether it verifies."""

    folder: str
    ok: bool
    problem: str
    about: About


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """The protocol versions that this client speaks, and the one that it speaks with the daemon."""

    min: int
    max: int
    spoken: int | None


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """Versions; null for what is not there."""

    clawctl: str
    clawd: str | None
    protocol: Spoken
    llama_cpp: str | None
    python: str


TYPES: dict[str, Any] = {
    "agent": AgentAnswer,
    "agent show-prompt": PromptText,
    "approval allow": ApprovalSettled,
    "approval approve": ApprovalSettled,
    "approval deny": ApprovalSettled,
    "approval edit": ApprovalSettled,
    "approval list": list[ApprovalLine],
    "approval revoke": Done,
    "approval rules": list[RuleLine] | Done,
    "backup create": BackupMade,
    "backup list": BackupContents,
    "backup restore": Restored,
    "backup verify": BackupChecked,
    "cache clear": CachesCleared,
    "cache list": CacheList,
    "completion": Script | Installed,
    "config edit": Edited,
    "config set": Edited,
    "config unset": Edited,
    "config schema": dict[str, Any],
    "config show": Shown,
    "config validate": Checked,
    "conversation compress": CompressionReport,
    "conversation delete": Done,
    "conversation export": Export | Exported,
    "conversation fork": ConversationLine,
    "conversation rewind": Rewound,
    "conversation list": list[ConversationLine],
    "conversation rename": ConversationLine,
    "conversation show": ConversationShown,
    "doctor": list[Finding],
    "estop": EstopReport,
    "files add": SessionFileLine,
    "files delete": Done,
    "files list": list[SessionFileLine],
    "files save": FileSaved,
    "files show": FileText,
    "init": Made,
    "jobs list": list[JobLine],
    "jobs output": JobOutput,
    "jobs show": JobOutput,
    "jobs stop": JobLine,
    "key create": NewKey,
    "key list": list[KeyLine],
    "key revoke": Done,
    "knowledge append": KnowledgeOutcome,
    "knowledge delete": KnowledgeOutcome,
    "knowledge edit": KnowledgeOutcome,
    "knowledge keywords": KnowledgeOutcome,
    "knowledge list": KnowledgeOutcome,
    "knowledge load": KnowledgeOutcome,
    "knowledge save": KnowledgeOutcome,
    "knowledge search": KnowledgeOutcome,
    "logs": list[LogLine],
    "mcp accept": McpServerLine,
    "mcp add": Edited,
    "mcp import": Edited,
    "mcp connect": McpServerLine,
    "mcp diff": McpDiff,
    "mcp disconnect": McpServerLine,
    "mcp list": McpServerList,
    "mcp remove": Edited,
    "mcp tool": McpToolDetail | ToolOutcome,
    "mcp tools": McpToolList,
    "memory backup": Done,
    "memory check": MemoryCheck,
    "memory clear": Done,
    "memory export": Export | Exported,
    "memory list": list[ConversationLine],
    "memory search": list[MemoryHit],
    "memory show": ConversationShown,
    "metrics": MetricsReport,
    "model add": ModelAdded,
    "model accept": Confirmed,
    "model import": list[ModelFound],
    "model list": ModelList | list[Available],
    "model load": LoadedModel,
    "model merge": ModelAdded,
    "model ps": list[LoadedModel],
    "model pull": ModelAdded,
    "model recommend": Recommended,
    "model rm": Confirmed,
    "model show": ModelDetail,
    "model use": Edited,
    "model unload": Confirmed,
    "onboard": Onboarded,
    "page": PageLink,
    "plugin approve": PluginLine | None,
    "plugin install": PluginLine | None,
    "plugin list": list[PluginLine],
    "plugin reload": Done,
    "plugin remove": Done,
    "policy allow": Done,
    "policy deny": Done,
    "policy explain": PolicyExplanation,
    "policy replay": PolicyReplay,
    "policy show": PolicyBoundary,
    "policy test": list[PolicyCaseLine],
    "provider list": list[ProviderLine],
    "provider test": ProviderTested,
    "receipt accept": Done,
    "receipt export": ReceiptsExported,
    "receipt head": ReceiptHead,
    "receipt list": list[ReceiptLine],
    "receipt show": ReceiptDetail,
    "receipt verify": CheckedLog,
    "restart": StopReport,
    "service disable": ServiceReport,
    "service enable": ServiceReport,
    "service install": ServiceReport | Units,
    "service logs": list[dict[str, Any]],
    "service reload": ServiceReport,
    "service restart": ServiceReport,
    "service start": ServiceReport,
    "service status": ServiceState,
    "service stop": ServiceReport,
    "service uninstall": ServiceReport,
    "schedule add": ScheduleLine,
    "schedule history": ScheduleHistory,
    "schedule list": ScheduleList,
    "schedule pause": ScheduleLine,
    "schedule remove": Done,
    "schedule resume": ScheduleLine,
    "schedule run": ScheduleRun,
    "skill add": SkillLine | SkillReview,
    "skill lint": SkillReview,
    "skill list": SkillList,
    "skill show": SkillReview,
    "skill trust": SkillLine | SkillReview,
    "sop approve": SopRunReport,
    "sop cancel": SopRunReport,
    "sop dry-run": SopPlan,
    "sop enable": SopLine,
    "sop history": SopRunList,
    "sop list": SopList,
    "sop resume": SopRunReport,
    "sop run": SopRunReport,
    "sop show": SopReview,
    "sop status": SopRunReport,
    "sop validate": SopReview,
    "status": StatusReport,
    "stop": StopReport,
    "tool list": list[ToolLine],
    "tool problems": list[ToolProblem],
    "tool reload": Done,
    "tool run": ToolOutcome,
    "tool show": ToolLine,
    "top": Snapshot,
    "undo": ToolOutcome | list[ChangeLine],
    "version": Versions,
}


def schema_of(path: str) -> dict[str, Any]:
    """Return the JSON Schema of what a command prints with --json.

    Raises:
        KeyError: it prints no JSON.
    """
    kind = TYPES[path]
    # msgspec makes no one schema of several structs without tags.
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    parts, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    found = parts[0] if len(parts) == 1 else {"anyOf": list(parts)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"clawctl {path} --json",
        **found,
        **({"$defs": components} if components else {}),
    }
