"""The tool with which a model lists, looks at and runs procedures.

A run that a model starts has no more than its turn: the user, the folder, the mode, the tools, what
narrows them, and the untrusted text of the conversation. It ends with its call when the turn is
cancelled; one that waits for a person goes on when that person says so.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar

from typing_extensions import override

from clawd.errors import ClawError
from clawd.security.risk import Assessment
from clawd.sop.machine import Bounds, SopRun, output_of
from clawd.sop.runner import SopRunner, SopStart
from clawd.sop.views import does
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Traits,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.outcome import SOP, CallScope
from clawd.wire.events import ApprovalRequested, ApprovalResolved, ToolRequested
from clawd.wire.safe_text import paragraph, single_line, visible_line, without_hidden

WAIT_S = 600.0
_MAX_LISTED = 50
_SHOWN = 200
_OUTPUT = 8_000
_GOES_ON = {
    "waiting": "a person lets it go on: clawctl sop approve {0}, or /sop approve {0}",
    "unsure": "a person says what happened: clawctl sop resume {0} --step repeat, done or failed",
    "stopped": "a person lets it go on: clawctl sop resume {0}",
    "running": "it goes on by itself; look later with action status",
}


class SopTool(Tool):
    """`sop(action, name?, inputs?, run?)`: what is ready to run, and the runs of the user."""

    name: ClassVar[str] = SOP
    short: ClassVar[str] = "List, show or run a procedure (SOP), or see how far a run is."
    description: ClassVar[str] = (
        "`list` names the procedures that may run, `show` tells inputs and steps of `name`. "
        "`run` starts it with `inputs` and waits until it ends or needs a person; each of its "
        "calls is judged as a call of yours is. `status` tells how far `run` is. Only a person "
        "approves its steps, lets it go on or cancels it: tell them the command that is named."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["list", "show", "run", "status"]},
            "name": {"type": "string", "description": "the procedure"},
            "inputs": {"type": "object", "description": "what it is given, by name"},
            "run": {"type": "string", "description": "the id of a run"},
        },
        "required": ["action"],
        "additionalProperties": False,
    }
    traits: ClassVar[Traits | None] = Traits(
        effect="acts",
        example={"action": "run", "name": "daily-check"},
        other_names={"name": ("sop", "procedure"), "inputs": ("arguments", "args", "input")},
        actions={
            "list": (((), ()),),
            "show": ((("name",), ()),),
            "run": ((("name",), ("inputs",)),),
            "status": ((("run",), ()),),
        },
    )
    outward: ClassVar[bool | None] = False

    def __init__(self, runner: SopRunner) -> None:
        self._runner = runner
        self.needs = runner.store.patterns
        self.timeout_s = WAIT_S + 60.0

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        does_run = arguments["action"] == "run"
        why = "runs a procedure; each of its calls is judged" if does_run else "looks at procedures"
        return Assessment(risk="low", reason=why)

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        runner, name = self._runner, str(arguments.get("name", "")).strip()
        try:
            match arguments["action"]:
                case "list":
                    return await _list(runner, context)
                case "show":
                    return await _describe(runner, name, context)
                case "run":
                    return await _run(runner, name, arguments.get("inputs") or {}, context)
                case _:
                    run = await runner.load(str(arguments.get("run", "")), context.principal)
                    return await _report(runner, run)
        except ClawError as error:
            return failed(f"{error.message}. {error.hint}".removesuffix(". "))


async def _list(runner: SopRunner, context: ToolContext) -> ToolResult:
    found, _ = await in_thread(lambda: runner.store.found(context.workspace))
    ready = [each for each in found if each.state == "ready"]
    lines = [f"{each.name}: {_line(each.procedure.description)}" for each in ready[:_MAX_LISTED]]
    if others := len(found) - len(lines):
        lines.append(f"{others} more are not enabled, broken or left out: clawctl sop list")
    return succeeded("\n".join(lines) or "there are no procedures")


async def _describe(runner: SopRunner, name: str, context: ToolContext) -> ToolResult:
    procedure = (await in_thread(lambda: runner.store.ready(name, context.workspace))).procedure
    lines = [f"{name}: {_line(procedure.description)}"]
    for each in procedure.inputs:
        default = "needed" if each.default is None else f"{each.default!r} by itself"
        lines.append(_line(f"input {each.name} ({each.type}, {default}): {each.description}"))
    lines += [_line(f"step {each.id}: {does(each)}") for each in procedure.steps]
    return succeeded("\n".join(lines))


async def _run(
    runner: SopRunner, name: str, inputs: Mapping[str, Any], context: ToolContext
) -> ToolResult:
    scope = runner.turn_scope(context.conversation_id)
    if scope is None:
        return failed(f"a model runs it in a turn; a person does with: clawctl sop run {name}")
    if runner.is_of_run(context.conversation_id):
        return failed("an agent of a procedure runs no other; a step of kind sub does")
    start = SopStart(
        name=name,
        workspace=str(context.workspace),
        inputs=dict(inputs),
        origin=f"call {context.receipt_id}",
        mode=runner.mode_of(context.conversation_id, scope),
        grants=runner.grants_of(context.conversation_id),
        within=context.conversation_id,
        bounds=Bounds(
            tools=None if scope.offered is None else tuple(sorted(scope.offered)),
            narrowed=scope.narrowed,
        ),
    )
    run = await runner.begin(start, context.principal)
    try:
        async with _followed(runner, run, scope, context), asyncio.timeout(WAIT_S):
            await runner.rest(run.id)
    except TimeoutError:
        pass  # the answer is how far it is
    except asyncio.CancelledError:
        await runner.abandon(run.id, context.principal)
        raise
    return await _report(runner, await runner.load(run.id, context.principal))


@contextlib.asynccontextmanager
async def _followed(
    runner: SopRunner, run: SopRun, scope: CallScope, context: ToolContext
) -> AsyncIterator[None]:
    """Let those who are there for the turn see and answer what the run asks."""
    live = await runner.conversation(run)
    events = live.broadcast.subscribe()

    async def passed_on() -> None:
        async for event in events:
            if isinstance(event, ApprovalRequested | ApprovalResolved):
                context.emit(event)
            elif isinstance(event, ToolRequested):
                context.report(single_line(f"{event.tool} {event.arguments}", _SHOWN) + "\n")

    passing = asyncio.create_task(passed_on())
    try:
        with live.attendance.joined(scope.attendance):
            yield
    finally:
        live.broadcast.unsubscribe(events)
        events.close()
        await passing


async def _report(runner: SopRunner, run: SopRun) -> ToolResult:
    """Return how far a run is; what its calls read is in it."""
    procedure = runner.procedure(run)
    lines = [f"{run.id} of {run.name}: {run.status}"]
    if run.reason:
        lines.append(without_hidden(paragraph(run.reason))[:_OUTPUT])
    for step in procedure.steps:
        state = run.state(step.id)
        lines.append(f"step {step.id}: {state.status} {_line(state.error)}".rstrip())
    if goes_on := _GOES_ON.get(run.status):
        lines.append(goes_on.format(run.id))
    if output := output_of(procedure, run):
        lines += ["", without_hidden(paragraph(output))[:_OUTPUT]]
    facts = {"run": run.id, "conversation": run.conversation_id}
    text = "\n".join(lines)
    sources = await runner.sources(run)
    if run.status in {"failed", "cancelled"}:
        return failed(text, untrusted_sources=sources, **facts)
    return succeeded(text, untrusted_sources=sources, **facts)


def _line(text: str) -> str:
    return visible_line(text, _SHOWN)
