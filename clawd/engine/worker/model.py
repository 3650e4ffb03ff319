"""A GGUF model in llama.cpp: its vocabulary, batches, memory and samplers.

Everything here runs in one thread. What llama.cpp answers with an abort (a batch over n_batch,
sampling a row without output, a partial copy in a split cache) is ruled out by how the scheduler
builds batches; what it answers with an error becomes an exception or a DecodeResult.
"""

import ctypes
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from clawd.engine.protocol import ModelConfig, ModelInfo, Sampling, TokenLogprob
from clawd.engine.worker.backend import DecodeResult, InfillTokens
from clawd.engine.worker.buffers import Buffer
from clawd.engine.worker.embedding import Tokenize, VectorError
from clawd.engine.worker.files import read_text
from clawd.engine.worker.guidance import Guidance
from clawd.engine.worker.llama import (
    LIBRARY_VERSION,
    MAX_DEFAULT_CTX,
    Batch,
    LoadError,
    cells_fit_apart,
    find_mtmd,
    lib,
    load_file,
    log_reasons,
    new_context,
    new_embedding_context,
    pointer,
    settled,
    start,
)
from clawd.engine.worker.pictures import Projector
from clawd.engine.worker.sampler import (
    Candidates,
    LlamaSampler,
    VocabularyHandle,
    new_sampler,
    token_logprob,
)

# Cuts long texts before llama.cpp's tokenizers get them: some take minutes, or end the process.
#
# Measured with 0.3.36: a run of 50,000 letters without a blank overflows the stack of those that
# use std::regex, and 100,000 special tokens in one text take 43 s, for the time grows with the
# square. A special token is a border for every tokenizer, so a cut there changes nothing; within a
# run that is longer than any word it may change a token, never the text.

# Shorter texts are left alone.
LONG = 8192


class Cutter:
    """Cuts texts of one vocabulary.

    Args:
        special: how the special tokens are written that the tokenizer looks for.
        cuts_runs: also within long runs without a blank.
    """

    def __init__(self, special: Iterable[str], *, cuts_runs: bool) -> None:
        texts = sorted({text for text in special if text}, key=lambda text: (-len(text), text))
        first = "".join(sorted({re.escape(text[0]) for text in texts}))
        # Looked at first: vocabularies may have thousands of special tokens.
        pattern = f"(?=[{first}])(?:{'|'.join(map(re.escape, texts))})"
        self._special = re.compile(pattern) if texts else None
        self._run = re.compile(rf"\S{{{LONG}}}(?=\S)") if cuts_runs else None

    def cut(self, text: str) -> Iterator[str]:
        """Yield the text in pieces that are none too many and none too hard."""
        if len(text) <= LONG:
            yield text
            return
        begun = 0
        for at in self._places(text):
            yield text[begun:at]
            begun = at
        if begun < len(text):
            yield text[begun:]

    def _places(self, text: str) -> Iterator[int]:
        """Yield where to cut, in order: each LONG at a special token, and within long runs."""
        begun = plain = 0
        matches = self._special.finditer(text) if self._special is not None else iter(())
        for match in matches:
            for at in self._runs(text, plain, match.start()):
                begun = at
                yield at
            plain = match.end()
            if match.end() - begun >= LONG:
                begun = match.end()
                yield begun
        yield from self._runs(text, plain, len(text))

    def _runs(self, text: str, start: int, end: int) -> Iterator[int]:
        if self._run is None or end - start <= LONG:
            return
        for match in self._run.finditer(text, start, end):
            yield match.end()


# What a processor core of today multiplies per second; only the first step's size hangs on it.
_GUESSED_FLOPS = 1e11
# Memory for copies of sequences that stays, because new memory costs more than the copy.
_KEPT_COPY_BYTES = 64 * 1024 * 1024
ON, OFF = True, False
logger = logging.getLogger(__name__)


class Special(msgspec.Struct, frozen=True, kw_only=True):
    """A control or user-defined token of the vocabulary."""

    text: str
    is_control: bool


class LlamaModel:
    """A loaded model with one context; answers `Backend` and `Vocabulary`."""

    def __init__(self, config: ModelConfig) -> None:
        """Load the model.

        Raises:
            LoadError: the file is missing, is no GGUF model for text, or needs too much memory.
        """
        start()
        self._other_template = read_text(config.template_file) if config.template_file else ""
        self._model = load_file(config)
        self.config = settled(self._model, config)
        self._vocab = lib.llama_model_get_vocab(self._model)
        self.n_vocab = int(lib.llama_vocab_n_tokens(self._vocab))
        self._pieces: list[bytes | None] = [None] * self.n_vocab
        ends = partial(lib.llama_vocab_is_eog, self._vocab)
        self._ending = frozenset(filter(ends, range(self.n_vocab)))
        # Beside what follows here: it takes 0.3 s for 50,000 tokens, 1 s for 150,000.
        self.guidance = Guidance(self._read_vocabulary)
        self.reuses_whole_only = bool(
            lib.llama_model_is_recurrent(self._model) or lib.llama_model_is_hybrid(self._model)
        )
        self.shares_cells = self.reuses_whole_only or not cells_fit_apart(self._model, config)
        # Where idle sequences share the cells with running ones, keeping more of them is free; a
        # recurrent state costs memory for each, and so do cells of its own.
        is_free = self.shares_cells and not self.reuses_whole_only
        self.n_sequences = config.n_parallel * (2 if is_free else 1)
        self._context = new_context(
            self._model, self.config, n_sequences=self.n_sequences, shares_cells=self.shares_cells
        )
        self._memory = lib.llama_get_memory(self._context)
        self.n_ctx = int(lib.llama_n_ctx_seq(self._context))
        self._copied = np.empty(0, np.uint8)
        self.n_batch = int(lib.llama_n_batch(self._context))
        n_params = int(lib.llama_model_n_params(self._model))
        self.expected_prefill_rate = _GUESSED_FLOPS / (2 * max(n_params, 1))
        # llama.cpp gives no memory to architectures that look at a whole text at once.
        self.generates = bool(self._memory)
        self.embedder = LlamaEmbedder(self._model, config, generates=self.generates)
        self._batch = Batch(self.n_batch)
        self.special_tokens = self._find_special_tokens()
        bos = int(lib.llama_vocab_bos(self._vocab))
        adds_bos = bool(lib.llama_vocab_get_add_bos(self._vocab))
        self.leading_token = bos if adds_bos and bos >= 0 else None
        self.infill_tokens = self._find_infill_tokens()
        self._cutters = self._new_cutters()
        self._around = self._surroundings()
        self._candidates = Candidates(self.n_vocab)
        self._handle = VocabularyHandle(
            context=self._context,
            vocab=self._vocab,
            size=self.n_vocab,
            n_ctx=self.n_ctx,
            piece=self.piece,
            ends_generation=self.ends_generation,
            tokenize=partial(self.tokenize, parse_special=True),
        )
        self.blindness = self._blindness()
        self.eye = None if self.blindness else Projector(self._model, self._context, config)
        if self.generates:
            self._warm_up()
        self.guidance.wait()

    @property
    def binding_version(self) -> str:
        """Return the version of the binding, which comes with its own llama.cpp."""
        return LIBRARY_VERSION

    @property
    def architecture(self) -> str:
        """Return the architecture's name in the file."""
        return self._metadata("general.architecture")

    @property
    def bos_text(self) -> str:
        """Return the beginning-of-sequence token as text, or ""."""
        return self._text_of(int(lib.llama_vocab_bos(self._vocab)))

    @property
    def eos_text(self) -> str:
        """Return the end-of-sequence token as text, or ""."""
        return self._text_of(int(lib.llama_vocab_eos(self._vocab)))

    @property
    def chat_template(self) -> str:
        """Return the template that stands in for the file's, the file's, or ""."""
        if self._other_template:
            return self._other_template
        template = lib.llama_model_chat_template(self._model, None)
        return template.decode("utf-8", errors="replace") if template else ""

    def info(self, load_ms: float) -> ModelInfo:
        """Return what the loaded model is."""
        description = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self._model, description, len(description))
        return ModelInfo(
            alias=self.config.alias,
            architecture=self.architecture,
            description=description.value.decode("utf-8", errors="replace"),
            n_params=int(lib.llama_model_n_params(self._model)),
            size_bytes=int(lib.llama_model_size(self._model)),
            n_ctx=self.n_ctx,
            n_ctx_train=int(lib.llama_model_n_ctx_train(self._model)),
            n_vocab=self.n_vocab,
            n_parallel=self.config.n_parallel,
            chat_template=self.chat_template,
            load_ms=load_ms,
            bos=self.bos_text,
            eos=self.eos_text,
            embedding_size=self.embedder.size,
            max_embedded=self.embedder.limit if self.embedder.size else 0,
            generates=self.generates,
            infills=self.generates and self.infill_tokens is not None,
            ranks=self.embedder.ranks,
            vision=self.eye is not None,
        )

    def _blindness(self) -> str:
        """Return why the model sees no pictures, "" for one that does."""
        if not self.config.mmproj or not self.generates:
            return "it has no projector (mmproj)"
        if find_mtmd() is not None:
            return ""
        missing = "llama-cpp-python was built without libmtmd (LLAVA_BUILD)"
        logger.warning("the model sees no pictures: %s", missing)
        return missing

    # Vocabulary

    def tokenize(self, text: str, *, parse_special: bool, add_special: bool = False) -> list[int]:
        """Return the text's tokens, with those of its beginning and end if asked for."""
        # Those of a WordPiece vocabulary neither recurse nor are cut without loss.
        if len(text) > LONG and self._cutters:
            tokens = [
                token
                for piece in self._cutters[parse_special].cut(text)
                for token in self._tokenize(piece, parse_special=parse_special)
            ]
            if add_special:
                begin, end = self._around
                return [*begin, *tokens, *end]
            return tokens
        return self._tokenize(text, parse_special=parse_special, add_special=add_special)

    def _tokenize(self, text: str, *, parse_special: bool, add_special: bool = False) -> list[int]:
        data = text.encode("utf-8", errors="replace")
        room = len(data) + 4
        for _ in range(2):
            buffer = np.empty(room, np.int32)
            tokens = pointer(buffer, ctypes.c_int32)
            count = lib.llama_tokenize(
                self._vocab, data, len(data), tokens, room, add_special, parse_special
            )
            if count >= 0:
                return list(map(int, buffer[:count].tolist()))
            room = -count
        raise RuntimeError(f"llama.cpp could not tokenise {len(data)} bytes")

    def _new_cutters(self) -> dict[bool, Cutter]:
        """Return what cuts long texts, by whether control tokens are looked for."""
        kind = int(lib.llama_vocab_type(self._vocab))
        if kind not in {lib.LLAMA_VOCAB_TYPE_BPE, lib.LLAMA_VOCAB_TYPE_SPM}:
            return {}
        runs = kind == lib.LLAMA_VOCAB_TYPE_BPE
        every = [token.text for token in self.special_tokens]
        plain = [token.text for token in self.special_tokens if not token.is_control]
        return {True: Cutter(every, cuts_runs=runs), False: Cutter(plain, cuts_runs=runs)}

    def _surroundings(self) -> tuple[list[int], list[int]]:
        """Return what stands at the beginning and at the end of a text."""
        eos = int(lib.llama_vocab_eos(self._vocab))
        adds_eos = bool(lib.llama_vocab_get_add_eos(self._vocab))
        begin = [self.leading_token] if self.leading_token is not None else []
        return begin, [eos] if adds_eos and eos >= 0 else []

    def piece(self, token: int) -> bytes:
        """Return the token's text; a part of a UTF-8 character is possible."""
        piece = self._pieces[token]
        if piece is None:
            piece = self._pieces[token] = self._read_piece(token)
        return piece

    def ends_generation(self, token: int) -> bool:
        """Return whether the token means that the answer ends."""
        return token in self._ending

    # Batch and memory

    def add_token(self, token: int, position: int, sequence: int) -> int:
        """Add a token whose output is wanted; return its row."""
        return self._batch.add_token(token, position, sequence)

    def add_prompt(
        self, tokens: Sequence[int], position: int, sequence: int, *, last_output: bool
    ) -> int:
        """Add consecutive tokens, the output of the last if wanted; return the last one's row."""
        return self._batch.add_prompt(tokens, position, sequence, last_output=last_output)

    def add_draft(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Add consecutive tokens whose outputs are all wanted, in the rows behind the last one."""
        self._batch.add_draft(tokens, position, sequence)

    def decode(self) -> DecodeResult:
        """Run the batch and empty it."""
        self._batch.raw.n_tokens = self._batch.size
        self._batch.size = 0
        result = lib.llama_decode(self._context, self._batch.raw)
        if result == 0:
            return DecodeResult.OK
        return DecodeResult.NO_CELLS if result == 1 else DecodeResult.FAILED

    def cut(self, sequence: int, length: int) -> bool:
        """Drop a sequence's tokens from position `length` on; False when it cannot be cut."""
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, length, -1))

    def share_prefix(self, source: int, target: int, length: int) -> bool:
        """Let the empty sequence `target` begin with the first `length` tokens of `source`.

        llama.cpp copies all cells of a sequence that has its own, used or not, and ends the process
        where a part is asked for; a copied state has the used ones alone.
        """
        if self.shares_cells:
            lib.llama_memory_seq_cp(self._memory, source, target, 0, length)
            return True
        size = self.state_size(source)
        if self._copied.nbytes < size:
            self._copied = np.empty(size, np.uint8)
        state = self._copied[:size]
        is_copied = self.save_state(source, state) == size and self.load_state(target, state)
        if size > _KEPT_COPY_BYTES:
            self._copied = np.empty(0, np.uint8)
        return is_copied and self.cut(target, length)

    def clear(self) -> None:
        """Empty the memory."""
        lib.llama_memory_clear(self._memory, ON)

    def state_size(self, sequence: int) -> int:
        """Return how many bytes the copy of a sequence takes; 0 when it cannot be copied."""
        return int(lib.llama_state_seq_get_size(self._context, sequence))

    def save_state(self, sequence: int, into: Buffer) -> int:
        """Copy a sequence's memory into a buffer; return the bytes written."""
        place = pointer(into, ctypes.c_uint8)
        return int(lib.llama_state_seq_get_data(self._context, place, into.nbytes, sequence))

    def load_state(self, sequence: int, state: Buffer) -> bool:
        """Fill the empty sequence with a copy; False leaves it empty."""
        place = pointer(state, ctypes.c_uint8)
        read = lib.llama_state_seq_set_data(self._context, place, state.nbytes, sequence)
        if int(read) == state.nbytes:
            return True
        self.cut(sequence, 0)
        return False

    # Sampling

    def new_sampler(self, config: Sampling, prompt: Sequence[int]) -> LlamaSampler:
        """Return a sampler; the prompt's last tokens count for penalties."""
        # What is below 0 is of a picture.
        prompt = [token for token in prompt if token >= 0]
        return new_sampler(self._handle, self._candidates, config, prompt, self.config.seed)

    def logprob(self, row: int, token: int, top: int) -> TokenLogprob:
        """Return a token's log probability at a row of the last batch, and the `top` likeliest."""
        return token_logprob(self._handle, row, token, top)

    def close(self) -> None:
        """Free the contexts and the model; nothing else may be called after it."""
        self.embedder.close()
        if self.eye is not None:
            self.eye.close()
        lib.llama_free(self._context)
        lib.llama_model_free(self._model)

    def _warm_up(self) -> None:
        """Decode one token, so that the first request does not pay for cold memory."""
        lib.llama_set_warmup(self._context, ON)
        self._batch.add_token(max(int(lib.llama_vocab_bos(self._vocab)), 0), 0, 0)
        result = self.decode()
        lib.llama_synchronize(self._context)
        lib.llama_set_warmup(self._context, OFF)
        self.clear()
        if result is not DecodeResult.OK:
            raise LoadError(f"{self.config.path} loads but does not decode{log_reasons()}")

    def _find_special_tokens(self) -> tuple[Special, ...]:
        kinds = lib.LLAMA_TOKEN_ATTR_CONTROL | lib.LLAMA_TOKEN_ATTR_USER_DEFINED
        found = []
        for token in range(self.n_vocab):
            kind = lib.llama_vocab_get_attr(self._vocab, token)
            if kind & kinds:
                is_control = bool(kind & lib.LLAMA_TOKEN_ATTR_CONTROL)
                found.append(Special(text=self._text_of(token), is_control=is_control))
        return tuple(found)

    def _find_infill_tokens(self) -> InfillTokens | None:
        places = (lib.llama_vocab_fim_pre, lib.llama_vocab_fim_suf, lib.llama_vocab_fim_mid)
        prefix, suffix, middle = (int(place(self._vocab)) for place in places)
        if min(prefix, suffix, middle) < 0:
            return None
        repository = int(lib.llama_vocab_fim_rep(self._vocab))
        file = int(lib.llama_vocab_fim_sep(self._vocab))
        return InfillTokens(
            prefix=prefix,
            suffix=suffix,
            middle=middle,
            repository=repository if repository >= 0 else None,
            file=file if file >= 0 else None,
        )

    def _read_vocabulary(self) -> tuple[list[bytes], list[int]]:
        """Return the text of every token, and which of them end an answer."""
        return [self.piece(token) for token in range(self.n_vocab)], sorted(self._ending)

    def _text_of(self, token: int) -> str:
        return self.piece(token).decode("utf-8", errors="replace") if token >= 0 else ""

    def _read_piece(self, token: int) -> bytes:
        room = 64
        for _ in range(2):
            buffer = ctypes.create_string_buffer(room)
            count = lib.llama_token_to_piece(self._vocab, token, buffer, room, 0, ON)
            if count >= 0:
                return buffer.raw[:count]
            room = -count
        return b""

    def _metadata(self, key: str) -> str:
        buffer = ctypes.create_string_buffer(256)
        count = lib.llama_model_meta_val_str(self._model, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", errors="replace") if count >= 0 else ""


# A physical batch takes memory with the square of its size on some devices.
DEFAULT_MAX_TOKENS = 2048
_PLACES = re.compile(r"(\{query\}|\{document\})")
_POOLINGS = frozenset(
    {lib.LLAMA_POOLING_TYPE_MEAN, lib.LLAMA_POOLING_TYPE_CLS, lib.LLAMA_POOLING_TYPE_LAST}
)


class LlamaEmbedder:
    """Makes vectors with a loaded model.

    Args:
        model: the model; it stays its owner's.
        config: how it was loaded.
        generates: False for an architecture that is made for embeddings.

    Attributes:
        size: numbers in a vector; 0 when the model makes none.
        limit: tokens of the longest input.
        ranks: the model is a reranker; it makes one number of a query and a document.
    """

    def __init__(self, model: Any, config: ModelConfig, *, generates: bool) -> None:
        self._model = model
        self._config = config
        self._pooling = _pooling(model, generates=generates)
        self._context: Any = None
        self._batch: Batch | None = None
        known = self._pooling in _POOLINGS
        self.size = int(lib.llama_model_n_embd_out(model)) if known else 0
        n_ctx = min(config.n_ctx or MAX_DEFAULT_CTX, int(lib.llama_model_n_ctx_train(model)))
        self.ranks = self._pooling == lib.LLAMA_POOLING_TYPE_RANK
        self.limit = max(1, min(n_ctx, max(config.n_ubatch, DEFAULT_MAX_TOKENS)))

    def vector(self, tokens: Sequence[int]) -> bytes:
        """Return the vector of up to `limit` tokens: little-endian float32, of length 1.

        Of a reranker it is the first number of its head, as it is.

        Raises:
            LoadError: there is too little memory for the context.
            VectorError: llama.cpp failed.
        """
        if self._context is None:
            self._context = new_embedding_context(
                self._model, self._config, n_tokens=self.limit, pooling=self._pooling
            )
        batch = self._batch = self._batch or Batch(self.limit)
        memory = lib.llama_get_memory(self._context)
        if memory:
            lib.llama_memory_clear(memory, True)  # noqa: FBT003 - a C function
        batch.size = 0
        batch.add_draft(tokens, 0, 0)
        batch.raw.n_tokens = batch.size
        run = lib.llama_decode if memory else lib.llama_encode
        if run(self._context, batch.raw) != 0:
            raise VectorError("llama.cpp could not decode the input")
        found = lib.llama_get_embeddings_seq(self._context, 0)
        if not found:
            raise VectorError("llama.cpp gave no vector")
        address = ctypes.cast(found, ctypes.POINTER(ctypes.c_float))
        values = np.ctypeslib.as_array(address, (1 if self.ranks else self.size,)).astype("<f4")
        length = float(np.linalg.norm(values.astype(np.float64)))
        if not np.isfinite(length):
            raise VectorError("llama.cpp gave a vector that is no number")
        if self.ranks:
            return bytes(values.tobytes())
        return bytes((values / (length or 1.0)).astype("<f4").tobytes())

    def pair(self, tokenize: Tokenize, query: str, document: str) -> list[int]:
        """Return a query and a document as the model reads them; neither holds control tokens.

        By the file's template for it, else both, ended and apart as the vocabulary has it.
        """
        texts = {"{query}": query, "{document}": document}
        template = lib.llama_model_chat_template(self._model, b"rerank")
        if template:
            return [
                token
                for piece in _PLACES.split(template.decode("utf-8", errors="replace"))
                for token in tokenize(texts.get(piece, piece), parse_special=piece not in texts)
            ]
        vocab = lib.llama_model_get_vocab(self._model)
        apart = int(lib.llama_vocab_sep(vocab))
        end = int(lib.llama_vocab_eos(vocab))
        begin = [int(lib.llama_vocab_bos(vocab))] if lib.llama_vocab_get_add_bos(vocab) else []
        ends = [end if end >= 0 else apart] if lib.llama_vocab_get_add_eos(vocab) else []
        between = [apart] if lib.llama_vocab_get_add_sep(vocab) else []
        asked, read = (tokenize(text, parse_special=False) for text in texts.values())
        return [token for token in (*begin, *asked, *ends, *between, *read, *ends) if token >= 0]

    def close(self) -> None:
        """Free the context; harmless without one."""
        context, self._context = self._context, None
        if context is not None:
            lib.llama_free(context)


def _pooling(model: Any, *, generates: bool) -> int:
    """Return how the file says that the outputs of a text become one vector.

    What is made for embeddings and says nothing takes their mean.
    """
    key = f"{_text(model, 'general.architecture')}.pooling_type"
    told = _text(model, key)
    pooling = int(told) if told.isdigit() else int(lib.LLAMA_POOLING_TYPE_NONE)
    if pooling == lib.LLAMA_POOLING_TYPE_NONE and not generates:
        return int(lib.LLAMA_POOLING_TYPE_MEAN)
    return pooling


def _text(model: Any, key: str) -> str:
    buffer = ctypes.create_string_buffer(256)
    count = lib.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", errors="replace") if count >= 0 else ""
