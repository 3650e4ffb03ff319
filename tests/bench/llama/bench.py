"""What every row needs: both sides running on the same model, and rounds of both in turn."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.bench.engine_setup import EngineSetup
from tests.bench.llama.ours import Ours, running_ours
from tests.bench.llama.peer import Peer, running_peer
from tests.bench.llama.scale import Scale
from tests.bench.llama.talk import Side, words
from tests.bench.report import measured_in_turn
from tests.bench.streams import BenchError, now

T = TypeVar("T")
PEER = "llama-server"


class Bench(msgspec.Struct, frozen=True, kw_only=True):
    """One run.

    Attributes:
        folder: a throwaway folder.
        binaries: the folder that holds llama-server.
        real: the real model, where it could be fetched.
        say: prints a line of progress.
    """

    folder: Path
    binaries: Path
    model: Path
    scale: Scale
    threads: int
    real: Path | None
    say: Callable[[str], None]

    def setup(self, *, answer_tokens: int, streams: int, context_tokens: int) -> EngineSetup:
        """Return what both engines are told for one part of the run."""
        return EngineSetup(
            model=self.model,
            answer_tokens=answer_tokens,
            streams=streams,
            threads=self.threads,
            context_tokens=context_tokens,
        )

    @contextmanager
    def both(self, part: str, setup: EngineSetup) -> Iterator["Pair"]:
        """Start both sides with their model loaded and their prompts equally long."""
        folder = self.folder / part
        folder.mkdir()
        with (
            running_ours(folder / "ours", setup) as ours,
            running_peer(self.binaries, folder, setup) as peer,
        ):
            yield Pair(ours, peer, self, part)

    def rounds(
        self,
        title: str,
        sides: tuple[Side, Side],
        measure: Callable[[Side, str], T],
        told: Callable[[T], str],
        *,
        names: tuple[str, str] = ("ours", PEER),
    ) -> list[tuple[T, T]]:
        """Measure one side, the other, the one; `measure` gets a seed that a pair shares."""
        count = self.scale.pairs
        began = now()

        def measured(side: Side, name: str) -> Callable[[int], T]:
            def one_round(number: int) -> T:
                result = measure(side, f"{title} {number}")
                self.say(f"{title}, pair {number + 1} of {count}, {name}: {told(result)}")
                return result

            return one_round

        one, other = (measured(*each) for each in zip(sides, names, strict=True))
        pairs = measured_in_turn(one, other, count)
        self.say(f"{title}: {now() - began:.0f} s")
        return pairs


class Pair:
    """Both sides, and how a round goes through both."""

    def __init__(self, ours: Ours, peer: Peer, bench: Bench, part: str) -> None:
        self._ours = ours
        self._peer = peer
        self._bench = bench
        self._part = part
        self._match_prompts()

    def each(self, act: Callable[[Side], object]) -> None:
        """Do something on both sides that is not measured."""
        act(self._ours)
        act(self._peer)

    def rounds(
        self, title: str, measure: Callable[[Side, str], T], told: Callable[[T], str]
    ) -> list[tuple[T, T]]:
        """Measure ours, the peer, ours and so on; `measure` gets a seed that both halves share."""
        return self._bench.rounds(title, (self._ours, self._peer), measure, told)

    def _match_prompts(self) -> None:
        """Load both models and make their prompts equally long."""
        text = words(self._bench.scale.own_words, f"warm-up of {self._part}")
        with self._ours.talk() as talk:
            heard = talk.say(text)
        theirs = self._peer.match_prompt(text, heard.prompt_tokens)
        if abs(theirs - heard.prompt_tokens) > 0.02 * heard.prompt_tokens:
            raise BenchError(f"the peer's prompt has {theirs} tokens, ours {heard.prompt_tokens}")
        self._bench.say(
            f"{self._part}: a prompt of {self._bench.scale.own_words} random words has "
            f"{heard.prompt_tokens} tokens on our side, {theirs} on the peer's"
        )
