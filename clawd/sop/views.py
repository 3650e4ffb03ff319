"""A procedure for people: in words, as a graph, and what a run of it would do."""

from collections.abc import Mapping
from typing import Any, assert_never

import msgspec

from clawd.errors import ClawError
from clawd.runtime.calls import Calls, new_call_id
from clawd.security.policy import Allow, Ask
from clawd.security.principal import Principal
from clawd.sop.expressions import ExpressionError, StepValue
from clawd.sop.load import Procedure, SopStep
from clawd.sop.runner import given_inputs
from clawd.sop.steps import call_of
from clawd.tools.outcome import CallRequest
from clawd.wire.safe_text import shortened, single_line
from clawd.wire.sops import SopPlan, SopPlanLine

_SHOWN = 100
_SHAPES = {"approval": ("{{", "}}"), "agent": ("(", ")"), "sub": ("[[", "]]")}


def does(step: SopStep) -> str:
    """Return what a step does, on one line."""
    match step.kind:
        case "tool":
            given = ", ".join(f"{name}={value!r}" for name, value in step.args.items())
            text = f"{step.tool}({given})"
        case "shell":
            text = f"$ {step.command}"
        case "agent":
            text = f"ask {step.agent or 'the model'}: {step.prompt}"
        case "approval":
            text = f"wait for a yes: {step.prompt}"
        case "sub":
            text = f"run {step.sop}"
        case _:
            assert_never(step.kind)
    return shortened(single_line(text, 4 * _SHOWN), _SHOWN)


def on_failure_text(step: SopStep) -> str:
    """Return `on_failure` as it is written."""
    rule = step.on_failure
    then = f"goto({rule.target})" if rule.then == "goto" else rule.then
    if not rule.retries:
        return then
    return f"retry({rule.retries})" + (f" then {then}" if then != "abort" else "")


def mermaid(procedure: Procedure) -> str:
    """Return the graph of the steps as a Mermaid flowchart."""
    lines = ["flowchart TD"]
    ids = [each.id for each in procedure.steps]
    for number, step in enumerate((*procedure.steps, *procedure.compensations)):
        opening, closing = _SHAPES.get(step.kind, ("[", "]"))
        about = f"{step.id}: {step.kind}" + (" for each" if step.foreach else "")
        lines.append(f'  n{number}{opening}"{_escaped(about)}<br>{_escaped(does(step))}"{closing}')
    lines.append("  done([done])")
    for number, step in enumerate(procedure.steps):
        after = f"n{number + 1}" if number + 1 < len(ids) else "done"
        label = f'|"unless not {_escaped(step.when)}"|' if step.when else ""
        lines.append(f"  n{number} --> {label}{after}".replace(" --> |", " -->|"))
        if step.on_failure.then == "goto":
            lines.append(f"  n{number} -.->|fails| n{ids.index(step.on_failure.target)}")
        if step.compensation:
            undo = [each.id for each in procedure.compensations].index(step.compensation)
            lines.append(f"  n{number} -.->|taken back by| n{len(ids) + undo}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Return text as a label in quotes may hold it."""
    for mark, entity in (("&", "&amp;"), ('"', "&quot;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(mark, entity)
    return text


def planned(
    procedure: Procedure,
    inputs: Mapping[str, Any],
    calls: Calls,
    principal: Principal,
    workspace: str,
) -> SopPlan:
    """Return what a run with these inputs would do, and what the gate would answer; nothing runs.

    Raises:
        InvalidRequestError: the inputs are not the procedure's.
    """
    scope: dict[str, Any] = {
        each.id: StepValue(status="done", output=f"<{each.id}>", exit_code=0)
        for each in procedure.steps
    }
    scope |= {"inputs": given_inputs(procedure.inputs, dict(inputs)), "item": "<item>"}
    scope |= {"index": 0, "run": {"id": "<run>", "name": procedure.name}}
    lines = []
    for step in procedure.steps:
        line = SopPlanLine(id=step.id, kind=step.kind, does=does(step))
        if step.kind in {"tool", "shell"}:
            line = _judged(line, step, scope, calls=calls, who=(principal, workspace))
        lines.append(line)
    return SopPlan(items=tuple(lines))


def _judged(
    line: SopPlanLine,
    step: SopStep,
    scope: Mapping[str, Any],
    *,
    calls: Calls,
    who: tuple[Principal, str],
) -> SopPlanLine:
    principal, workspace = who
    try:
        tool, arguments = call_of(step, scope)
    except ExpressionError as error:
        return msgspec.structs.replace(line, reason=f"known when it runs: {error}")
    text = msgspec.json.encode(arguments).decode()
    what = arguments["command"] if step.kind == "shell" else f"{tool} {text}"
    line = msgspec.structs.replace(line, does=shortened(single_line(what, 4 * _SHOWN), 2 * _SHOWN))
    request = CallRequest(id=new_call_id(), tool=tool, arguments=text)
    try:
        assessment, verdict = calls.explain(request, principal, workspace=workspace)
    except ClawError as error:
        return msgspec.structs.replace(line, verdict="deny", reason=error.message)
    match verdict:
        case Allow():
            return msgspec.structs.replace(line, verdict="allow", reason=verdict.rule)
        case Ask():
            return msgspec.structs.replace(line, verdict="ask", reason=verdict.reason)
        case _:
            reason = verdict.reason or assessment.reason
            return msgspec.structs.replace(line, verdict="deny", reason=reason)
