"""Hooks: programs of the owner's that are told of calls and turns, and may refuse or change a call.

→ {"event": "before_tool", "hook": "check.py", "conversation": "…", "folder": "/home/ada/w",
   "tool": "file_write", "arguments": {"path": "a.txt", "content": "x"}, "receipt": "…"}
← {"decision": "deny", "reason": "a.txt is generated: change its source"}

An answer is a wish: what it changes is judged and shown like any call, and it never makes a no of
the policy or of a person a yes. Each run has an intent and a receipt of its own.
"""

import asyncio
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from clawd.errors import ClawError, ReceiptError, StorageError
from clawd.kernel.concurrency import settled
from clawd.receipts.record import Status
from clawd.security.principal import Principal
from clawd.security.sandbox.plan import SYSTEM_TREES, USR_LINKS, ChildCommand
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import SandboxStatus
from clawd.tools.base import ToolResult, Touched, in_thread, succeeded
from clawd.tools.changes import CallFacts, CommandChanges, CommandLog
from clawd.tools.child_outcome import cut_short, quarantine_report
from clawd.tools.journal import Entry, Journal
from clawd.tools.taint_tracking import Passage, TaintTracking
from clawd.wire.safe_text import paragraph, shortened, single_line

HookEvent = Literal["before_tool", "after_tool", "turn_start", "turn_end", "on_question"]
Power = Literal["write", "change", "context"]

TOOL = "hook"
MAX_ANSWER_BYTES = 1 << 20
MAX_CONTEXT = 8 * 1024
MAX_TOLD = 1_000
REASON_LIMIT = 400
GRACE_S = 1.0
_SHOWN = 300
_PASSED = (
    "PATH", "HOME", "LANG", "USER", "LOGNAME", "DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
)  # fmt: skip
# What a program starts of clawctl finds no daemon there: a hook has no tool calls of its own.
_NO_DAEMON = {"CLAWD_SOCKET": "/dev/null"}
_TAG = re.compile(rb"\[secret:[0-9a-f]{8}\]")
_canonical = msgspec.json.Encoder(order="sorted")

_log = logging.getLogger(__name__)


class Hook(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of [hooks].

    Attributes:
        name: what people and models are told of it: its program's.
        tools: patterns of the tools that it is about; other events have none.
        where: in the sandbox, in the conversation's folder; or as the daemon's user, in its home.
        may: what it may beside refusing and having a person asked: write to the folder (in the
            sandbox), change arguments, add text to the conversation.
    """

    name: str
    event: HookEvent
    command: tuple[str, ...]
    tools: tuple[str, ...] = ("*",)
    timeout_s: float = 10.0
    where: Literal["sandbox", "owner"] = "sandbox"
    may: frozenset[Power] = frozenset()

    def is_for(self, event: HookEvent, tool: str) -> bool:
        """Return whether it is run at an event; `tool` is "" for an event of a turn."""
        is_meant = not tool or any(fnmatchcase(tool, pattern) for pattern in self.tools)
        return self.event == event and is_meant


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a hook prints, once; nothing at all says `continue`. A misspelt name is no answer."""

    decision: Literal["continue", "deny", "ask"] = "continue"
    reason: str = ""
    arguments: dict[str, Any] | None = None
    context: str = ""


class HookScene(msgspec.Struct, frozen=True, kw_only=True):
    """What a hook is run about.

    Attributes:
        tool: of the call; "" for an event of a turn.
        facts: what it is told beside the event, the conversation and the folder.
    """

    conversation_id: str
    principal: Principal
    workspace: Path
    tool: str = ""
    facts: Mapping[str, Any] = {}


class HookRun(msgspec.Struct, frozen=True, kw_only=True):
    """How a hook was run.

    Attributes:
        answer: `continue` where it gave none.
        problem: why there is no answer that counts; "" where there is one.
    """

    hook: Hook
    answer: HookAnswer = HookAnswer()
    problem: str = ""

    @property
    def refusal(self) -> str:
        """Why the hook keeps a call from being made; "" where it does not. A failure does."""
        if self.problem:
            return f"the hook {self.hook.name} {self.problem}"
        if self.answer.decision != "deny":
            return ""
        return f"the hook {self.hook.name} refuses it: {self.reason}"

    @property
    def reason(self) -> str:
        """What the hook says of its decision."""
        said = single_line(self.answer.reason, REASON_LIMIT)
        return said or "it gives no reason"

    @property
    def remark(self) -> str:
        """What it adds to the conversation, marked as no word of clawd's; "" for nothing."""
        if not self.answer.context.strip():
            return ""
        text = shortened(paragraph(self.answer.context).strip(), MAX_CONTEXT)
        inner = text.replace("[end of hook", "[ end of hook")
        return f"[from hook {self.hook.name}; untrusted text]\n{inner}\n[end of hook]"


class Runner(Protocol):
    """What runs programs: a `Sandbox`."""

    @property
    def status(self) -> SandboxStatus | None:
        """What isolation it has; None where nobody looked yet."""
        ...

    async def run(self, command: ChildCommand) -> ChildResult:
        """Run a command to its end; on return and on cancellation nothing of it is alive.

        Raises:
            ClawError: it cannot be run.
        """
        ...


class HookTrail(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of runs.

    Attributes:
        journal: their intents and receipts.
        flow: untrusted text in what they write and say.
        commands: what they change, for undo; None for nothing.
    """

    journal: Journal
    flow: TaintTracking
    commands: CommandLog | None = None


class Hooks:
    """Runs the hooks of a daemon.

    Args:
        settings: returns those in force.
        trail: what is kept of their runs.
        sandbox: runs those in the sandbox.
        owner: runs those of the owner; without isolation, under the emergency stop.
        is_stopped: tells whether the emergency stop is set.
        environ: of the daemon, of which the owner's hooks see a few variables.
    """

    def __init__(
        self,
        settings: Callable[[], tuple[Hook, ...]],
        trail: HookTrail,
        *,
        sandbox: Runner,
        owner: Runner,
        is_stopped: Callable[[], bool] = lambda: False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = settings
        self._journal = trail.journal
        self._flow = trail.flow
        self._commands = trail.commands
        self._sandbox = sandbox
        self._owner = owner
        self._is_stopped = is_stopped
        self._environ = dict(os.environ if environ is None else environ)
        self._told: set[str] = set()

    def of(self, event: HookEvent, tool: str = "") -> tuple[Hook, ...]:
        """Return the hooks that are run at an event, in their order."""
        return tuple(hook for hook in self.settings() if hook.is_for(event, tool))

    def is_news(self, run: HookRun) -> bool:
        """Return whether a failure was not told before; the log has each of them."""
        if not run.problem:
            return False
        _log.warning("hook %s %s", run.hook.name, run.problem, extra={"event": run.hook.event})
        key = f"{run.hook.event} {run.hook.name} {run.problem}"
        is_new = key not in self._told and len(self._told) < MAX_TOLD
        if is_new:
            self._told.add(key)
        return is_new

    async def run(self, hook: Hook, scene: HookScene) -> HookRun:
        """Run a hook to its end. What it does wrong is a problem of the run, and never raised.

        Raises:
            ReceiptError, StorageError: the trail cannot be written.
            CancelledError: the caller was cancelled; the program is dead and has its receipt.
        """
        if self._is_stopped():
            return HookRun(hook=hook, problem="was not run: the emergency stop is set")
        told = self._told_of(hook, scene)
        problem = await in_thread(lambda: _misplaced(hook, scene.workspace))
        program_hash = "" if problem else await in_thread(lambda: _hash_of(hook.command[0]))
        entry = self._entry(hook, scene, told, program_hash)
        _, cancelled = await settled(self._journal.begin(entry))
        result: ChildResult | None = None
        try:
            if not (problem or cancelled):
                result, passage = await self._act(hook, scene, told, entry)
                await settled(self._flow.end(passage))
        except ClawError as error:
            if isinstance(error, ReceiptError | StorageError):
                raise
            problem = f"could not be run: {error.message}"
        except BaseException:
            await settled(self._write(entry, HookRun(hook=hook, problem="was cancelled"), None))
            raise
        run = HookRun(hook=hook, problem=problem)
        if result is not None:
            run = _judged(hook, result)
        _, late = await settled(self._write(entry, run, result))
        if cancelled or late:
            raise asyncio.CancelledError
        return run

    def _told_of(self, hook: Hook, scene: HookScene) -> bytes:
        """Return what the program reads: JSON, the secrets in it replaced as in receipts."""
        told = {
            "event": hook.event,
            "hook": hook.name,
            "conversation": scene.conversation_id,
            "folder": str(scene.workspace),
            **({"tool": scene.tool} if scene.tool else {}),
            **scene.facts,
        }
        return self._journal.json_without_secrets(_canonical.encode(told)) + b"\n"

    def _entry(self, hook: Hook, scene: HookScene, told: bytes, program_hash: str) -> Entry:
        about = {
            "event": hook.event,
            "command": list(hook.command),
            "program_hash": program_hash,
            "stdin_hash": hashlib.sha256(told).hexdigest(),
            "where": hook.where,
            **({"tool": scene.tool} if scene.tool else {}),
            **({"receipt": scene.facts["receipt"]} if "receipt" in scene.facts else {}),
        }
        level = self._sandbox.status.level if self._sandbox.status is not None else "none"
        return Entry(
            conversation_id=scene.conversation_id,
            tool=TOOL,
            arguments=_canonical.encode(about),
            uid=scene.principal.uid,
            key=scene.principal.key_id,
            workspace=str(scene.workspace),
            risk="low" if hook.where == "sandbox" and "write" not in hook.may else "medium",
            approval="auto",
            reason=f"{hook.name} of [hooks] {hook.event}",
            sandbox=level if hook.where == "sandbox" else "none",
        )

    async def _act(
        self, hook: Hook, scene: HookScene, told: bytes, entry: Entry
    ) -> tuple[ChildResult, Passage]:
        writes = (scene.workspace,) if "write" in hook.may or hook.where == "owner" else ()
        touched = Touched(reads=writes, writes=writes)
        visit: CommandChanges | None = None
        if writes and self._commands is not None:
            await self._commands.prepare(str(scene.workspace))
        passage = await self._flow.begin(scene.conversation_id, touched)
        try:
            if writes and self._commands is not None:
                visit = await self._commands.enter(
                    CallFacts(
                        owner=scene.principal.uid,
                        conversation_id=scene.conversation_id,
                        workspace=str(scene.workspace),
                        call_id=entry.id,
                        tool=TOOL,
                    )
                )
            if hook.where == "owner":
                result = await self._owner.run(self._as_owner(hook, told))
            else:
                result = await self._sandbox.run(_in_sandbox(hook, scene.workspace, told))
        except BaseException:
            await settled(self._flow.end(passage))
            raise
        finally:
            if visit is not None and self._commands is not None:
                await settled(self._commands.leave(visit))
        return result, passage

    def _as_owner(self, hook: Hook, told: bytes) -> ChildCommand:
        seen = {name: self._environ[name] for name in _PASSED if name in self._environ}
        home = Path(seen.get("HOME", "/"))
        program = hook.command[0]
        if "/" not in program:
            program = shutil.which(program, path=seen.get("PATH", os.defpath)) or program
        return ChildCommand(
            argv=(program, *hook.command[1:]),
            workspace=home if home.is_dir() else Path("/"),
            stdin=told,
            env=seen | _NO_DAEMON,
            timeout_s=hook.timeout_s,
            max_output_bytes=MAX_ANSWER_BYTES,
            separate_errors=True,
            grace_s=GRACE_S,
        )

    async def _write(self, entry: Entry, run: HookRun, result: ChildResult | None) -> None:
        """Write the receipt of a run, then note what untrusted text it adds."""
        says = run.problem or run.answer.decision
        if not run.problem and run.answer.decision != "continue":
            says += f": {run.reason}"
        entry.reason = shortened(f"{entry.reason}: {self._journal.without_secrets(says)}", 2 * 400)
        status: Status = "failed" if run.problem else "allowed"
        code = result.exit_code if result is not None else None
        output = result.output if result is not None else run.problem
        await self._journal.finish(entry, status, output, exit_code=code)
        if run.remark:
            source = succeeded("", untrusted_source=f"the hook {run.hook.name}")
            await self._taint(entry.conversation_id, source)

    async def _taint(self, conversation_id: str, result: ToolResult) -> None:
        passage = await self._flow.begin(conversation_id, Touched())
        await self._flow.end(passage, result)


def merged_arguments(given: Mapping[str, Any], before: bytes, masked: bytes) -> tuple[bytes, str]:
    """Return the arguments that a hook gives for a call, as canonical JSON, and what is wrong.

    Args:
        given: by the hook, which saw no secrets: what it left as it was told is as it was.
        before: the arguments of the call.
        masked: what the hook was told of them.
    """
    own, told = msgspec.json.decode(before), msgspec.json.decode(masked)
    values = {
        name: own[name] if name in own and name in told and told[name] == value else value
        for name, value in given.items()
    }
    merged = _canonical.encode(values)
    if set(_TAG.findall(merged)) - set(_TAG.findall(before)):
        return before, "changed an argument that holds a secret, of which it is told a tag only"
    return merged, ""


def _in_sandbox(hook: Hook, workspace: Path, told: bytes) -> ChildCommand:
    seen = [*map(Path, (*SYSTEM_TREES, *USR_LINKS)), workspace]
    named = [Path(word) for word in hook.command if word.startswith("/")]
    real = [path.resolve() for path in named]
    return ChildCommand(
        argv=hook.command,
        workspace=workspace,
        workspace_writable="write" in hook.may,
        readonly_paths=tuple(
            path
            for path in dict.fromkeys((*named, *real))
            if path.exists() and not any(path.is_relative_to(tree) for tree in seen)
        ),
        stdin=told,
        timeout_s=hook.timeout_s,
        max_output_bytes=MAX_ANSWER_BYTES,
        separate_errors=True,
        grace_s=GRACE_S,
        toolchains=True,
    )


def _misplaced(hook: Hook, workspace: Path) -> str:
    """Return why a program may not run: it is the folder's, where the model could change it."""
    for word in _files(hook.command):
        path = Path(word)
        if path.is_relative_to(workspace) or path.resolve().is_relative_to(workspace):
            return f"is not run: {word} lies in the folder that the model works in"
    return ""


def _files(command: Iterable[str]) -> list[str]:
    return [word for word in command if word.startswith("/") and Path(word).is_file()]


def _hash_of(program: str) -> str:
    """Return the SHA-256 of a program that is named by its path; "" for others."""
    if not program.startswith("/"):
        return ""
    try:
        with Path(program).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _judged(hook: Hook, result: ChildResult) -> HookRun:
    """Return the run of a program that ended: its answer, if that is one that it may give."""
    problem = cut_short(result, hook.timeout_s, noun="program")
    problem = f"gave no answer: {problem[0].lower()}{problem[1:]}" if problem else ""
    if not problem and result.exit_code:
        said = single_line(result.errors, _SHOWN)
        problem = f"failed with exit code {result.exit_code}" + (f": {said}" if said else "")
    if not problem and result.truncated:
        problem = f"printed more than {MAX_ANSWER_BYTES} bytes"
    answer = HookAnswer()
    if not problem and result.output.strip():
        try:
            answer = msgspec.json.decode(result.output, type=HookAnswer)
        except (msgspec.DecodeError, RecursionError) as error:
            began = single_line(result.output, 80)
            problem = f"printed no answer ({single_line(str(error), _SHOWN)}); it begins: {began}"
    needed: list[Power] = ["change"] if answer.arguments is not None else []
    needed += ["context"] if answer.context else []
    if not problem and (lacking := [power for power in needed if power not in hook.may]):
        problem = f"gave {lacking[0]}, which its entry does not allow (may of [hooks])"
    if aside := quarantine_report(result.quarantined):
        problem = " ".join(filter(None, (problem, f"made files that run later. {aside}")))
    return HookRun(hook=hook, answer=HookAnswer() if problem else answer, problem=problem)
