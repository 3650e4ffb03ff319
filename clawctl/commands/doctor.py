"""`clawctl doctor`: what protects this machine, what does not, and what to do about it."""

import ipaddress
import os
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import click
import msgspec

from clawctl import checks
from clawctl.app import App, Exit, json_command
from clawctl.checks import Finding, MendableFinding, noted, ok, wrong
from clawctl.client import Client, is_nobody
from clawctl.daemon_finder import override_text, overrides
from clawctl.model_servers import answers
from clawctl.render import Palette, emit_json, say
from clawd import __version__
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.wire.daemon import ListKeys, Status, StatusReport
from clawd.wire.mcp import ListMcpServers, McpServerList
from clawd.wire.models import ListLoadedModels, LoadedModelList
from clawd.wire.tools import ListTools, ToolList


@click.command()
@click.option("--fix", is_flag=True, help="Do what is safe: permissions, folders, a stale socket.")
@json_command(list[Finding])
def command(app: App, *, fix: bool, as_json: bool) -> int:
    """Check the installation, and say what to do about what is wrong. Needs no daemon.

    Looks at versions, config, permissions, sandbox, model, port, disk, clock, units and the receipt
    chain, and at the daemon when one runs. Ends with 1 when something is wrong; a note is no fault.
    """
    client, problem = _running(app)
    found = list(checks.findings(layout(), daemon_runs=client is not None))
    found += _of_daemon(client, problem)
    mended = [_mended(each, says=not as_json) if fix else each.finding for each in found]
    if as_json:
        emit_json(mended)
    else:
        _show(mended, was_fixed=fix)
    is_bad = any(each.state == "wrong" and not each.fixed for each in mended)
    return Exit.FAILED if is_bad else Exit.DONE


def _running(app: App) -> tuple[Client | None, ClawError | None]:
    try:
        return app.running_client(), None
    except ClawError as error:
        return None, None if is_nobody(error) else error


def _of_daemon(client: Client | None, problem: ClawError | None) -> Iterator[MendableFinding]:
    if problem is not None:
        yield wrong("daemon", problem.message, problem.hint)
    if client is None:
        if problem is None:
            says = "none runs; the first command that needs one starts it"
            yield ok("daemon", says)
        return
    try:
        with client:
            report = client.call(Status())
            yield from findings(report)
            for each in overrides(client, os.environ):
                yield wrong(
                    "environment",
                    f"the running daemon was started without it: {override_text(each)}",
                    "Start it anew with this environment: clawctl restart, or set it in the "
                    "config.",
                )
            yield tools(client.call(ListTools()))
            yield gateway(report, len(client.call(ListKeys()).items))
            yield from servers(client.call(ListMcpServers()))
            yield from templates(client.call(ListLoadedModels()))
    except ClawError as error:
        fix = error.hint or "See its log: clawctl logs"
        yield wrong("daemon", error.message, fix)


def _mended(found: MendableFinding, *, says: bool) -> Finding:
    """Mend what can be mended safely, after saying what."""
    if found.mend is None:
        return found.finding
    if says:
        say(f"{found.finding.check}: {found.finding.says}\n  → doing: {found.finding.fix}")
    try:
        found.mend()
    except OSError as error:
        told = f"{found.finding.says}; it could not be mended: {error.strerror or error}"
        return msgspec.structs.replace(found.finding, says=told)
    return msgspec.structs.replace(found.finding, fixed=True)


def _show(found: list[Finding], *, was_fixed: bool) -> None:
    palette = Palette.of(sys.stdout)
    marks = {"ok": palette.green("✓"), "note": palette.yellow("·"), "wrong": palette.red("✗")}
    for each in found:
        print(f"{palette.green('✓') if each.fixed else marks[each.state]} ", end="")
        say(f"{each.check}: {each.says}{' (mended)' if each.fixed else ''}")
        if each.fix and not each.fixed:
            say(f"  → {each.fix}")
    bad = sum(each.state == "wrong" and not each.fixed for each in found)
    notes = sum(each.state == "note" for each in found)
    told = "Nothing is wrong" if not bad else "1 thing is wrong" if bad == 1 else f"{bad} are wrong"
    if bad and not was_fixed and any(each.can_fix for each in found):
        told += "; clawctl doctor --fix mends what it can"
    print(f"\n{told}, {notes} to know." if notes else f"\n{told}.")


def findings(report: StatusReport) -> Iterator[MendableFinding]:
    """Judge what the daemon says of itself."""
    yield _daemon(report)
    yield checks.user(report.pid)
    yield checks.sandbox(report.sandbox, report.sandbox_layers, report.sandbox_reason)
    if report.sandbox_unbounded:
        yield noted(
            "limits",
            "not bounded: " + ", ".join(report.sandbox_unbounded),
            "Run clawd under systemd with Delegate=yes, as its units do.",
        )
    for worker in report.workers:
        if worker.fence in {"none", "off"}:
            yield noted(
                f"model {worker.alias}",
                "its process may do what clawd may",
                'Set fence = "auto" in [engine], or use a kernel with Landlock or seccomp.',
            )
    yield _receipts(report)
    if report.rules_problem:
        yield wrong(
            "approval rules",
            report.rules_problem,
            "Correct or remove approval_rules.json in the home, then reload clawd.",
        )
    yield _stop(report)


def _daemon(report: StatusReport) -> MendableFinding:
    if report.problem:
        return wrong(
            "daemon",
            report.problem,
            "Look at clawctl logs, then restart clawd or put a backup of memory in its place.",
        )
    if report.version == __version__:
        return ok("daemon", f"{report.version}, pid {report.pid}")
    return noted(
        "daemon",
        f"it is {report.version}, this clawctl is {__version__}",
        "Restart clawd, so that both are of one version.",
    )


def _receipts(report: StatusReport) -> MendableFinding:
    if not report.receipts_enabled:
        return wrong(
            "receipts",
            "they are switched off: nothing is recorded",
            "Set enabled = true in [receipts].",
        )
    if report.receipts_problem:
        return wrong(
            "receipts", report.receipts_problem, "Look at the log with clawctl receipt verify."
        )
    return ok("receipts", f"{report.receipts} in the chain")


def tools(listed: ToolList) -> MendableFinding:
    """Judge the tools that others wrote."""
    refused = [each for each in listed.problems if each.severity == "refused"]
    if not listed.problems:
        added = sum(each.source != "builtin" for each in listed.items)
        return ok("tools of others", f"{added} loaded")
    first, doubtful = (refused or listed.problems)[0], len(listed.problems) - len(refused)
    says = f"{len(refused)} left out, {doubtful} doubtful; {first.file}: {first.reason}"
    judged = wrong if refused else noted
    return judged("tools of others", says, "Look at all of them with clawctl tool problems.")


def gateway(report: StatusReport, keys: int) -> MendableFinding:
    """Judge where the HTTP gateway listens, and whether it can be reached from here."""
    if not report.gateway:
        return ok("gateway", "off: programs cannot connect by HTTP")
    addresses = report.gateway.split(", ")
    silent = [address for address in addresses if not answers(address)]
    if silent:
        return wrong(
            "gateway",
            f"{', '.join(silent)} does not answer",
            "Look at the log of clawd, and at the firewall of this machine.",
        )
    told = f"{report.gateway}, keys: {keys}"
    exposed = [address for address in addresses if not _is_loopback(address)]
    if not exposed:
        return ok("gateway", f"{told}; this machine only")
    if all(address.startswith("https:") for address in exposed):
        return ok("gateway", f"{told}; other machines by TLS")
    return noted(
        "gateway",
        f"{told}; other machines reach it, and without TLS keys can be read on the way",
        "Set tls_cert and tls_key in [channels.http], or listen on 127.0.0.1.",
    )


def servers(listed: McpServerList) -> Iterator[MendableFinding]:
    """Judge the MCP servers: one that is down is a note, for the daemon tries it again."""
    for each in listed.items:
        check = f"MCP server {each.alias}"
        if each.changed:
            yield noted(
                check,
                f"it changed {', '.join(each.changed)} since they were first seen",
                f"Look at them, which shows how to accept them: clawctl mcp diff {each.alias}.",
            )
        elif each.link == "ready" and each.reach_problem:
            yield noted(
                check,
                each.reach_problem,
                f"List what it needs as hosts in [mcp.servers.{each.alias}], and reload.",
            )
        elif each.link == "ready":
            yield ok(check, f"{each.tools} tools")
        elif each.link == "waiting":
            yield noted(
                check,
                each.problem or "it does not answer, and is tried again",
                f"Try it now with clawctl mcp connect {each.alias}.",
            )
        else:
            yield ok(check, each.link)


def templates(loaded: LoadedModelList) -> Iterator[MendableFinding]:
    """Judge how the chat templates of the models in memory took what they were given so far."""
    for model in loaded.items:
        check = f"chat template {model.name}"
        for told in model.template_notes:
            yield noted(
                check,
                told,
                "It works so; a newer file of the model may have a template without the fault.",
            )
        if model.state == "ready" and not model.template_notes:
            yield ok(check, "used as it is")


def _stop(report: StatusReport) -> MendableFinding:
    if not report.estop:
        return ok("emergency stop", "not set")
    return noted(
        "emergency stop",
        f"set: {report.estop_reason}" if report.estop_reason else "set",
        "Allow tools again with clawctl estop --clear.",
    )


def _is_loopback(address: str) -> bool:
    """Return whether an address can be reached from this machine alone; a name counts as no."""
    try:
        return ipaddress.ip_address(urlsplit(address).hostname or "").is_loopback
    except ValueError:
        return False
