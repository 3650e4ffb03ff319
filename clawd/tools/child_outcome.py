"""What a model is told of a command that ran in the sandbox."""

import re
from typing import Any

from clawd.security.auto_exec_files import VENV_PARTS
from clawd.security.sandbox.auto_exec_guard import HELD_SUFFIX, QuarantinedPaths
from clawd.security.sandbox.process import ChildResult
from clawd.tools.base import ToolResult, failed, succeeded

_NAMES_TOLD = 5
_ENVIRONMENTS = (
    "Make or fill a virtual environment by a command that does nothing else (python3 -m venv .venv "
    "&& .venv/bin/pip install …)"
)
_READ_ONLY = (
    "[read-only for commands is what programs outside the sandbox run later: hooks and settings of "
    f"repositories, conftest.py, environments, settings of editors. {_ENVIRONMENTS}; change others "
    "with file_write or file_edit]"
)
# What is bound read-only can be neither written nor, as a mount, renamed or removed.
_REFUSED = ("Read-only file system", "Device or resource busy")
# It is busy for git, which goes on without it and says that all went well.
_NOT_REPLACED = re.compile(
    r"unable to unlink old '([^'\n]+)': (?:Device or resource busy|Read-only file system)"
)
_STALE = (
    "[git left {} as before: programs outside the sandbox run or obey that later, so no command "
    "changes it. file_write does when a person says yes; git show BRANCH:FILE prints what belongs "
    "there]"
)
_CONVENTIONS = {126: " (it may not be executed)", 127: " (there is no such command)"}


def told_of(
    result: ChildResult,
    limit_s: float,
    *,
    noun: str = "command",
    nonzero_is_error: bool = True,
    advice: str = "",
) -> ToolResult:
    """Return what a model is told of a command that ran.

    Args:
        result: what came of it.
        limit_s: the time that it had.
        noun: what it is called.
        nonzero_is_error: whether an exit code other than 0 is a failure.
        advice: what follows on what went wrong.
    """
    output = result.output.rstrip("\n")
    if result.truncated:
        kept = len(result.output.encode("utf-8", "replace"))
        output += f"\n[cut: {result.output_bytes - kept} of {result.output_bytes} bytes left out]"
    facts: dict[str, Any] = {
        "exit_code": result.exit_code,
        "duration_ms": result.duration_ms,
        "output_bytes": result.output_bytes,
        "truncated": result.truncated,
        "timed_out": result.timed_out,
        "sandbox": result.level,
    }
    if result.quarantined:
        facts["put_aside"] = [*result.quarantined.held, *result.quarantined.left]
    ended = cut_short(result, limit_s, noun=noun)
    if not ended and result.exit_code and not nonzero_is_error:
        output += f"\n[exit code {result.exit_code}]"
    elif not ended and result.exit_code:
        ended = _exit(result, noun)
    if stale := tuple(dict.fromkeys(_NOT_REPLACED.findall(result.output))):
        output += f"\n{_STALE.format(_listed(stale))}"
    elif result.exit_code and any(error in result.output for error in _REFUSED):
        output += f"\n{_READ_ONLY}"
    problem = ". ".join(part for part in (ended, quarantine_report(result.quarantined)) if part)
    if problem:
        return failed(f"{problem}. {advice}" if advice else problem, output=output, **facts)
    return succeeded(output or "(no output)", **facts)


def cut_short(result: ChildResult, limit_s: float, *, noun: str = "command") -> str:
    """Say what ended a command before its own end; empty when nothing did."""
    if result.timed_out:
        return f"The {noun} was ended after {limit_s:g} s"
    if result.ended_by == "output":
        return f"The {noun} was ended because of too much output"
    if result.ended_by == "limit":
        return f"The {noun} was ended: {result.overuse}"
    return ""


def _exit(result: ChildResult, noun: str) -> str:
    convention = _CONVENTIONS.get(result.exit_code, "") if noun == "command" else ""
    if result.signal:
        convention = f" (ended by signal {result.signal})"
    return f"The {noun} exited with code {result.exit_code}{convention}"


def quarantine_report(quarantined: QuarantinedPaths) -> str:
    """Say what the command made that would have run outside the sandbox."""
    told = []
    if quarantined.held:
        told.append(f"renamed to NAME{HELD_SUFFIX}: {_listed(quarantined.held)}")
    if quarantined.left:
        told.append(f"not renamed, look at them first: {_listed(quarantined.left)}")
    if not told:
        return ""
    parts = [name.rpartition("/")[2].casefold() in VENV_PARTS for name in quarantined.held]
    advice = f"{_ENVIRONMENTS}, or use" if any(parts) else "Use"
    return (
        "Files that programs outside the sandbox run later may not be made by a command; "
        f"{'; '.join(told)}. {advice} file_write, which asks, or writable_run_later in [security]."
    )


def _listed(names: tuple[str, ...]) -> str:
    rest = f" and {len(names) - _NAMES_TOLD} more" if len(names) > _NAMES_TOLD else ""
    return ", ".join(names[:_NAMES_TOLD]) + rest
