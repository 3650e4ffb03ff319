"""One attempt of a step: made through the one gate, and found again after a crash.

Every attempt has a mark, the id of the receipt that its call will have, which is on disk before
the call. After a crash the receipt says what became of it: none means that it never began, one
that was cut off that nobody knows.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from clawd.errors import ClawError
from clawd.providers.base import ChatRequest, Message
from clawd.receipts.record import Receipt
from clawd.receipts.verify import find_receipt, read_receipts
from clawd.runtime.calls import Calls, ClientCall, new_call_id
from clawd.runtime.conversation import LiveConversation
from clawd.runtime.inbox import Inbox
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.model_request import run_hop
from clawd.security.approvals import NO_ANSWER, SHUTTING_DOWN
from clawd.security.estop import ESTOP_REASON
from clawd.sop.expressions import problem_of_value, read_json, render, render_tree
from clawd.sop.load import FROM, SopStep
from clawd.sop.machine import SopRun, StepOutcome
from clawd.tools.base import traits_of
from clawd.tools.jobs import Jobs, looked_at
from clawd.tools.outcome import CallOutcome, CallRequest, CallScope
from clawd.tools.registry import Registry
from clawd.wire.events import TurnFinished
from clawd.wire.sops import SopRunStatus

MAX_OUTPUT = 64 * 1024
SHELL_WAIT_S = 600.0
NO_OUTPUT = "(no output)"
_NOT_ANSWERED = (f"denied: {NO_ANSWER}", f"denied: {SHUTTING_DOWN}")
_AS_JSON = "Write that as JSON of the given form, and nothing else."
_CUT_OFF = ("interrupted", "cancelled", ESTOP_REASON)


class Hold(msgspec.Struct, frozen=True):
    """The run cannot go on now; `undone` means that the attempt did not begin."""

    status: SopRunStatus
    reason: str
    undone: bool = False


class Trail(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of calls that were made.

    Attributes:
        path: of the receipt log.
        is_recording: whether there is one.
        open_intents: returns the ids of calls whose receipt is still to come.
        content: returns bytes by their hash.
    """

    path: Any
    is_recording: bool
    open_intents: Callable[[], Awaitable[frozenset[str]]]
    content: Callable[[str], Awaitable[bytes | None]]


class StepActor:
    """Makes attempts of the steps that are calls or turns.

    Args:
        calls: makes the calls.
        inbox: runs the turns of agents.
        registry: the tools.
        jobs: commands that take long.
        trail: what is left of calls.
    """

    def __init__(
        self, calls: Calls, inbox: Inbox, registry: Registry, *, jobs: Jobs, trail: Trail
    ) -> None:
        self._calls = calls
        self._inbox = inbox
        self._registry = registry
        self._jobs = jobs
        self._trail = trail

    async def act(self, run: SopRun, step: SopStep, scope: Mapping[str, Any]) -> StepOutcome | Hold:
        """Make one attempt of a step of kind tool, shell or agent.

        Raises:
            ExpressionError: a template has no value.
            ClawError: the trail cannot be written, or the conversation is gone.
        """
        if step.kind == "agent":
            return await self._turn(run, step, str(render(step.prompt, scope)))
        tool, arguments = call_of(step, scope)
        limit_s = step.timeout_s if step.kind == "tool" and step.timeout_s else None
        try:
            async with asyncio.timeout(limit_s):
                outcome = await self._call(run, tool, arguments, run.state(step.id).mark)
        except TimeoutError:
            why = f"it took longer than {step.timeout_s:g} s and was stopped"
            return StepOutcome(ok=False, error=why, receipt_id=run.state(step.id).mark)
        job = self._jobs.named(str(outcome.metadata.get("job", "")))
        if job is not None and outcome.metadata.get("running"):
            await self._jobs.wait(job, step.timeout_s - SHELL_WAIT_S)
            if job.state == "running":
                await self._jobs.stop(job, "the time limit of its step")
                why = f"it took longer than {step.timeout_s or 'its default of'} s and was ended"
                return StepOutcome(ok=False, error=why, receipt_id=outcome.receipt_id)
            found = looked_at(job)
            return StepOutcome(
                ok=found.success,
                output=_clipped(found.output),
                error=found.error,
                receipt_id=job.end_receipt_id,
            )
        return _outcome_of(outcome)

    async def found(self, run: SopRun, step: SopStep) -> StepOutcome | Hold | None:
        """Return what became of an attempt that a crash or a stop cut off; None: do it again.

        Raises:
            ClawError: the trail cannot be read.
        """
        mark = run.state(step.id).mark
        if step.kind == "agent":
            acted = await asyncio.to_thread(self._acted_since, run, mark)
            return _asked_about(step) if acted and not step.idempotent else None
        if mark in await self._trail.open_intents():
            return Hold("stopped", "receipts cannot be written, so nobody knows what became of it")
        receipt = await asyncio.to_thread(self._receipt, mark)
        if receipt is None or receipt.status == "denied":
            return None
        if receipt.status == "failed" and receipt.reason in _CUT_OFF:
            tool = self._registry.find(receipt.tool)
            looks = tool is not None and traits_of(tool).effect == "looks"
            is_harmless = looks and not (tool is not None and tool.starts_process)
            return None if is_harmless or step.idempotent else _asked_about(step)
        content = await self._trail.content(receipt.result_hash)
        text = (content or b"").decode(errors="replace")
        if receipt.status == "failed":
            return StepOutcome(ok=False, error=receipt.reason or text, receipt_id=receipt.id)
        return StepOutcome(ok=True, output=_plain(text), exit_code=0, receipt_id=receipt.id)

    async def _call(
        self, run: SopRun, tool: str, arguments: Mapping[str, Any], mark: str
    ) -> CallOutcome:
        live = await self._inbox.book.load(run.conversation_id, run.principal)
        request = CallRequest(
            id=new_call_id(),
            tool=tool,
            arguments=msgspec.json.encode(arguments).decode(),
            receipt_id=mark,
        )
        visit = ClientCall(
            conversation_id=run.conversation_id,
            workspace=run.workspace,
            interactive=True,
            attendance=live.attendance,
            offered=None if run.bounds.tools is None else frozenset(run.bounds.tools),
            narrowed=run.bounds.narrowed,
            keep_taint=partial(self._inbox.book.keep_taint, run.conversation_id, run.principal),
        )
        async with self._inbox.book.in_use(run.conversation_id, run.principal):
            return await self._calls.visit(
                request, run.principal, visit, live.broadcast.tell_followers
            )

    async def _turn(self, run: SopRun, step: SopStep, prompt: str) -> StepOutcome | Hold:
        message = IncomingMessage(
            text=prompt,
            conversation_id=run.conversation_id,
            agent=step.agent,
            tools_allow=self._allowed(run, step),
            narrowed=run.bounds.narrowed,
            max_rounds=step.max_rounds,
            interactive=True,
        )
        ticket = await self._inbox.submit(message, run.principal)
        try:
            async with asyncio.timeout(step.timeout_s or None):
                async for _ in ticket.events:
                    pass
                answer = _answer_of(await ticket.finished())
                if step.output_schema is not None and answer.ok:
                    answer = await self._by_schema(message, answer, step.output_schema)
                return answer
        except TimeoutError:
            return StepOutcome(ok=False, error=f"it took longer than {step.timeout_s:g} s")
        except ClawError as error:
            if error.code == "estop":
                return Hold("stopped", error.message)
            return StepOutcome(ok=False, error=error.message)
        finally:
            ticket.cancel()

    async def _by_schema(
        self, message: IncomingMessage, answer: StepOutcome, schema: dict[str, Any]
    ) -> StepOutcome:
        """Return an answer that fits a schema, asked for again if need be; else why none does.

        The turn may have called tools; the second request may not, and is held to the schema.
        """
        if not _problem_by(schema, answer.output):
            return answer
        provider, model, sampling = self._inbox.preparation.sampled(message)
        form = {"name": "answer", "schema": schema, "strict": True}
        request = ChatRequest(
            messages=(
                Message(role="user", content=message.text),
                Message(role="assistant", content=answer.output),
                Message(role="user", content=_AS_JSON),
            ),
            model=model,
            sampling=sampling,
            metadata={"conversation_id": f"{message.conversation_id}/answer"},
            response_format={"type": "json_schema", "json_schema": form},
        )
        found = await run_hop(provider, request, lambda _event: None, limit_bytes=MAX_OUTPUT)
        text, tokens = found.text.strip(), answer.tokens
        if found.finished is not None:
            tokens += found.finished.usage.prompt_tokens + found.finished.usage.completion_tokens
        why = _problem_by(schema, text)
        if found.failure is not None:
            text, why = answer.output, f"its answer could not be brought into form: {found.failure}"
        return StepOutcome(ok=not why, output=text, error=why, tokens=tokens)

    def _allowed(self, run: SopRun, step: SopStep) -> tuple[str, ...]:
        """Return patterns of the tools of an agent: the step's, of those that the run may have."""
        if run.bounds.tools is None:
            return step.tools
        wanted = self._registry.allowed(step.tools or ("*",))
        names = (each.name for each in wanted if each.name in run.bounds.tools)
        return tuple(names) or ("-*",)

    def turn_scope(self, conversation_id: str) -> CallScope | None:
        """Return for whom and where the turn calls that runs in a conversation; None for none."""
        return self._inbox.scope(conversation_id)

    def _receipt(self, mark: str) -> Receipt | None:
        return find_receipt(self._trail.path, mark) if self._trail.is_recording else None

    def _acted_since(self, run: SopRun, mark: str) -> bool:
        """Return whether calls of a run may have changed something since a mark was made."""
        if not self._trail.is_recording:
            return False
        for line in read_receipts(self._trail.path, newest_first=True):
            if not isinstance(line, Receipt):
                continue
            if line.timestamp < run.created_at[:19]:
                return False
            is_its = line.conversation_id == run.conversation_id and line.id > mark
            if is_its and line.status != "denied" and line.risk != "low":
                return True
        return False

    async def live(self, run: SopRun) -> LiveConversation:
        """Return the conversation of a run.

        Raises:
            NotFoundError: it was deleted.
        """
        return await self._inbox.book.load(run.conversation_id, run.principal)


def call_of(step: SopStep, scope: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments of a step of kind tool or shell.

    Raises:
        ExpressionError: a template has no value.
    """
    if step.kind == "shell":
        arguments: dict[str, Any] = {"command": render(step.command, scope, quoted=True)}
        if step.timeout_s:
            arguments["timeout_s"] = min(step.timeout_s, SHELL_WAIT_S)
        return "shell", arguments
    filled: dict[str, Any] = {}
    for name, value in step.args.items():
        source = scope.get(value) if name.endswith(FROM) and isinstance(value, str) else None
        if source is not None and hasattr(source, "output"):
            filled[name.removesuffix(FROM)] = source.output
        else:
            filled[name] = render_tree(value, scope)
    return step.tool, filled


def _asked_about(step: SopStep) -> Hold:
    return Hold("unsure", f"nobody knows whether step {step.id} happened before clawd was cut off")


def _outcome_of(outcome: CallOutcome) -> StepOutcome | Hold:
    """Return what a call comes to for its step."""
    if outcome.kind == "stopped":
        return Hold("stopped", ESTOP_REASON)
    if outcome.kind == "unanswered" or outcome.text.startswith(_NOT_ANSWERED):
        return Hold("waiting", f"nobody approved its call of {outcome.tool}", undone=True)
    code = outcome.metadata.get("exit_code")
    ok = outcome.status == "allowed"
    text = _plain(outcome.text)
    return StepOutcome(
        ok=ok,
        output=text if ok else "",
        error="" if ok else text,
        exit_code=code if isinstance(code, int) else None,
        receipt_id=outcome.receipt_id,
    )


def _answer_of(finished: TurnFinished) -> StepOutcome:
    """Return what a turn comes to for its step."""
    why = ""
    if finished.unanswered_approvals:
        why = f"{finished.unanswered_approvals} of its calls needed an approval in vain"
    elif finished.stop_reason != "stop":
        why = f"the agent did not come to an end: {finished.stop_reason}"
    tokens = finished.usage.prompt_tokens + finished.usage.completion_tokens
    return StepOutcome(ok=not why, output=_clipped(finished.text), error=why, tokens=tokens)


def _problem_by(schema: dict[str, Any], text: str) -> str:
    try:
        value = read_json(text)
    except ValueError:
        return "its answer is no JSON, as output_schema wants it"
    why = problem_of_value(value, schema)
    return f"its answer is not as output_schema wants it: {why}" if why else ""


def _plain(text: str) -> str:
    return "" if text.strip() == NO_OUTPUT else _clipped(text)


def _clipped(text: str) -> str:
    data = text.encode(errors="replace")
    if len(data) <= MAX_OUTPUT:
        return data.decode()
    return f"{data[:MAX_OUTPUT].decode(errors='ignore')}\n[cut at {MAX_OUTPUT} bytes]"
