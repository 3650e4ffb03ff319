"""The scheduler over a strict fake backend: order, fairness, limits, cancelling, running out."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.engine.protocol import (
    GenerationDone,
    GenerationFailed,
    GenerationStarted,
    PromptStep,
    Sampling,
    Tokens,
)
from clawd.engine.worker.backend import DecodeResult
from clawd.engine.worker.grammar import GrammarPlan
from clawd.engine.worker.planner import Planner
from clawd.engine.worker.prompt import Part
from clawd.engine.worker.scheduler import MIN_AWAITED, Scheduler
from tests.engine.worker.fake_backend import FakeBackend, SchedulerRun, expected_text, parts, prompt
from tests.support.rows import each_row


class Run(SchedulerRun):
    """A scheduler with a backend, and the events so far."""

    def __init__(
        self,
        backend: FakeBackend | None = None,
        *,
        n_parallel: int = 2,
        max_queue: int = 8,
        prefill_chunk: int = 8,
    ) -> None:
        self.backend = backend or FakeBackend()
        scheduler = Scheduler(
            self.backend,
            Planner(self.backend, prefill_chunk=prefill_chunk, speculates=False),
            n_parallel=n_parallel,
            max_queue=max_queue,
            clock=self.backend.clock,
        )
        super().__init__(scheduler)

    def submit(
        self, number: int, tokens: Sequence[int], max_tokens: int = 10, stop: tuple[str, ...] = ()
    ) -> GenerationFailed | None:
        refused = self.scheduler.refusal(number)
        if refused is not None:
            return refused
        sampling = Sampling(temperature=0, max_tokens=max_tokens, stop=stop)
        return self.scheduler.submit(number, parts(tokens), sampling)


def test_one_generation_says_what_its_prompt_leads_to() -> None:
    run = Run()
    tokens = prompt(1, 20)
    assert run.submit(1, tokens) is None
    run.finish()
    assert run.text(1) == expected_text(tokens, 10)
    done = run.done(1)
    assert (done.reason, done.prompt_tokens, done.completion_tokens) == ("length", 20, 10)


def test_events_come_in_the_order_of_the_protocol() -> None:
    run = Run(FakeBackend(n_batch=8))
    run.submit(1, prompt(1, 20), max_tokens=2)
    run.finish()
    assert [type(event) for event in run.events] == [
        PromptStep,
        PromptStep,
        PromptStep,
        PromptStep,
        GenerationStarted,
        Tokens,
        Tokens,
        GenerationDone,
    ]
    progress = [e.progress.processed for e in run.events if isinstance(e, PromptStep)]
    assert progress == [0, 8, 16, 20]


def test_parallel_generations_do_not_change_each_other() -> None:
    run = Run(n_parallel=3)
    prompts = {number: prompt(number, 5 * number) for number in range(1, 7)}
    for number, tokens in prompts.items():
        run.submit(number, tokens)
    run.finish()
    for number, tokens in prompts.items():
        assert run.text(number) == expected_text(tokens, 10)


def test_a_long_prompt_does_not_stop_a_running_stream() -> None:
    run = Run(FakeBackend(n_batch=32, n_ctx=512), prefill_chunk=8)
    run.submit(1, prompt(1, 4), max_tokens=100)
    run.step()
    run.submit(2, prompt(2, 200), max_tokens=5)
    while not any(isinstance(e, GenerationStarted) and e.id == 2 for e in run.events):
        events = run.step()
        assert [e.count for e in events if isinstance(e, Tokens) and e.id == 1] == [1]
    assert max(dict(batch).get(1, 0) for batch in run.backend.batches) == 8


def test_a_prompt_alone_is_decoded_in_whole_batches() -> None:
    run = Run(FakeBackend(n_batch=32), prefill_chunk=8)
    run.submit(1, prompt(1, 64), max_tokens=1)
    run.finish()
    assert run.backend.batches == [[(0, 32)], [(0, 32)]]


def test_prompts_are_decoded_in_order_of_arrival() -> None:
    run = Run(FakeBackend(n_batch=16))
    run.submit(1, prompt(1, 40), max_tokens=1)
    run.submit(2, prompt(2, 8), max_tokens=1)
    run.finish()
    evaluated = [e.id for e in run.events if isinstance(e, GenerationStarted)]
    assert evaluated == [1, 2]


def test_a_full_queue_says_busy_at_once_with_a_time_to_wait() -> None:
    run = Run(n_parallel=1, max_queue=2)
    accepted = [run.submit(number, prompt(number, 5)) for number in range(1, 5)]
    assert accepted[:2] == [None, None]
    refused = accepted[3]
    assert refused is not None
    assert refused.code == "busy"
    assert refused.retry_after_s > 0
    run.finish()
    assert run.submit(9, prompt(9, 5)) is None


def test_h8_who_is_turned_away_is_told_when_the_queue_will_have_moved() -> None:
    run = Run(n_parallel=2, max_queue=4)

    def fill(first: int) -> None:
        for number in range(first, first + 6):
            assert run.submit(number, prompt(number, 5), max_tokens=4) is None

    fill(0)
    began = run.backend.clock()
    run.finish()
    pace_s = (run.backend.clock() - began) / 6
    fill(10)
    while run.scheduler.queued > 4:
        run.step()
    refused = [run.submit(number, prompt(number, 5)) for number in range(20, 30)]
    waits = [each.retry_after_s for each in refused if each is not None]
    # Four wait already; and who was turned away comes back, not all at once.
    assert len(waits) == 10 and waits == sorted(waits) and waits[0] < waits[-1]
    assert 3 * pace_s < waits[0] < 8 * pace_s, (pace_s, waits)
    assert 8 * pace_s < waits[-1] < 20 * pace_s, (pace_s, waits)


def test_a_second_generation_with_the_same_id_is_refused() -> None:
    run = Run()
    run.submit(1, prompt(1, 5))
    refused = run.submit(1, prompt(2, 5))
    assert refused is not None
    assert refused.code == "invalid_request"


def test_a_prompt_that_fills_the_context_is_refused_before_decoding() -> None:
    run = Run(FakeBackend(n_ctx=64))
    refused = run.submit(1, prompt(1, 64))
    assert refused is not None
    assert refused.code == "context_full"
    assert "64 tokens" in refused.message
    assert not run.scheduler.has_work
    assert run.submit(2, prompt(1, 63)) is None


def test_values_that_no_sampler_takes_are_refused() -> None:
    run = Run()
    sampling = Sampling(repeat_penalty=0)
    refused = run.scheduler.submit(1, parts([1, 2]), sampling)
    assert refused is not None
    assert refused.code == "invalid_request"


def test_a_context_that_fills_up_ends_the_answer_with_length() -> None:
    run = Run(FakeBackend(n_ctx=40))
    tokens = prompt(1, 30)
    run.submit(1, tokens, max_tokens=0)
    run.finish()
    done = run.done(1)
    assert (done.reason, done.completion_tokens) == ("length", 11)
    assert run.text(1) == expected_text(tokens, 11)


def test_an_end_token_ends_the_answer_and_is_not_shown() -> None:
    run = Run(FakeBackend(end_every=25))
    tokens = prompt(1, 20)
    run.submit(1, tokens, max_tokens=0)
    run.finish()
    assert run.done(1).reason == "stop"
    assert run.text(1) == expected_text(tokens, 5)


def test_a_stop_string_over_several_tokens_ends_the_answer_before_it() -> None:
    tokens = prompt(1, 20)
    text = expected_text(tokens, 10)
    run = Run()
    run.submit(1, tokens, stop=(text[4:7],))
    run.finish()
    assert run.done(1).reason == "stop"
    assert run.text(1) == text[: text.index(text[4:7])]


@each_row("steps", [0, 1, 3, 12])
def test_cancel_ends_a_generation_wherever_it_is(steps: int) -> None:
    run = Run(FakeBackend(n_batch=8), n_parallel=1)
    run.submit(1, prompt(1, 40), max_tokens=20)
    run.submit(2, prompt(2, 8), max_tokens=3)
    for _ in range(steps):
        run.step()
    run.events += run.scheduler.cancel(1)
    assert run.done(1).reason == "cancelled"
    assert run.scheduler.running + run.scheduler.queued == 1
    run.finish()
    assert run.text(2) == expected_text(prompt(2, 8), 3)
    assert [sampler.closed for sampler in run.backend.samplers] == [1, 1]


def test_cancel_in_the_queue_leaves_the_running_alone() -> None:
    run = Run(n_parallel=1)
    run.submit(1, prompt(1, 8), max_tokens=5)
    run.step()
    run.submit(2, prompt(2, 8))
    run.events += run.scheduler.cancel(2)
    assert run.scheduler.queued == 0
    run.finish()
    assert run.done(1).completion_tokens == 5


def test_cancelling_an_unknown_id_does_nothing() -> None:
    assert Run().scheduler.cancel(77) == []


def test_a_second_turn_decodes_only_what_is_new() -> None:
    run = Run()
    tokens = prompt(1, 30)
    run.submit(1, tokens)
    run.finish()
    longer = [*tokens, *map(ord, run.text(1)), *prompt(5, 6)]
    run.submit(2, longer)
    run.finish()
    assert run.text(2) == expected_text(longer, 10)
    # The last sampled token was never decoded, so it is not in the memory.
    assert run.done(2).cached_tokens == 39


def test_a_prefix_in_use_is_shared_without_cells_of_its_own() -> None:
    run = Run(FakeBackend(n_ctx=100))
    base = prompt(1, 60)
    run.submit(1, [*base, 5], max_tokens=8)
    run.step()
    run.step()
    run.submit(2, [*base, 6], max_tokens=8)
    run.finish()
    assert run.text(1) == expected_text([*base, 5], 8)
    assert run.text(2) == expected_text([*base, 6], 8)
    assert run.done(2).cached_tokens == 60


def test_what_several_prompts_share_is_read_once_when_they_begin_together() -> None:
    run = Run(FakeBackend(n_ctx=512, n_batch=16), n_parallel=4)
    shared = prompt(1, 100)
    prompts = {number: [*shared, *prompt(10 + number, 20)] for number in range(4)}
    for number, tokens in prompts.items():
        run.submit(number, tokens)
    run.finish()
    evaluated = [e.tokens - e.cached for e in run.events if isinstance(e, GenerationStarted)]
    assert evaluated[0] == 120
    assert sum(evaluated) <= 120 + 3 * (20 + MIN_AWAITED)
    for number, tokens in prompts.items():
        assert run.text(number) == expected_text(tokens, 10)


def test_one_that_waits_for_what_another_reads_holds_up_nobody_and_keeps_its_place() -> None:
    run = Run(FakeBackend(n_ctx=1024, n_batch=16), n_parallel=3)
    shared = prompt(1, 200)
    run.submit(1, [*shared, 5], max_tokens=40)
    run.submit(2, [*shared, 6], max_tokens=40)
    for number in (3, 4):
        run.submit(number, prompt(number, 9), max_tokens=40)
    run.step()
    assert [e.id for e in run.events if isinstance(e, PromptStep)][:2] == [1, 3]
    assert (run.scheduler.running, run.scheduler.queued) == (2, 2), "the third place is kept"
    run.finish()
    started = [e.id for e in run.events if isinstance(e, GenerationStarted)]
    assert started.index(2) < started.index(4)


def test_who_waited_reads_itself_when_the_one_ahead_is_cancelled() -> None:
    run = Run(FakeBackend(n_ctx=512, n_batch=16), n_parallel=3)
    shared = prompt(1, 100)
    for number in (1, 2, 3):
        run.submit(number, [*shared, number])
    run.step()
    run.events += run.scheduler.cancel(1)
    run.finish()
    assert run.done(1).reason == "cancelled"
    for number in (2, 3):
        assert run.text(number) == expected_text([*shared, number], 10)
    evaluated = [e.tokens - e.cached for e in run.events if isinstance(e, GenerationStarted)]
    assert sum(evaluated) <= 101 + 1 + MIN_AWAITED


def test_nothing_is_waited_for_that_cannot_be_shared_or_is_there() -> None:
    shared = prompt(1, 100)
    whole_only = Run(FakeBackend(n_ctx=512, n_batch=16, reuses_whole_only=True), n_parallel=2)
    short = Run(FakeBackend(n_ctx=512, n_batch=16), n_parallel=2)
    known = Run(FakeBackend(n_ctx=512, n_batch=16), n_parallel=2)
    known.submit(0, [*shared, 9], max_tokens=1)
    known.finish()
    for run, beginning in ((whole_only, shared), (short, shared[: MIN_AWAITED - 1])):
        run.submit(1, [*beginning, *prompt(2, 90)])
        run.submit(2, [*beginning, *prompt(3, 90)])
    known.submit(1, [*shared, *prompt(2, 90)])
    known.submit(2, [*shared, *prompt(3, 90)])
    for run in (whole_only, short, known):
        run.step()
        assert run.scheduler.running == 2


def test_the_same_prompt_again_decodes_one_token() -> None:
    run = Run()
    tokens = prompt(1, 30)
    for number in (1, 2):
        run.submit(number, tokens, max_tokens=1)
        run.finish()
    assert run.done(2).cached_tokens == 29
    assert run.text(2) == expected_text(tokens, 1)


def test_idle_sequences_make_room_for_a_new_prompt() -> None:
    run = Run(FakeBackend(n_ctx=100))
    for number in range(1, 6):
        run.submit(number, prompt(number, 60), max_tokens=10)
        run.finish()
        assert run.text(number) == expected_text(prompt(number, 60), 10)


def test_when_cells_run_out_the_newest_waits_and_both_answers_are_whole() -> None:
    run = Run(FakeBackend(n_ctx=200, n_sequences=4), n_parallel=2)
    for number in (1, 2):
        run.submit(number, prompt(number, 30), max_tokens=120)
    run.finish()
    for number in (1, 2):
        assert run.text(number) == expected_text(prompt(number, 30), 120)
        assert run.done(number).reason == "length"
    evaluated = [e.id for e in run.events if isinstance(e, GenerationStarted)]
    assert evaluated == [1, 2]


def test_a_backend_without_cells_is_survived() -> None:
    run = Run(n_parallel=2)
    run.backend.results = [DecodeResult.OK, DecodeResult.NO_CELLS, DecodeResult.NO_CELLS]
    run.submit(1, prompt(1, 10), max_tokens=5)
    run.submit(2, prompt(2, 10), max_tokens=5)
    run.finish()
    assert run.text(2) == expected_text(prompt(2, 10), 5)
    assert run.done(1).reason == "length"


def test_a_failed_decode_ends_what_ran_and_forgets_the_memory() -> None:
    run = Run(n_parallel=1)
    run.submit(1, prompt(1, 10))
    run.submit(2, prompt(2, 10))
    run.backend.results = [DecodeResult.OK, DecodeResult.FAILED]
    run.finish()
    failed = [e for e in run.events if isinstance(e, GenerationFailed)]
    assert [(e.id, e.code) for e in failed] == [(1, "engine")]
    assert run.text(2) == expected_text(prompt(2, 10), 10)


def test_recurrent_models_reuse_only_whole_sequences() -> None:
    run = Run(FakeBackend(reuses_whole_only=True))
    tokens = prompt(1, 30)
    run.submit(1, tokens, max_tokens=2)
    run.finish()
    run.submit(2, [*tokens[:20], *prompt(3, 5)], max_tokens=2)
    run.finish()
    assert run.done(2).cached_tokens == 0
    longer = [*tokens, ord(run.text(1)[0]), *prompt(4, 5)]
    run.submit(3, longer, max_tokens=2)
    run.finish()
    assert run.done(3).cached_tokens == 31
    assert run.text(3) == expected_text(longer, 2)


@settings(max_examples=60, deadline=None)
@given(
    requests=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 90), st.integers(1, 40), st.integers(0, 6)),
        min_size=1,
        max_size=12,
    ),
    cancelled=st.sets(st.integers(0, 11), max_size=3),
)
def test_any_load_is_answered_exactly(
    requests: list[tuple[int, int, int, int]], cancelled: set[int]
) -> None:
    run = Run(FakeBackend(n_ctx=128, n_batch=16, n_sequences=6), n_parallel=3, max_queue=20)
    for number, (seed, length, max_tokens, steps) in enumerate(requests):
        assert run.submit(number, prompt(seed, length), max_tokens) is None
        for _ in range(steps):
            run.step()
        if number in cancelled:
            run.events += run.scheduler.cancel(number)
    run.finish()
    for number, (seed, length, max_tokens, _) in enumerate(requests):
        done = run.done(number)
        text = expected_text(prompt(seed, length), done.completion_tokens)
        assert run.text(number) == text
        if number not in cancelled:
            assert done.completion_tokens == min(max_tokens, 129 - length)
    assert all(sampler.closed == 1 for sampler in run.backend.samplers)


def test_a_prompt_that_opens_reasoning_in_the_models_own_words_is_known() -> None:
    run = Run()
    plan = GrammarPlan(thoughts=((b"[THINK]", b"[/THINK]"),))
    for number, end in enumerate(("[THINK]", "<think>\n", "[/THINK]"), 1):
        ending = (Part(text=f"assistant\n{end}", tokens=(number, 2), generated=False),)
        assert run.scheduler.submit(number, ending, Sampling(max_tokens=1), plan) is None
    found = [sampler.constrained for sampler in run.backend.samplers]
    assert found == [(plan, True), (plan, False), (plan, False)]


def test_a_grammar_reaches_the_sampler_and_its_quarantine_the_daemon() -> None:
    run = Run()
    plan = GrammarPlan(quarantined={"bad": "why"})
    asked = Sampling(temperature=0, max_tokens=2)
    thinking = (Part(text="assistant\n<think>\n", tokens=(1, 2, 3), generated=False),)
    assert run.scheduler.submit(1, parts(prompt(1, 5)), asked, plan) is None
    assert run.scheduler.submit(2, thinking, asked, plan) is None
    assert run.scheduler.submit(3, parts(prompt(3, 5)), asked) is None
    assert [sampler.constrained for sampler in run.backend.samplers] == [
        (plan, False),
        (plan, True),
        None,
    ]
    run.finish()
    told = {e.id: e.quarantined for e in run.events if isinstance(e, GenerationStarted)}
    assert told == {1: {"bad": "why"}, 2: {"bad": "why"}, 3: {}}


def test_a_grammar_that_nothing_fits_fails_its_generation_only() -> None:
    run = Run()
    run.submit(1, prompt(1, 5), max_tokens=20)
    run.submit(2, prompt(2, 5), max_tokens=20)
    run.step()
    run.backend.samplers[0].nothing_fits = True
    run.finish()
    (failed,) = (e for e in run.events if isinstance(e, GenerationFailed))
    assert (failed.id, failed.code) == (1, "engine")
    assert "grammar" in failed.message
    assert run.backend.samplers[0].closed == 1
    assert run.done(2).completion_tokens == 20


def test_a_grammar_that_broke_down_is_told_at_the_end() -> None:
    run = Run()
    run.submit(1, prompt(1, 5), max_tokens=4)
    run.submit(2, prompt(2, 5), max_tokens=4)
    run.step()
    run.backend.samplers[0].lifted = "too complex"
    run.backend.samplers[0].likely = 0.25
    run.finish()
    assert (run.done(1).lifted, run.done(2).lifted) == ("too complex", "")
    assert (run.done(1).likely, run.done(2).likely) == (0.25, 1.0)


def test_log_probabilities_come_with_the_tokens_that_they_are_of() -> None:
    run = Run()
    asked = Sampling(temperature=0, max_tokens=6, logprobs=True, top_logprobs=2, stop=("zz",))
    run.scheduler.submit(1, parts(prompt(1, 9)), asked)
    run.submit(2, prompt(2, 5), max_tokens=6)
    run.finish()
    events = [e for e in run.events if isinstance(e, Tokens)]
    assert [len(e.logprobs) for e in events if e.id == 1] == [e.count for e in events if e.id == 1]
    found = [logprob for e in events for logprob in e.logprobs]
    assert b"".join(one.piece for one in found).decode() == run.text(1)
    assert {len(one.top) for one in found} == {2}
