"""What the clients of a daemon were told as done, by all lanes of a storm: the oracle holds it."""

import threading
from typing import Any

import msgspec

ANY = "*"  # of a title that nobody was told of


class Told:
    """A journal on the clients' side; every lane of a storm writes into it.

    Attributes:
        receipts: ids of receipts that were told.
        marks: marks of calls that were told as allowed, and their files.
        undone: marks whose write was told as taken back.
        denied: marks of calls that a person was told to have denied.
        answers: (conversation, what was said, what was answered); "" for a conversation unknown.
        knowledge: keywords and the content that was told as saved.
        deleted: keywords of entries that were told as deleted.
        files: session files by conversation and name.
        titles: what may be the title of a conversation: the one told last, and those tried since.
        compressed: conversations that were told as compressed.
        rules: ids of standing rules that were told.
        backups: paths of copies of memory that were told as written.
        stops: what the emergency stop may be: as told last, and as tried since.
        failures: what no lane may ever be told.
        counts: how often which kind of work was told as done.
    """

    def __init__(self) -> None:
        self.receipts: set[str] = set()
        self.marks: dict[str, str] = {}
        self.undone: set[str] = set()
        self.denied: set[str] = set()
        self.answers: list[tuple[str, str, str]] = []
        self.knowledge: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.files: dict[tuple[str, str], bytes] = {}
        self.titles: dict[str, list[str]] = {}
        self.compressed: set[str] = set()
        self.rules: set[str] = set()
        self.backups: list[str] = []
        self.stops: list[bool] = [False]
        self.failures: list[str] = []
        self.counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def count(self, what: str) -> None:
        """Count something that was told as done."""
        with self._lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def done(self, what: str) -> int:
        """Return how often something was told as done."""
        return self.counts.get(what, 0)

    def try_stop(self, *, is_set: bool) -> None:
        """Note that the emergency stop is about to be changed."""
        self.stops = [*self.stops, is_set]

    def note_stop(self, *, is_set: bool) -> None:
        """Note that it was told as changed."""
        self.stops = [is_set]
        self.count("estop")

    def try_title(self, conversation: str, title: str) -> None:
        """Note that a conversation is about to be renamed."""
        self.titles[conversation] = [*self.titles.get(conversation, [ANY]), title]

    def note_title(self, conversation: str, title: str) -> None:
        """Note that it was told as renamed."""
        self.titles[conversation] = [title]
        self.count("renamed")

    def forget_round(self) -> None:
        """Let go of what was checked and cannot change any more."""
        self.answers.clear()
        self.backups.clear()
        self.undone.clear()
        self.denied.clear()


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a storm blows: what a lane must know of its home and round."""

    socket: str
    gateway: str
    key: str
    number: int
    is_asking: bool
    has_model: bool
    told: Any
