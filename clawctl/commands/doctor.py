"""`clawctl doctor`: what protects this machine, what does not, and what to do about it."""

import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from urllib.parse import urlsplit

import click
import msgspec

from clawctl import checks
from clawctl.app import App, Exit, json_command
from clawctl.checks import Finding, MendableFinding
from clawctl.client import Client, is_nobody
from clawctl.daemon_finder import override_text, overrides
from clawctl.render import Palette, emit_json, say
from clawd import __version__
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.wire.daemon import ListKeys, Status, StatusReport
from clawd.wire.mcp import ListMcpServers, McpServerList
from clawd.wire.models import ListLoadedModels, LoadedModelList
from clawd.wire.tools import ListTools, ToolList

_TIMEOUT_S = 2.0


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
    found += [MendableFinding(finding=each) for each in _of_daemon(client, problem)]
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


def _of_daemon(client: Client | None, problem: ClawError | None) -> Iterator[Finding]:
    if problem is not None:
        yield Finding(check="daemon", state="wrong", says=problem.message, fix=problem.hint)
    if client is None:
        if problem is None:
            says = "none runs; the first command that needs one starts it"
            yield Finding(check="daemon", state="ok", says=says)
        return
    try:
        with client:
            report = client.call(Status())
            yield from findings(report)
            for each in overrides(client, os.environ):
                yield Finding(
                    check="environment",
                    state="wrong",
                    says=f"the running daemon was started without it: {override_text(each)}",
                    fix="Start it anew with this environment: clawctl restart, or set it in the "
                    "config.",
                )
            yield tools(client.call(ListTools()))
            yield gateway(report, len(client.call(ListKeys()).items))
            yield from servers(client.call(ListMcpServers()))
            yield from templates(client.call(ListLoadedModels()))
    except ClawError as error:
        fix = error.hint or "See its log: clawctl logs"
        yield Finding(check="daemon", state="wrong", says=error.message, fix=fix)


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


def findings(report: StatusReport) -> Iterator[Finding]:
    """Judge what the daemon says of itself."""
    yield _daemon(report)
    yield checks.user(report.pid).finding
    yield checks.sandbox(report.sandbox, report.sandbox_layers, report.sandbox_reason).finding
    if report.sandbox_unbounded:
        yield Finding(
            check="limits",
            state="note",
            says="not bounded: " + ", ".join(report.sandbox_unbounded),
            fix="Run clawd under systemd with Delegate=yes, as its units do.",
        )
    for worker in report.workers:
        if worker.fence in {"none", "off"}:
            yield Finding(
                check=f"model {worker.alias}",
                state="note",
                says="its process may do what clawd may",
                fix='Set fence = "auto" in [engine], or use a kernel with Landlock or seccomp.',
            )
    yield _receipts(report)
    if report.rules_problem:
        yield Finding(
            check="approval rules",
            state="wrong",
            says=report.rules_problem,
            fix="Correct or remove approval_rules.json in the home, then reload clawd.",
        )
    yield _stop(report)


def _daemon(report: StatusReport) -> Finding:
    if report.problem:
        return Finding(
            check="daemon",
            state="wrong",
            says=report.problem,
            fix="Look at clawctl logs, then restart clawd or put a backup of memory in its place.",
        )
    if report.version == __version__:
        return Finding(check="daemon", state="ok", says=f"{report.version}, pid {report.pid}")
    return Finding(
        check="daemon",
        state="note",
        says=f"it is {report.version}, this clawctl is {__version__}",
        fix="Restart clawd, so that both are of one version.",
    )


def _receipts(report: StatusReport) -> Finding:
    if not report.receipts_enabled:
        return Finding(
            check="receipts",
            state="wrong",
            says="they are switched off: nothing is recorded",
            fix="Set enabled = true in [receipts].",
        )
    if report.receipts_problem:
        return Finding(
            check="receipts",
            state="wrong",
            says=report.receipts_problem,
            fix="Look at the log with clawctl receipt verify.",
        )
    return Finding(check="receipts", state="ok", says=f"{report.receipts} in the chain")


def tools(listed: ToolList) -> Finding:
    """Judge the tools that others wrote."""
    refused = [each for each in listed.problems if each.severity == "refused"]
    if not listed.problems:
        added = sum(each.source != "builtin" for each in listed.items)
        return Finding(check="tools of others", state="ok", says=f"{added} loaded")
    first = (refused or listed.problems)[0]
    return Finding(
        check="tools of others",
        state="wrong" if refused else "note",
        says=f"{len(refused)} left out, {len(listed.problems) - len(refused)} doubtful; "
        f"{first.file}: {first.reason}",
        fix="Look at all of them with clawctl tool problems.",
    )


def gateway(report: StatusReport, keys: int) -> Finding:
    """Judge where the HTTP gateway listens, and whether it can be reached from here."""
    if not report.gateway:
        return Finding(check="gateway", state="ok", says="off: programs cannot connect by HTTP")
    addresses = report.gateway.split(", ")
    silent = [address for address in addresses if not _is_port_answered(address)]
    if silent:
        return Finding(
            check="gateway",
            state="wrong",
            says=f"{', '.join(silent)} does not answer",
            fix="Look at the log of clawd, and at the firewall of this machine.",
        )
    told = f"{report.gateway}, keys: {keys}"
    exposed = [address for address in addresses if not _is_loopback(address)]
    if not exposed:
        return Finding(check="gateway", state="ok", says=f"{told}; this machine only")
    if all(address.startswith("https:") for address in exposed):
        return Finding(check="gateway", state="ok", says=f"{told}; other machines by TLS")
    return Finding(
        check="gateway",
        state="note",
        says=f"{told}; other machines reach it, and without TLS keys can be read on the way",
        fix="Set tls_cert and tls_key in [channels.http], or listen on 127.0.0.1.",
    )


def servers(listed: McpServerList) -> Iterator[Finding]:
    """Judge the MCP servers: one that is down is a note, for the daemon tries it again."""
    for each in listed.items:
        check = f"MCP server {each.alias}"
        if each.changed:
            yield Finding(
                check=check,
                state="note",
                says=f"it changed {', '.join(each.changed)} since they were first seen",
                fix=f"Look at them, which shows how to accept them: clawctl mcp diff {each.alias}.",
            )
        elif each.link == "ready" and each.reach_problem:
            yield Finding(
                check=check,
                state="note",
                says=each.reach_problem,
                fix=f"List what it needs as hosts in [mcp.servers.{each.alias}], and reload.",
            )
        elif each.link == "ready":
            yield Finding(check=check, state="ok", says=f"{each.tools} tools")
        elif each.link == "waiting":
            yield Finding(
                check=check,
                state="note",
                says=each.problem or "it does not answer, and is tried again",
                fix=f"Try it now with clawctl mcp connect {each.alias}.",
            )
        else:
            yield Finding(check=check, state="ok", says=each.link)


def templates(loaded: LoadedModelList) -> Iterator[Finding]:
    """Judge how the chat templates of the models in memory took what they were given so far."""
    for model in loaded.items:
        check = f"chat template {model.name}"
        for told in model.template_notes:
            yield Finding(
                check=check,
                state="note",
                says=told,
                fix="It works so; a newer file of the model may have a template without the fault.",
            )
        if model.state == "ready" and not model.template_notes:
            yield Finding(check=check, state="ok", says="used as it is")


def _stop(report: StatusReport) -> Finding:
    if not report.estop:
        return Finding(check="emergency stop", state="ok", says="not set")
    return Finding(
        check="emergency stop",
        state="note",
        says=f"set: {report.estop_reason}" if report.estop_reason else "set",
        fix="Allow tools again with clawctl estop --clear.",
    )


def _is_port_answered(address: str) -> bool:
    """Return whether a connection to an address such as http://127.0.0.1:8686 is taken."""
    split = urlsplit(address)
    host = split.hostname or ""
    # Who listens at all addresses listens at this one.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared only
    try:
        with socket.create_connection((host, split.port or 0), timeout=_TIMEOUT_S):
            return True
    except OSError:
        return False


def _is_loopback(address: str) -> bool:
    """Return whether an address can be reached from this machine alone; a name counts as no."""
    try:
        return ipaddress.ip_address(urlsplit(address).hostname or "").is_loopback
    except ValueError:
        return False
