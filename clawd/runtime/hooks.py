"""The owner's hooks around turns: at their beginning and end, and when a person is asked."""

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Literal

import msgspec

from clawd.errors import ClawError, ForbiddenError
from clawd.runtime.conversation import ConversationBook, LiveConversation
from clawd.runtime.hub import DaemonEvent
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.model_request import Emit
from clawd.security.principal import Principal
from clawd.tools.hooks import HookEvent, HookRun, Hooks, HookScene
from clawd.wire.events import ApprovalRequested, Notice, QuestionAsked

MAX_RUNNING = 32

_log = logging.getLogger(__name__)


class TurnHooks:
    """Runs the hooks of turns and questions. One of a daemon.

    Args:
        hooks: runs programs.
        book: the conversations in use.
    """

    def __init__(self, hooks: Hooks, book: ConversationBook) -> None:
        self._hooks = hooks
        self._book = book
        self._tasks: set[asyncio.Task[None]] = set()

    async def started(
        self, live: LiveConversation, incoming: IncomingMessage, principal: Principal, emit: Emit
    ) -> IncomingMessage:
        """Run what begins with a turn; return the message with what is added to it.

        Raises:
            ForbiddenError: a hook refuses the message.
            ClawError: the trail cannot be written.
        """
        facts = {"message": incoming.text}
        for run in await self._run("turn_start", live, principal, facts, emit):
            if run.refusal and not run.problem:
                raise ForbiddenError(f"the message is not sent: {run.refusal}")
            if run.remark:
                noted = "\n".join(filter(None, (incoming.noted, run.remark)))
                untrusted = (*incoming.untrusted, f"the hook {run.hook.name}")
                incoming = msgspec.structs.replace(incoming, noted=noted, untrusted=untrusted)
        return incoming

    async def ended(
        self,
        live: LiveConversation,
        principal: Principal,
        emit: Emit,
        *,
        status: Literal["finished", "failed", "stopped"],
        answer: str,
    ) -> None:
        """Run what ends with a turn."""
        facts = {"status": status, "answer": answer}
        try:
            await self._run("turn_end", live, principal, facts, emit)
        except ClawError as error:
            # The turn is over and stored: nothing of it can be taken back.
            _log.error("a hook at the end of a turn left no receipt: %s", error.message)

    def stopped(self, live: LiveConversation, principal: Principal) -> None:
        """Begin what ends with a turn that was stopped: nobody who stops one waits for it."""
        if self._hooks.of("turn_end"):
            self._begin(
                self.ended(live, principal, live.broadcast.emit, status="stopped", answer="")
            )

    def note(self, told: DaemonEvent) -> None:
        """Take what happened in the daemon; never blocks, never raises."""
        event = told.event
        live = self._book.live(told.conversation_id)
        if live is None or not self._hooks.of("on_question"):
            return
        match event:
            case ApprovalRequested():
                facts: dict[str, Any] = {
                    "question": event.reason,
                    "risk": event.risk,
                    "tool": event.tool,
                    "arguments": msgspec.Raw(event.arguments.encode()),
                }
            case QuestionAsked():
                facts = {"question": event.text, "options": list(event.options)}
            case _:
                return
        owner = Principal(uid=live.record.owner, gid=-1, pid=0)
        self._begin(self._asked(live, owner, facts))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= MAX_RUNNING:
            work.close()
            _log.warning("%d hooks run that nothing waits for; one is left out", MAX_RUNNING)
            return
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what still runs."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _asked(
        self, live: LiveConversation, principal: Principal, facts: dict[str, Any]
    ) -> None:
        try:
            await self._run("on_question", live, principal, facts, live.tell)
        except ClawError as error:
            _log.error("a hook about a question left no receipt: %s", error.message)

    async def _run(
        self,
        event: HookEvent,
        live: LiveConversation,
        principal: Principal,
        facts: dict[str, Any],
        emit: Emit,
    ) -> list[HookRun]:
        runs: list[HookRun] = []
        for hook in self._hooks.of(event):
            scene = HookScene(
                conversation_id=live.record.id,
                principal=principal,
                workspace=Path(live.record.workspace),
                facts=facts,
            )
            run = await self._hooks.run(hook, scene)
            if self._hooks.is_news(run):
                emit(Notice(level="warning", text=f"the hook {hook.name} {run.problem}"))
            runs.append(run)
        return runs
