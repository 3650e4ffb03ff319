"""What `doctor` finds, and what it can do about it by itself."""

from collections.abc import Callable
from typing import Literal

import msgspec

State = Literal["ok", "note", "wrong"]


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at and how it stands; `fix` says what to do, "" where nothing is.

    `can_fix` tells that `doctor --fix` does it, `fixed` that it did.
    """

    check: str
    state: State
    says: str
    fix: str = ""
    can_fix: bool = False
    fixed: bool = False


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A finding with the act that mends it, where there is a safe one."""

    finding: Finding
    mend: Callable[[], None] | None = None


def ok(check: str, says: str) -> Found:
    """Return that all is well."""
    return Found(finding=Finding(check=check, state="ok", says=says))


def noted(check: str, says: str, fix: str = "") -> Found:
    """Return what is worth knowing and no fault."""
    return Found(finding=Finding(check=check, state="note", says=says, fix=fix))


def wrong(check: str, says: str, fix: str, mend: Callable[[], None] | None = None) -> Found:
    """Return what is wrong, what to do, and how `--fix` does it."""
    finding = Finding(check=check, state="wrong", says=says, fix=fix, can_fix=mend is not None)
    return Found(finding=finding, mend=mend)
