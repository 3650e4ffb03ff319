r"""Standing approvals: rules that people grant, how they match, and where they are kept.

A rule fixes the tool, the workspace, where its paths lead, the environment difference and every
argument except those that the tool's row in `FREE_ARGUMENTS` leaves open; for a call of high risk,
and for one that asks because of untrusted text, it fixes them all. No rule covers what is blocked,
none outlives `MAX_RULE_DAYS`. The file is a JSON list, mode 0600:

    [{"id": "rule-5d1c…", "tool": "file_write", "fixed": "{\"path\":\"a.md\"}", "free": ["content"],
      "workspace": "/home/ada/w", "owner": 1000, "max_risk": "medium", …}]
"""

import asyncio
import os
import secrets
import stat
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from clawd.errors import BusyError, ForbiddenError, NotFoundError, StorageError
from clawd.security.action import Action
from clawd.security.principal import Principal
from clawd.security.risk import Risk, highest
from clawd.wire.safe_text import visible_line

MAX_RULES = 1_000
MAX_GRANTS = 10_000
RULE_DAYS = 30
MAX_RULE_DAYS = 365

FREE_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "file_write": ("content",),
    "file_append": ("content",),
    "file_edit": ("new_text", "old_text", "start_line", "end_line"),
    "shell": ("timeout_s",),
    "web_fetch": ("max_bytes",),
    "pdf_extract": ("pages",),
    "knowledge_save": ("content", "fix"),
    "knowledge_append": ("content",),
}

_encoder = msgspec.json.Encoder(order="sorted")


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """A standing yes.

    Attributes:
        fixed: canonical JSON of the arguments that must be equal.
        free: names of arguments that may hold anything.
        max_risk: the risk it was granted at; it never covers a higher one.
        owner: uid whose calls it covers.
        places: where the paths of the arguments led, resolved; they must lead there still.
        conversation_id: the conversation it is limited to; empty for an `always` rule.
        tainted_by: the untrusted sources that were shown when it was granted.
        granted_by: who granted it, `uid 1000`; empty for one of before this was written down.
        approval_id: the question whose answer it is.
        receipt_id: the receipt of the grant; empty for a rule of one conversation.
    """

    id: str
    tool: str
    fixed: str
    free: tuple[str, ...]
    workspace: str
    environment: dict[str, str]
    max_risk: Risk
    owner: int
    created_at: datetime
    expires_at: datetime
    conversation_id: str = ""
    tainted_by: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    granted_by: str = ""
    approval_id: str = ""
    receipt_id: str = ""

    @property
    def pattern(self) -> str:
        """The rule for a person: `file_write content=* path="a.md" in /home/ada/w`."""
        fixed = msgspec.json.decode(self.fixed, type=dict[str, msgspec.Raw])
        shown = {name: bytes(value).decode() for name, value in fixed.items()}
        shown |= dict.fromkeys(self.free, "*")
        words = [self.tool, *(f"{name}={shown[name]}" for name in sorted(shown))]
        words += [f"${name}={value}" for name, value in sorted(self.environment.items())]
        return visible_line(" ".join([*words, "in", self.workspace]))


def rule_for(
    action: Action,
    *,
    now: datetime,
    conversation: bool,
    tainted_by: tuple[str, ...] = (),
    days: int = RULE_DAYS,
) -> ApprovalRule:
    """Return the rule that an answer `conversation` or `always` to this action grants.

    Args:
        action: what was asked about.
        now: when it is granted.
        conversation: whether it is for the action's conversation only.
        tainted_by: the untrusted sources that made it ask.
        days: how long it is in force, at most `MAX_RULE_DAYS`.

    Raises:
        msgspec.DecodeError: the action's arguments are no JSON object.
    """
    exact = action.assessment.risk == "high" or bool(tainted_by)
    free = () if exact else FREE_ARGUMENTS.get(action.tool, ())
    return ApprovalRule(
        id=f"rule-{secrets.token_hex(8)}",
        tool=action.tool,
        fixed=_fixed_part(action.arguments, free),
        free=free,
        workspace=str(action.workspace),
        environment=dict(action.environment),
        max_risk=action.assessment.risk,
        owner=action.principal.uid,
        created_at=now,
        expires_at=now + timedelta(days=min(days, MAX_RULE_DAYS)),
        conversation_id=action.conversation_id if conversation else "",
        tainted_by=tainted_by if conversation else (),
        places=action.places,
    )


def covers(
    rule: ApprovalRule, action: Action, *, now: datetime, tainted_by: tuple[str, ...]
) -> bool:
    """Tell whether the rule allows the action.

    A question that is asked because of taint is covered only by a grant for this conversation
    that was given in view of the same sources.
    """
    if rule.conversation_id:
        if rule.conversation_id != action.conversation_id:
            return False
        if not set(tainted_by) <= set(rule.tainted_by):
            return False
    elif tainted_by:
        return False
    return (
        rule.tool == action.tool
        and rule.owner == action.principal.uid
        and rule.workspace == str(action.workspace)
        and rule.environment == action.environment
        and rule.places == action.places
        and not action.assessment.blocked
        and highest(rule.max_risk, action.assessment.risk) == rule.max_risk
        and now < rule.expires_at
        and rule.fixed == _fixed_part(action.arguments, rule.free)
    )


RuleAct = Literal["granted", "revoked", "not_kept"]
Record = Callable[[RuleAct, ApprovalRule, str], Awaitable[str]]
"""Writes the receipt of what became of a standing rule, by whom; returns its id."""


async def _unrecorded(_act: RuleAct, _rule: ApprovalRule, _by: str) -> str:
    return ""


class RuleStore(Protocol):
    """Keeps the `always` rules. Both methods block; they are called in a thread."""

    def load(self) -> tuple[ApprovalRule, ...]:
        """Return what was saved last; nothing saved yet is empty. Raises StorageError."""
        ...

    def save(self, rules: tuple[ApprovalRule, ...]) -> None:
        """Replace what is kept; durable when it returns. Raises StorageError."""
        ...


class JsonRuleStore:
    """Keeps rules in a JSON file, replaced as a whole, readable by its owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(tuple[ApprovalRule, ...])

    def load(self) -> tuple[ApprovalRule, ...]:
        """Return the rules of the file; a missing file has none.

        Raises:
            StorageError: unreadable, not rules, or somebody else could have written it.
        """
        try:
            # Not blocking: a FIFO in its place must not keep the daemon from starting.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                facts = os.fstat(file.fileno())
                data = file.read() if stat.S_ISREG(facts.st_mode) else b""
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise StorageError(f"{self._path} cannot be read: {error}") from error
        if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
            raise StorageError(
                f"{self._path} must belong to uid {os.geteuid()} with mode 0600, its rules are "
                f"ignored: it has uid {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o}"
            )
        try:
            return tuple(map(_checked, self._decoder.decode(data)))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StorageError(f"{self._path} holds no approval rules: {error}") from error

    def save(self, rules: tuple[ApprovalRule, ...]) -> None:
        """Write the rules beside the file and rename.

        Raises:
            StorageError: the disk refused; the old file is still there.
        """
        partial = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}")
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.format(_encoder.encode(rules), indent=1))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self._path)
        except OSError as error:
            partial.unlink(missing_ok=True)
            raise StorageError(f"{self._path} cannot be written: {error}") from error


class RuleBook:
    """The rules in force: those of one conversation in memory, `always` rules in the store.

    Args:
        store: keeps the `always` rules.
        clock: returns the time now.
        record: writes the receipts of grants and revocations of `always` rules.

    Attributes:
        problem: why no stored rule is in force and none can be added; empty when all is well.
    """

    def __init__(
        self,
        store: RuleStore,
        *,
        clock: Callable[[], datetime] | None = None,
        record: Record = _unrecorded,
    ) -> None:
        self._store = store
        self._record = record
        self.now = clock or (lambda: datetime.now(UTC))
        self.problem = ""
        self._always: dict[str, ApprovalRule] = {}
        self._grants: dict[str, ApprovalRule] = {}
        self._saving = asyncio.Lock()

    async def load(self) -> None:
        """Read the stored rules; those in force before are forgotten.

        Raises:
            StorageError: they cannot be read; none are in force then, and `problem` says why.
        """
        async with self._saving:
            self._always = {}
            try:
                stored = await asyncio.to_thread(self._store.load)
            except StorageError as error:
                self.problem = error.message
                raise
            self.problem = ""
            now = self.now()
            bounded = (_bounded(rule, now) for rule in stored if not rule.conversation_id)
            self._always = {rule.id: rule for rule in bounded if rule.expires_at > now}

    def find(self, action: Action, *, tainted_by: tuple[str, ...] = ()) -> ApprovalRule | None:
        """Return a rule that allows the action."""
        now = self.now()
        for rule in (*self._grants.values(), *self._always.values()):
            if rule.tool == action.tool and covers(rule, action, now=now, tainted_by=tainted_by):
                return rule
        return None

    def rules(self, principal: Principal) -> list[ApprovalRule]:
        """Return the live rules that the principal may see, oldest first."""
        now = self.now()
        everything = (*self._always.values(), *self._grants.values())
        seen = [r for r in everything if r.expires_at > now and principal.may_see(r.owner)]
        return sorted(seen, key=lambda rule: rule.created_at)

    async def add(self, rule: ApprovalRule) -> None:
        """Put a rule in force, an `always` rule with its receipt and on disk first.

        Raises:
            BusyError: there are too many.
            ReceiptError: its receipt could not be written; it is not in force.
            StorageError: it could not be kept; it is not in force. So it is while the stored
                rules cannot be read, because they would be lost.
        """
        self._drop_expired()
        if rule.conversation_id:
            if len(self._grants) >= MAX_GRANTS:
                raise BusyError(f"{MAX_GRANTS} grants are in force", retry_after_s=60.0)
            self._grants[rule.id] = rule
            return
        async with self._saving:
            if self.problem:
                raise StorageError(
                    self.problem, hint="correct or remove the file, then reload the configuration"
                )
            if len(self._always) >= MAX_RULES:
                raise BusyError(
                    f"{MAX_RULES} approval rules are kept, no more fit",
                    retry_after_s=60.0,
                    hint="clawctl approval rules shows them; revoke some",
                )
            # First: a receipt of a rule that never came is better than a rule without one.
            receipt_id = await self._record("granted", rule, rule.granted_by)
            rule = msgspec.structs.replace(rule, receipt_id=receipt_id)
            try:
                await asyncio.to_thread(self._store.save, (*self._always.values(), rule))
            except StorageError:
                await self._record("not_kept", rule, rule.granted_by)
                raise
            self._always[rule.id] = rule

    async def revoke(self, rule_id: str, principal: Principal) -> ApprovalRule:
        """Take a rule out of force at once, then off the disk.

        Raises:
            NotFoundError: no such rule that the principal may see.
            ForbiddenError: it is another owner's.
            StorageError: it is out of force until the next start, but still on disk.
            ReceiptError: it is out of force, and its receipt could not be written.
        """
        rule = self._always.get(rule_id) or self._grants.get(rule_id)
        if rule is None:
            raise NotFoundError(f"no approval rule {rule_id}", hint="clawctl approval rules")
        if not principal.may_see(rule.owner):
            raise ForbiddenError(f"approval rule {rule_id} is somebody else's")
        self._grants.pop(rule_id, None)
        # Before the wait for a slow disk: from here on no call is allowed by it.
        if self._always.pop(rule_id, None) is not None:
            async with self._saving:
                await asyncio.to_thread(self._store.save, tuple(self._always.values()))
            await self._record("revoked", rule, f"uid {principal.uid}")
        return rule

    def end_conversation(self, conversation_id: str) -> None:
        """Drop the grants of a conversation that was closed for good."""
        self._grants = {
            rule.id: rule
            for rule in self._grants.values()
            if rule.conversation_id != conversation_id
        }

    def _drop_expired(self) -> None:
        now = self.now()
        self._grants = {k: rule for k, rule in self._grants.items() if rule.expires_at > now}
        self._always = {k: rule for k, rule in self._always.items() if rule.expires_at > now}


def _bounded(rule: ApprovalRule, now: datetime) -> ApprovalRule:
    """Return the rule with no longer a life than any rule may have, whatever its file says."""
    latest = min(rule.created_at, now) + timedelta(days=MAX_RULE_DAYS)
    return msgspec.structs.replace(rule, expires_at=min(rule.expires_at, latest))


def _checked(rule: ApprovalRule) -> ApprovalRule:
    """Return a rule from a file.

    Raises:
        msgspec.DecodeError: what it fixes is no JSON object, or a time of it has no zone.
    """
    msgspec.json.decode(rule.fixed, type=dict[str, msgspec.Raw])
    if rule.created_at.tzinfo is None or rule.expires_at.tzinfo is None:
        raise msgspec.ValidationError(f"the times of {rule.id} have no zone")
    return rule


def _fixed_part(arguments: bytes, free: tuple[str, ...]) -> str:
    decoded = msgspec.json.decode(arguments, type=dict[str, object])
    return _encoder.encode({k: v for k, v in decoded.items() if k not in free}).decode()
