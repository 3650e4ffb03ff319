"""Guessing from what was said before: what is guessed, when it pays, and that answers stay."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.engine.protocol import Sampling, Tokens
from clawd.engine.worker.planner import (
    Grouping,
    Payoff,
    Planner,
    PromptGrouping,
    StepCosts,
    draft_length,
)
from clawd.engine.worker.prompt_lookup import MAX_DRAFT, Drafter
from clawd.engine.worker.scheduler import Scheduler
from tests.engine.worker.fake_backend import (
    FakeBackend,
    SchedulerRun,
    expected_text,
    parts,
    repetitive_token,
)

CERTAIN = [0.99**count for count in range(1, 33)]
HOPELESS = [0.01**count for count in range(1, 33)]


def alphabet(tokens: Sequence[int], _end_every: int = 0) -> int:
    """Say the alphabet again and again."""
    return ord("a") + (tokens[-1] - ord("a") + 1) % 26


class Run(SchedulerRun):
    """A scheduler that guesses, over a fake backend and its clock."""

    def __init__(self, backend: FakeBackend, *, n_parallel: int = 2) -> None:
        self.backend = backend
        self.planner = Planner(backend, prefill_chunk=8, speculates=True)
        scheduler = Scheduler(
            backend, self.planner, n_parallel=n_parallel, max_queue=20, clock=backend.clock
        )
        super().__init__(scheduler)
        self.numbers = 0

    def submit(self, tokens: Sequence[int], sampling: Sampling) -> int:
        self.numbers += 1
        assert self.scheduler.submit(self.numbers, parts(tokens), sampling) is None
        return self.numbers

    def ask(self, tokens: Sequence[int], max_tokens: int, stop: tuple[str, ...] = ()) -> str:
        sampling = Sampling(temperature=0, max_tokens=max_tokens, stop=stop)
        number = self.submit(tokens, sampling)
        self.finish()
        return self.text(number)


def letters(text: str) -> list[int]:
    return [ord(letter) for letter in text]


class TestGuesses:
    def test_nothing_is_guessed_where_nothing_repeats(self) -> None:
        drafter = Drafter(range(100))
        for token in range(100, 200):
            assert drafter.guess(8) == []
            drafter.push(token)

    def test_it_goes_on_as_the_newest_tokens_did_before(self) -> None:
        assert Drafter([1, 2, 3, 4, 5, 6, 9, 2, 3, 4]).guess(2) == [5, 6]

    def test_of_two_places_it_follows_the_later(self) -> None:
        drafter = Drafter([1, 2, 3, 40, 1, 2, 3, 50, 1, 2, 3])
        assert drafter.guess(1) == [50]

    def test_a_loop_is_guessed_beyond_its_end(self) -> None:
        assert Drafter([7, 8, 7, 8, 7]).guess(5) == [8, 7, 8, 7, 8]

    def test_it_goes_on_behind_a_token_that_was_replaced(self) -> None:
        source = list(range(20))
        drafter = Drafter([*source, 99, 0, 1, 2])
        for token in (3, 4, 55):
            drafter.push(token)
        assert drafter.guess(3) == [6, 7, 8]

    def test_it_gives_a_place_up_that_goes_elsewhere(self) -> None:
        drafter = Drafter([*range(20), 99, 0, 1, 2])
        for token in (55, 56, 57):
            drafter.push(token)
        assert drafter.guess(3) == []

    def test_it_guesses_no_more_than_asked(self) -> None:
        drafter = Drafter([*range(100), 0, 1, 2])
        assert len(drafter.guess(1000)) == MAX_DRAFT
        assert drafter.guess(0) == []

    def test_the_chances_rise_with_what_held_and_fall_with_what_did_not(self) -> None:
        good = Drafter([*range(100), 0, 1, 2])
        bad = Drafter([*range(100), 0, 1, 2])
        before = good.chances(4)
        for token in range(3, 50):
            good.push(token)
        for token in range(200, 250):
            for other in (token, -token, 0, 1, 2):
                bad.push(other)
        assert good.chances(4)[-1] > before[-1] > bad.chances(4)[-1]

    @given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 3), max_size=60))
    def test_a_guess_is_always_something_that_stood_there(
        self, prompt: list[int], said: list[int]
    ) -> None:
        drafter = Drafter(prompt)
        known = list(prompt)
        for token in said:
            guess = drafter.guess(8)
            assert set(guess) <= set(known)
            assert len(drafter.chances(len(guess))) == len(guess)
            drafter.push(token)
            known.append(token)

    def test_a_long_sequence_is_remembered_from_its_end(self) -> None:
        drafter = Drafter([1, 2, 3, 4, *range(1000, 40_000), 1, 2, 3])
        assert drafter.guess(1) == []


def _ways(
    grouping: Grouping, *, together: float, apart: Callable[[int], float], steps: int
) -> list[bool]:
    """Let four sequences go on for some steps; return in which they were decoded one by one."""
    ways: list[bool] = []
    for step in range(steps):
        ways.append(grouping.is_apart(4))
        elapsed_s = apart(step) if ways[-1] else together
        grouping.measured(4, elapsed_s, is_apart=ways[-1])
    return ways


class TestCosts:
    def test_a_size_between_two_known_ones_lies_between_them(self) -> None:
        costs = StepCosts()
        assert costs.expected(4) is None
        costs.measured(2, 1.0)
        costs.measured(6, 3.0)
        assert costs.expected(4) == pytest.approx(2.0)
        assert costs.expected(1) == 1.0
        assert costs.expected(12) == pytest.approx(6.0)

    def test_a_long_step_is_believed_slowly(self) -> None:
        costs = StepCosts()
        costs.measured(1, 1.0)
        costs.measured(1, 11.0)
        assert costs.known(1) == pytest.approx(2.0)
        costs.measured(1, 1.0)
        assert costs.known(1) == pytest.approx(1.5)

    def test_sequences_are_decoded_apart_where_a_batch_is_no_bargain(self) -> None:
        grouping = Grouping()
        assert not grouping.is_apart(4)
        ways = _ways(grouping, together=40.0, apart=lambda _step: 32.0, steps=60)
        assert ways.index(True) == 17  # it is tried once the batch is known well
        assert all(ways[20:32])
        assert grouping.prefers_apart(4)
        assert not grouping.prefers_apart(8)
        assert not grouping.is_apart(1)

    def test_sequences_are_decoded_together_where_that_is_cheaper(self) -> None:
        grouping = Grouping()
        ways = _ways(grouping, together=10.0, apart=lambda _step: 32.0, steps=4000)
        assert not grouping.prefers_apart(4)
        tried = [step for step, is_apart in enumerate(ways) if is_apart]
        assert tried[:2] == [17, 18]  # it takes three times as long: nothing is left to find out
        assert len(tried) <= 10  # ever more seldom

    def test_what_is_little_worse_is_tried_some_steps(self) -> None:
        ways = _ways(Grouping(), together=10.0, apart=lambda _step: 12.0, steps=4000)
        tried = [step for step, is_apart in enumerate(ways) if is_apart]
        assert tried[:3] == [17, 18, 19]
        assert len(tried) <= 3 * 11

    def test_r10_a_way_that_is_only_measured_oftener_does_not_win(self) -> None:
        # Single steps take 17 to 25 here, so that four times their least is less than a batch.
        random = itertools.cycle([25.0, 17.0, 23.0, 21.0, 19.0])
        grouping = Grouping()

        def apart(_step: int) -> float:
            return sum(next(random) for _ in range(4))

        ways = _ways(grouping, together=76.0, apart=apart, steps=400)
        assert sum(ways) < 20

    def test_one_slow_step_does_not_decide_for_long(self) -> None:
        grouping = Grouping()
        grouping.measured(4, 100.0, is_apart=False)
        ways = _ways(grouping, together=10.0, apart=lambda _step: 32.0, steps=60)
        assert sum(ways[:40]) <= 6

    def test_prompts_are_decoded_by_themselves_where_that_is_faster(self) -> None:
        grouping = PromptGrouping()
        assert not grouping.is_apart()
        grouping.measured(96, 0.4, is_apart=False)
        assert grouping.is_apart()
        grouping.measured(96, 0.3, is_apart=True)
        ways = [grouping.is_apart() for _ in range(25)]
        assert all(ways[:15])
        assert ways.count(False) == 3

    def test_prompts_are_decoded_beside_answers_where_that_is_faster(self) -> None:
        grouping = PromptGrouping()
        grouping.measured(96, 0.3, is_apart=False)
        grouping.measured(96, 0.4, is_apart=True)
        grouping.measured(0, 0.4, is_apart=True)
        assert not grouping.is_apart()

    def test_sure_guesses_are_decoded_on_where_larger_steps_cost_little(self) -> None:
        costs = StepCosts()
        for size in (1, 8, 17, 33):
            costs.measured(size, 1.0 + size * 0.02)
        assert draft_length(costs, 0, CERTAIN) == len(CERTAIN)
        assert draft_length(costs, 0, HOPELESS) == 0

    def test_nothing_is_decoded_on_where_every_token_costs_the_same(self) -> None:
        costs = StepCosts()
        for size in (1, 8, 17, 33):
            costs.measured(size, float(size))
        assert draft_length(costs, 0, CERTAIN) == 0

    def test_the_length_is_the_one_that_pays_most(self) -> None:
        costs = StepCosts()
        for size, elapsed_s in ((1, 8.0), (2, 30.0), (4, 39.0), (8, 40.0), (17, 90.0), (33, 180.0)):
            costs.measured(size, elapsed_s)
        assert draft_length(costs, 0, CERTAIN) == 7

    def test_r10_guesses_that_cost_time_stop_for_ever_longer_and_go_on_once_they_pay(self) -> None:
        payoff, tried = Payoff(), []
        for step in range(2000):
            payoff.step()
            if not payoff.is_paused:
                tried.append(step)
                payoff.measured(-0.1)
        assert tried == [0, 32, 96, 224, 480, 992]
        payoff.measured(0.1)
        assert not payoff.is_paused
        payoff.measured(-0.1)
        for _ in range(32):
            payoff.step()
        assert not payoff.is_paused

    def test_nothing_is_guessed_before_a_plain_step_is_known(self) -> None:
        assert draft_length(StepCosts(), 0, CERTAIN) == 0


class TestGenerations:
    def test_a_repeating_answer_is_the_same_in_fewer_steps(self) -> None:
        run = Run(FakeBackend(n_ctx=1024, follows=alphabet))
        prompt = letters("abcdefghijklmnopqrstuvwxyzabc")
        assert run.ask(prompt, 200) == expected_text(prompt, 200, alphabet)
        done = run.done()
        assert done.completion_tokens == 200
        assert done.drafted_tokens >= done.accepted_tokens > 150
        assert len(run.backend.batches) < 40

    def test_r10_no_answer_begins_with_guesses(self) -> None:
        backend = FakeBackend(n_ctx=1024, follows=alphabet)
        run = Run(backend)
        run.ask(letters("abcdefghijklmnopqrstuvwxyzabc"), 60)
        sizes = [sum(dict(batch).values()) for batch in backend.batches]
        first = next(at for at, size in enumerate(sizes[1:]) if size > 1)
        assert first == 7  # of eight tokens one comes with the prompt
        assert run.done().accepted_tokens > 30

    def test_r10_text_that_only_begins_to_repeat_itself_is_hardly_guessed_at(self) -> None:
        # Every third place has stood there before, and goes on in another way each time.
        def fickle(tokens: Sequence[int], _end: int = 0) -> int:
            return letters("abc")[len(tokens) % 3] if len(tokens) % 7 < 4 else tokens[-1] + 1

        def step_s(tokens: int) -> float:
            return 1.0 if tokens == 1 else 1.0 + 0.1 * tokens

        sizes: dict[bool, float] = {}
        for speculates in (True, False):
            backend = FakeBackend(n_ctx=2048, n_batch=64, follows=fickle, step_s=step_s)
            run = Run(backend)
            run.planner.speculates = speculates
            run.ask(letters("abcabc"), 1500)
            sizes[speculates] = backend.now
        assert sizes[True] < 1.01 * sizes[False]

    def test_nothing_is_drafted_when_it_is_switched_off(self) -> None:
        backend = FakeBackend(n_ctx=1024, follows=alphabet)
        run = Run(backend)
        run.planner.speculates = False
        run.ask(letters("abcabc"), 100)
        assert run.done().drafted_tokens == 0
        assert len(backend.batches) == 100

    def test_a_memory_that_cannot_be_cut_is_never_guessed_into(self) -> None:
        run = Run(FakeBackend(n_ctx=1024, follows=alphabet, reuses_whole_only=True))
        prompt = letters("xyzabcdefghijklmnopqrstuvwxyza")
        assert run.ask(prompt, 60) == expected_text(prompt, 60, alphabet)
        assert run.done().drafted_tokens == 0

    def test_a_stop_string_inside_of_a_guess_ends_the_answer_there(self) -> None:
        run = Run(FakeBackend(n_ctx=1024, follows=alphabet))
        prompt = letters("abcdefghijklmnopqrstuvwxyzabc")
        said = run.ask(prompt, 0, stop=("zabcde",))
        assert said == "defghijklmnopqrstuvwxy"
        assert run.done().drafted_tokens > 0
        # What is kept is what was said: the next turn goes on behind it.
        follow = letters("abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcde!a")
        assert run.ask(follow, 5) == "bcdef"
        assert run.done(2).cached_tokens >= len(prompt) + len(said)

    def test_the_end_of_the_context_ends_the_answer(self) -> None:
        run = Run(FakeBackend(n_ctx=100, follows=alphabet), n_parallel=1)
        prompt = letters("abcdefghijklmnopqrstuvwxyzabc")
        said = run.ask(prompt, 0)
        assert said == expected_text(prompt, len(said), alphabet)
        assert len(prompt) + len(said) in {100, 101}
        assert run.done().reason == "length"

    def test_an_end_inside_of_a_guess_ends_the_answer(self) -> None:
        backend = FakeBackend(
            n_ctx=1024,
            end_every=75,
            follows=lambda tokens, end: 0 if len(tokens) % end == 0 else alphabet(tokens),
        )
        run = Run(backend)
        prompt = letters("abcdefghijklmnopqrstuvwxyzabc")
        assert len(prompt) + len(run.ask(prompt, 0)) == 75
        assert run.done().reason == "stop"

    def test_logprobs_are_those_of_each_token(self) -> None:
        run = Run(FakeBackend(n_ctx=1024, follows=alphabet))
        sampling = Sampling(temperature=0, max_tokens=50, logprobs=True)
        number = run.submit(letters("abcdefghijklmnopqrstuvwxyzabc"), sampling)
        run.finish()
        found = [
            each.piece.decode() for e in run.events if isinstance(e, Tokens) for each in e.logprobs
        ]
        assert "".join(found) == run.text(number)
        assert run.done().drafted_tokens > 0

    def test_step_sizes_are_tried_in_quiet_moments_and_leave_nothing_behind(self) -> None:
        backend = FakeBackend(n_ctx=400, n_batch=64, step_s=lambda tokens: 0.1 + 0.001 * tokens)
        run = Run(backend)
        run.ask(letters("abc"), 5)
        held = backend.used_cells
        tried = 0
        while run.scheduler.rest():
            tried += 1
            assert backend.used_cells <= held
        assert tried == 9
        assert not run.scheduler.rest()

    def test_a_step_that_takes_long_is_not_tried(self) -> None:
        backend = FakeBackend(n_ctx=400, n_batch=64, step_s=lambda tokens: 0.2 * tokens)
        run = Run(backend)
        while run.scheduler.rest():
            pass
        assert [sum(dict(batch).values()) for batch in backend.batches] == [1]

    def test_where_a_wrong_guess_cannot_be_cut_off_all_is_decoded_anew(self) -> None:
        class Uncut(FakeBackend):
            def cut(self, sequence: int, length: int) -> bool:
                return length == 0 and super().cut(sequence, length)

        run = Run(Uncut(n_ctx=1024, follows=repetitive_token))
        prompt = letters("abcabcabcabc")
        assert run.ask(prompt, 120) == expected_text(prompt, 120, repetitive_token)
        assert not run.planner.speculates

    @settings(max_examples=60, deadline=None)
    @given(
        prompts=st.lists(
            st.lists(st.sampled_from(letters("abc")), min_size=1, max_size=40),
            min_size=1,
            max_size=6,
        ),
        base=st.sampled_from([0.0, 0.1, 1.0, 10.0]),
        per_token=st.sampled_from([0.001, 0.1, 1.0]),
        lengths=st.lists(st.integers(1, 60), min_size=6, max_size=6),
    )
    def test_whatever_steps_cost_the_answers_are_the_same(
        self, prompts: list[list[int]], base: float, per_token: float, lengths: list[int]
    ) -> None:
        backend = FakeBackend(
            n_ctx=400,
            n_sequences=6,
            follows=repetitive_token,
            step_s=lambda tokens: base + per_token * tokens,
        )
        run = Run(backend, n_parallel=3)
        for prompt, length in zip(prompts, lengths, strict=False):
            run.submit(prompt, Sampling(temperature=0, max_tokens=length))
        run.finish()
        for number, (prompt, length) in enumerate(zip(prompts, lengths, strict=False), 1):
            assert run.text(number) == expected_text(prompt, length, repetitive_token)
