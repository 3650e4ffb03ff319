"""What the engine keeps of one model: its worker, its users and its record of deaths."""

import asyncio
import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from clawd.counts import Tally
from clawd.engine import protocol
from clawd.engine.client import EngineSettings, ErrorFactory, WorkerClient
from clawd.engine.process import WorkerDeath
from clawd.errors import ClawError, EngineError

ModelState = Literal["loading", "ready", "stopped"]

_MAX_REMEMBERED_PROMPTS = 128
_MAX_DOUBLINGS = 32


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One model the engine knows of.

    Attributes:
        pid: the worker's process id, 0 without one.
        state: `stopped` is a model whose worker died and was not needed since.
        info: what is loaded, or None.
        running: generations that run or wait.
        deaths: deaths in a row.
        usage: what it has done so far, its dead workers included.
        warmth: how far the beginning of prompts is evaluated ahead; None where none was wanted.
        template_notes: what had to be done otherwise with its chat template.
    """

    alias: str
    path: str
    pid: int
    state: ModelState
    info: protocol.ModelInfo | None
    running: int
    last_used_at: datetime
    deaths: int
    usage: "ModelUsage"
    warmth: protocol.Warmth | None = None
    template_notes: tuple[str, ...] = ()


class ModelUsage(msgspec.Struct, kw_only=True):
    """Tokens of all answers of a model; those that broke off are not in it."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def add(self, done: protocol.GenerationDone) -> None:
        """Count one answer."""
        self.prompt_tokens += done.prompt_tokens
        self.cached_tokens += done.cached_tokens
        self.completion_tokens += done.completion_tokens
        self.drafted_tokens += done.drafted_tokens
        self.accepted_tokens += done.accepted_tokens


class FileMark(msgspec.Struct, frozen=True, kw_only=True):
    """By what a model's file is told from one that took its place, or from its own past."""

    device: int
    inode: int
    size: int
    changed_ns: int


def file_mark(path: str) -> FileMark | None:
    """Return the mark of the file that is there now, or None without one."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return FileMark(
        device=status.st_dev,
        inode=status.st_ino,
        size=status.st_size,
        changed_ns=status.st_mtime_ns,
    )


def fingerprint(request: protocol.Generate | protocol.Question) -> bytes:
    """Hash what the model would read, not how it is sampled."""
    read: tuple[object, ...] = (request,)
    if isinstance(request, protocol.Generate | protocol.RenderPrompt):
        read = (request.messages, request.tools, request.template_kwargs, request.prompt)
    return hashlib.blake2b(msgspec.msgpack.encode(read), digest_size=16).digest()


class Run:
    """One use of a model: what ends it, and what its prompt is known by."""

    def __init__(self, number: int, fingerprint: bytes) -> None:
        self.number = number
        self.fingerprint = fingerprint
        self.stopped: asyncio.Future[ErrorFactory] = asyncio.get_running_loop().create_future()

    def stop(self, error: ErrorFactory) -> None:
        """End it with this error; the first one counts."""
        if not self.stopped.done():
            self.stopped.set_result(error)

    def check(self) -> None:
        """Raise the error that it was ended with, if it was."""
        if self.stopped.done():
            raise self.stopped.result()()


class ModelSlot:
    """One model: its worker when there is one, its users, and its record of deaths."""

    def __init__(self, config: protocol.ModelConfig, all_deaths: Tally | None = None) -> None:
        self.config = config
        self._all_deaths = all_deaths or Tally("model")
        self.client: WorkerClient | None = None
        self.starting: WorkerClient | None = None  # its load is under way
        self.loading: asyncio.Task[WorkerClient | ClawError] | None = None
        self.runs: dict[int, Run] = {}
        self.idle_timer: asyncio.TimerHandle | None = None
        self.used_at = time.time()
        self.deaths = 0
        self.start_after = 0.0
        self.mark: FileMark | None = None
        self.usage = ModelUsage()
        self._strikes: dict[bytes, int] = {}
        self._is_template_bad = False

    @property
    def name(self) -> str:
        """The model's alias, or its path."""
        return self.config.alias or self.config.path

    @property
    def is_occupied(self) -> bool:
        """Whether it takes memory, or is about to."""
        return self.loading is not None or self.ready_client() is not None

    def ready_client(self) -> WorkerClient | None:
        """Return the worker if it can take work."""
        return self.client if self.client is not None and self.client.is_alive else None

    def detach(self) -> WorkerClient | None:
        """Take the worker out, and end a load that nobody waits for."""
        self.stop_timer()
        if self.loading is not None:
            self.loading.cancel()
            self.loading = None
        client, self.client = self.client, None
        return client

    def stop_timer(self) -> None:
        """Forget when it would have been idle too long."""
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None

    def has_other_file(self) -> bool:
        """Return whether another file stands where the worker's, or the dead one's, did."""
        return self.mark is not None and file_mark(self.config.path) not in {None, self.mark}

    def forget(self) -> None:
        """Clear the record of deaths: what is there now is another model."""
        self.mark = None
        self.deaths = 0
        self.start_after = 0.0
        self._strikes.clear()
        self._is_template_bad = False

    def note_success(self, run: Run, done: protocol.GenerationDone) -> None:
        """Clear the model's and the prompt's record, and count the answer."""
        self.usage.add(done)
        self.deaths = 0
        self._strikes.pop(run.fingerprint, None)

    def note_death(self, death: WorkerDeath, settings: EngineSettings) -> None:
        """Put a death down: when to start again, and which prompts were running."""
        wait_s = settings.backoff_initial_s * 2.0 ** min(self.deaths, _MAX_DOUBLINGS)
        self.deaths += 1
        self._all_deaths.add(self.name)
        self.start_after = time.monotonic() + min(settings.backoff_max_s, wait_s)
        if death.cause == "template":
            self._is_template_bad = True
            return
        for number in death.running:
            if (run := self.runs.get(number)) and not run.stopped.done():
                self._strike(run.fingerprint)

    def refusal(self, run: Run, settings: EngineSettings) -> ClawError | None:
        """Return why this prompt must not run, or None."""
        hint = f"`clawctl model unload {self.name}` forgets it; or use another model."
        if self._is_template_bad:
            return EngineError(
                f"the chat template of model {self.name} is marked bad: a worker that rendered "
                f"it showed no sign of life for {settings.template_timeout_s:g} s",
                hint=hint,
            )
        deaths = self._strikes.get(run.fingerprint, 0)
        if deaths >= settings.max_prompt_deaths:
            return EngineError(
                f"this prompt is refused: the worker of model {self.name} died {deaths} times "
                "while it was running",
                hint=hint,
            )
        return None

    def status(self) -> ModelStatus:
        """Return what a person may know of it."""
        client = self.ready_client()
        state: ModelState = "ready" if client else "loading" if self.loading else "stopped"
        return ModelStatus(
            alias=self.name,
            path=self.config.path,
            pid=client.pid if client else 0,
            state=state,
            info=client.info if client else None,
            running=len(self.runs),
            last_used_at=datetime.fromtimestamp(self.used_at, UTC),
            deaths=self.deaths,
            usage=msgspec.structs.replace(self.usage),
            warmth=client.warmth if client else None,
            template_notes=client.template_notes if client else (),
        )

    def _strike(self, fingerprint: bytes) -> None:
        self._strikes[fingerprint] = self._strikes.pop(fingerprint, 0) + 1
        while len(self._strikes) > _MAX_REMEMBERED_PROMPTS:
            del self._strikes[next(iter(self._strikes))]
