"""The session for programs without asyncio. Callbacks run in the thread that waits."""

import asyncio
import atexit
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, Self, TypeVar, cast

from typing_extensions import Unpack

from clawd.errors import InvalidRequestError
from clawd.kernel.concurrency import Pool
from clawd.sdk import session_config
from clawd.sdk.client import Exchange
from clawd.sdk.session_options import NOBODY, OWNED, Face, StreamedReply
from clawd.wire.events import ApprovalRequested, Event, QuestionAsked, TurnFinished
from clawd.wire.method import Method
from clawd.wire.receipts import Verification, VerifyReceipts

T = TypeVar("T")

_READY_THREADS, _MOST_THREADS = 4, 32

# `atexit` comes too late: by then the thread pools are gone, and closing needs them. They end in
# this way, too, and were imported above: what registers later runs earlier.
_at_exit: Callable[..., object] = getattr(threading, "_register_atexit", atexit.register)


class LoopThread:
    """Runs coroutines of one session.

    Args:
        end: closes what the session began; called once, on the loop, at the latest at exit.

    Attributes:
        is_closed: whether `close` was called.
    """

    def __init__(self, end: Callable[[], Awaitable[None]]) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self.is_closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for it; an interrupt cancels it.

        Raises:
            InvalidRequestError: an event loop runs in the caller's thread, which this would block;
                or the session is closed, or was meanwhile.
        """
        with self._lock:  # a loop that ends meanwhile would never run it
            try:
                self._check_caller()
                loop = self._started()
            except BaseException:
                work.close()
                raise
            future = asyncio.run_coroutine_threadsafe(work, loop)
        try:
            return future.result()
        except CancelledError:
            if self.is_closed:
                raise InvalidRequestError("the session was closed meanwhile") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the session's things, then the thread; idempotent.

        Raises:
            InvalidRequestError: it is called on the thread itself, which cannot wait for its end.
        """
        if threading.current_thread() is self._thread:
            raise InvalidRequestError("a session cannot be closed from its own event loop")
        with self._lock:
            loop, thread, self._loop = self._loop, self._thread, None
            self.is_closed = True
        if loop is None or thread is None:
            return
        try:
            asyncio.run_coroutine_threadsafe(_awaited(self._end()), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        """Return the loop, begun if need be; the caller holds the lock."""
        if self.is_closed:
            raise InvalidRequestError("the session is closed", hint="Make a new one.")
        if self._loop is None:
            # At the exit of Python 3.12 no thread can be started: it goes on with those it has.
            loop = asyncio.new_event_loop()
            pool = Pool(_MOST_THREADS, "clawd-sdk-pool", ready=_READY_THREADS)
            loop.set_default_executor(pool)
            self._thread = threading.Thread(
                target=self._serve, args=(loop, pool), name="clawd-sdk", daemon=True
            )
            self._thread.start()
            self._loop = loop
            _at_exit(_close_at_exit, weakref.ref(self))
        return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop, pool: ThreadPoolExecutor) -> None:
        # A method, so that a running thread keeps its session until the exit closes it.
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            _cancel_all(loop)
            loop.run_until_complete(loop.shutdown_asyncgens())
            pool.shutdown()  # by ourselves: the loop would start a thread for it
            loop.close()

    def _check_caller(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        raise InvalidRequestError(
            "Session waits for its answers, and would block the event loop that runs here",
            hint="Use AsyncSession: `async with AsyncSession.local() as session: "
            "await session.chat(...)`.",
        )


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))


def _close_at_exit(running: "weakref.ref[LoopThread]") -> None:
    thread = running()
    if thread is not None:
        thread.close()


async def _awaited(awaitable: Awaitable[T]) -> T:
    return await awaitable


R = TypeVar("R")


class Reply(StreamedReply):
    """An answer as it comes: iterate over its pieces, then ask for its `result`.

    Breaking off cancels the turn.
    """

    def __init__(self, session: "Session", text: str, options: session_config.TurnOptions) -> None:
        super().__init__(text, options)
        self._session = session

    def __iter__(self) -> Iterator[str]:
        self._send_once()
        session, record = self._session, session_config.TurnRecord()
        with ExitStack() as stack:
            exchange = session._begin(self._text, self._options)  # noqa: SLF001 - its other half
            stack.callback(session._leave, exchange)  # noqa: SLF001 - its other half
            while (event := session.run(exchange.next())) is not None:
                piece = record.take(event)
                session._tell(event, exchange)  # noqa: SLF001 - its other half
                if piece:
                    yield piece
            self._result = record.result(exchange.result)


class Session(Face):
    """A conversation with a model and its tools.

    with Session.local() as session:
        print(session.chat("what files are here?"))

    Its daemon runs on a thread of the session's own, until `close` or the end of the program. One
    thread at a time may wait for an answer of it.
    """

    def __init__(self, plan: session_config.LocalPlan | session_config.DaemonPlan) -> None:
        super().__init__(plan)
        self._thread = LoopThread(self._core.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def init(self) -> Self:
        """Begin now rather than at the first message.

        Raises:
            ClawError: it cannot be begun; the message says why and what to do.
        """
        self.run(self._core.init())
        return self

    def chat(
        self, text: str, **options: Unpack[session_config.TurnOptions]
    ) -> session_config.ChatResult:
        """Send a message and return what came of it.

        Options are for this message alone: `temperature=0.2`, `preset="precise"`, `model="…"`.

        Raises:
            ClawError: there is no answer; what was complete is kept.
        """
        reply = self.stream(text, **options)
        for _ in reply:
            pass
        return reply.result

    def stream(self, text: str, **options: Unpack[session_config.TurnOptions]) -> Reply:
        """Return the answer to a message, which is sent when it is iterated over."""
        return Reply(self, text, options)

    def refresh_system(self) -> Self:
        """Compute the system prompt anew, with all that was set since; the history stays."""
        self.run(self._core.refresh())
        return self

    def set_system(self, text: str) -> Self:
        """Replace the base of the system prompt, and begin a new conversation."""
        self._core.check_wish(OWNED)
        self.run(self._core.restart(text))
        return self

    def render_system(self) -> str:
        """Return the system prompt as a message sent now would come with."""
        return self.run(self._core.render())

    def history(self) -> tuple[session_config.Said, ...]:
        """Return the messages of the conversation, oldest first."""
        return self.run(self._core.history())

    def verify_receipts(self) -> Verification:
        """Check the chain of receipts from its beginning to its end."""
        return self.call(VerifyReceipts())

    def call(self, params: Method[R]) -> R:
        """Call any method of the daemon (`clawd.wire`) and return its result."""
        return self.run(self._core.call(params))

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the session's loop, where `engine` and `provider` live."""
        return self._thread.run(work)

    @property
    def engine(self) -> Any:
        """The engine below (`clawd.engine.supervisor.Engine`); use it through `run`."""
        self.init()
        return self._core.backend.engine

    @property
    def provider(self) -> Any:
        """The provider that answers (`clawd.providers.base.Provider`); use it through `run`."""
        self.init()
        return self._core.backend.provider

    def close(self) -> None:
        """Cancel what runs and end everything that the session began; idempotent."""
        self._thread.close()

    def _begin(self, text: str, options: session_config.TurnOptions) -> Exchange[TurnFinished]:
        async def begin() -> Exchange[TurnFinished]:
            exchange = await self._core.begin_turn(text, options, interactive=self._is_interactive)
            return await exchange.__aenter__()

        return self.run(begin())

    def _leave(self, exchange: Exchange[TurnFinished]) -> None:
        if not self._thread.is_closed:  # else that has left it already
            self.run(exchange.__aexit__(None, None, None))

    def _tell(self, event: Event, exchange: Exchange[TurnFinished]) -> None:
        for callback in self._on_event:
            self._settled(callback(event))
        if piece := session_config.TurnRecord().take(event):
            for told in self._on_token:
                self._settled(told(piece))
        match event:
            case ApprovalRequested():
                answer = self._on_approval(event) if self._on_approval else "deny"
                word = session_config.approval_word(self._settled(answer))
                self.run(exchange.answer(event.approval_id, word, event.digest))
            case QuestionAsked():
                reply = self._on_question(event) if self._on_question else NOBODY
                self.run(exchange.answer(event.question_id, str(self._settled(reply))))
            case _:
                pass

    def _settled(self, value: object) -> object:
        """Return what a callback returned; one that is async runs on the session's loop."""
        if inspect.iscoroutine(value):
            return self.run(cast("Coroutine[Any, Any, object]", value))
        return value
