"""llama.cpp's batch of tokens over numpy memory."""

import ctypes
from collections.abc import Sequence

import numpy as np

from clawd.engine.worker.llama import lib, pointer


class Batch:
    """llama_batch over numpy memory: nothing is allocated or set twice per step."""

    def __init__(self, capacity: int) -> None:
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._sequences = np.zeros(capacity, np.int32)
        self._counts = np.ones(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        first = self._sequences.ctypes.data
        self._pointers = np.arange(capacity, dtype=np.uintp) * np.uintp(4) + np.uintp(first)
        self.raw = lib.llama_batch(
            n_tokens=0,
            token=pointer(self._tokens, ctypes.c_int32),
            embd=None,
            pos=pointer(self._positions, ctypes.c_int32),
            n_seq_id=pointer(self._counts, ctypes.c_int32),
            seq_id=pointer(self._pointers, ctypes.POINTER(ctypes.c_int32)),
            logits=pointer(self._outputs, ctypes.c_int8),
        )
        self.size = 0

    def add_token(self, token: int, position: int, sequence: int) -> int:
        """Add a token whose output is wanted; return its row."""
        row = self.size
        self._tokens[row] = token
        self._positions[row] = position
        self._sequences[row] = sequence
        self._outputs[row] = 1
        self.size = row + 1
        return row

    def add_prompt(
        self, tokens: Sequence[int], position: int, sequence: int, *, last_output: bool
    ) -> int:
        """Add consecutive tokens, the output of the last if wanted; return the last one's row."""
        start, end = self.size, self.size + len(tokens)
        self._tokens[start:end] = tokens
        self._positions[start:end] = np.arange(position, position + len(tokens), dtype=np.int32)
        self._sequences[start:end] = sequence
        self._outputs[start:end] = 0
        self._outputs[end - 1] = last_output
        self.size = end
        return end - 1

    def add_draft(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Add consecutive tokens whose outputs are all wanted."""
        start = self.size
        last = self.add_prompt(tokens, position, sequence, last_output=True)
        self._outputs[start:last] = 1
