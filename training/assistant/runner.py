"""A greedy runner on llama.cpp: the base, and an adapter on it, as the product loads them.

What a prompt shares with the one before stays in the cache. No process may import this and torch:
each brings an OpenMP runtime of its own.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np

_quiet = llama_cpp.llama_log_callback(lambda _level, _text, _data: None)


class Runner:
    def __init__(
        self, base: Path, adapter: Path | None = None, *, threads: int = 1, context: int = 2048
    ) -> None:
        llama_cpp.llama_log_set(_quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(
            str(base).encode(), llama_cpp.llama_model_default_params()
        )
        if not self._model:
            raise SystemExit(f"{base}: llama.cpp cannot load it")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = context
        params.n_threads = params.n_threads_batch = threads
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        if adapter is not None:
            self._load(adapter)
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(self._vocab)
        self._limit = context
        self._held: list[int] = []

    def _load(self, adapter: Path) -> None:
        loaded = llama_cpp.llama_adapter_lora_init(self._model, str(adapter).encode())
        if not loaded:
            raise SystemExit(f"{adapter}: llama.cpp cannot load it on this base")
        adapters = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(loaded)
        scales = (ctypes.c_float * 1)(1.0)
        if llama_cpp.llama_set_adapters_lora(self._context, adapters, 1, scales):
            raise SystemExit(f"{adapter}: llama.cpp did not take it")

    def tokens(self, text: str) -> list[int]:
        raw = text.encode()
        room = len(raw) + 8
        buffer = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self._vocab, raw, len(raw), buffer, room, False, True)
        return list(buffer[:count])

    def bytes(self, token: int) -> bytes:
        buffer = ctypes.create_string_buffer(256)
        count = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, 256, 0, True)
        return buffer.raw[:count]

    def text(self, tokens: Sequence[int]) -> str:
        return b"".join(map(self.bytes, tokens)).decode(errors="replace")

    def logits(self, tokens: list[int]) -> np.ndarray:
        """Returns the logits after each token."""
        self._keep(0)
        return self._decode(tokens, every=True)

    def next_logits(self, prompt: str) -> np.ndarray:
        """Returns the logits of what comes after a prompt."""
        tokens = self.tokens(prompt)
        shared = 0
        while (
            shared < min(len(tokens) - 1, len(self._held)) and tokens[shared] == self._held[shared]
        ):
            shared += 1
        self._keep(shared)
        last: np.ndarray = self._decode(tokens[shared:])[0]
        return last

    def complete(self, prompt: str, *, limit: int = 200) -> str:
        """Returns the likeliest continuation, up to the end of the turn or so many tokens."""
        row = self.next_logits(prompt)
        said: list[int] = []
        while len(said) < limit and len(self._held) < self._limit:
            token = int(row.argmax())
            if llama_cpp.llama_vocab_is_eog(self._vocab, token):
                break
            said.append(token)
            row = self._decode([token])[0]
        return self.text(said)

    def _decode(self, tokens: list[int], *, every: bool = False) -> np.ndarray:
        batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = len(self._held) + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = every or index == len(tokens) - 1
        code = llama_cpp.llama_decode(self._context, batch)
        llama_cpp.llama_batch_free(batch)
        if code:
            raise RuntimeError(f"llama_decode failed on {len(tokens)} tokens: {code}")
        self._held += tokens
        rows = range(len(tokens)) if every else [len(tokens) - 1]
        shape = (self._vocab_size,)
        values = [llama_cpp.llama_get_logits_ith(self._context, row) for row in rows]
        return np.stack([np.ctypeslib.as_array(value, shape).copy() for value in values])

    def _keep(self, count: int) -> None:
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(self._context), 0, count, -1)
        del self._held[count:]
