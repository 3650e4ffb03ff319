"""Embeddings and ranks in llama.cpp: a second context of a loaded model, made when first needed."""

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from clawd.engine.protocol import ModelConfig
from clawd.engine.worker.batch import Batch
from clawd.engine.worker.embedding import Tokenize, VectorError
from clawd.engine.worker.llama import MAX_DEFAULT_CTX, lib, new_embedding_context

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
