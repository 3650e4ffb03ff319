"""The daemon's side of one worker: load, generations by id, watchdog, death. One process, one life.

Which worker is started when, and for how long, is the supervisor's business; the limits and times
of both stand here.
"""

import asyncio
import logging
import signal
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import assert_never

import msgspec

from clawd.engine import protocol
from clawd.engine.process import (
    STARTED_AGAIN,
    KillCause,
    WorkerDeath,
    WorkerProcess,
    exit_reason,
    exit_signal,
    load_error,
)
from clawd.errors import ClawError, ModelLoadError, ProtocolError, WorkerDiedError
from clawd.wire.events import PromptProgress

GenerationEvent = (
    PromptProgress
    | protocol.GenerationStarted
    | protocol.Tokens
    | protocol.GenerationDone
    | protocol.GenerationFailed
)
ErrorFactory = Callable[[], ClawError]


class Mailbox:
    """Events of one generation, in order.

    Bounded by the generation's own length: waiting tokens are handed out as one event.
    """

    def __init__(self) -> None:
        self._events: deque[GenerationEvent] = deque()
        self._error: ErrorFactory | None = None
        self._changed = asyncio.Event()
        self.is_finished = False

    @property
    def is_drained(self) -> bool:
        """Whether the last event has been fetched."""
        return self.is_finished and not self._events

    def put(self, event: GenerationEvent) -> None:
        """Add an event; GenerationDone and GenerationFailed are the last."""
        self._events.append(event)
        self.is_finished = isinstance(event, protocol.GenerationDone | protocol.GenerationFailed)
        self._changed.set()

    def fail(self, error: ErrorFactory) -> None:
        """End it with an error that overtakes what was not fetched yet."""
        self._error = self._error or error
        self._changed.set()

    async def get(self) -> GenerationEvent:
        """Wait for the next event.

        Raises:
            ClawError: what `fail` was given.
        """
        while not self._events and self._error is None:
            self._changed.clear()
            await self._changed.wait()
        if self._error is not None:
            raise self._error()
        first = self._events.popleft()
        return self._merged(first) if isinstance(first, protocol.Tokens) else first

    def _merged(self, first: protocol.Tokens) -> protocol.Tokens:
        pieces = [first]
        while self._events and isinstance(following := self._events[0], protocol.Tokens):
            pieces.append(following)
            self._events.popleft()
        if len(pieces) == 1:
            return first
        text = "".join(piece.text for piece in pieces)
        return protocol.Tokens(
            id=first.id,
            text=text,
            count=sum(piece.count for piece in pieces),
            logprobs=tuple(logprob for piece in pieces for logprob in piece.logprobs),
        )


# Its writers are dead by then, so its end is there as soon as somebody looks.
_STDERR_GRACE_S = 30.0
# A template that runs away computes; a worker that does not is stuck elsewhere.
_RUNAWAY_SHARE = 0.5
_log = logging.getLogger(__name__)


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits and times of the supervisor; every time is in seconds.

    Attributes:
        keep_alive_s: an idle model is unloaded after this; 0 at once, negative never.
        max_loaded: models in memory at one time.
        load_timeout_s: a load that takes longer is ended.
        template_timeout_s: from a request to an idle worker to its first sign of life; only the
            chat template is rendered in that time.
        step_timeout_s: the longest silence while work is pending; a step of a big model on a slow
            machine must fit.
        ping_interval_s: silence after which a worker with pending work is asked for a sign.
        quit_grace_s: from Quit to SIGKILL; a worker takes up to half of it to save what it keeps.
        backoff_initial_s: wait before the restart after the first death; doubles with each.
        backoff_max_s: the longest such wait.
        max_prompt_deaths: a prompt that was running in so many deaths is refused.
    """

    keep_alive_s: float = 300.0
    max_loaded: int = 2
    load_timeout_s: float = 120.0
    template_timeout_s: float = 5.0
    step_timeout_s: float = 60.0
    ping_interval_s: float = 1.0
    quit_grace_s: float = 8.0
    backoff_initial_s: float = 0.5
    backoff_max_s: float = 30.0
    max_prompt_deaths: int = 2


class WorkerClient:
    """One worker from its start to its end.

    The owner runs `run()` as a task and awaits it; it ends when the process is gone and reaped.
    """

    def __init__(
        self,
        process: WorkerProcess,
        config: protocol.ModelConfig,
        settings: EngineSettings,
        on_death: Callable[[WorkerDeath], None],
    ) -> None:
        self._process = process
        self._config = config
        self._settings = settings
        self._on_death = on_death
        self._loaded: asyncio.Future[protocol.ModelReady | protocol.LoadFailed | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._mailboxes: dict[int, Mailbox] = {}
        self._cancelling: set[int] = set()
        # By the question's id; for a Pong by that of its Ping, below zero.
        self._answers: dict[int, asyncio.Future[protocol.Reply | protocol.Pong | ErrorFactory]] = {}
        self._ended = asyncio.Event()
        self._has_work = asyncio.Event()
        self._heard_at = time.monotonic()
        self._awaits_first_sign = False
        # When it was last heard of, and its processor time soon after.
        self._cpu_at: tuple[float, float] | None = None
        self._pings = 0
        self._pongs = 0
        self._is_quitting = False
        self._kill_cause: tuple[KillCause, str] | None = None
        self._death: WorkerDeath | None = None
        self.info: protocol.ModelInfo | None = None
        self.warmth: protocol.Warmth | None = None  # of what was wanted last
        self.template_notes: tuple[str, ...] = ()

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can take work."""
        return not self._is_quitting and self._kill_cause is None and not self._ended.is_set()

    def memory_bytes(self) -> int:
        """Return how much memory it has; looks at all of /proc."""
        return self._process.memory_bytes()

    async def run(self) -> None:
        """Read frames until the process is gone; the owner of everything this worker does."""
        try:
            async with asyncio.TaskGroup() as group:
                stderr = group.create_task(self._process.collect_stderr())
                watchdog = group.create_task(self._watch())
                await self._read_frames()
                watchdog.cancel()
                # One that fails closes its socket first, and then writes why.
                returncode = await self._process.finish(self._settings.quit_grace_s)
                await asyncio.wait({stderr}, timeout=_STDERR_GRACE_S)
                stderr.cancel()
            self._end(returncode)
        finally:
            if not self._ended.is_set():
                self._process.kill()
                self._end(-signal.SIGKILL)

    async def load(self) -> protocol.ModelInfo:
        """Load the model.

        Raises:
            ModelLoadError: the worker says that it cannot, or it takes too long.
            WorkerDiedError: the worker died of it.
        """
        self._process.post(protocol.Load(config=self._config))
        limit_s = self._settings.load_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                answer = await asyncio.shield(self._loaded)
        except TimeoutError:
            self.kill("other", f"the load took longer than {limit_s:g} s")
            raise ModelLoadError(
                f"model {self._name} was not loaded within {limit_s:g} s ({self._config.path})",
                hint="Raise load_timeout_s in [engine], or use a smaller model.",
            ) from None
        match answer:
            case protocol.ModelReady():
                self.info = answer.info
                return answer.info
            case protocol.LoadFailed():
                raise load_error(self._name, answer)
            case None:
                raise self._gone()
            case _:
                assert_never(answer)

    async def generate(self, request: protocol.Generate) -> AsyncGenerator[GenerationEvent, None]:
        """Yield the events of one generation; closing or cancelling tells the worker to stop.

        Raises:
            WorkerDiedError: the worker died, or was dead already.
            ClawError: what `fail_generations` was given.
        """
        mailbox = self._open(request)
        try:
            await self._flush()
            while not mailbox.is_drained:
                yield await mailbox.get()
        finally:
            del self._mailboxes[request.id]
            if not mailbox.is_finished:
                self._cancel(request.id)
            self._note_work()

    async def ask(self, question: protocol.Question) -> protocol.Reply:
        """Return the answer to a question; cancelling it tells the worker where that takes long.

        Raises:
            WorkerDiedError: the worker died, or was dead already.
            ClawError: what `fail_generations` was given.
        """
        renders = isinstance(question, protocol.RenderPrompt)
        # The Pong says that the template has been rendered, as for a generation.
        frames = (question, self._next_ping()) if renders else (question,)
        self._awaits_first_sign = self._awaits_first_sign or (renders and self._is_idle)
        answer = await self._answer(question.id, *frames)
        assert not isinstance(answer, protocol.Pong), "a question was answered with a Pong"
        return answer

    def warm(self, request: protocol.Generate) -> None:
        """Have what such prompts begin with evaluated ahead; answers change `warmth`."""
        if self.is_alive:
            self._process.post(protocol.Warm(request=request))

    async def state(self) -> protocol.Pong:
        """Return what the worker is doing.

        Raises:
            WorkerDiedError: the worker died, or was dead already.
        """
        ping = self._next_ping()
        answer = await self._answer(-ping.id, ping)
        assert isinstance(answer, protocol.Pong), "a Ping was answered with something else"
        return answer

    async def _answer(
        self, key: int, *frames: protocol.Question | protocol.Ping
    ) -> protocol.Reply | protocol.Pong:
        if not self.is_alive:
            raise self._gone()
        waiting: asyncio.Future[protocol.Reply | protocol.Pong | ErrorFactory] = (
            asyncio.get_running_loop().create_future()
        )
        self._answers[key] = waiting
        try:
            self._process.post(*frames)
            self._note_work()
            await self._flush()
            answer = await waiting
        finally:
            del self._answers[key]
            is_given_up = waiting.cancelled() or not waiting.done()
            if isinstance(frames[0], protocol.Embed) and is_given_up and not self._ended.is_set():
                self._process.post(protocol.CancelGeneration(id=key))
            self._note_work()
        if isinstance(answer, protocol.Reply | protocol.Pong):
            return answer
        raise answer()

    def fail_generations(self, error: ErrorFactory) -> int:
        """End all that is asked of it with this error; return how many generations there were."""
        for generation_id, mailbox in self._mailboxes.items():
            if not mailbox.is_finished:
                self._process.post(protocol.CancelGeneration(id=generation_id))
            mailbox.fail(error)
        for key, answer in self._answers.items():
            if not answer.done():
                self._process.post(protocol.CancelGeneration(id=key))
                answer.set_result(error)
        return len(self._mailboxes)

    def kill(self, cause: KillCause, reason: str) -> None:
        """End the process at once; what is running fails with this reason."""
        if self._kill_cause is None and not self._ended.is_set():
            self._kill_cause = (cause, reason)
        self._process.kill()

    async def close(self) -> None:
        """Tell the worker to quit, kill it after the grace, return when it is gone."""
        self._is_quitting = True
        self._process.post(protocol.Quit(save_limit_s=self._settings.quit_grace_s / 2))
        try:
            async with asyncio.timeout(self._settings.quit_grace_s):
                await self._ended.wait()
        except TimeoutError:
            self._process.kill()
            await self._ended.wait()

    @property
    def _is_idle(self) -> bool:
        return not (self._mailboxes or self._cancelling or self._answers)

    @property
    def _name(self) -> str:
        return self._config.alias or self._config.path

    def _gone(self) -> ClawError:
        if self._death is not None:
            return self._death.error()
        return WorkerDiedError(
            f"the engine worker of model {self._name} (pid {self.pid}) was ended",
            hint=STARTED_AGAIN,
        )

    def _open(self, request: protocol.Generate) -> Mailbox:
        if not self.is_alive:
            raise self._gone()
        mailbox = Mailbox()
        is_idle = self._is_idle
        # In one piece, so that both are read before the next step: the Pong then says that the
        # template has been rendered.
        self._process.post(request, self._next_ping())
        self._mailboxes[request.id] = mailbox
        self._awaits_first_sign = self._awaits_first_sign or is_idle
        self._note_work()
        return mailbox

    def _cancel(self, generation_id: int) -> None:
        if not self._ended.is_set():
            self._cancelling.add(generation_id)
            self._process.post(protocol.CancelGeneration(id=generation_id))

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(self._settings.step_timeout_s):
                await self._process.flush()
        except TimeoutError:
            self.kill("step", f"it read nothing for {self._settings.step_timeout_s:g} s")

    def _note_work(self) -> None:
        if self._is_idle:
            self._has_work.clear()
        elif not self._has_work.is_set():
            self._heard_at = time.monotonic()
            self._has_work.set()

    def _next_ping(self) -> protocol.Ping:
        self._pings += 1
        return protocol.Ping(id=self._pings)

    async def _watch(self) -> None:
        """Kill a worker that has work and shows no sign of life."""
        settings, silence = self._settings, Silence()
        pause_s = settings.ping_interval_s
        while True:
            await self._has_work.wait()
            silent_s = silence.look(time.monotonic(), self._heard_at, pause_s)
            if silent_s >= settings.ping_interval_s:
                if self._pongs == self._pings:
                    self._process.post(self._next_ping())
                if self._awaits_first_sign and await self._is_template_runaway():
                    limit_s = settings.template_timeout_s
                    self.kill(
                        "template", f"its chat template was not rendered within {limit_s:g} s"
                    )
                    return
                silent_s = silence.look(time.monotonic(), self._heard_at, 0.0)
            if silent_s >= settings.step_timeout_s:
                self.kill("step", f"it showed no sign of life for {settings.step_timeout_s:g} s")
                return
            pause_s = min(settings.ping_interval_s, settings.step_timeout_s - silent_s)
            await asyncio.sleep(pause_s)

    async def _is_template_runaway(self) -> bool:
        """Return whether the first sign is overdue because the worker computes all the time.

        A worker that was stopped, is swapped out or gets no processor is not its template's fault:
        it has the time of a step.
        """
        heard_at, limit_s = self._heard_at, self._settings.template_timeout_s
        is_overdue = time.monotonic() - heard_at >= limit_s
        if not is_overdue and self._cpu_at is not None and self._cpu_at[0] == heard_at:
            return False
        cpu_s = await asyncio.to_thread(self._process.cpu_s)
        if self._cpu_at is None or self._cpu_at[0] != heard_at:
            self._cpu_at = (heard_at, cpu_s)
        window_s = max(limit_s - self._settings.ping_interval_s, limit_s / 2)
        is_computing = cpu_s - self._cpu_at[1] >= window_s * _RUNAWAY_SHARE
        return is_overdue and is_computing and self._heard_at == heard_at

    async def _read_frames(self) -> None:
        try:
            await self._process.read(self._take_all)
        except ProtocolError as error:
            self.kill("other", f"it sent what is no frame ({error.message})")

    def _take_all(self, frames: list[protocol.FromWorker]) -> None:
        self._heard_at = time.monotonic()
        self._awaits_first_sign = False
        for frame in frames:
            self._take(frame)

    def _take(self, frame: protocol.FromWorker) -> None:
        match frame:
            case protocol.ModelReady() | protocol.LoadFailed():
                self._is_quitting = self._is_quitting or isinstance(frame, protocol.LoadFailed)
                if not self._loaded.done():
                    self._loaded.set_result(frame)
            case protocol.PromptStep():
                self._deliver(frame.id, frame.progress)
            case protocol.GenerationStarted() | protocol.Tokens():
                self._deliver(frame.id, frame)
            case protocol.GenerationDone() | protocol.GenerationFailed():
                self._deliver(frame.id, frame)
                self._cancelling.discard(frame.id)
                self._note_work()
            case protocol.Warmth():
                self.warmth = frame
            case protocol.TemplateNotes():
                self._take_notes(frame.notes)
            case protocol.Pong():
                self._pongs = frame.id
                self._take_answer(-frame.id, frame)
            case _:
                self._take_answer(frame.id, frame)

    def _deliver(self, number: int, event: GenerationEvent) -> None:
        if mailbox := self._mailboxes.get(number):
            mailbox.put(event)

    def _take_notes(self, notes: tuple[str, ...]) -> None:
        for note in notes:
            if note not in self.template_notes:
                _log.warning("the chat template of model %s: %s", self._name, note)
        self.template_notes = notes

    def _take_answer(self, key: int, frame: protocol.Reply | protocol.Pong) -> None:
        answer = self._answers.get(key)
        if answer is not None and not answer.done():
            answer.set_result(frame)

    def _end(self, returncode: int) -> None:
        self._ended.set()
        cause, reason = self._kill_cause or ("exited", exit_reason(returncode))
        if self._process.was_overdue and self._kill_cause is None:
            cause, reason = "other", "it closed its socket and did not end by itself"
        self._death = WorkerDeath(
            model=self._name,
            pid=self.pid,
            reason=reason,
            cause=cause,
            stderr=self._process.stderr_lines(),
            running=(*self._mailboxes, *(key for key in self._answers if key > 0)),
            signal=exit_signal(returncode) if cause == "exited" else 0,
        )
        for mailbox in self._mailboxes.values():
            if not mailbox.is_finished:
                mailbox.fail(self._death.error)
        if not self._loaded.done():
            self._loaded.set_result(None)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_result(self._death.error)
        if not self._is_quitting:
            _log.warning("engine worker %d of model %s died: %s", self.pid, self._name, reason)
            self._on_death(self._death)


class Silence:
    """Adds up the time between looks, no more for each than was to pass until it.

    Where the watching process got no processor, was stopped or blocked its loop, a worker may have
    said something that is not read yet.
    """

    def __init__(self) -> None:
        self._heard_at = float("-inf")
        self._looked_at = 0.0
        self._counted_s = 0.0

    def look(self, now: float, heard_at: float, pause_s: float) -> float:
        """Return the seconds of silence.

        Args:
            now: the time of this look.
            heard_at: when the worker was heard of last, or its work began.
            pause_s: how long the watcher meant to wait before this look.
        """
        if heard_at != self._heard_at:
            self._heard_at = self._looked_at = heard_at
            self._counted_s = 0.0
        self._counted_s += min(now - self._looked_at, pause_s)
        self._looked_at = now
        return self._counted_s
