"""Pictures in prompts: what stands for them in text and among tokens, and what makes them readable.

In rendered text a picture is its SHA-256 between two noncharacters (U+FDD1), which no text of a
message holds. Among tokens it is what the projector puts around it, and one negative number for
each KV cell of each of its pieces. These numbers are of that piece of that picture alone:
sequences are compared as ever, and another picture at the same place is another prompt.

A piece is read as a whole or not at all. With M-RoPE it takes fewer positions than cells.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from clawd.engine.worker.backend import DecodeResult
from clawd.wire.pictures import Picture

SIGN = "\ufdd1"
_SIGNED = re.compile(f"{SIGN}([0-9a-f]{{64}}){SIGN}")
_SHOWN = "<__media__>"
_MOST_CELLS = 1 << 24


class PictureError(Exception):
    """A picture cannot be shown to the model."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def sign_of(picture: Picture) -> str:
    """Return what stands for a picture in the text of a message."""
    return f"{SIGN}{picture.sha256}{SIGN}"


def split_at_signs(text: str) -> list[str]:
    """Return the texts between pictures, at even places, and the pictures' SHA-256 at odd ones."""
    return _SIGNED.split(text)


def without_signs(text: str) -> str:
    """Return rendered text as people read it: every picture is `<__media__>`."""
    return _SIGNED.sub(_SHOWN, text)


class PicturePiece(NamedTuple):
    """Part of a picture that is embedded at once: the KV cells and positions that it takes."""

    cells: int
    positions: int
    number: int = -1


class PictureSpan(NamedTuple):
    """Where a piece stands among tokens: from `start` up to `end`."""

    start: int
    end: int
    number: int


def spans_of(tokens: Sequence[int]) -> list[PictureSpan]:
    """Return where pieces of pictures stand, in order; none of them is cut."""
    spans: list[PictureSpan] = []
    at = 0
    while at < len(tokens) and min(tokens[at:], default=0) < 0:
        while tokens[at] >= 0:
            at += 1
        number, following = divmod(-1 - tokens[at], _MOST_CELLS)
        spans.append(PictureSpan(at, at + following + 1, number))
        at += following + 1
    return spans


def whole_length(tokens: Sequence[int], length: int) -> int:
    """Return how many of the first `length` tokens are left without a piece that is cut there."""
    at = min(length, len(tokens))
    if not at or tokens[at - 1] >= 0 or not (-1 - tokens[at - 1]) % _MOST_CELLS:
        return at
    at -= 1
    while at and tokens[at - 1] == tokens[at] - 1:
        at -= 1
    return at


def positions_of(tokens: Sequence[int], length: int, lags: Mapping[int, int]) -> int:
    """Return how many positions the first `length` tokens take, none of whose pieces is cut."""
    if not lags:
        return length
    ends = (divmod(-1 - token, _MOST_CELLS) for token in tokens[:length] if token < 0)
    return length - sum(lags.get(number, 0) for number, following in ends if not following)


class Album:
    """Numbers the pieces of all pictures that were shown to a model.

    Args:
        look: returns what a picture consists of: tokens, and pieces between them.

    Attributes:
        lags: by how many a piece's cells are more than its positions, where they are.
    """

    def __init__(self, look: Callable[[Picture], Iterable[tuple[int, ...] | PicturePiece]]) -> None:
        self._look = look
        # By SHA-256; some hundred bytes each, kept for good: sequences are known by the numbers.
        self._known: dict[str, list[tuple[int, ...] | PicturePiece]] = {}
        self._count = 0
        self.lags: dict[int, int] = {}

    def tokens(self, picture: Picture) -> list[int]:
        """Return what stands for a picture among tokens.

        Raises:
            PictureError: the projector cannot read it.
        """
        tokens: list[int] = []
        for part in self._parts(picture):
            if isinstance(part, PicturePiece):
                first = -part.number * _MOST_CELLS - part.cells
                tokens += range(first, first + part.cells)
            else:
                tokens += part
        return tokens

    def pieces(self, pictures: Iterable[Picture]) -> dict[int, tuple[Picture, int]]:
        """Return by the number of each piece which picture's it is, and its index there."""
        found: dict[int, tuple[Picture, int]] = {}
        for picture in pictures:
            pieces = (part for part in self._parts(picture) if isinstance(part, PicturePiece))
            found |= {piece.number: (picture, index) for index, piece in enumerate(pieces)}
        return found

    def _parts(self, picture: Picture) -> list[tuple[int, ...] | PicturePiece]:
        if picture.sha256 not in self._known:
            parts = list(self._look(picture))
            for at, part in enumerate(parts):
                if isinstance(part, PicturePiece):
                    parts[at] = part._replace(number=self._count)
                    if part.cells != part.positions:
                        self.lags[self._count] = part.cells - part.positions
                    self._count += 1
            self._known[picture.sha256] = parts
        return self._known[picture.sha256]


class Encoding:
    """A piece of a picture on its way to embeddings, which may take seconds.

    A thread that computes only while `go_on` waits for it: nothing else of the worker runs beside
    it, and between two calls everything does.

    Args:
        work: makes the embeddings; it gets this object, to call `pause` often.
    """

    def __init__(self, work: Callable[["Encoding"], Any]) -> None:
        self._work = work
        self._turn = threading.Semaphore(0)
        self._rest = threading.Semaphore(0)
        self._ends_at = 0.0
        self._is_stopped = False
        self._result: Any = None
        self._error: PictureError | None = None
        self._thread: threading.Thread | None = None

    def go_on(self, limit_s: float) -> Any:
        """Compute for about so long; return the embeddings, None while there is more to do.

        Raises:
            PictureError: it cannot be encoded.
        """
        self._ends_at = time.monotonic() + limit_s
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="encoding", daemon=True)
            self._thread.start()
        self._turn.release()
        self._rest.acquire()
        if self._error is not None:
            raise self._error
        return self._result

    def stop(self) -> None:
        """Give up what is begun; takes as long as the operation that it is in."""
        thread, self._is_stopped = self._thread, True
        if thread is not None:
            self._turn.release()
            thread.join()

    def pause(self) -> bool:
        """Wait until it is asked for more, if the time is over; return whether to go on at all.

        After a False, what `work` returns counts for nothing.
        """
        if not self._is_stopped and time.monotonic() >= self._ends_at:
            self._rest.release()
            self._turn.acquire()
        return not self._is_stopped

    def _run(self) -> None:
        self._turn.acquire()
        try:
            self._result = self._work(self)
        except PictureError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - or the caller would wait for good
            self._error = PictureError(f"{type(error).__name__}: {error}")
        self._rest.release()


class Eye(Protocol):
    """What encodes pictures and has a model read them."""

    album: Album
    at_once: bool
    """Whether all cells of a piece go into one batch, as they look at each other."""

    def begin(self, picture: Picture, index: int) -> Encoding:
        """Return what encodes a piece, by its index in its picture."""
        ...

    def decode(self, embeddings: Any, rows: range, position: int, sequence: int) -> DecodeResult:
        """Have the model read some cells of a piece whose first position is `position`."""
        ...
