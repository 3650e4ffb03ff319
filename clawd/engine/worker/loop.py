"""The worker's life: read frames, step, write events, until the daemon lets go.

One thread does all. It never waits for the daemon while there is work, and never works while the
daemon does not read: events that cannot be sent are kept up to a limit, beyond it the model rests.
Between two steps every frame is answered, so a Pong is at most a step, a prompt's rendering or
the model's loading late.
"""

import hashlib
import logging
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import assert_never

import msgspec

from clawd.engine import protocol
from clawd.engine.worker import prompt
from clawd.engine.worker.embedding import EmbeddingQueue
from clawd.engine.worker.files import fingerprint, loaded_variant
from clawd.engine.worker.generation import TINY_LOOP_TOKENS
from clawd.engine.worker.grammar import GrammarPlanner
from clawd.engine.worker.guidance import MissingError
from clawd.engine.worker.llama import TINY_MODEL_PARAMS, LoadError
from clawd.engine.worker.model import LlamaModel
from clawd.engine.worker.pictures import PictureError
from clawd.engine.worker.planner import Planner
from clawd.engine.worker.prewarm import MAX_WANTED
from clawd.engine.worker.queries import Answers
from clawd.engine.worker.scheduler import Scheduler, context_full
from clawd.engine.worker.schema import SchemaError
from clawd.engine.worker.statefolder import StateFolder
from clawd.engine.worker.states import StateStore
from clawd.engine.worker.template import ChatTemplate
from clawd.errors import ProtocolError

MAX_UNSENT_BYTES = 4 * 1024 * 1024
# Silence before chores begin: the next hop of an agent often comes at once.
QUIET_MS = 100
# Beginnings of prompts that are remembered, so that what comes again is kept.
MAX_MET = 64
_MEGABYTE = 1024 * 1024
_RECEIVE_BYTES = 256 * 1024
# No vocabulary packs this many characters into every token; longer prompts are refused unread.
_MAX_CHARACTERS_PER_TOKEN = 64

logger = logging.getLogger(__name__)


class LoadedEngine:
    """A loaded model with what answers requests."""

    def __init__(
        self,
        *,
        info: protocol.ModelInfo,
        answers: Answers,
        grammars: GrammarPlanner,
        scheduler: Scheduler,
        embeddings: EmbeddingQueue | None = None,
        keeps_met: bool = False,
    ) -> None:
        self.info = info
        self.scheduler = scheduler
        self._answers = answers
        self._grammars = grammars
        self._embeddings = embeddings
        # Text of clients is kept where conversations are.
        self._keeps_met = keeps_met
        self._met: dict[bytes, int] = {}
        # With whether the daemon wants it, or it was met again.
        self._to_warm: list[tuple[protocol.Generate, bool]] = []
        self._told_notes: tuple[str, ...] = ()

    @property
    def has_work(self) -> bool:
        """Return whether a step would do anything."""
        makes_vectors = self._embeddings is not None and self._embeddings.has_work
        return makes_vectors or self.scheduler.has_work

    def step(self) -> list[protocol.FromWorker]:
        """Let every generation go on, and make one vector."""
        events = self.scheduler.step() if self.scheduler.has_work else []
        return events + self._embeddings.step() if self._embeddings is not None else events

    def rest(self) -> bool:
        """Use a quiet moment; return whether there was something to do."""
        if not self.info.generates:
            return False
        if self._to_warm:
            request, is_wanted = self._to_warm.pop()
            self._warm(request, is_wanted=is_wanted)
            return True
        return self.scheduler.rest()

    def warm(self, frame: protocol.Warm) -> list[protocol.FromWorker]:
        """Evaluate the beginning of such prompts when there is time."""
        if self.info.generates:
            self._to_warm = [*self._to_warm, (frame.request, True)][-MAX_WANTED:]
        return []

    def news(self) -> list[protocol.FromWorker]:
        """Return what came of quiet moments."""
        return [*self.scheduler.warmer.news(), *self._new_notes()]

    def _new_notes(self) -> list[protocol.FromWorker]:
        """Return what is to be told of the chat template, if it is another thing than before."""
        notes = self._answers.template_notes
        if notes == self._told_notes:
            return []
        self._told_notes = notes
        return [protocol.TemplateNotes(notes=notes)]

    def _warm(self, request: protocol.Generate, *, is_wanted: bool) -> None:
        try:
            beginning = self._answers.beginning_of(request)
        except prompt.PromptTooLongError as error:
            logger.warning("the beginning of prompts is not evaluated ahead: %s", error)
            return
        warmer = self.scheduler.warmer
        if is_wanted:
            warmer.want(beginning.tokens, beginning.stable)
        else:
            warmer.want_again(beginning.tokens)

    def _meet(self, request: protocol.Generate) -> None:
        """Keep the beginning of prompts that come a second time."""
        if not self._keeps_met or request.prompt is not None or not request.messages:
            return
        lead = tuple(each for each in request.messages if each.role == "system")
        beginning = msgspec.structs.replace(request, messages=lead)
        key = hashlib.blake2b(
            msgspec.msgpack.encode((lead, request.tools, request.template_kwargs)), digest_size=16
        ).digest()
        self._met[key] = count = self._met.pop(key, 0) + 1
        while len(self._met) > MAX_MET:
            del self._met[next(iter(self._met))]
        if count == 2:
            self._to_warm = [*self._to_warm, (beginning, False)][-MAX_WANTED:]

    def generate(self, request: protocol.Generate) -> list[protocol.FromWorker]:
        """Build the prompt and queue it; return why not when it cannot be."""
        if not self.info.generates:
            return [_generates_nothing(request.id)]
        refused = self.scheduler.refusal(request.id)
        if refused is not None:
            return [refused]
        try:
            parts = self._answers.parts_of(request)
        except prompt.PromptTooLongError as error:
            size, n_ctx = f"{error.length} characters", self.info.n_ctx
            return [context_full(request.id, size, n_ctx, error.estimate)]
        except (prompt.UnknownTokenError, prompt.NoInfillError, PictureError) as error:
            return [_unusable_prompt(request.id, error)]
        try:
            grammar = self._grammars.plan(request.grammar)
        except SchemaError as error:
            return [_unusable_schema(request.id, error)]
        self._meet(request)
        notes = self._new_notes()
        fallback = self._answers.fallback if request.tools else ""
        sampling = request.sampling
        # What is held comes to an end by itself.
        is_free = request.grammar.kind == "none" or request.grammar.lazy
        if is_free and self.info.n_params < TINY_MODEL_PARAMS:
            sampling = msgspec.structs.replace(sampling, loop_tokens=TINY_LOOP_TOKENS)
        failed = self.scheduler.submit(
            request.id,
            parts,
            sampling,
            grammar,
            fallback=fallback,
            pictures=(each for message in request.messages for each in message.pictures),
        )
        return [*notes, *([failed] if failed is not None else [])]

    def answer(self, question: protocol.Question) -> list[protocol.FromWorker]:
        """Answer what is asked beside generations; vectors come with later steps."""
        match question:
            case protocol.Embed():
                if self._embeddings is None:
                    told = "this worker makes no embeddings"
                    return [
                        protocol.QuestionFailed(
                            id=question.id, code="invalid_request", message=told
                        )
                    ]
                return self._embeddings.submit(question)
            case _:
                return [self._answers.answer(question)]

    def cancel(self, number: int) -> list[protocol.FromWorker]:
        """End a generation, or a request for vectors; unknown ids do nothing."""
        if self._embeddings is not None:
            self._embeddings.cancel(number)
        return self.scheduler.cancel(number)

    def pong(self, request: protocol.Ping) -> protocol.Pong:
        """Return what the engine is doing."""
        return protocol.Pong(
            id=request.id,
            running=self.scheduler.running,
            queued=self.scheduler.queued,
            cached_sequences=self.scheduler.cached_sequences,
        )


def load_model(load: protocol.Load) -> LoadedEngine:
    """Return an engine with the model in llama.cpp.

    Raises:
        LoadError: the model cannot be loaded.
    """
    config = load.config
    started = time.monotonic()
    model = LlamaModel(config)
    template = ChatTemplate(model.chat_template, bos=model.bos_text, eos=model.eos_text)
    eye = model.eye
    prompts = prompt.PromptBuilder(
        model,
        template,
        max_characters=model.n_ctx * _MAX_CHARACTERS_PER_TOKEN,
        album=eye.album if eye is not None else None,
        blindness=model.blindness,
    )
    scheduler = Scheduler(
        model,
        Planner(
            model,
            prefill_chunk=config.prefill_chunk,
            speculates=config.speculation == "auto",
            eye=eye,
        ),
        n_parallel=config.n_parallel,
        max_queue=config.max_queue,
        store=state_store(model),
    )
    info = msgspec.structs.replace(
        model.info((time.monotonic() - started) * 1000),
        reads_tools=template.reads_tools(),
        reads_schemas=template.reads_schemas(),
    )
    return LoadedEngine(
        info=info,
        answers=Answers(model, prompts, scheduler.histories),
        grammars=GrammarPlanner(model.guidance.compile),
        scheduler=scheduler,
        embeddings=EmbeddingQueue(model, model.embedder),
        keeps_met=config.prefix_cache_conversations and config.prefix_cache_disk_mb > 0,
    )


def state_store(model: LlamaModel) -> StateStore:
    """Return the store of sequences for a model, as its config wants it."""
    config, folder = model.config, None
    if config.prefix_cache_folder and config.prefix_cache_disk_mb > 0:
        try:
            model_print = fingerprint(
                config,
                library=model.binding_version,
                architecture=model.architecture,
                n_ctx=model.n_ctx,
                streams=1 if model.shares_cells else model.n_sequences,
            )
        except OSError as error:
            logger.warning("sequences are not kept on disk: %s", error)
        else:
            limit_bytes = config.prefix_cache_disk_mb * _MEGABYTE
            folder = StateFolder(Path(config.prefix_cache_folder), limit_bytes, model_print)
    return StateStore(
        config.prefix_cache_ram_mb * _MEGABYTE,
        folder,
        keeps_conversations=config.prefix_cache_conversations,
        whole_only=model.reuses_whole_only,
    )


class Worker:
    """Serves one daemon over one socket.

    Args:
        connection: a stream socket; it is made non-blocking.
        load_engine: loads a model; raises LoadError when it cannot.
        max_unsent_bytes: events that may wait for the daemon before the model rests.
        first: a frame that was read before; it is answered first.
        fence: what holds this process, for the answer to Load.
    """

    def __init__(
        self,
        connection: socket.socket,
        load_engine: Callable[[protocol.Load], LoadedEngine] = load_model,
        *,
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
        first: protocol.ToWorker | None = None,
        fence: str = "",
    ) -> None:
        self._load_engine = load_engine
        self._first = first
        self._fence = fence
        self._max_unsent_bytes = max_unsent_bytes
        self._socket = connection
        self._socket.settimeout(0)
        self._incoming = protocol.FrameBuffer()
        self._unsent = bytearray()
        self._engine: LoadedEngine | None = None
        self._is_over = False
        self._save_limit_s = protocol.Quit().save_limit_s
        self._has_chores = False
        self._is_resting = False

    @property
    def unsent_bytes(self) -> int:
        """Return how many bytes of events wait for the daemon to read."""
        return len(self._unsent)

    def run(self) -> None:
        """Work until the daemon says Quit, closes the socket, or the model does not load.

        Raises:
            ProtocolError: the daemon sent what is no frame.
        """
        if self._first is not None:
            self._send(self._handle(self._first))
        while not self._is_over:
            is_quiet = not self._wait()
            events = [] if is_quiet else self._receive()
            if self._may_step() and self._engine is not None:
                # Who cancelled or asked must not wait for the step that comes now.
                self._send(events)
                events = self._engine.step()
                self._has_chores, self._is_resting = True, False
            elif is_quiet and self._engine is not None:
                self._has_chores = self._is_resting = self._engine.rest()
                events += self._engine.news()
            self._send(events)
        self._flush()
        if self._engine is not None:
            self._engine.scheduler.shut_down(self._save_limit_s)

    def _may_step(self) -> bool:
        return (
            self._engine is not None
            and self._engine.has_work
            and not self._is_over
            and len(self._unsent) < self._max_unsent_bytes
        )

    def _wait(self) -> bool:
        """Return when there is something to do: a frame, room to send, a step, or chores.

        Returns:
            Whether the socket is ready.
        """
        poller = select.poll()
        poller.register(self._socket, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        return bool(poller.poll(self._patience_ms()))

    def _patience_ms(self) -> int | None:
        if self._may_step():
            return 0
        if self._has_chores:
            return 0 if self._is_resting else QUIET_MS
        return None

    def _receive(self) -> list[protocol.FromWorker]:
        events: list[protocol.FromWorker] = []
        while not self._is_over:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                break
            except ConnectionError:
                data = b""
            if not data:
                self._is_over = True
                break
            for body in self._incoming.feed(data):
                events += self._handle(protocol.decode_to_worker(body))
                if self._is_over:
                    break
            if len(data) < _RECEIVE_BYTES:
                break
        return events

    def _handle(self, frame: protocol.ToWorker) -> list[protocol.FromWorker]:
        engine = self._engine
        match frame:
            case protocol.Quit():
                self._is_over, self._save_limit_s = True, frame.save_limit_s
                return []
            case protocol.Load():
                return [self._load(frame)]
            case _ if engine is None:
                raise ProtocolError(f"{type(frame).__name__} before Load")
            case protocol.Generate():
                return engine.generate(frame)
            case protocol.CancelGeneration() | protocol.Warm():
                self._has_chores = True
                return (
                    engine.warm(frame)
                    if isinstance(frame, protocol.Warm)
                    else engine.cancel(frame.id)
                )
            case (
                protocol.CountTokens()
                | protocol.Tokenize()
                | protocol.Detokenize()
                | protocol.RenderPrompt()
                | protocol.Embed()
            ):
                return engine.answer(frame)
            case protocol.Ping():
                return [engine.pong(frame)]
            case _:
                assert_never(frame)

    def _load(self, load: protocol.Load) -> protocol.ModelReady | protocol.LoadFailed:
        if self._engine is not None:
            raise ProtocolError("a second Load; a worker holds one model")
        try:
            self._engine = self._load_engine(load)
        except LoadError as error:
            self._is_over = True
            return protocol.LoadFailed(code=error.code, message=error.message)
        return protocol.ModelReady(
            info=msgspec.structs.replace(
                self._engine.info, fence=self._fence, processor=loaded_variant()
            )
        )

    def _send(self, events: list[protocol.FromWorker]) -> None:
        for event in events:
            self._unsent += _encoded(event)
        if not self._unsent:
            return
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except ConnectionError:
            self._is_over = True
            self._unsent.clear()
            return
        del self._unsent[:sent]

    def _flush(self) -> None:
        """Send what is left; a daemon that does not read is not waited for."""
        if not self._unsent:
            return
        self._socket.settimeout(1.0)
        try:
            self._socket.sendall(self._unsent)
        except OSError as error:
            logger.warning("could not send the last events: %s", error)


def _generates_nothing(number: int) -> protocol.GenerationFailed:
    return protocol.GenerationFailed(
        id=number,
        code="invalid_request",
        message="this model makes embeddings only, it answers nothing",
        hint="use it at /v1/embeddings, and another model for chats",
    )


def _unusable_prompt(
    number: int, error: prompt.UnknownTokenError | prompt.NoInfillError | PictureError
) -> protocol.GenerationFailed:
    hint = "" if isinstance(error, prompt.UnknownTokenError) else error.hint
    told = str(error) if isinstance(error, PictureError) else f"prompt: {error}"
    return protocol.GenerationFailed(id=number, code="invalid_request", message=told, hint=hint)


def _unusable_schema(number: int, error: SchemaError) -> protocol.GenerationFailed:
    if isinstance(error, MissingError):
        return protocol.GenerationFailed(
            id=number,
            code="invalid_request",
            message=f"an answer cannot be held to a schema or to a call: {error}",
            hint="or ask without response_format, and with tool_choice auto",
        )
    return protocol.GenerationFailed(
        id=number,
        code="invalid_request",
        message=f"the answer cannot be held to its schema: {error}",
        hint="simplify the schema, or ask without requiring it",
    )


def _encoded(event: protocol.FromWorker) -> bytes:
    try:
        return protocol.encode(event)
    except ProtocolError as error:
        # Only text of one step can be that long; the daemon learns it by the request's end.
        number = getattr(event, "id", 0)
        return protocol.encode(
            protocol.GenerationFailed(id=number, code="engine", message=error.message)
        )
