"""Methods about procedures (SOPs) and their runs, and what they report."""

from typing import Any, ClassVar, Literal

import msgspec

from clawd.wire.method import Done, Method

SopState = Literal["ready", "untrusted", "changed", "broken", "shadowed"]
SopRunStatus = Literal[
    "running", "waiting", "unsure", "stopped", "succeeded", "failed", "cancelled"
]
SopStepStatus = Literal["pending", "running", "waiting", "unsure", "done", "failed", "skipped"]


class SopProblem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a procedure: the line of SOP.toml (0 for the folder), key and sentence."""

    line: int = 0
    key: str = ""
    text: str


class SopLine(msgspec.Struct, frozen=True, kw_only=True):
    """One procedure.

    Attributes:
        state: only those that are ready can be run.
        is_own: it is the owner's; a workspace's has to be enabled.
        shadowed_by: the folder of the same name that goes before it.
    """

    name: str
    state: SopState
    folder: str
    is_own: bool
    description: str = ""
    steps: int = 0
    digest: str = ""
    shadowed_by: str = ""
    problems: tuple[SopProblem, ...] = ()


class SopList(msgspec.Struct, frozen=True, kw_only=True):
    """The procedures of a workspace, and how many folders were too many to be looked at."""

    items: tuple[SopLine, ...]
    left_out: int = 0


class ListSops(Method[SopList], frozen=True, kw_only=True):
    """List the procedures of the home and of a workspace (empty: the configured one)."""

    workspace: str = ""


class SopInputLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a run is given."""

    name: str
    type: str
    description: str = ""
    default: str | int | float | bool | None = None


class SopStepLine(msgspec.Struct, frozen=True, kw_only=True):
    """A step: what it does, in words, and what of it depends on what."""

    id: str
    kind: str
    does: str
    when: str = ""
    foreach: str = ""
    on_failure: str = "abort"
    compensation: str = ""


class SopReview(msgspec.Struct, frozen=True, kw_only=True):
    """What a procedure is and does; `sop.digest` is what enabling it names.

    `changes` says what differs from what was enabled, `mermaid` is the graph of its steps.
    """

    sop: SopLine
    inputs: tuple[SopInputLine, ...] = ()
    steps: tuple[SopStepLine, ...] = ()
    compensations: tuple[SopStepLine, ...] = ()
    source: str = ""
    changes: tuple[str, ...] = ()
    mermaid: str = ""


class InspectSop(Method[SopReview], frozen=True, kw_only=True):
    """Say what a procedure is: one by its name, or one in a folder or file (`path`, absolute)."""

    admin: ClassVar[bool] = True
    name: str = ""
    path: str = ""
    workspace: str = ""


class EnableSop(Method[Done], frozen=True, kw_only=True):
    """Enable a workspace's procedure, if its hash is the one inspected; or `revoke` that."""

    admin: ClassVar[bool] = True
    name: str
    workspace: str = ""
    digest: str = ""
    revoke: bool = False


class SopStepReport(msgspec.Struct, frozen=True, kw_only=True):
    """How far a step of a run is.

    Attributes:
        attempts: how often it was tried.
        receipt_id: of its last call, or "".
        done: how many items are done, of a step that goes through a list of `items`.
    """

    id: str
    kind: str
    status: SopStepStatus
    attempts: int = 0
    output: str = ""
    error: str = ""
    exit_code: int | None = None
    receipt_id: str = ""
    child: str = ""
    done: int = 0
    items: int = 0


class SopRunLine(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        status: running; waiting (for an approval); unsure (whether a step happened); stopped (by
            the emergency stop or an end of the daemon, it can go on); or how it ended.
        step: where it is or ended.
        reason: why it waits or ended so.
        origin: what started it: `user`, a schedule, another run.
        conversation_id: of its calls, receipts and agents.
    """

    id: str
    name: str
    status: SopRunStatus
    workspace: str
    conversation_id: str
    created_at: str
    updated_at: str
    step: str = ""
    reason: str = ""
    origin: str = ""
    parent: str = ""


class SopRunReport(msgspec.Struct, frozen=True, kw_only=True):
    """A run and its steps; `output` is that of the last step that was done."""

    run: SopRunLine
    steps: tuple[SopStepReport, ...] = ()
    inputs: dict[str, Any] = {}
    output: str = ""
    steps_used: int = 0
    tokens_used: int = 0


class SopRunList(msgspec.Struct, frozen=True, kw_only=True):
    """Runs, newest first."""

    items: tuple[SopRunLine, ...]


class RunSop(Method[SopRunReport], frozen=True, kw_only=True):
    """Start a run, and stream its events until it ends or waits; it goes on without the caller.

    `detach` returns at once, `interactive` means that the caller answers approvals of its calls.
    """

    streams: ClassVar[bool] = True
    name: str
    workspace: str = ""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
    interactive: bool = False
    detach: bool = False


class ResumeSop(Method[SopRunReport], frozen=True, kw_only=True):
    """Let a run go on that waits or was stopped, as `RunSop` does.

    `answer` is needed by what it waits for: `approve` or `deny` for an approval; `repeat`, `done`
    or `failed` for a step of which nobody knows whether it happened.
    """

    streams: ClassVar[bool] = True
    run: str
    answer: Literal["", "approve", "deny", "repeat", "done", "failed"] = ""
    interactive: bool = False
    detach: bool = False


class CancelSop(Method[SopRunReport], frozen=True, kw_only=True):
    """End a run for good; what it is doing is cancelled, nothing is taken back."""

    run: str


class ShowSopRun(Method[SopRunReport], frozen=True, kw_only=True):
    """Show a run and its steps."""

    run: str


class ListSopRuns(Method[SopRunList], frozen=True, kw_only=True):
    """List runs, newest first; `open_only` leaves out those that ended."""

    name: str = ""
    open_only: bool = False
    limit: int = 50


class SopPlanLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a dry run says of a step.

    Attributes:
        verdict: what the gate would answer now: allow, ask, deny; "" where nothing is called.
        does: the call, with what is not known yet in angle brackets.
    """

    id: str
    kind: str
    does: str
    verdict: Literal["", "allow", "ask", "deny"] = ""
    reason: str = ""


class SopPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would do, step by step."""

    items: tuple[SopPlanLine, ...]


class DryRunSop(Method[SopPlan], frozen=True, kw_only=True):
    """Say what a run would do and what the gate would answer; nothing is called."""

    name: str
    workspace: str = ""
    inputs: dict[str, Any] = msgspec.field(default_factory=dict)
