"""The session for asyncio. Callbacks may be async; those that are not must not block the loop."""

import inspect
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Self, TypeVar

from typing_extensions import Unpack

from clawd.sdk.client import Exchange
from clawd.sdk.session_config import ChatResult, Said, TurnOptions, TurnRecord, approval_word
from clawd.sdk.session_options import NOBODY, OWNED, Face, StreamedReply
from clawd.wire.events import ApprovalRequested, Event, QuestionAsked, TurnFinished
from clawd.wire.method import Method
from clawd.wire.receipts import Verification, VerifyReceipts

R = TypeVar("R")


class AsyncReply(StreamedReply):
    """An answer as it comes: iterate over its pieces, then ask for its `result`.

    Breaking off cancels the turn; leaving `async with` says when that was taken.
    """

    def __init__(self, session: "AsyncSession", text: str, options: TurnOptions) -> None:
        super().__init__(text, options)
        self._session = session
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._stack.aclose()

    async def __aiter__(self) -> AsyncIterator[str]:
        self._send_once()
        try:
            record = TurnRecord()
            exchange = await self._session._begin(self._text, self._options)  # noqa: SLF001 - its other half
            await self._stack.enter_async_context(exchange)
            while (event := await exchange.next()) is not None:
                piece = record.take(event)
                await self._session._tell(event, exchange)  # noqa: SLF001 - its other half
                if piece:
                    yield piece
            self._result = record.result(exchange.result)
        finally:
            await self._stack.aclose()


class AsyncSession(Face):
    """A conversation with a model and its tools, for programs that use asyncio.

    async with AsyncSession.local() as session:
        result = await session.chat("what files are here?")
    """

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def init(self) -> Self:
        """Begin now rather than at the first message.

        Raises:
            ClawError: it cannot be begun; the message says why and what to do.
        """
        await self._core.init()
        return self

    async def chat(self, text: str, **options: Unpack[TurnOptions]) -> ChatResult:
        """Send a message and return what came of it.

        Options are for this message alone: `temperature=0.2`, `preset="precise"`, `model="…"`.

        Raises:
            ClawError: there is no answer; what was complete is kept.
        """
        async with self.stream(text, **options) as reply:
            async for _ in reply:
                pass
            return reply.result

    def stream(self, text: str, **options: Unpack[TurnOptions]) -> AsyncReply:
        """Return the answer to a message, which is sent when it is iterated over."""
        return AsyncReply(self, text, options)

    async def refresh_system(self) -> None:
        """Compute the system prompt anew, with all that was set since; the history stays."""
        await self._core.refresh()

    async def set_system(self, text: str) -> None:
        """Replace the base of the system prompt, and begin a new conversation."""
        self._core.check_wish(OWNED)
        await self._core.restart(text)

    async def render_system(self) -> str:
        """Return the system prompt as a message sent now would come with."""
        return await self._core.render()

    async def history(self) -> tuple[Said, ...]:
        """Return the messages of the conversation, oldest first."""
        return await self._core.history()

    async def verify_receipts(self) -> Verification:
        """Check the chain of receipts from its beginning to its end."""
        return await self.call(VerifyReceipts())

    async def call(self, params: Method[R]) -> R:
        """Call any method of the daemon (`clawd.wire`) and return its result."""
        return await self._core.call(params)

    @property
    def engine(self) -> Any:
        """The engine below (`clawd.engine.supervisor.Engine`); after `init`."""
        return self._core.backend.engine

    @property
    def provider(self) -> Any:
        """The provider that answers (`clawd.providers.base.Provider`); after `init`."""
        return self._core.backend.provider

    async def close(self) -> None:
        """Cancel what runs and end everything that the session began; idempotent."""
        await self._core.close()

    async def _begin(self, text: str, options: TurnOptions) -> Exchange[TurnFinished]:
        return await self._core.begin_turn(text, options, interactive=self._is_interactive)

    async def _tell(self, event: Event, exchange: Exchange[TurnFinished]) -> None:
        for callback in self._on_event:
            await _settled(callback(event))
        if piece := TurnRecord().take(event):
            for told in self._on_token:
                await _settled(told(piece))
        match event:
            case ApprovalRequested():
                answer = self._on_approval(event) if self._on_approval else "deny"
                word = approval_word(await _settled(answer))
                await exchange.answer(event.approval_id, word, event.digest)
            case QuestionAsked():
                reply = self._on_question(event) if self._on_question else NOBODY
                await exchange.answer(event.question_id, str(await _settled(reply)))
            case _:
                pass


async def _settled(value: object) -> object:
    return await value if inspect.isawaitable(value) else value
