"""`clawctl doctor`: what protects this machine, what does not, and what to do about it."""

import sys
from collections.abc import Iterator
from typing import Literal

import click
import msgspec

from clawctl.app import App, Exit, json_option, pass_app
from clawctl.knock import is_answered, is_loopback
from clawctl.render import Palette, emit_json, say
from clawd import __version__
from clawd.wire.key_methods import ListKeys
from clawd.wire.mcp_methods import ListMcpServers
from clawd.wire.mcp_reports import McpServerList
from clawd.wire.methods import ListTools, Status
from clawd.wire.reports import StatusReport, ToolList

State = Literal["ok", "note", "wrong"]

_BUBBLEWRAP = (
    "Install bubblewrap and allow unprivileged user namespaces (on Ubuntu by an AppArmor profile)."
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at and how it stands; `fix` says what to do, "" where nothing is."""

    check: str
    state: State
    says: str
    fix: str = ""


@click.command()
@json_option
@pass_app
def command(app: App, *, as_json: bool) -> int:
    """Say what protects this machine, what does not, and what to do about it.

    Ends with 1 when something is wrong; a note is no fault.
    """
    with app.client() as client:
        report = client.call(Status())
        found = [
            *findings(report),
            tools(client.call(ListTools())),
            gateway(report, len(client.call(ListKeys()).items)),
            *servers(client.call(ListMcpServers())),
        ]
    if as_json:
        emit_json(found)
    else:
        palette = Palette.of(sys.stdout)
        marks = {"ok": palette.green("✓"), "note": "·", "wrong": palette.red("✗")}
        for each in found:
            print(f"{marks[each.state]} ", end="")
            say(f"{each.check}: {each.says}")
            if each.fix:
                say(f"  → {each.fix}")
    return Exit.FAILED if any(each.state == "wrong" for each in found) else Exit.DONE


def findings(report: StatusReport) -> Iterator[Finding]:
    """Judge what the daemon says of itself."""
    yield _daemon(report)
    yield _sandbox(report)
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
    if report.version == __version__:
        return Finding(check="daemon", state="ok", says=f"{report.version}, pid {report.pid}")
    return Finding(
        check="daemon",
        state="note",
        says=f"it is {report.version}, this clawctl is {__version__}",
        fix="Restart clawd, so that both are of one version.",
    )


def _sandbox(report: StatusReport) -> Finding:
    layers = ", ".join(report.sandbox_layers)
    if report.sandbox == "none":
        return Finding(
            check="sandbox",
            state="wrong",
            says=report.sandbox_reason or "there is none",
            fix=_BUBBLEWRAP,
        )
    if report.sandbox_reason:
        says = f"{report.sandbox} ({layers}): {report.sandbox_reason}"
        return Finding(check="sandbox", state="note", says=says, fix=_BUBBLEWRAP)
    return Finding(check="sandbox", state="ok", says=f"{report.sandbox} ({layers})")


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
    silent = [address for address in addresses if not is_answered(address)]
    if silent:
        return Finding(
            check="gateway",
            state="wrong",
            says=f"{', '.join(silent)} does not answer",
            fix="Look at the log of clawd, and at the firewall of this machine.",
        )
    told = f"{report.gateway}, keys: {keys}"
    exposed = [address for address in addresses if not is_loopback(address)]
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
                fix=f"Look at them (clawctl mcp tool {each.alias} TOOL), then say "
                f"clawctl mcp connect {each.alias} --accept.",
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


def _stop(report: StatusReport) -> Finding:
    if not report.estop:
        return Finding(check="emergency stop", state="ok", says="not set")
    return Finding(
        check="emergency stop",
        state="note",
        says=f"set: {report.estop_reason}" if report.estop_reason else "set",
        fix="Allow tools again with clawctl estop --clear.",
    )
