"""Makes the vectors of messages and notes: in idle time, newest first, a few at once.

What a model is asked for by anybody else comes first: a batch is given up the moment that a turn or
a generation begins, and its texts are taken up again later. What has a vector is on disk, so that a
daemon that ends goes on where it was. Between two batches it rests as long as the last one took.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from clawd.errors import ClawError
from clawd.memory.knowledge.entries import EntryHit
from clawd.memory.knowledge.store import Knowledge
from clawd.memory.vectors import TEXT_LIMIT, UNRELATED, Embedder, Note, VectorModel, VectorStore

BATCH = 8
BATCH_LIMIT_S = 120.0
SETTLE_S = 1.0
TRY_AGAIN_S = 5.0
LOOK_S = 60.0
MAX_REST_S = 5.0
MAX_WAIT_S = 3600.0

_NOTES_AT_ONCE = 4
_EVERYTHING = 2**62

_log = logging.getLogger(__name__)


class _GaveWayError(Exception):
    """Real work began; what was not kept is made later."""


class Indexer:
    """Keeps the vectors in step with messages and notes. One of a daemon.

    Args:
        vectors: where they are kept.
        knowledge: the notes; None leaves them out.
        embedder: the model.
        may_work: returns whether nobody else wants the machine, and nothing forbids it.
        settle_s: how long it waits after real work has ended.
        look_s: how often it looks by itself.

    Attributes:
        problem: why it cannot go on; empty while it can.
    """

    def __init__(
        self,
        vectors: VectorStore,
        knowledge: Knowledge | None,
        embedder: Embedder,
        *,
        may_work: Callable[[], bool],
        settle_s: float = SETTLE_S,
        look_s: float = LOOK_S,
    ) -> None:
        self._vectors = vectors
        self._knowledge = knowledge
        self._embedder = embedder
        self._may_work = may_work
        self._settle_s = settle_s
        self._look_s = look_s
        self._wakes = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._batch: asyncio.Task[list[bytes]] | None = None
        self._model: VectorModel | None = None
        # Messages between these two were looked at; newer ones come first, then older ones.
        self._top = self._low = 0
        self._is_look_due = True
        self._failures = 0
        self.problem = ""

    def start(self, watch: Callable[[asyncio.Task[None], str], None] | None = None) -> None:
        """Begin; `watch` is told of the task and its name."""
        self._task = asyncio.create_task(self._run())
        if watch is not None:
            watch(self._task, "the index for searches by meaning")

    def wake(self) -> None:
        """Look soon: something was said, noted or deleted; never blocks."""
        self._is_look_due = True
        self._wakes.set()

    def give_way(self) -> None:
        """Give up what it is at: real work begins; never blocks."""
        if self._batch is not None:
            self._batch.cancel()

    async def close(self) -> None:
        """Stop; idempotent."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        while True:
            self._wakes.clear()
            wait_s = await self._tried()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wakes.wait()
            except TimeoutError:
                continue
            # Who wakes it may be about to begin something.
            await asyncio.sleep(self._settle_s)

    async def _tried(self) -> float:
        """Do what can be done; return how long to wait for the next try."""
        try:
            await self._work()
        except _GaveWayError:
            return min(TRY_AGAIN_S, self._look_s)
        except ClawError as error:
            self._fail(error.message)
        except Exception:  # noqa: BLE001 - the task must go on: nobody else makes vectors
            _log.exception("the index for searches by meaning failed, by a defect")
            self._fail("a defect; the log has it")
        else:
            if self.problem:
                _log.info("texts are indexed for searches by meaning again")
            self.problem, self._failures, self._is_look_due = "", 0, True
            return self._look_s
        return min(self._look_s * 2.0 ** min(self._failures - 1, 16), MAX_WAIT_S)

    def _fail(self, why: str) -> None:
        """Note a failure; one that goes on is told once."""
        self._failures += 1
        why = f"{self._embedder.named}: {why}"
        if why != self.problem:
            self.problem = why
            _log.warning("texts are not indexed for searches by meaning: %s", why)

    async def _work(self) -> None:
        """Make every vector that is missing.

        Raises:
            _GaveWayError: real work began.
            ClawError: the model is not to be had, or failed.
        """
        if self._is_look_due:
            await self._forget_notes()  # what is gone goes at once, whatever else there is to do
            self._is_look_due = False
        self._check()
        model = await self._current()
        while await self._some_notes(model) or await self._some_messages(model):
            pass

    async def _current(self) -> VectorModel:
        """Return the model; one that is new begins with nothing."""
        identity = await self._embedder.identity()
        model = await self._vectors.model(identity)
        if model is None:
            unrelated = await self._embedded(UNRELATED)
            model = await self._vectors.adopt(identity, unrelated)
        if model != self._model:
            self._model = model
            self._top = await self._vectors.newest_id()
            self._low = self._top + 1
        return model

    async def _some_messages(self, model: VectorModel) -> bool:
        """Embed a few messages; return whether there may be more."""
        newest = await self._vectors.newest_id()
        if newest > self._top:
            found = await self._vectors.missing(
                model, above=self._top, below=_EVERYTHING, limit=BATCH
            )
            await self._keep(model, found)
            if len(found) < BATCH:
                self._top = newest
            return True
        found = await self._vectors.missing(model, above=0, below=self._low, limit=BATCH)
        await self._keep(model, found)
        self._low = found[-1][0] if found else 0
        return bool(found)

    async def _keep(self, model: VectorModel, found: Sequence[tuple[int, str]]) -> None:
        if found:
            made = await self._made(model, [text for _, text in found])
            numbers = [identity for identity, _ in found]
            await self._vectors.keep(model, dict(zip(numbers, made, strict=True)))

    async def _some_notes(self, model: VectorModel) -> bool:
        """Embed a few notes; return whether there may be more."""
        if self._knowledge is None:
            return False
        for uid in await self._knowledge.uids():
            known = await self._vectors.known_notes(model, uid)
            unseen = await self._knowledge.unseen(
                known, uid=uid, limit=_NOTES_AT_ONCE, room_bytes=4 * TEXT_LIMIT
            )
            for hit in unseen.hits:
                note = _note(hit)
                if not await self._vectors.keep_known_note(model, uid, note):
                    (vector,) = await self._made(model, [note.text])
                    await self._vectors.keep_note(model, uid, note, vector)
            if unseen.hits:
                return True
        return False

    async def _forget_notes(self) -> None:
        """Delete the vectors of notes that are gone."""
        if self._knowledge is None:
            return
        for uid, known in (await self._vectors.noted()).items():
            unseen = await self._knowledge.unseen(known, uid=uid, limit=0, room_bytes=0)
            if unseen.gone:
                await self._vectors.forget_notes(uid, unseen.gone)

    async def _made(self, model: VectorModel, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts; empty for one that the model cannot read.

        Raises:
            ClawError: it is the model, not a text.
        """
        try:
            made = await self._embedded(texts)
        except ClawError:
            if len(texts) == 1:
                await self._embedded(UNRELATED[:1])  # fails as well where it is not the text
                return [b""]
            return [vector for text in texts for vector in await self._made(model, [text])]
        if any(len(vector) != 4 * model.size for vector in made):
            _log.warning("%s is another model now: texts are indexed anew", self._embedder.named)
            await self._vectors.forget()
            self._model = None
            raise _GaveWayError
        return made

    async def _embedded(self, texts: Sequence[str]) -> list[bytes]:
        """Return vectors, made while nobody else wants anything.

        Raises:
            _GaveWayError: somebody does.
            ClawError: the model failed.
        """
        self._check()
        loop = asyncio.get_running_loop()
        began = loop.time()
        batch = self._batch = asyncio.create_task(self._embedder.vectors(texts))
        try:
            await asyncio.wait({batch}, timeout=BATCH_LIMIT_S)
        finally:
            self._batch = None
            if not batch.done():
                batch.cancel()
                await asyncio.wait({batch})
        if batch.cancelled():
            raise _GaveWayError
        made = batch.result()
        await asyncio.sleep(min(loop.time() - began, MAX_REST_S))
        return made

    def _check(self) -> None:
        if not self._may_work():
            raise _GaveWayError


def _note(hit: EntryHit) -> Note:
    """Return an entry as it is embedded: its keywords, then how its text begins."""
    text = f"{' '.join(hit.card.keywords)}\n{hit.text}"[:TEXT_LIMIT]
    return Note(file=hit.card.file, size=hit.card.size, modified_ns=hit.card.modified_ns, text=text)
