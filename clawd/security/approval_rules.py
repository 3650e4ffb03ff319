r"""Standing approvals: rules that people grant, how they match, and where they are kept.

A rule fixes the tool, the workspace, where its paths lead, the environment difference and every
argument except those that the tool's row in `FREE_ARGUMENTS` leaves open; for a call of high risk,
and for one that asks because of untrusted text, it fixes them all. No rule covers what is blocked,
none outlives `MAX_RULE_DAYS`. A rule by patterns is about the parts of a shell command and covers
the next similar one. The file is a JSON list, mode 0600:

    [{"id": "rule-5d1c…", "tool": "file_write", "fixed": "{\"path\":\"a.md\"}", "free": ["content"],
      "workspace": "/home/ada/w", "owner": 1000, "max_risk": "medium", …}]
"""

import asyncio
import glob
import os
import re
import secrets
import stat
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from clawd.errors import BusyError, ClawError, ForbiddenError, NotFoundError, StorageError
from clawd.kernel.files import replace_file
from clawd.security.known_commands import RUN_ANYTHING
from clawd.security.principal import Principal
from clawd.security.risk import Action, Need, Risk, highest
from clawd.wire.policy import HOST_TOOL, covers_host
from clawd.wire.safe_text import visible_line

MAX_RULES = 1_000
MAX_GRANTS = 10_000
RULE_DAYS = 30
MAX_RULE_DAYS = 365
MAX_PATTERN = 200
_RUN_ANYTHING = RUN_ANYTHING | {"bash", "sh", "zsh", "dash"}
NAMED_WORDS = 3

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

FILE_TOOL = "file_write"
"""What rules about files are of, whichever of `FILE_TOOLS` changes them."""
FILE_TOOLS = frozenset({FILE_TOOL, "file_append", "file_edit", "fs_ops", "helper_merge"})

_encoder = msgspec.json.Encoder(order="sorted")


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True):
    """A standing yes.

    Attributes:
        fixed: canonical JSON of the arguments that must be equal.
        free: names of arguments that may hold anything.
        max_risk: the risk it was granted at; it never covers a higher one.
        owner: uid whose calls it covers.
        places: where the paths of the arguments led, resolved; they must lead there still.
        patterns: what it covers instead of fixed arguments: words of commands (`git commit *`),
            files of a redirection (`> notes.md`), and of `FILE_TOOL` files of the workspace
            (`src/**`). A call is covered where each of its parts is.
        verdict: whether it allows or refuses what it matches.
        conversation_id: the conversation it is limited to; empty for an `always` rule.
        tainted_by: the untrusted sources that were shown when it was granted.
        granted_by: who granted it, `uid 1000`; empty for one of before this was written down.
        approval_id: the question whose answer it is.
        receipt_id: the receipt of the grant, or of when it was first found in the file; empty where
            receipts are switched off.
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
    patterns: tuple[str, ...] = ()
    verdict: Literal["allow", "deny"] = "allow"
    granted_by: str = ""
    approval_id: str = ""
    receipt_id: str = ""

    @property
    def pattern(self) -> str:
        """The rule for a person: `file_write content=* path="a.md" in /home/ada/w`."""
        if self.patterns:
            where = f"in {self.workspace}" if self.workspace else "in every project"
            refuses = "never " if self.verdict == "deny" else ""
            return visible_line(f"{refuses}{self.tool} {', '.join(self.patterns)} {where}")
        fixed = msgspec.json.decode(self.fixed, type=dict[str, msgspec.Raw])
        if self.tool == HOST_TOOL:
            host = bytes(fixed.get("host", b"?")).decode().strip('"')
            where = f"in {self.workspace}" if self.workspace else "everywhere"
            return visible_line(f"host {host} {where}")
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
    everywhere: bool = False,
) -> ApprovalRule:
    """Return the rule that an answer `conversation` or `always` to this action grants.

    Args:
        action: what was asked about.
        now: when it is granted.
        conversation: whether it is for the action's conversation only.
        tainted_by: the untrusted sources that made it ask.
        days: how long it is in force, at most `MAX_RULE_DAYS`.
        everywhere: whether a rule by patterns of commands holds in every project.

    Raises:
        msgspec.DecodeError: the action's arguments are no JSON object.
    """
    exact = action.assessment.risk == "high" or bool(tainted_by)
    free = () if exact else FREE_ARGUMENTS.get(action.tool, ())
    patterns = () if tainted_by else action.assessment.patterns
    tool = _ruled_as(action.tool) if patterns else action.tool
    is_about_files = tool == FILE_TOOL or any(each.startswith(">") for each in patterns)
    fits_everywhere = everywhere and not is_about_files
    return ApprovalRule(
        id=f"rule-{secrets.token_hex(8)}",
        tool=tool,
        fixed="{}" if patterns else _fixed_part(action.arguments, free),
        free=() if patterns else free,
        workspace="" if patterns and fits_everywhere else str(action.workspace),
        patterns=patterns,
        environment=dict(action.environment),
        max_risk=action.assessment.risk,
        owner=action.principal.uid,
        created_at=now,
        expires_at=now + timedelta(days=min(days, MAX_RULE_DAYS)),
        conversation_id=action.conversation_id if conversation else "",
        tainted_by=tainted_by if conversation else (),
        places=action.places,
    )


def host_rule(
    host: str, *, owner: int, workspace: str, conversation_id: str, days: int, now: datetime
) -> ApprovalRule:
    """Return the rule that lets commands reach a host: `get.example.org:443`, `*.example.org:443`.

    An empty workspace is every one.
    """
    return ApprovalRule(
        id=f"rule-{secrets.token_hex(8)}",
        tool=HOST_TOOL,
        fixed=_encoder.encode({"host": host}).decode(),
        free=(),
        workspace=workspace,
        environment={},
        max_risk="medium",
        owner=owner,
        created_at=now,
        expires_at=now + timedelta(days=min(days, MAX_RULE_DAYS)),
        conversation_id=conversation_id,
        granted_by=f"uid {owner}",
    )


def covers(
    rule: ApprovalRule, action: Action, *, now: datetime, tainted_by: tuple[str, ...]
) -> bool:
    """Return whether the rule allows the action.

    A question that is asked because of taint is covered only by a grant for this conversation
    that was given in view of the same sources. A rule by patterns covers parts (`covers_part`).
    """
    if rule.patterns or rule.verdict != "allow":
        return False
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
        and _is_in_place(rule, action)
        and rule.environment == action.environment
        and rule.places == action.places
        and not action.assessment.blocked
        and highest(rule.max_risk, action.assessment.risk) == rule.max_risk
        and now < rule.expires_at
        and _is_meant(rule, action)
    )


def _ruled_as(tool: str) -> str:
    """Return the tool that a rule by patterns names for calls of a tool."""
    return FILE_TOOL if tool in FILE_TOOLS else tool


def _is_in_place(rule: ApprovalRule, action: Action) -> bool:
    """Return whether a rule is for where an action is; one of a host may be for every workspace."""
    is_everywhere = rule.tool == HOST_TOOL and not rule.workspace
    return is_everywhere or rule.workspace == str(action.workspace)


def _is_meant(rule: ApprovalRule, action: Action) -> bool:
    """Return whether an action has the arguments of a rule, or a host that the rule names."""
    if rule.tool != HOST_TOOL:
        return rule.fixed == _fixed_part(action.arguments, rule.free)
    granted, wanted = (
        msgspec.json.decode(each, type=dict[str, str]).get("host", "")
        for each in (rule.fixed, action.arguments)
    )
    host, _, port = wanted.rpartition(":")
    return port.isdecimal() and covers_host(granted, host, int(port))


def applies(rule: ApprovalRule, action: Action, *, now: datetime) -> bool:
    """Return whether a rule by patterns is about a call: its tool, owner, project, conversation."""
    return (
        bool(rule.patterns)
        and rule.tool == _ruled_as(action.tool)
        and rule.owner == action.principal.uid
        and rule.workspace in {"", str(action.workspace)}
        and rule.conversation_id in {"", action.conversation_id}
        and rule.environment == action.environment
        and now < rule.expires_at
    )


def covers_part(rule: ApprovalRule, need: Need) -> bool:
    """Return whether one of a rule's patterns matches a part of a call."""
    if need.kind == "file":
        # One that is guarded has no pattern: no rule allows it, and any may refuse it.
        refuses = rule.verdict == "deny"
        is_meant = (refuses or bool(need.pattern)) and any(
            matches_file(each, need.text, hidden=refuses) for each in rule.patterns
        )
    else:
        is_meant = any(_matches(pattern, need) for pattern in rule.patterns)
    if rule.verdict == "allow" and highest(rule.max_risk, need.risk) != rule.max_risk:
        return False
    return is_meant


def covers_words(pattern: str, needs: tuple[Need, ...]) -> bool:
    """Return whether all that a call asks for is commands, and a pattern matches each of them."""
    return bool(needs) and all(need.kind == "words" and _matches(pattern, need) for need in needs)


def _matches(pattern: str, need: Need) -> bool:
    """Return whether a pattern matches: word by word, `*` last for whatever follows.

    A word that nobody can tell is matched by that `*` alone.
    """
    if need.kind == "write":
        return bool(need.pattern) and pattern == need.pattern
    if need.kind != "words":
        return False
    wanted, words = pattern.split(), need.words
    has_rest = wanted[-1:] == ["*"]
    wanted = wanted[:-1] if has_rest else wanted
    if not wanted or len(words) < len(wanted) or (len(words) > len(wanted) and not has_rest):
        return False
    return words[0] == wanted[0] and all(
        word and fnmatchcase(word, each) for word, each in zip(words, wanted, strict=False)
    )


def file_need(path: Path, *, risk: Risk, is_guarded: bool) -> Need:
    """Return what a change of a file asks for.

    Args:
        path: resolved, relative to the workspace.
        risk: of the change.
        is_guarded: whether programs outside the sandbox run or obey the file later: no pattern
            covers it, only a rule for just this call.
    """
    text = str(path)
    is_alone = path.parent == Path() or path.name.startswith(".")
    pattern = glob.escape(text if is_alone else str(path.parent)) + ("" if is_alone else "/**")
    fits = not is_guarded and not file_pattern_problem(pattern) and matches_file(pattern, text)
    return Need(kind="file", text=text, risk=risk, pattern=pattern if fits else "")


def matches_file(pattern: str, path: str, *, hidden: bool = False) -> bool:
    """Return whether a pattern matches a path of the workspace, both with `/` between names.

    `**` stands for any folders, and last for all that lies below; `*`, `?` and `[...]` for what is
    in one name. None of them stands for a name that begins with a dot, unless `hidden`.
    """
    names, steps = path.split("/"), pattern.split("/")
    reached = {0}  # how many names the steps so far may have matched
    for number, step in enumerate(steps, 1):
        if step != "**":
            reached = {
                at + 1
                for at in reached
                if at < len(names)
                and (hidden or step.startswith(".") or not names[at].startswith("."))
                and fnmatchcase(names[at], step)
            }
            continue
        least = number == len(steps)
        reached = {
            end
            for at in reached
            for end in range(at + least, len(names) + 1)
            if hidden or not any(name.startswith(".") for name in names[at:end])
        }
    return len(names) in reached


def file_pattern_problem(pattern: str) -> str:
    """Return why a person's pattern of files cannot be one, or ""."""
    is_short = 0 < len(pattern) <= MAX_PATTERN and pattern == pattern.strip()
    if not is_short or not pattern.isprintable():
        return f"a pattern of files has 1 to {MAX_PATTERN} printable characters: src/**"
    if pattern.startswith("~") or {"", ".", ".."} & {*pattern.split("/")}:
        return f"{pattern!r} is no path below the project; a pattern is one: src/**, docs/*.md"
    return ""


def pattern_problem(pattern: str) -> str:
    """Return why a person's pattern cannot be one, or ""."""
    words = pattern.split()
    if not words or len(pattern) > MAX_PATTERN or not pattern.isprintable():
        return f"a pattern has 1 to {MAX_PATTERN} printable characters: git commit *"
    if not re.fullmatch(r"[\w./+-]+", words[0]):
        return f"{words[0]!r} is no name of a command; a pattern begins with one: git commit *"
    if words[0].rpartition("/")[2] in _RUN_ANYTHING and len(words) < NAMED_WORDS:
        return f"{pattern!r} would cover everything that {words[0]} starts; name what it starts"
    return ""


RuleAct = Literal["granted", "revoked", "found", "gone", "not_kept", "still_kept"]
"""What became of a rule. It was `found` in the file though nobody here granted it as it stands, or
is `gone` from there; one whose grant or revocation the disk refused was not kept or still is."""
Record = Callable[[RuleAct, ApprovalRule, str], Awaitable[str]]
"""Writes the receipt of what became of a rule, by whom (empty: nobody known); returns its id, empty
where receipts are switched off."""


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
        try:
            replace_file(self._path, msgspec.json.format(_encoder.encode(rules), indent=1))
        except OSError as error:
            raise StorageError(f"{self._path} cannot be written: {error}") from error


class RuleBook:
    """The rules in force: those of one conversation in memory, `always` rules in the store.

    Args:
        store: keeps the `always` rules.
        record: writes the receipt without which no rule is in force.
        clock: returns the time now.

    Attributes:
        problem: why no stored rule is in force and none can be added; empty when all is well.
    """

    def __init__(
        self, store: RuleStore, *, record: Record, clock: Callable[[], datetime] | None = None
    ) -> None:
        self._store = store
        self._record = record
        self.now = clock or (lambda: datetime.now(UTC))
        self.problem = ""
        self._always: dict[str, ApprovalRule] = {}
        self._grants: dict[str, ApprovalRule] = {}
        self._saving = asyncio.Lock()
        self._is_loaded = False

    async def load(self) -> None:
        """Read the stored rules; those in force before are forgotten.

        A rule that no receipt is known of, as one that was written into the file by hand, gets its
        receipt now; so does one that is gone from there since it was read last.

        Raises:
            ClawError: they cannot be read, or such a receipt cannot be kept; none are in force
                then, and `problem` says why.
        """
        async with self._saving:
            before, was_loaded = self._always, self._is_loaded
            self._always, self._is_loaded = {}, False
            try:
                stored = await asyncio.to_thread(self._store.load)
                now = self.now()
                bounded = (_bounded(rule, now) for rule in stored if not rule.conversation_id)
                live = {rule.id: rule for rule in bounded if rule.expires_at > now}
                recorded = await self._with_receipts(live, before if was_loaded else live)
                for rule in before.values():
                    if rule.id not in live and rule.expires_at > now:
                        await self._record("gone", rule, "")
            except ClawError as error:
                self.problem = error.message
                raise
            self.problem = ""
            self._always, self._is_loaded = recorded, True

    def find(
        self, action: Action, *, tainted_by: tuple[str, ...] = (), own: bool = False
    ) -> ApprovalRule | None:
        """Return a rule that allows the action as a whole; `own` is one for its conversation."""
        now = self.now()
        for rule in (*self._grants.values(), *self._always.values()):
            if own and not rule.conversation_id:
                continue
            if rule.tool == action.tool and covers(rule, action, now=now, tainted_by=tainted_by):
                return rule
        return None

    def covering(
        self, action: Action, *, tainted_by: tuple[str, ...] = (), own: bool = False
    ) -> tuple[ApprovalRule, ...]:
        """Return rules that allow the parts of the action; () where one is not covered.

        Args:
            action: the call.
            tainted_by: the untrusted sources of its conversation; only rules that were granted in
                view of all of them count.
            own: only rules for its conversation count.
        """
        if action.assessment.blocked:
            return ()
        allowing = [
            rule
            for rule in self._about(action)
            if rule.verdict == "allow"
            and (rule.conversation_id or not own)
            and set(tainted_by) <= set(rule.tainted_by)
        ]
        found: dict[str, ApprovalRule] = {}
        for need in action.assessment.needs:
            if need.risk == "low":
                continue
            rule = next((rule for rule in allowing if covers_part(rule, need)), None)
            if rule is None:
                return ()
            found[rule.id] = rule
        return tuple(found.values())

    def forbidding(self, action: Action) -> ApprovalRule | None:
        """Return a rule that refuses a part of the action."""
        for rule in self._about(action):
            if rule.verdict == "deny" and any(
                covers_part(rule, need) for need in action.assessment.needs
            ):
                return rule
        return None

    def _about(self, action: Action) -> list[ApprovalRule]:
        now = self.now()
        every = (*self._grants.values(), *self._always.values())
        return [rule for rule in every if applies(rule, action, now=now)]

    def rules(self, principal: Principal) -> list[ApprovalRule]:
        """Return the live rules that the principal may see, oldest first."""
        now = self.now()
        everything = (*self._always.values(), *self._grants.values())
        seen = [r for r in everything if r.expires_at > now and principal.may_see(r.owner)]
        return sorted(seen, key=lambda rule: rule.created_at)

    async def add(self, rule: ApprovalRule) -> ApprovalRule:
        """Put a rule in force, its receipt first, and an `always` rule on disk as well.

        Returns:
            The rule, which names its receipt.

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
            self._grants[rule.id] = rule = await self._with_receipt("granted", rule)
            return rule
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
            rule = await self._with_receipt("granted", rule)
            try:
                await asyncio.to_thread(self._store.save, (*self._always.values(), rule))
            except StorageError:
                await self._record("not_kept", rule, rule.granted_by)
                raise
            self._always[rule.id] = rule
            return rule

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
        by = f"uid {principal.uid}"
        self._grants.pop(rule_id, None)
        # Before the wait for a slow disk: from here on no call is allowed by it.
        if self._always.pop(rule_id, None) is not None:
            async with self._saving:
                try:
                    await asyncio.to_thread(self._store.save, tuple(self._always.values()))
                except StorageError:
                    await self._record("still_kept", rule, by)
                    raise
        await self._record("revoked", rule, by)
        return rule

    def end_conversation(self, conversation_id: str) -> None:
        """Drop the grants of a conversation that was closed for good."""
        self._grants = {
            rule.id: rule
            for rule in self._grants.values()
            if rule.conversation_id != conversation_id
        }

    async def _with_receipts(
        self, rules: dict[str, ApprovalRule], known: dict[str, ApprovalRule]
    ) -> dict[str, ApprovalRule]:
        """Return the rules, each with the receipt of its grant or of having been found."""
        recorded = {
            rule.id: rule
            if rule.receipt_id and known.get(rule.id) == rule
            else await self._with_receipt("found", rule)
            for rule in rules.values()
        }
        if recorded != rules:
            await asyncio.to_thread(self._store.save, tuple(recorded.values()))
        return recorded

    async def _with_receipt(self, act: RuleAct, rule: ApprovalRule) -> ApprovalRule:
        receipt_id = await self._record(act, rule, rule.granted_by)
        return msgspec.structs.replace(rule, receipt_id=receipt_id)

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
