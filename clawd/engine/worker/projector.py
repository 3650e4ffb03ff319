"""A model's projector in llama.cpp's mtmd: pictures to embeddings, and these into its memory.

libmtmd is a library of its own that not every build has. What is not said here is llama.cpp's own
`mtmd_helper_eval_chunks`, which cannot be used as it is: it holds everything up for as long as a
whole picture takes.
"""

import ctypes
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clawd.engine.gguf import read_head
from clawd.engine.protocol import ModelConfig
from clawd.engine.worker import llama
from clawd.engine.worker.backend import DecodeResult
from clawd.engine.worker.files import LoadError
from clawd.engine.worker.pictures import Album, Encoding, PictureError, PicturePiece
from clawd.errors import ModelLoadError
from clawd.wire.pictures import Picture

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
