"""Compresses conversations: has a summary written, keeps it as a checkpoint, says that it did.

`compression` decides, this acts. The summary is asked for before anything is written; then one
transaction puts the checkpoint in force. So a crash finds the conversation either as it was or
compressed, and no message is ever lost.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from clawd.config.sections import CompressionSection
from clawd.errors import ContextFullError, InvalidRequestError
from clawd.kernel.concurrency import settled
from clawd.memory.checkpoints import UNCOMPRESSED, Checkpoint, Checkpoints, ModelView
from clawd.memory.conversations import Conversations
from clawd.providers.base import (
    ChatRequest,
    Message,
    Provider,
    Sampling,
    ToolReading,
    able,
    sees,
    without_pictures,
)
from clawd.providers.ledger import ContextTeller, estimate_tokens
from clawd.runtime.compression import (
    TEMPLATE_TOKENS,
    Count,
    Cut,
    Measure,
    RequestLoad,
    Wish,
    budget_tokens,
    can_never_fit,
    choose,
    count_messages,
    count_request,
    is_due,
    is_too_long,
    room_for_kept,
    summary_room,
    surely_fits,
)
from clawd.runtime.context import checkpoint_messages, shown_result
from clawd.runtime.conversation import LiveConversation
from clawd.runtime.model_request import Emit
from clawd.runtime.summariser import EmptyTextError, NoTextError, Summariser
from clawd.runtime.transcript import (
    SUMMARISER,
    plain_checkpoint,
    summary_checkpoint,
    summary_fault,
    summary_order,
    summary_request,
)
from clawd.wire.events import ContextCompressed, Notice

ATTEMPTS = 3
RETRY_AFTER_MESSAGES = 10
WORDS_PER_TOKEN = 0.6
CHARACTERS_PER_TOKEN = 4
MAX_TRANSCRIPT_TOKENS = 24_000
RETRY_TEMPERATURE = 0.4
MAX_THINKING_TOKENS = 1_024  # a model that reasons does so before it writes the summary

MAX_MODELS = 256

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class ModelBook:
    """What models have said of their contexts and prompts, by provider and model."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[str, str], int] = {}
        self._measures: dict[tuple[str, str], Measure] = {}

    def size(self, provider: Provider, model: str) -> int:
        """Return the size of a model's context as far as it is known, 0 for unknown."""
        told = provider.context_size_of(model) if isinstance(provider, ContextTeller) else 0
        noted = self._sizes.get((provider.name(), model), 0)
        return told or noted or provider.capabilities().context_size

    def note_size(self, provider: Provider, model: str, size: int) -> None:
        """Remember how large a model said that its context is."""
        _remember(self._sizes, (provider.name(), model), size)

    async def count(self, provider: Provider, request: ChatRequest, known_tokens: int) -> Count:
        """Return the tokens of a request; what a model reports of one helps to count the next."""
        key = (provider.name(), request.model)
        count = await count_request(
            provider, request, known_tokens=known_tokens, measure=self._measures.get(key)
        )
        if count.measure is not None:
            _remember(self._measures, key, count.measure)
        return count


def _remember(book: dict[tuple[str, str], _T], key: tuple[str, str], value: _T) -> None:
    if key in book or len(book) < MAX_MODELS:
        book[key] = value


class Compressor:
    """Compresses conversations. One of a daemon.

    Args:
        checkpoints: where checkpoints are kept.
        conversations: memory's rows.
        summariser: asks models.
        settings: returns the settings in force.
        models: what models say of themselves.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        conversations: Conversations,
        *,
        summariser: Summariser,
        settings: Callable[[], CompressionSection],
        models: ModelBook | None = None,
    ) -> None:
        self.summariser = summariser
        self.settings = settings
        self._checkpoints = checkpoints
        self._conversations = conversations
        self.models = models or ModelBook()

    async def shown(self, live: LiveConversation) -> ModelView:
        """Return the stored messages that the model is shown, and the checkpoint before them."""
        return await self._checkpoints.shown(live.record.id, owner=live.record.owner)

    async def keep(self, live: LiveConversation, checkpoint: Checkpoint) -> None:
        """Put a checkpoint in force, on disk and then in the conversation; both or neither."""

        async def put() -> None:
            record = live.record
            await self._checkpoints.add(record.id, checkpoint, owner=record.owner)
            await self._show(live)

        _, cancelled = await settled(put())
        if cancelled:
            raise asyncio.CancelledError

    async def undo(self, live: LiveConversation, *, only_last: bool) -> int:
        """Take the checkpoints of a conversation away; return how many are gone.

        Raises:
            InvalidRequestError: it has none.
        """

        async def take() -> int:
            record = live.record
            gone = await self._checkpoints.undo(record.id, owner=record.owner, only_last=only_last)
            await self._show(live)
            return gone

        gone, cancelled = await settled(take())
        if cancelled:
            raise asyncio.CancelledError
        return gone

    async def _show(self, live: LiveConversation) -> None:
        live.record = await self._conversations.get(live.record.id, owner=live.record.owner)
        live.show(await self.shown(live))


@dataclass(eq=False)
class Room:
    """Sees to it that the requests of one turn fit into the context.

    Args:
        compressor: compresses.
        live: the conversation.
        provider: answers it.
        emit: takes events.
        message: the user's of the turn; None where it has none.
    """

    compressor: Compressor
    live: LiveConversation
    provider: Provider
    emit: Emit
    message: Message | None = None
    _model: str = field(default="", init=False)

    async def make(self, request: ChatRequest, known_tokens: int) -> bool:
        """Compress the conversation if a request of it would not fit; return whether it changed.

        Args:
            request: what would be sent: the conversation's messages and what is not stored yet.
            known_tokens: of the last prompt and its answer, 0 for unknown.

        Raises:
            StorageError: memory failed.
        """
        self._model = request.model
        settings = self.compressor.settings()
        models = self.compressor.models
        size = models.size(self.provider, request.model) or settings.context_tokens
        is_short = len(request.messages) < settings.at_messages
        limit = size * settings.at_context_percent // 100
        # Where nobody knows the size, the number of messages alone counts.
        if is_short and (not size or surely_fits(request, known_tokens, limit)):
            return False
        work = _Work(self.live, request)
        changed = False
        for attempt in range(ATTEMPTS + 1):
            await self._weigh(work, 0 if changed else known_tokens)
            if not is_too_long(settings, work.load) and (changed or not self._is_due(work.load)):
                return changed
            if work.count.measure is not None and can_never_fit(work.load):
                break
            if attempt == ATTEMPTS or not await self._compress(work, attempt=attempt):
                break
            changed = True
            work.follow()
        # Without a report of the model, counts of parts may be far from what its template makes.
        if is_too_long(settings, work.load) and work.count.measure is not None:
            self._say_too_long(work.load)
        return changed

    async def by_hand(self, request: ChatRequest, known_tokens: int) -> Checkpoint:
        """Compress the conversation now, or leave it as it is where no summary is to be had.

        Raises:
            InvalidRequestError: there is nothing that could go.
            NoTextError: the model gave no summary.
        """
        self._model = request.model
        work = _Work(self.live, request, is_by_hand=True)
        await self._weigh(work, known_tokens)
        if not await self._compress(work):
            raise InvalidRequestError(
                f"there is nothing to compress in conversation {self.live.record.id}",
                hint="The last exchange always stays as it is.",
            )
        assert self.live.checkpoint is not None
        return self.live.checkpoint

    # --- how much there is

    async def _weigh(self, work: "_Work", known_tokens: int) -> None:
        """Count a request, unless its size is nobody's business: then by messages alone."""
        models, settings = self.compressor.models, self.compressor.settings()
        size = models.size(self.provider, work.request.model) or settings.context_tokens
        if size:
            work.count = await models.count(self.provider, work.request, known_tokens)
        work.load = RequestLoad(
            messages=len(work.request.messages),
            tokens=work.count.total,
            fixed_tokens=work.count.fixed,
            pending_tokens=sum(work.count.each[work.stored :]),
            context_tokens=size,
        )

    def _is_due(self, load: RequestLoad) -> bool:
        failed_at = self.live.no_summary_at
        if failed_at and 0 <= load.messages - failed_at < RETRY_AFTER_MESSAGES:
            return False
        uncompressed = self.live.record.metadata.get(UNCOMPRESSED, 0)
        return is_due(self.compressor.settings(), load, uncompressed=int(uncompressed))

    def _say_too_long(self, load: RequestLoad) -> None:
        budget = budget_tokens(self.compressor.settings(), load)
        text = (
            f"the context has about {load.tokens} tokens, over its budget of {budget}: nothing "
            "more of it can be left out"
        )
        self.emit(Notice(level="warning", text=text))

    # --- compressing

    async def _compress(self, work: "_Work", *, attempt: int = 0) -> bool:
        """Put one checkpoint in force; return whether anything could be left out."""
        settings = self.compressor.settings()
        found = await self.compressor.shown(self.live)
        kept = [shown_result(stored, found.checkpoint) for stored in found.messages]
        tokens = await count_messages(
            self.provider, kept, model=work.request.model, scale=work.count.scale
        )
        choice = choose(kept, tokens, self._wish(work, len(kept), attempt))
        if choice is None:
            return False
        plan = Cut(found=found, kept=kept, tokens=tokens, choice=choice)
        text = plan.earlier
        is_summary = True
        if choice.replaced:
            try:
                text = await self._summary(work, plan)
            except NoTextError as error:
                is_summary = False
                if work.is_by_hand:
                    raise
                if not is_too_long(settings, work.load):
                    self.live.no_summary_at = work.load.messages
                    self._say_no_summary(error, "nothing was left out")
                    return False
                text = self._plain(work, plan, error)
                self._say_no_summary(error, "first words stand in for it")
        await self.compressor.keep(self.live, self._checkpoint(plan, text, is_summary=is_summary))
        self.live.no_summary_at = 0
        await self._tell(work, plan)
        return True

    def _wish(self, work: "_Work", count: int, attempt: int) -> Wish:
        settings = self.compressor.settings()
        room = room_for_kept(settings, work.load, summary_tokens=summary_room(settings, work.load))
        if room is not None:
            room = room * (ATTEMPTS - attempt) // ATTEMPTS
        if work.is_by_hand:
            most = max(min(settings.most, count // 2), 2)
            return Wish(least=min(settings.keep_least, most), most=most, room_tokens=room)
        return Wish(
            least=min(settings.keep_least, settings.most),
            most=settings.most,
            room_tokens=room,
            has_pending=self.message in work.pending,
        )

    async def _summary(self, work: "_Work", plan: "Cut") -> str:
        """Return the checkpoint message that the model's summary makes.

        Raises:
            NoTextError: the model gave no summary.
        """
        limit = summary_room(self.compressor.settings(), work.load)
        thinking = MAX_THINKING_TOKENS
        if work.load.context_tokens:
            thinking = min(thinking, work.load.context_tokens // 8)
        told = f"the first {len(plan.gone)} messages of the context are being summarised"
        self.emit(Notice(level="info", text=told))
        going_on = self._going_on(work, plan, limit=limit, thinking=thinking)
        if going_on is not None:
            try:
                summary = await self._asked(going_on, plan, limit_tokens=limit)
                return summary_checkpoint(summary, plan.replaced)
            except NoTextError as error:
                if not isinstance(error.__cause__, ContextFullError):
                    raise
        aside = await self._aside(work, plan, limit=limit, thinking=thinking)
        summary = await self._asked(aside, plan, limit_tokens=limit)
        return summary_checkpoint(summary, plan.replaced)

    def _going_on(
        self, work: "_Work", plan: "Cut", *, limit: int, thinking: int
    ) -> ChatRequest | None:
        """Return the conversation up to the cut with the wish for a summary at its end.

        A local model has read all of it before the wish. None where that is not so, or where it
        would not fit: then the messages are shown beside the conversation.
        """
        read, asked = self._read(plan), work.request
        if not read or not self._goes_on(asked, read):
            return None
        order = summary_order(read, words=int(limit * WORDS_PER_TOKEN))
        size = work.count.fixed + sum(work.count.each[: len(read)])
        new = sum(estimate_tokens(each.content or "") + TEMPLATE_TOKENS for each in order)
        if size + 2 * new + limit + thinking > work.load.context_tokens:
            return None
        if size > MAX_TRANSCRIPT_TOKENS and not self.live.was_read:
            return None  # after a start nothing of it need be in memory still
        sampling = asked.sampling or Sampling()
        return msgspec.structs.replace(
            asked,
            messages=(*read, *order),
            tool_choice="none",
            keeps_tools=True,
            response_format=None,
            sampling=Sampling(
                max_tokens=limit + thinking, template_kwargs=sampling.template_kwargs
            ),
        )

    def _goes_on(self, asked: ChatRequest, read: Sequence[Message]) -> bool:
        """Return whether prompts of a model go on with the conversation's own messages."""
        reading = able(self.provider, ToolReading, asked.model)  # type: ignore[type-abstract]
        if reading is None or not self.provider.capabilities().local:
            return False
        reader, model = reading
        # A template that leaves out what tools take leaves messages out, too; and without tools in
        # front, calls and results are shown as text.
        has_calls = any(each.role == "tool" for each in read)
        return reader.reads_schemas(model) and (bool(asked.tools) or not has_calls)

    def _read(self, plan: "Cut") -> tuple[Message, ...]:
        """Return the messages before the cut as the model was shown them; none if not the same."""
        front = checkpoint_messages(plan.found.checkpoint, plan.kept)
        live = self.live.context.messages
        if [each.role for each in live] != [each.role for each in (*front, *plan.kept)]:
            return ()
        read = live[: len(front) + plan.choice.start]
        is_seen = sees(self.provider, self._model)
        return read if is_seen else tuple(map(without_pictures, read))

    async def _aside(self, work: "_Work", plan: "Cut", *, limit: int, thinking: int) -> ChatRequest:
        """Return a request of its own that shows the messages as a transcript."""
        room, size = MAX_TRANSCRIPT_TOKENS, work.load.context_tokens
        if size:
            room = min(room, size - 2 * limit - thinking - estimate_tokens(SUMMARISER))
        asked = await self._question(work, plan, words=int(limit * WORDS_PER_TOKEN), room=room)
        conversation_id = work.request.metadata.get("conversation_id", "")
        return ChatRequest(
            system=SUMMARISER,
            messages=(Message(role="user", content=asked),),
            model=work.request.model,
            metadata=work.request.metadata | {"conversation_id": f"{conversation_id}/summary"},
            sampling=Sampling(max_tokens=limit + thinking),
        )

    async def _asked(self, request: ChatRequest, plan: "Cut", *, limit_tokens: int) -> str:
        """Return what a model answers if it may be a summary; it has one more try.

        Raises:
            NoTextError: it gave none, or what it gave is none.
        """
        ask, limit_s = (
            self.compressor.summariser.ask,
            self.compressor.settings().summary_timeout_s,
        )
        summary = ""
        try:
            summary = await ask(self.provider, request, limit_tokens=limit_tokens, limit_s=limit_s)
            fault = await asyncio.to_thread(summary_fault, summary, plan.gone, plan.earlier)
        except EmptyTextError as error:
            fault = error.message
        if not fault:
            return summary
        _log.warning("a summary is refused and asked for again", extra={"why": fault})
        again = _asked_again(request, fault)
        summary = await ask(self.provider, again, limit_tokens=limit_tokens, limit_s=limit_s)
        fault = await asyncio.to_thread(summary_fault, summary, plan.gone, plan.earlier)
        if fault:
            raise NoTextError(f"two summaries were refused, the last because {fault}")
        return summary

    async def _question(self, work: "_Work", plan: "Cut", *, words: int, room: int) -> str:
        """Return what the summariser is asked, in so many tokens as the model counts them."""
        earlier = [Message(role="system", content=plan.earlier)] if plan.earlier else []
        said = [*earlier, *plan.gone]
        limit, asked = int(room / max(work.count.scale, 1.0)), ""
        for _attempt in range(ATTEMPTS):
            # A long history is looked through beside the loop: others talk meanwhile.
            asked = await asyncio.to_thread(summary_request, said, words=words, room_tokens=limit)
            message = Message(role="user", content=asked)
            (tokens,) = await count_messages(
                self.provider, [message], model=self._model, scale=work.count.scale
            )
            if tokens <= room:
                break
            limit = limit * max(room, 0) // tokens
        return asked

    def _plain(self, work: "_Work", plan: "Cut", error: NoTextError) -> str:
        limit = summary_room(self.compressor.settings(), work.load) * CHARACTERS_PER_TOKEN
        text = plain_checkpoint(
            plan.gone,
            earlier=plan.earlier,
            replaced=plan.replaced,
            reason=error.message,
            limit=max(int(limit / max(work.count.scale, 1.0)), 200),
        )
        return self.compressor.summariser.without_secrets(text)

    def _say_no_summary(self, error: NoTextError, so: str) -> None:
        _log.warning("a conversation could not be summarised", extra={"so": so})
        text = f"the conversation could not be summarised ({error.message}): {so}"
        self.emit(Notice(level="warning", text=text))

    def _checkpoint(self, plan: "Cut", text: str, *, is_summary: bool) -> Checkpoint:
        return msgspec.structs.replace(
            plan.checkpoint(),
            text=text,
            is_summary=is_summary,
            provider=self.provider.name(),
            model=self._model,
        )

    async def _tell(self, work: "_Work", plan: "Cut") -> None:
        before, pending = work.load.tokens, work.load.pending_tokens
        if gone := sum(len(message.pictures) for message in plan.gone):
            pictures = "1 picture is" if gone == 1 else f"{gone} pictures are"
            self.emit(Notice(level="info", text=f"{pictures} no longer shown to the model"))
        after = 0
        if work.load.context_tokens:
            messages = self.live.context.messages
            counts = await count_messages(
                self.provider, messages, model=self._model, scale=work.count.scale
            )
            after = work.load.fixed_tokens + sum(counts) + pending
        self.emit(
            ContextCompressed(
                messages_replaced=len(plan.gone), tokens_before=before, tokens_after=after
            )
        )
        _log.info(
            "conversation compressed",
            extra={
                "conversation": self.live.record.id,
                "replaced": len(plan.gone),
                "kept": len(plan.kept) - len(plan.gone),
            },
        )


def _asked_again(request: ChatRequest, fault: str) -> ChatRequest:
    """Return the request with what was wrong with its answer; otherwise the answer is the same."""
    *before, asked = request.messages
    told = f"{asked.content}\nAn answer was refused: {fault}. Write plain sentences."
    message = msgspec.structs.replace(asked, content=told)
    sampling = msgspec.structs.replace(
        request.sampling or Sampling(), temperature=RETRY_TEMPERATURE
    )
    return msgspec.structs.replace(request, messages=(*before, message), sampling=sampling)


class _Work:
    """A request that is to fit, and what is known of its size."""

    def __init__(
        self, live: LiveConversation, request: ChatRequest, *, is_by_hand: bool = False
    ) -> None:
        self._live = live
        self.request = request
        self.stored = len(live.context.messages)
        self.pending = request.messages[self.stored :]
        self.is_by_hand = is_by_hand
        self.count = Count()
        self.load = RequestLoad(messages=0, tokens=0)

    def follow(self) -> None:
        """Take over what the conversation is shown as now."""
        stored = self._live.context.messages
        self.stored = len(stored)
        self.request = msgspec.structs.replace(self.request, messages=(*stored, *self.pending))
