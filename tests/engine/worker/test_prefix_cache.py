"""The prefix cache over the strict fake backend: copies out, put back, exact, and free of cost."""

from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.engine.client import EngineSettings
from clawd.engine.protocol import (
    GenerationDone,
    GenerationStarted,
    Quit,
    Sampling,
    Tokens,
)
from clawd.engine.worker.planner import Planner
from clawd.engine.worker.scheduler import Scheduler
from clawd.engine.worker.statefolder import StateFolder
from clawd.engine.worker.states import StateStore
from tests.engine.worker.fake_backend import FakeBackend, SchedulerRun, expected_text, parts, prompt
from tests.support.rows import each_row

MEGABYTE = 1024 * 1024


class Run(SchedulerRun):
    """A scheduler with a store, one request at a time or many."""

    def __init__(
        self, backend: FakeBackend | None = None, folder: Path | None = None, memory: int = MEGABYTE
    ) -> None:
        self.backend = backend or FakeBackend()
        states = StateFolder(folder, MEGABYTE, "ab" * 32) if folder else None
        self.store = StateStore(memory, states, whole_only=self.backend.reuses_whole_only)
        scheduler = Scheduler(
            self.backend,
            Planner(self.backend, prefill_chunk=8, speculates=False),
            n_parallel=2,
            max_queue=20,
            store=self.store,
            clock=self.backend.clock,
        )
        super().__init__(scheduler)
        self.numbers = 0

    def submit(self, tokens: Sequence[int], max_tokens: int = 4) -> int:
        self.numbers += 1
        sampling = Sampling(temperature=0, max_tokens=max_tokens)
        assert self.scheduler.submit(self.numbers, parts(tokens), sampling) is None
        return self.numbers

    def ask(self, tokens: Sequence[int], max_tokens: int = 4) -> GenerationDone:
        number = self.submit(tokens, max_tokens)
        self.finish()
        assert self.text(number) == expected_text(tokens, max_tokens)
        return self.done(number)

    def rest(self) -> None:
        for _ in range(100):
            if not self.scheduler.rest():
                return
        raise AssertionError("it never comes to rest")


def test_an_idle_sequence_leaves_the_memory_when_another_is_admitted() -> None:
    run = Run()
    run.ask(prompt(1, 60))
    run.rest()
    assert run.backend.used_cells == 63
    run.ask(prompt(2, 40))
    assert run.backend.used_cells == 43
    assert run.scheduler.cached_sequences == 2


def test_a_conversation_that_left_the_memory_goes_on_from_its_copy() -> None:
    run = Run()
    first = prompt(1, 60)
    run.ask(first)
    for seed in (2, 3, 4, 5, 6):
        run.rest()
        run.ask(prompt(seed, 50))
    assert run.backend.restored == 0
    turn = [*first, *map(ord, run.text(1)), *prompt(7, 9)]
    assert run.ask(turn).cached_tokens == 63
    assert run.backend.restored == 1
    (evaluated,) = (e for e in run.events if isinstance(e, GenerationStarted) and e.id == 7)
    assert (evaluated.tokens, evaluated.cached) == (73, 63)


def test_a_sequence_is_copied_in_a_quiet_moment_and_only_once() -> None:
    run = Run()
    run.ask(prompt(1, 60))
    assert run.backend.saved == 0
    run.rest()
    assert run.backend.saved == 1
    run.rest()
    run.ask(prompt(2, 60))
    assert run.backend.saved == 1


def test_a_conversation_that_begins_alike_takes_nothing_from_one_before_it() -> None:
    run = Run()
    shared = prompt(1, 80)
    run.ask([*shared, *prompt(2, 40)])
    said = run.text(1)
    # No quiet moment between them: the second is cut out of the first one's place.
    run.ask([*shared, *prompt(3, 40)])
    turn = [*shared, *prompt(2, 40), *map(ord, said), *prompt(4, 9)]
    assert run.ask(turn).cached_tokens == 123


def test_without_a_quiet_moment_it_is_copied_at_admission() -> None:
    run = Run()
    run.ask(prompt(1, 60))
    run.ask(prompt(2, 60))
    assert run.backend.saved == 1
    assert run.ask(prompt(1, 60)).cached_tokens == 59


def test_the_next_turn_stays_in_the_memory() -> None:
    run = Run()
    first = prompt(1, 60)
    run.ask(first)
    run.rest()
    assert run.ask([*first, *map(ord, run.text(1)), 5]).cached_tokens == 63
    assert run.backend.restored == 0


def test_a_copy_is_cut_to_what_the_prompt_shares_with_it() -> None:
    run = Run()
    base = prompt(1, 60)
    run.ask([*base, *prompt(2, 30)])
    run.ask(prompt(3, 50))
    assert run.ask([*base, *prompt(4, 30)]).cached_tokens == 60
    run.ask(prompt(5, 50))
    assert run.ask([*base, *prompt(2, 30), 7]).cached_tokens == 90


def test_sequences_that_run_keep_their_cells() -> None:
    run = Run()
    long = run.submit(prompt(1, 60), 60)
    for _ in range(5):
        run.events += run.scheduler.step()
    for seed in (2, 3, 4):
        number = run.submit(prompt(seed, 40), 3)
        while not any(isinstance(e, GenerationDone) and e.id == number for e in run.events):
            run.events += run.scheduler.step()
        assert run.text(number) == expected_text(prompt(seed, 40), 3)
    run.finish()
    assert run.text(long) == expected_text(prompt(1, 60), 60)


def test_a_copy_too_long_for_the_free_cells_is_left_and_the_prompt_evaluated() -> None:
    run = Run(FakeBackend(n_ctx=128))
    run.ask([*prompt(1, 20), *prompt(9, 60)])
    other = run.submit(prompt(2, 60), 8)
    while not any(isinstance(event, Tokens) and event.id == other for event in run.events):
        run.events += run.scheduler.step()
    again = run.submit([*prompt(1, 20), *prompt(3, 5)])
    run.finish()
    assert run.done(again).cached_tokens == 0
    assert run.text(again) == expected_text([*prompt(1, 20), *prompt(3, 5)], 4)
    assert run.text(other) == expected_text(prompt(2, 60), 8)


def test_a_copy_that_the_backend_refuses_is_forgotten() -> None:
    run = Run()
    run.ask(prompt(1, 60))
    run.ask(prompt(2, 60))
    run.backend.refuses_states = True
    assert run.ask(prompt(1, 60)).cached_tokens == 0
    assert [kept.tokens[:60] for kept in run.store.known()] == [prompt(2, 60)]


def test_a_generation_that_gave_its_cells_back_does_not_start_again() -> None:
    run = Run(FakeBackend(n_ctx=200))
    numbers = [run.submit(prompt(seed, 40), 120) for seed in (1, 2)]
    run.finish()
    for seed, number in zip((1, 2), numbers, strict=True):
        assert run.text(number) == expected_text(prompt(seed, 40), 120)
    assert run.backend.restored == 1


def test_models_that_cannot_cut_get_whole_sequences_back() -> None:
    run = Run(FakeBackend(reuses_whole_only=True))
    first = prompt(1, 60)
    run.ask(first)
    run.rest()
    for seed in (2, 3, 4, 5):
        run.ask(prompt(seed, 50))
        run.rest()
    assert run.ask([*first[:50], 7]).cached_tokens == 0
    said = list(map(ord, run.text(1)))
    assert run.ask([*first, *said, *prompt(6, 5)]).cached_tokens == 63
    assert run.backend.restored == 1


def test_short_sequences_are_dropped_and_cost_no_copy() -> None:
    run = Run()
    run.ask(prompt(1, 10))
    run.rest()
    run.ask(prompt(2, 10))
    assert run.backend.saved == 0
    assert run.backend.used_cells == 13


def test_without_a_budget_idle_sequences_stay_in_the_memory() -> None:
    run = Run(memory=0)
    run.ask(prompt(1, 60))
    run.rest()
    run.ask(prompt(2, 60))
    assert run.backend.saved == 0
    assert run.backend.used_cells == 126
    assert run.ask(prompt(1, 60)).cached_tokens == 59


def test_a_sequence_over_the_budget_stays_in_the_memory() -> None:
    run = Run(memory=100)
    run.ask(prompt(1, 60))
    run.rest()
    run.ask(prompt(2, 60))
    assert run.backend.used_cells == 126
    assert run.ask(prompt(1, 60)).cached_tokens == 59


def test_what_was_in_the_memory_and_in_ram_survives_a_restart(tmp_path: Path) -> None:
    run = Run(folder=tmp_path)
    first = prompt(1, 60)
    run.ask(first)
    run.ask(prompt(2, 60))
    run.scheduler.shut_down(10)
    later = Run(folder=tmp_path)
    assert [len(history[0].tokens) for history in later.scheduler.histories()] == [60, 60]
    assert later.ask([*first, *map(ord, run.text(1)), 5]).cached_tokens == 63
    assert later.ask(prompt(2, 60)).cached_tokens == 59
    assert later.scheduler.cached_sequences == 2


def test_a_generation_that_runs_at_the_end_is_saved_as_far_as_it_came(tmp_path: Path) -> None:
    run = Run(folder=tmp_path)
    run.submit(prompt(1, 60), 100)
    for _ in range(10):
        run.events += run.scheduler.step()
    run.scheduler.shut_down(10)
    assert [sampler.closed for sampler in run.backend.samplers] == [1]
    said = list(map(ord, run.text(1)))
    assert len(said) > 3
    assert Run(folder=tmp_path).ask([*prompt(1, 60), *said]).cached_tokens == 59 + len(said)


def test_no_time_to_save_saves_nothing_and_harms_nothing(tmp_path: Path) -> None:
    run = Run(folder=tmp_path)
    run.ask(prompt(1, 60))
    run.scheduler.shut_down(-1)
    assert list(tmp_path.iterdir()) == []
    assert Run(folder=tmp_path).ask(prompt(1, 60)).cached_tokens == 0


@each_row("damage", ["cut", "flipped", "garbage", "gone"])
def test_damaged_files_cost_the_cache_only(damage: str, tmp_path: Path) -> None:
    run = Run(folder=tmp_path)
    run.ask(prompt(1, 60))
    run.scheduler.shut_down(10)
    later = Run(folder=tmp_path)
    if damage in {"flipped", "gone"}:
        assert later.scheduler.histories()
    (path,) = tmp_path.iterdir()
    data = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(data[:-5])
        case "flipped":
            path.write_bytes(data[:-9] + bytes([data[-9] ^ 4]) + data[-8:])
        case "garbage":
            path.write_bytes(b"\0" * len(data))
        case _:
            path.unlink()
    assert later.ask(prompt(1, 60)).cached_tokens == 0


def test_the_supervisor_waits_longer_than_a_worker_saves() -> None:
    # Beyond the limit one slice and the last sync may still be under way.
    assert EngineSettings().quit_grace_s >= Quit().save_limit_s + 2


@settings(max_examples=80, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(1, 90),
            st.integers(0, 2),
            st.integers(1, 30),
            st.integers(0, 6),
            st.booleans(),
        ),
        min_size=1,
        max_size=14,
    ),
    kind=st.sampled_from(["shared", "apart", "whole only"]),
    budget=st.sampled_from([0, 300, 70_000, 200_000, MEGABYTE]),
)
def test_any_load_is_answered_exactly(
    requests: list[tuple[int, int, int, int, int, bool]], *, kind: str, budget: int
) -> None:
    backend = FakeBackend(
        n_ctx=128,
        n_batch=16,
        n_sequences=4,
        reuses_whole_only=kind == "whole only",
        shares_cells=kind != "apart",
    )
    run = Run(backend, memory=budget)
    prompts = {}
    for seed, length, tail, max_tokens, steps, rests in requests:
        tokens = [*prompt(seed, length), *prompt(9, tail)]
        prompts[run.submit(tokens, max_tokens)] = tokens
        for _ in range(steps):
            run.events += run.scheduler.step()
        if rests:
            run.finish()
            run.rest()
    run.finish()
    for number, tokens in prompts.items():
        done = run.done(number)
        assert run.text(number) == expected_text(tokens, done.completion_tokens)
        assert done.cached_tokens < done.prompt_tokens
