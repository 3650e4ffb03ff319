"""What is found without a daemon: all facts of `clawd --checkup`, judged, and the receipt chain."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from clawctl.checks import files, installed, machine
from clawctl.checks.finding import Found, noted, ok, wrong
from clawctl.daemon import run_clawd
from clawctl.receipt_anchor import remembered_head
from clawd.errors import ClawError
from clawd.paths import Layout
from clawd.wire.checkup import Checkup

BUBBLEWRAP = (
    "Install bubblewrap and allow unprivileged user namespaces (on Ubuntu by an AppArmor profile)."
)


def findings(where: Layout, *, daemon_runs: bool) -> Iterator[Found]:
    """Judge what can be judged here; what a running daemon says better of itself is left to it."""
    yield from installed.findings()
    yield from files.findings(where)
    facts = _facts()
    if facts is None:
        yield wrong("config", "clawd itself cannot be run", "Run it to see why: clawd --checkup")
    elif facts.problems:
        yield from _bad_config(facts)
    else:
        yield from _by_config(where, facts, daemon_runs=daemon_runs)
    yield machine.disk("disk", where.home)
    yield machine.clock(where)
    yield from machine.units(where)


def sandbox(level: str, layers: tuple[str, ...], reason: str) -> Found:
    """Judge what holds commands, as a daemon or a trial found it."""
    named = ", ".join(layers)
    if level == "none":
        return wrong("sandbox", reason or "there is none", BUBBLEWRAP)
    if reason:
        return noted("sandbox", f"{level} ({named}): {reason}", BUBBLEWRAP)
    return ok("sandbox", f"{level} ({named})")


def user(pid: int) -> Found:
    """Judge whom a daemon runs as, or would when it is started from here (pid 0)."""
    try:
        uid = Path(f"/proc/{pid}").stat().st_uid if pid else os.getuid()
    except OSError:
        return ok("user", "that of another process namespace")
    if uid != 0:
        return ok("user", f"clawd runs as uid {uid}")
    return noted(
        "user",
        "clawd runs as root: in its sandboxes, what the kernel allows root needs no capability",
        "Run it as a user of your own, or by the system's unit, which makes a user for it.",
    )


def _facts() -> Checkup | None:
    done = run_clawd(["--checkup", "--json"], capture=True)
    try:
        return msgspec.json.decode(done.stdout, type=Checkup)
    except msgspec.DecodeError:
        return None


def _bad_config(facts: Checkup) -> Iterator[Found]:
    if not facts.config_exists:
        yield noted("config", f"there is no {facts.config}", "Write one: clawctl init")
        return
    for problem in facts.problems:
        yield wrong("config", problem, facts.hint or "Correct it: clawctl config edit")


def _by_config(where: Layout, facts: Checkup, *, daemon_runs: bool) -> Iterator[Found]:
    if facts.config_exists:
        yield ok("config", f"{facts.config} is valid")
    else:
        yield noted(
            "config",
            f"there is no {facts.config}; the built-in values are in force",
            "Write one with every key in it: clawctl init",
        )
    yield files.folder("workspace", Path(facts.workspace))
    yield from _model(facts)
    if daemon_runs:
        return
    yield sandbox(facts.sandbox, facts.sandbox_layers, facts.sandbox_reason)
    if not where.is_system:  # the system's daemon has a user of its own
        yield user(0)
    yield machine.port(*facts.gateway)
    yield _chain(Path(facts.receipts), Path(facts.memory), is_on=facts.receipts_enabled)
    yield _stop(where)


def _model(facts: Checkup) -> Iterator[Found]:
    if facts.key_variable:
        yield noted(
            "provider",
            f"{facts.provider} wants its key in {facts.key_variable}, which is not set here",
            f"Set it where the daemon starts: export {facts.key_variable}=…",
        )
    if facts.model_problem:
        yield wrong(
            "model",
            facts.model_problem,
            facts.model_hint
            or "Add the file: clawctl model add FILE, or name another in default_model.",
        )
    elif facts.model:
        yield ok("model", f"{facts.model} is there for provider {facts.provider}")
    else:
        yield ok("model", f"provider {facts.provider} ({facts.provider_kind})")


def _chain(log: Path, memory: Path, *, is_on: bool) -> Found:
    if not is_on:
        return wrong(
            "receipts",
            "they are switched off: nothing is recorded",
            "Set enabled = true in [receipts].",
        )
    if not log.exists():
        return ok("receipts", "none yet")
    from clawd.receipts.verify import verify

    try:
        found = verify(log, anchor=remembered_head(memory))
    except ClawError as error:
        return wrong("receipts", error.message, "Look at the log: clawctl receipt verify")
    if not found.ok:
        return wrong("receipts", found.message, "See what is broken: clawctl receipt verify")
    return ok("receipts", f"{found.receipts} in the chain, which stands (level {found.level})")


def _stop(where: Layout) -> Found:
    if not where.estop.exists():
        return ok("emergency stop", "not set")
    return noted("emergency stop", "set", "Allow tools again: clawctl estop --clear")
