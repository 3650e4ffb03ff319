"""What is done around a turn: room is made in the context before it, a title is given after it.

The owner's own programs are hooks, too: they run at its beginning and end, and at its questions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

import msgspec

from clawd.errors import ClawError, ForbiddenError
from clawd.memory.conversations import Conversations
from clawd.memory.rows import TITLED_BY
from clawd.providers.base import ChatRequest, Message, Sampling
from clawd.runtime.compressor import Compressor, Room
from clawd.runtime.conversation import ConversationBook, LiveConversation, title_of
from clawd.runtime.hub import DaemonEvent
from clawd.runtime.incoming import IncomingMessage
from clawd.runtime.model_request import Emit
from clawd.runtime.preparation import PreparedTurn
from clawd.runtime.session_files import FileSummaries
from clawd.runtime.summariser import Summariser
from clawd.runtime.transcript import TITLER, title_request
from clawd.runtime.turn_plan import TurnPlan, request_of
from clawd.security.principal import Principal
from clawd.tools.hooks import HookEvent, HookRun, Hooks, HookScene
from clawd.wire.events import (
    ApprovalRequested,
    Event,
    Notice,
    QuestionAsked,
    TurnFinished,
    TurnStarted,
)

# Titles by a model: asked for in the background, after the first answer of a conversation.
#
# Until there is one, and wherever there is none, a conversation is titled by its first words. No
# turn ever waits for a title: a provider that serves one request at a time is not asked for any.

MAX_TITLE_TOKENS = 32
MAX_THINKING_TOKENS = 512
LIMIT_S = 30.0
MAX_TITLES_RUNNING = 4

_log = logging.getLogger(__name__)


class Titler:
    """Gives conversations their titles. One of a daemon.

    Args:
        conversations: memory's rows.
        book: the conversations in use.
        summariser: asks models.
        titles: returns where titles come from.
    """

    def __init__(
        self,
        conversations: Conversations,
        book: ConversationBook,
        *,
        summariser: Summariser,
        titles: Callable[[], str],
    ) -> None:
        self._conversations = conversations
        self._book = book
        self._summariser = summariser
        self._titles = titles
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False

    @property
    def is_busy(self) -> bool:
        """Whether a title is on its way."""
        return bool(self._tasks)

    def begin(self, live: LiveConversation, plan: TurnPlan, *, words: str, answer: str) -> None:
        """Begin to find a title, where a model is to give one and this was the first answer."""
        is_wanted = self._titles() == "model" and not live.record.metadata.get(TITLED_BY)
        is_free = (
            plan.provider.capabilities().parallel != 1 and len(self._tasks) < MAX_TITLES_RUNNING
        )
        if not is_wanted or not is_free or self._is_closing or live.answered != 1:
            return
        task = asyncio.create_task(self._give(live, plan, words, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what runs; the titles stay as they are."""
        self._is_closing = True
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    async def _give(self, live: LiveConversation, plan: TurnPlan, words: str, answer: str) -> None:
        record = live.record
        request = ChatRequest(
            system=TITLER,
            messages=(Message(role="user", content=title_request(words, answer)),),
            model=plan.model,
            metadata=plan.hints | {"conversation_id": f"{record.id}/title"},
            sampling=Sampling(max_tokens=MAX_TITLE_TOKENS + MAX_THINKING_TOKENS),
        )
        try:
            text = await self._summariser.ask(
                plan.provider, request, limit_tokens=MAX_TITLE_TOKENS, limit_s=LIMIT_S
            )
            title = title_of(_first_line(text))
            found = await self._conversations.suggest_title(record.id, title, owner=record.owner)
        except ClawError as error:
            _log.info("a title stays as it is: %s", error.code, extra={"conversation": record.id})
            return
        self._book.refresh(found)


def _first_line(text: str) -> str:
    """Return the first line that says something, without the marks that models like to add."""
    line = next((line for line in text.splitlines() if line.strip()), "")
    return line.strip().removeprefix("Title:").strip(" \t\"'“”*#`.")


class Care:
    """Cares for conversations around their turns. One of a daemon.

    Args:
        compressor: makes room.
        titler: gives titles.
        summaries: has session files summed up.
    """

    def __init__(self, compressor: Compressor, titler: Titler, summaries: FileSummaries) -> None:
        self.compressor = compressor
        self._titler = titler
        self._summaries = summaries

    async def prepared(
        self, live: LiveConversation, emit: Emit, prepare: Callable[..., Awaitable[PreparedTurn]]
    ) -> PreparedTurn:
        """Return a turn as `prepare` makes it, in a conversation that has room for it.

        `prepare` takes where events go as `emit`, and as `short` what stands for a long message if
        that is settled.

        Raises:
            ClawError: the turn cannot be prepared, or memory failed.
        """
        self._summaries.give_way()

        def emit_once(event: Event) -> None:
            if not isinstance(event, TurnStarted):
                emit(event)

        prepared = await prepare(emit=emit)
        plan = prepared.plan
        message = None if plan.late else plan.message
        room = Room(self.compressor, live, plan.provider, emit, message=message)
        said = (*live.context.messages, *([message] if message else ()))
        request = request_of(plan, said)
        if await room.make(request, plan.measured_tokens):
            # What was cut away is shown again in the block of this message, so it is made anew.
            prepared = await prepare(emit=emit_once, short=prepared.words.short)
            plan = prepared.plan
            message = None if plan.late else plan.message
            room = Room(self.compressor, live, plan.provider, emit, message=message)
        return msgspec.structs.replace(
            prepared, plan=msgspec.structs.replace(plan, make_room=room.make)
        )

    def finished(
        self, live: LiveConversation, prepared: PreparedTurn, finished: TurnFinished
    ) -> None:
        """Learn from a turn that was answered, and begin what is to be done in the background."""
        plan = prepared.plan
        if finished.usage.context_size:
            size = finished.usage.context_size
            self.compressor.models.note_size(plan.provider, plan.model, size)
        self._titler.begin(live, plan, words=prepared.words.text, answer=finished.text)
        self._summaries.begin(live, plan)

    def stop(self) -> None:
        """End what models write on the side, because of the emergency stop."""
        self.compressor.summariser.stop()

    async def close(self) -> None:
        """End what runs in the background."""
        await self._titler.close()
        await self._summaries.close()


# The owner's hooks around turns: at their beginning and end, and when a person is asked.

MAX_HOOKS_RUNNING = 32


class TurnHooks:
    """Runs the hooks of turns and questions. One of a daemon.

    Args:
        hooks: runs programs.
        book: the conversations in use.
    """

    def __init__(self, hooks: Hooks, book: ConversationBook) -> None:
        self._hooks = hooks
        self.settings = hooks.settings
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
        match event := told.event:
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
        live = self._book.live(told.conversation_id)
        if live is not None and self._hooks.of("on_question"):
            owner = Principal(uid=live.record.owner, gid=-1, pid=0)
            self._begin(self._asked(live, owner, facts))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._tasks) >= MAX_HOOKS_RUNNING:
            work.close()
            _log.warning("%d hooks run that nothing waits for; one is left out", MAX_HOOKS_RUNNING)
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
