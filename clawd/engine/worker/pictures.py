"""Pictures in prompts: what stands for them in text and among tokens, and what makes them readable.

In rendered text a picture is its SHA-256 between two noncharacters (U+FDD1), which no text of a
message holds. Among tokens it is what the projector puts around it, and one negative number for
each KV cell of each of its pieces. These numbers are of that piece of that picture alone:
sequences are compared as ever, and another picture at the same place is another prompt.

A piece is read as a whole or not at all. With M-RoPE it takes fewer positions than cells.

A model's projector in llama.cpp's mtmd: pictures to embeddings, and these into its memory.

libmtmd is a library of its own that not every build has. What is not said here is llama.cpp's own
`mtmd_helper_eval_chunks`, which cannot be used as it is: it holds everything up for as long as a
whole picture takes.
"""

import ctypes
import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from clawd.engine.gguf import read_head
from clawd.engine.protocol import ModelConfig
from clawd.engine.worker import llama
from clawd.engine.worker.backend import DecodeResult
from clawd.engine.worker.files import LoadError
from clawd.errors import ModelLoadError
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


# Operations of a projector between two looks at the time: the more, the longer a step may take.
_OPERATIONS = 4
# Of M-RoPE, in a batch: time, row, column and one that is not used.
_SECTIONS = ("t", "y", "x", "z")
_UNREADABLE = "the picture cannot be read"
# PNG and JPEG: what is neither, mtmd takes for sound, or has ffmpeg look at it.
_SIGNATURES = (b"\x89PNG\r\n", b"\xff\xd8\xff")

# What these make of a picture depends on what stands before it.
_NEED_THE_PROMPT = ("deepseek4v", "hunyuanvl")

Floats = npt.NDArray[np.float32]


class Embeddings(NamedTuple):
    """A piece of a picture as the model reads it.

    Attributes:
        values: a row for each cell.
        places: for each section of a position and each cell, its place behind the piece's first
            position, or where `moves` is 0 its place as it is.
        moves: for each section, 1 where positions begin at the piece's first.
    """

    values: Floats
    places: npt.NDArray[np.int32]
    moves: npt.NDArray[np.int32]


def _check(path: Path) -> None:
    """Make sure that a file looks like a projector that can be used.

    Raises:
        LoadError: it does not.
    """
    try:
        head = read_head(path)
    except ModelLoadError as error:
        raise LoadError(f"the projector cannot be used: {error.message}") from None
    if head.architecture != "clip":
        raise LoadError(f"{path} is no projector (mmproj), but a model ({head.architecture})")
    if head.projector in _NEED_THE_PROMPT:
        raise LoadError(f"{path} is a projector of a type that is not supported: {head.projector}")


class Projector:
    """The projector of a loaded model; answers `Eye`.

    Args:
        model: the model that reads what it makes.
        context: of that model.
        config: how both are loaded.
    """

    def __init__(self, model: Any, context: Any, config: ModelConfig) -> None:
        """Load the projector.

        Raises:
            LoadError: the file is missing, is no projector, or none of this model.
        """
        self._mtmd = llama.find_mtmd()
        self._context = context
        self._width = int(llama.lib.llama_model_n_embd_inp(model))
        self._most = min(
            int(llama.lib.llama_n_batch(context)), int(llama.lib.llama_n_ubatch(context))
        )
        self._encoding: Encoding | None = None
        self._operations = itertools.count(1)
        self._watch = llama.lib.ggml_backend_sched_eval_callback(self._operation)
        path = Path(config.mmproj)
        _check(path)
        self._mtmd.mtmd_helper_log_set(llama.log_callback(), None)
        params = self._mtmd.mtmd_context_params_default()
        params.use_gpu = config.n_gpu_layers != 0
        params.print_timings = False
        params.n_threads = int(llama.lib.llama_n_threads_batch(context))
        params.flash_attn_type = llama.flash_attention(config)
        params.cb_eval = self._watch
        if config.image_max_tokens:
            params.image_max_tokens = config.image_max_tokens
        self._handle = self._mtmd.mtmd_init_from_file(str(path).encode(), model, params)
        if not self._handle:
            bound = config.image_max_tokens
            way = f", raise image_max_tokens (it is {bound})" if bound else ""
            raise LoadError(
                f"llama.cpp could not load {path} as the projector of {config.path}"
                f"{llama.log_reasons()}. Put the right one there{way}, "
                'or set mmproj = "off" for this model'
            )
        if not self._mtmd.mtmd_support_vision(self._handle):
            self.close()
            raise LoadError(f"{path} is no projector for pictures")
        self.at_once = bool(self._mtmd.mtmd_decode_use_non_causal(self._handle, None))
        self._is_mrope = bool(self._mtmd.mtmd_decode_use_mrope(self._handle))
        self.album = Album(self._look)

    def close(self) -> None:
        """Free the projector; nothing else may be called after it."""
        self._mtmd.mtmd_free(self._handle)

    def begin(self, picture: Picture, index: int) -> Encoding:
        """Return what encodes a piece, by its index in its picture."""

        def work(encoding: Encoding) -> Embeddings:
            with self._chunks(picture) as chunks:
                pieces = [chunk for chunk in chunks if self._is_piece(chunk)]
                self._encoding = encoding
                return self._encoded(pieces[index])

        return Encoding(work)

    def decode(
        self, embeddings: Embeddings, rows: range, position: int, sequence: int
    ) -> DecodeResult:
        """Have the model read some cells of a piece whose first position is `position`."""
        count = len(rows)
        values = np.ascontiguousarray(embeddings.values[rows.start : rows.stop])
        places = embeddings.places[:, rows.start : rows.stop] + position * embeddings.moves
        places = np.ascontiguousarray(places, np.int32)
        counts, outputs = np.ones(count, np.int32), np.zeros(count, np.int8)
        number = np.array([sequence], np.int32)
        numbers = np.full(count, number.ctypes.data, np.uintp)
        batch = llama.lib.llama_batch(
            n_tokens=count,
            token=None,
            embd=llama.pointer(values, ctypes.c_float),
            pos=llama.pointer(places, ctypes.c_int32),
            n_seq_id=llama.pointer(counts, ctypes.c_int32),
            seq_id=llama.pointer(numbers, ctypes.POINTER(ctypes.c_int32)),
            logits=llama.pointer(outputs, ctypes.c_int8),
        )
        if self.at_once:
            llama.lib.llama_set_causal_attn(self._context, False)  # noqa: FBT003 - a C function
        result = llama.lib.llama_decode(self._context, batch)
        if self.at_once:
            llama.lib.llama_set_causal_attn(self._context, True)  # noqa: FBT003
        if result == 0:
            return DecodeResult.OK
        return DecodeResult.NO_CELLS if result == 1 else DecodeResult.FAILED

    def _look(self, picture: Picture) -> Iterator[tuple[int, ...] | PicturePiece]:
        """Return what a picture consists of.

        Raises:
            PictureError: it cannot be read, or a piece of it is larger than a batch may be.
        """
        mtmd = self._mtmd
        parts: list[tuple[int, ...] | PicturePiece] = []
        with self._chunks(picture) as chunks:
            for chunk in chunks:
                cells = int(mtmd.mtmd_input_chunk_get_n_tokens(chunk))
                if self._is_piece(chunk):
                    positions = int(mtmd.mtmd_input_chunk_get_n_pos(chunk))
                    parts.append(PicturePiece(cells, positions))
                    continue
                found = mtmd.mtmd_input_chunk_get_tokens_text(
                    chunk, ctypes.byref(ctypes.c_size_t())
                )
                parts.append(tuple(found[:cells]))
        largest = max((part.cells for part in parts if isinstance(part, PicturePiece)), default=0)
        if self.at_once and largest > self._most:
            raise PictureError(
                f"a picture takes {largest} tokens at once, and a batch has {self._most}",
                f"Set n_batch and n_ubatch of the model to {largest} or more.",
            )
        return iter(parts)

    def _is_piece(self, chunk: Any) -> bool:
        kind = self._mtmd.mtmd_input_chunk_get_type(chunk)
        return bool(kind == self._mtmd.MTMD_INPUT_CHUNK_TYPE_IMAGE)

    @contextmanager
    def _chunks(self, picture: Picture) -> Iterator[list[Any]]:
        """Decode and scale a picture; yield its chunks, which are gone afterwards.

        Raises:
            PictureError: it cannot be read.
        """
        mtmd = self._mtmd
        if not picture.data.startswith(_SIGNATURES):
            raise PictureError(_UNREADABLE)
        data = (ctypes.c_uint8 * len(picture.data)).from_buffer_copy(picture.data)
        bitmap = mtmd.mtmd_helper_bitmap_init_from_buf(self._handle, data, len(data), False)  # noqa: FBT003
        if not bitmap:
            raise PictureError(_UNREADABLE)
        chunks = mtmd.mtmd_input_chunks_init()
        try:
            part = mtmd.mtmd_input_part(None, bitmap)
            parts = (ctypes.POINTER(mtmd.mtmd_input_part) * 1)(ctypes.pointer(part))
            if mtmd.mtmd_tokenize_from_parts(self._handle, chunks, parts, 1, False) != 0:  # noqa: FBT003
                raise PictureError(f"{_UNREADABLE}{llama.log_reasons()}")
            size = int(mtmd.mtmd_input_chunks_size(chunks))
            yield [mtmd.mtmd_input_chunks_get(chunks, index) for index in range(size)]
        finally:
            mtmd.mtmd_input_chunks_free(chunks)
            mtmd.mtmd_bitmap_free(bitmap)

    def _encoded(self, chunk: Any) -> Embeddings:
        if self._mtmd.mtmd_encode_chunk(self._handle, chunk) != 0:
            raise PictureError(f"llama.cpp could not encode the picture{llama.log_reasons()}")
        cells = int(self._mtmd.mtmd_input_chunk_get_n_tokens(chunk))
        address = self._mtmd.mtmd_get_output_embd(self._handle)
        values = np.ctypeslib.as_array(address, (cells, self._width)).copy()
        if not self._is_mrope:
            places = np.arange(cells, dtype=np.int32)[np.newaxis]
            return Embeddings(values, places, np.ones((1, 1), np.int32))
        first, second = (self._places(chunk, cells, start) for start in (0, 1))
        return Embeddings(values, first, (second - first)[:, :1])

    def _places(self, chunk: Any, cells: int, start: int) -> npt.NDArray[np.int32]:
        found = (self._mtmd.mtmd_decoder_pos * cells)()
        image = self._mtmd.mtmd_input_chunk_get_tokens_image(chunk)
        self._mtmd.mtmd_helper_image_get_decoder_pos(image, start, found)
        places = [[getattr(place, section) for place in found] for section in _SECTIONS]
        return np.array(places, np.int32)

    def _operation(self, _tensor: Any, asks: bool, _data: Any) -> bool:  # noqa: FBT001 - called by C
        """Answer llama.cpp: whether it is to stop behind an operation; then whether to go on."""
        if asks or self._encoding is None:
            return next(self._operations) % _OPERATIONS == 0
        return self._encoding.pause()
