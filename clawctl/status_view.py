"""How `status` is drawn: one screen, the state first, then what is wrong, then the facts."""

import sys
from collections.abc import Iterator, Sequence

from clawctl.render import Palette, duration, show_fields
from clawd.wire.daemon import MeaningLine, ServerLine, StatusReport, WorkerLine
from clawd.wire.safe_text import terminal_safe, visible_line

Warned = tuple[str, str]


def show_status(report: StatusReport, here: Sequence[tuple[str, object]] = ()) -> None:
    """Print a report for people; `here` are facts of who looks, which come first."""
    palette = Palette.of(sys.stdout)
    warned = list(warnings(report))
    if report.estop:
        mark, state = palette.red("■"), "tools are stopped"
    elif warned:
        mark, state = palette.yellow("▲"), "runs, with something to look at"
    else:
        mark, state = palette.green("●"), "is ready" if not report.turns_running else "is at work"
    since = f"pid {report.pid}, up {duration(report.uptime_s)}"
    head = f"clawd {report.version} {state}"
    print(f"{mark} {palette.bold(visible_line(head))}  {palette.dim(since)}")
    for says, then in warned:
        print(f"  {palette.yellow('!')} {visible_line(says)}")
        print(f"    {palette.dim('→')} {visible_line(then)}")
    print()
    show_fields([*here, *_facts(report)])


def warnings(report: StatusReport) -> Iterator[Warned]:
    """Yield what a person should know first, each with what to do about it."""
    if report.problem:
        yield report.problem, "clawctl logs says more; clawctl doctor looks for the cause"
    if report.estop:
        reason = report.estop_reason or "no reason given"
        yield f"the emergency stop is SET: {reason}", "allow tools again: clawctl estop --clear"
    if not report.receipts_enabled:
        yield "receipts are OFF: nothing is recorded", "set enabled = true in [receipts]"
    elif report.receipts_problem:
        yield f"receipts: {report.receipts_problem}", "see what is broken: clawctl receipt verify"
    if report.reload_refused:
        says = f"the config was changed and refused, the old one stays: {report.reload_refused}"
        yield says, "see all of its errors: clawctl config validate"
    if report.sandbox == "none":
        reason = report.sandbox_reason or "it cannot be had here"
        yield f"there is no sandbox: {reason}", "see what is missing: clawctl doctor"
    if report.rules_problem:
        yield f"no stored approval rule is in force: {report.rules_problem}", "clawctl doctor"
    if report.approvals_pending:
        count = report.approvals_pending
        what = "call waits" if count == 1 else "calls wait"
        yield f"{count} {what} for your approval", "answer: clawctl approval list"
    if report.meaning is not None and report.meaning.problem:
        yield f"searches by meaning: {report.meaning.problem}", "it is tried again by itself"
    yield from _broken(report)


def _broken(report: StatusReport) -> Iterator[Warned]:
    for worker in report.workers:
        if worker.state == "stopped":
            yield (
                f"the worker of model {worker.alias} died",
                "the next request starts it again; clawctl logs says why",
            )
    for server in report.servers:
        if server.link == "waiting":
            why = server.problem or "it does not answer"
            then = f"try it now: clawctl mcp connect {server.alias}"
            yield f"MCP server {server.alias}: {why}", then


def _facts(report: StatusReport) -> Iterator[tuple[str, object]]:
    name = report.model or report.default_model
    yield "provider", f"{report.default_provider}{f' ({name})' if name else ''}"
    if report.model_note:
        yield "answers", visible_line(report.model_note)
    if report.workers:
        yield "models", "\n".join(_worker(each) for each in report.workers)
    else:
        yield "models", "none loaded; the first request loads one"
    yield "autonomy", report.autonomy
    yield "sandbox", _sandbox(report)
    stop = f"SET: {report.estop_reason or 'no reason given'}" if report.estop else "not set"
    yield "estop", stop
    yield "receipts", _receipts(report)
    yield "approvals", _approvals(report)
    work = f"{report.turns_running} running, {report.turns_queued} waiting"
    kept = f"{report.conversations} conversation{'' if report.conversations == 1 else 's'} kept"
    yield "turns", f"{work}; {kept}"
    if report.jobs_running:
        yield "jobs", f"{report.jobs_running} running: clawctl jobs"
    if report.meaning is not None:
        yield "search", _search(report.meaning)
    if report.found_at_start:
        yield "at start", "\n".join(report.found_at_start)
    if report.restored:
        yield "restored", report.restored
    yield "gateway", report.gateway or "off"
    yield "mcp servers", ", ".join(_server(each) for each in report.servers) or "none"
    yield "workspace", report.workspace
    yield "home", report.home
    yield "config", report.config
    yield "socket", report.socket


def _worker(worker: WorkerLine) -> str:
    context = f", context {worker.context_size}" if worker.context_size else ""
    fence = f", fence {worker.fence}" if worker.fence else ""
    running = f", {worker.running} running" if worker.running else ""
    line = f"{worker.alias}: {worker.state}{running}{context}{fence}, pid {worker.pid}"
    return visible_line(terminal_safe(line))


def _search(meaning: MeaningLine) -> str:
    line = (
        f"by words, and by meaning with {meaning.model}: "
        f"{meaning.indexed} of {meaning.messages} messages indexed"
    )
    return visible_line(f"{line}; stands still: {meaning.problem}" if meaning.problem else line)


def _server(server: ServerLine) -> str:
    tools = f" ({server.tools} tools)" if server.link == "ready" else ""
    return f"{server.alias} {server.link}{tools}"


def _sandbox(report: StatusReport) -> str:
    layers = f": {', '.join(report.sandbox_layers)}" if report.sandbox_layers else ""
    reason = f" ({report.sandbox_reason})" if report.sandbox_reason else ""
    line = f"{report.sandbox}{layers}{reason}"
    if report.sandbox_unbounded:
        line += f"; not bounded: {', '.join(report.sandbox_unbounded)}"
    return line


def _receipts(report: StatusReport) -> str:
    if not report.receipts_enabled:
        return "OFF: nothing is recorded"
    if report.receipts_problem:
        return f"{report.receipts}, PROBLEM: {report.receipts_problem}"
    if not report.receipts:
        return "none yet; the chain stands"
    return f"{report.receipts}, the chain stands, head {report.receipts_head[:16]}"


def _approvals(report: StatusReport) -> str:
    line = f"{report.approvals_pending} pending, {report.rules} rules in force"
    if not report.rules_problem:
        return line
    return f"{line}, PROBLEM: no stored rule is in force: {report.rules_problem}"
