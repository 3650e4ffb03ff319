"""What a procedure is: its inputs, its steps and its limits, as `load` makes it of a SOP.toml."""

from typing import Any, Literal

import msgspec

FILE_NAME = "SOP.toml"
NAME_PATTERN = r"[a-z][a-z0-9]*(-[a-z0-9]+)*"
ID_PATTERN = r"[a-z][a-z0-9]*([_-][a-z0-9]+)*"
MAX_NAME = 64
MAX_STEPS = 100
MAX_ITEMS = 100
MAX_RETRIES = 9
MAX_DEPTH = 4
STEP_BUDGET = 200
MAX_STEP_S = 86_400.0
RESERVED_IDS = frozenset(
    {"inputs", "item", "index", "run", "true", "false", "and", "or", "not", "in"}
)

StepKind = Literal["tool", "agent", "approval", "shell", "sub"]
InputType = Literal["string", "integer", "number", "boolean"]


class OnFailure(msgspec.Struct, frozen=True, kw_only=True):
    """What follows a step that failed: so many more attempts, then one of three ways."""

    retries: int = 0
    then: Literal["abort", "continue", "goto"] = "abort"
    target: str = ""


class SopStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step.

    Attributes:
        when: an expression; where it is false the step is skipped. "" is always.
        foreach: an expression for a list; the step is done once per item. "" is once.
        timeout_s: of one attempt; 0 leaves it to the limits of what is called.
        compensation: id of the compensation that takes back what the step did, or "".
        idempotent: it may be repeated though nobody knows whether it happened.
        tool: of kind tool, with the arguments; texts in them may be templates.
        command: of kind shell, a template.
        prompt: of kind agent and approval, a template.
        agent: of kind agent, the name of the configured one; "" is the plain one.
        tools: of kind agent, patterns that the tools must match as well; empty for all.
        max_rounds: of kind agent; 0 is as configured.
        output_schema: of kind agent, what the answer is held to; None for text.
        sop: of kind sub, the name of the procedure, with its inputs, which may be templates.
    """

    id: str
    kind: StepKind
    when: str = ""
    foreach: str = ""
    on_failure: OnFailure = OnFailure()
    timeout_s: float = 0.0
    compensation: str = ""
    idempotent: bool = False
    tool: str = ""
    args: dict[str, Any] = {}
    command: str = ""
    prompt: str = ""
    agent: str = ""
    tools: tuple[str, ...] = ()
    max_rounds: int = 0
    output_schema: dict[str, Any] | None = None
    sop: str = ""
    inputs: dict[str, Any] = {}


class SopInput(msgspec.Struct, frozen=True, kw_only=True):
    """What is given to a run; without a default it must be."""

    name: str
    type: InputType = "string"
    description: str = ""
    default: str | int | float | bool | None = None


class SopBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How much one run may do: attempts of steps, and tokens of agents (0 is without a limit)."""

    steps: int = STEP_BUDGET
    tokens: int = 0


class Procedure(msgspec.Struct, frozen=True, kw_only=True):
    """A SOP.toml that nothing is wrong with."""

    name: str
    description: str
    inputs: tuple[SopInput, ...] = ()
    budget: SopBudget = SopBudget()
    steps: tuple[SopStep, ...] = ()
    compensations: tuple[SopStep, ...] = ()

    def step(self, identity: str) -> SopStep:
        """Return the step or compensation of this id; `load` saw to it that there is one."""
        return next(each for each in (*self.steps, *self.compensations) if each.id == identity)
