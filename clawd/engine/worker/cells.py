"""Counts the KV cells that sequences take, where several may share the cells of a prefix.

A sequence is a list of runs; a run belongs to every sequence that holds it. Sharing a prefix
costs no cell (llama.h `llama_memory_seq_cp` in a unified cache), and a cell is free when the
last sequence that holds it lets go.
"""

from collections.abc import Iterable


class _Run:
    """Consecutive cells that are held by the same sequences."""

    __slots__ = ("holders", "length")

    def __init__(self, length: int, holders: int) -> None:
        self.length = length
        self.holders = holders


class CellMap:
    """Cells in use, by sequence."""

    def __init__(self, n_sequences: int) -> None:
        self._runs: list[list[_Run]] = [[] for _ in range(n_sequences)]
        self.used = 0

    def length(self, sequence: int) -> int:
        """Return how many cells the sequence holds, shared ones included."""
        return sum(run.length for run in self._runs[sequence])

    def used_by(self, sequences: Iterable[int]) -> int:
        """Return how many cells these sequences hold together."""
        runs = {id(run): run.length for sequence in sequences for run in self._runs[sequence]}
        return sum(runs.values())

    def extend(self, sequence: int, count: int) -> None:
        """Give the sequence new cells of its own at its end."""
        runs = self._runs[sequence]
        self.used += count
        if runs and runs[-1].holders == 1:
            runs[-1].length += count
        else:
            runs.append(_Run(count, 1))

    def share_prefix(self, source: int, target: int, length: int) -> None:
        """Let the empty `target` hold the first `length` cells of `source` too."""
        for run in self._cut_at(source, length):
            run.holders += 1
            self._runs[target].append(run)

    def cut(self, sequence: int, length: int) -> None:
        """Let the sequence keep its first `length` cells only."""
        kept = self._cut_at(sequence, length)
        for run in self._runs[sequence][len(kept) :]:
            run.holders -= 1
            if not run.holders:
                self.used -= run.length
        self._runs[sequence] = kept

    def _cut_at(self, sequence: int, length: int) -> list[_Run]:
        """Split the run that goes over `length` and return the runs before that border."""
        runs = self._runs[sequence]
        for index, run in enumerate(runs):
            if length <= 0:
                return runs[:index]
            if run.length > length:
                self._split(run, length)
                return self._runs[sequence][: index + 1]
            length -= run.length
        return runs[:]

    def _split(self, run: _Run, length: int) -> None:
        rest = _Run(run.length - length, run.holders)
        run.length = length
        for runs in self._runs:
            for index, candidate in enumerate(runs):
                if candidate is run:
                    runs.insert(index + 1, rest)
                    break
