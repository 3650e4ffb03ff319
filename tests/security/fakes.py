"""Small real stand-ins for the security tests."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from clawd.errors import ReceiptError, StorageError
from clawd.security.approval_rules import ApprovalRule, RuleAct
from clawd.security.principal import Principal
from clawd.security.risk import Action, Assessment, Risk

ADA = Principal(uid=1000, gid=1000, pid=7)
BOB = Principal(uid=1001, gid=1001, pid=8)
ROOT = Principal(uid=0, gid=0, pid=9, role="admin")


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **parts: float) -> None:
        self.now += timedelta(**parts)


class Stop:
    """An emergency stop that is a boolean."""

    def __init__(self) -> None:
        self.value = False

    def is_set(self) -> bool:
        return self.value


class BrokenStop:
    """An emergency stop that cannot tell."""

    def is_set(self) -> bool:
        raise OSError("the disk is on fire")


class RuleReceipts:
    """Writes receipts of rules into a list; fails when told."""

    def __init__(self) -> None:
        self.written: list[tuple[RuleAct, str, str]] = []
        self.failing = False

    async def __call__(self, act: RuleAct, rule: ApprovalRule, by: str) -> str:
        if self.failing:
            raise ReceiptError("no disk")
        self.written.append((act, rule.id, by))
        return f"receipt-{len(self.written)}"


class MemoryRuleStore:
    """Keeps rules in memory; fails when told."""

    def __init__(self) -> None:
        self.rules: tuple[ApprovalRule, ...] = ()
        self.failing = False

    def load(self) -> tuple[ApprovalRule, ...]:
        if self.failing:
            raise StorageError("no disk")
        return self.rules

    def save(self, rules: tuple[ApprovalRule, ...]) -> None:
        if self.failing:
            raise StorageError("no disk")
        self.rules = rules


def action(
    tool: str = "file_write",
    arguments: dict[str, object] | None = None,
    *,
    risk: Risk = "medium",
    principal: Principal = ADA,
    **changes: object,
) -> Action:
    """Return an action of medium risk in conversation c1."""
    given = {"content": "x", "path": "a.md"} if arguments is None else arguments
    base = Action(
        tool=tool,
        arguments=msgspec.json.encode(given, order="sorted"),
        assessment=Assessment(risk=risk, reason="writes a file"),
        conversation_id="c1",
        call_id="call-1",
        principal=principal,
        workspace=Path("/home/ada/w"),
    )
    return msgspec.structs.replace(base, **changes)
