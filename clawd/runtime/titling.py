"""Titles by a model: asked for in the background, after the first answer of a conversation.

Until there is one, and wherever there is none, a conversation is titled by its first words. No turn
ever waits for a title: a provider that serves one request at a time is not asked for any.
"""

import asyncio
import logging
from collections.abc import Callable

from clawd.errors import ClawError
from clawd.memory.conversations import Conversations
from clawd.memory.rows import TITLED_BY
from clawd.providers.base import ChatRequest, Message, Sampling
from clawd.runtime.conversation import ConversationBook, LiveConversation
from clawd.runtime.summariser import Summariser
from clawd.runtime.titles import Titles, title_of
from clawd.runtime.transcript import TITLER, title_request
from clawd.runtime.turn_plan import TurnPlan

MAX_TITLE_TOKENS = 32
MAX_THINKING_TOKENS = 512
LIMIT_S = 30.0
MAX_RUNNING = 4

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
        titles: Callable[[], Titles],
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
        is_free = plan.provider.capabilities().parallel != 1 and len(self._tasks) < MAX_RUNNING
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
