"""Knowledge as the rest of clawd holds it: entries of every person, worked on by one thread."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from clawd.config.sections import KnowledgeSection
from clawd.errors import StorageError
from clawd.kernel.concurrency import Pool
from clawd.memory.knowledge import entries
from clawd.memory.knowledge.files import EntryFiles, storage_error
from clawd.memory.knowledge.keywords import EntryName, WantedEntries

if TYPE_CHECKING:
    from clawd.memory.vectors import Meaning

MAX_SHELVES = 64
_OF_USER = "uid-"

# A disk that hangs must not hold a cancelled call for ever.
_END_S = 5.0

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Knowledge:
    """The knowledge of a daemon's users; each sees his own only.

    The daemon's own user has the folder itself, every other one a folder in it. One thread does
    all work, so that changes come one after the other. Every method raises `StorageError` when
    the disk fails, and then has changed nothing.

    Args:
        settings: returns where it lies and its limits, as they are now.
        owner_uid: the daemon's user; the one of this process if None.

    Attributes:
        meaning: finds out what a search means; None searches by keywords only.
        changed: is called when an entry was written or deleted.
    """

    def __init__(
        self, settings: Callable[[], KnowledgeSection], *, owner_uid: int | None = None
    ) -> None:
        self._settings = settings
        self._owner_uid = os.getuid() if owner_uid is None else owner_uid
        self._thread = Pool(1, "knowledge")
        self._shelves: dict[tuple[int, KnowledgeSection], entries.Shelf] = {}
        self.meaning: Meaning | None = None
        self.changed: Callable[[], None] = _nobody

    def close(self) -> None:
        """Finish what has begun, and take nothing more; idempotent."""
        self._thread.shutdown(wait=True, cancel_futures=True)

    @property
    def keeps_old(self) -> bool:
        """Whether what is replaced or deleted is kept in a trash."""
        return self._settings().trash_mb > 0

    def folder(self, uid: int) -> Path:
        """Return the folder of a person's entries, which may not be there yet."""
        return self._settings().path / self._name(uid)

    async def save(self, name: EntryName, content: str, author: entries.Author) -> entries.Written:
        """Make an entry, or replace the one that is there; the old one goes to the trash.

        Raises:
            ForbiddenError: it is fixed.
            InvalidRequestError: the content is empty or too long, or there are too many entries.
        """
        return await self._changing(author.uid, lambda shelf: shelf.save(name, content, author))

    async def append(
        self, name: EntryName, content: str, author: entries.Author
    ) -> entries.Written:
        """Add to the end of an entry, or make it.

        Raises:
            InvalidRequestError: the content is empty, or the whole would be too long.
        """
        return await self._changing(author.uid, lambda shelf: shelf.append(name, content, author))

    async def search(
        self,
        keywords: tuple[str, ...],
        *,
        uid: int,
        page: int = 1,
        size: int = 10,
        question: str = "",
    ) -> entries.FoundPage:
        """Return a page of the entries with any of the keywords, best first, then the newest.

        With a question, and a model that knows what it means, entries of that meaning as well.
        """
        near: dict[str, tuple[int, int]] = {}
        if self.meaning is not None and question:
            notes = await self.meaning.notes(question, uid)
            near = {file: note.state for file, note in notes.items()}
        return await self._do(
            uid, lambda shelf: shelf.search(keywords, page=page, size=size, near=near)
        )

    async def load(self, wanted: WantedEntries, *, uid: int) -> entries.FoundPage:
        """Return the entries with all of the keywords, the exact one first, at most four."""
        return await self._do(uid, lambda shelf: shelf.load(wanted))

    async def listed(self, prefix: str, *, uid: int) -> list[entries.Card]:
        """Return the entries whose file names begin so, by name; those without header too."""
        return await self._do(uid, lambda shelf: entries.by_name(shelf.cards(), prefix))

    async def delete(self, wanted: WantedEntries, *, uid: int, may_be_fixed: bool) -> str:
        """Move an entry to the trash; return its file name.

        Raises:
            NotFoundError: there is none.
            ForbiddenError: it is fixed, and may not be.
        """
        return await self._changing(
            uid, lambda shelf: shelf.delete(wanted, may_be_fixed=may_be_fixed)
        )

    async def uids(self) -> list[int]:
        """Return whose entries there may be."""

        def names() -> list[str]:
            try:
                return [entry.name for entry in os.scandir(self._settings().path)]
            except OSError:
                return []

        found = await asyncio.to_thread(names)
        numbers = (name.removeprefix(_OF_USER) for name in found if name.startswith(_OF_USER))
        return [self._owner_uid, *sorted(int(each) for each in numbers if each.isdecimal())]

    async def unseen(
        self, known: Mapping[str, tuple[int, int]], *, uid: int, limit: int, room_bytes: int
    ) -> entries.Unseen:
        """Return entries that an index does not know, as they are now, and which are gone."""
        return await self._do(uid, lambda shelf: shelf.unseen(known, limit, room_bytes))

    async def keywords(self, *, uid: int) -> list[entries.KeywordUse]:
        """Return every keyword with its count, the most used first, then by name."""
        return await self._do(uid, lambda shelf: entries.uses(shelf.cards().values()))

    async def vocabulary(self, uid: int) -> str:
        """Return the person's most used keywords for a prompt, at most 40; "" for none.

        Costs one look at the folder while no file came, went or was replaced. Of untrusted
        entries only plain words are told, as nothing marks a prompt as untrusted. Raises nothing:
        a prompt does without, and the log says why.
        """
        try:
            return await self._do(uid, entries.Shelf.vocabulary)
        except StorageError as error:
            _log.warning("the prompt goes without a vocabulary: %s", error.message)
            return ""

    def _name(self, uid: int) -> str:
        return "" if uid == self._owner_uid else f"{_OF_USER}{uid}"

    async def _changing(self, uid: int, act: Callable[[entries.Shelf], _T]) -> _T:
        try:
            return await self._do(uid, act)
        finally:
            self.changed()

    async def _do(self, uid: int, act: Callable[[entries.Shelf], _T]) -> _T:
        """Run an act in the thread; a cancelled one that has begun is waited for."""

        def run() -> _T:
            settings = self._settings()
            shelf = self._shelves.pop((uid, settings), None)
            if shelf is None:
                name, most = self._name(uid), settings.trash_mb << 20
                shelf = entries.Shelf(EntryFiles(settings.path, name, trash_bytes=most), settings)
            self._shelves[uid, settings] = shelf
            while len(self._shelves) > MAX_SHELVES:
                del self._shelves[next(iter(self._shelves))]
            try:
                return act(shelf)
            except OSError as error:
                raise storage_error(error, shelf.files.shown) from error

        try:
            begun = self._thread.submit(run)
        except RuntimeError as error:
            raise StorageError("knowledge is not open any more") from error
        work = asyncio.wrap_future(begun)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if not begun.cancel():
                await asyncio.wait([work], timeout=_END_S)
                with contextlib.suppress(BaseException):
                    work.exception()  # seen; the cancellation is what is told
            raise


def _nobody() -> None:
    """Tell nobody."""
