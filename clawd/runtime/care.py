"""What is done around a turn: room is made in the context before it, a title is given after it."""

from collections.abc import Awaitable, Callable

import msgspec

from clawd.runtime.compressor import Compressor
from clawd.runtime.conversation import LiveConversation
from clawd.runtime.hop import Emit
from clawd.runtime.preparation import PreparedTurn
from clawd.runtime.session_files import FileSummaries
from clawd.runtime.titling import Titler
from clawd.runtime.turn_plan import request_of
from clawd.wire.events import Event, TurnFinished, TurnStarted


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
        self,
        live: LiveConversation,
        emit: Emit,
        prepare: Callable[[Emit, str], Awaitable[PreparedTurn]],
    ) -> PreparedTurn:
        """Return a turn as `prepare` makes it, in a conversation that has room for it.

        `prepare` takes where events go, and what stands for a long message if that is settled.

        Raises:
            ClawError: the turn cannot be prepared, or memory failed.
        """
        self._summaries.give_way()

        def emit_once(event: Event) -> None:
            if not isinstance(event, TurnStarted):
                emit(event)

        prepared = await prepare(emit, "")
        plan = prepared.plan
        message = None if plan.late else plan.message
        room = self.compressor.room(live, plan.provider, emit, message=message)
        said = (*live.context.messages, *([message] if message else ()))
        request = request_of(plan, said)
        if await room.make(request, plan.measured_tokens):
            # What was cut away is shown again in the block of this message, so it is made anew.
            prepared = await prepare(emit_once, prepared.words.short)
            plan = prepared.plan
            message = None if plan.late else plan.message
            room = self.compressor.room(live, plan.provider, emit, message=message)
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
