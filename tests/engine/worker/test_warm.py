"""Beginnings of prompts, evaluated ahead: in quiet moments only, of use at once, kept for later."""

from collections.abc import Sequence
from pathlib import Path

from clawd.engine.protocol import ChatMessage, Generate, GenerationStarted, Warmth
from clawd.engine.worker.prompt import PromptBuilder, tokens_of
from clawd.engine.worker.queries import Answers
from clawd.engine.worker.states import StateStore
from clawd.engine.worker.template import ChatTemplate
from tests.engine.worker.fake_backend import FakeBackend, prompt
from tests.engine.worker.test_prefix_cache import Run
from tests.engine.worker.test_prompt import Characters

STABLE, TODAY = prompt(1, 300), prompt(2, 20)
WHOLE = [*STABLE, *TODAY]


def large(folder: Path | None = None) -> Run:
    return Run(FakeBackend(n_ctx=2048), folder)


def evaluated(run: Run, tokens: Sequence[int]) -> GenerationStarted:
    number = run.numbers + 1
    run.ask(tokens)
    (event,) = (e for e in run.events if isinstance(e, GenerationStarted) and e.id == number)
    return event


def test_r4_a_first_prompt_costs_its_own_tokens_once_its_beginning_was_read_ahead() -> None:
    run = large()
    warmer = run.scheduler.warmer
    warmer.want(WHOLE, len(STABLE))
    run.rest()
    assert warmer.news()[-1] == Warmth(tokens=320, ready=320, elapsed_ms=warmer.elapsed_ms)
    assert evaluated(run, [*WHOLE, *prompt(3, 12)]).cached == 320
    # Another conversation begins with it as well, after others have had their place.
    run.rest()
    for seed in range(5, 9):
        evaluated(run, prompt(seed, 100))
        run.rest()
    assert evaluated(run, [*STABLE, *prompt(4, 30)]).cached == 300


def test_r4_work_does_not_wait_for_what_is_read_ahead_and_gains_by_it() -> None:
    run = large()
    run.scheduler.warmer.want(WHOLE, len(STABLE))
    assert run.scheduler.rest()
    (begun,) = run.scheduler.warmer.news()
    assert 0 < begun.ready < begun.tokens
    before = len(run.backend.batches)
    assert evaluated(run, [*WHOLE, *prompt(3, 12)]).cached == begun.ready
    # Each batch since then was of the prompt: nothing was read ahead beside it.
    assert all(len(batch) == 1 for batch in run.backend.batches[before:])
    run.rest()
    assert run.scheduler.warmer.news()[-1].ready == 320
    assert evaluated(run, [*STABLE, *prompt(4, 30)]).cached >= 300


def test_r4_a_beginning_is_on_disk_for_the_next_process_and_conversations_are_not(
    tmp_path: Path,
) -> None:
    first = large(tmp_path)
    first.store._keeps_conversations = False
    first.scheduler.warmer.want(WHOLE, len(STABLE))
    first.rest()
    assert len(list(tmp_path.iterdir())) == 1
    first.ask([*WHOLE, *prompt(3, 12)])
    first.rest()
    first.scheduler.shut_down(60.0)
    (kept,) = tmp_path.iterdir()
    content = kept.read_bytes()
    later = large(tmp_path)
    assert evaluated(later, [*STABLE, *prompt(4, 30)]).cached == 300
    assert later.backend.restored == 1
    again = large(tmp_path)
    again.scheduler.warmer.want(WHOLE, len(STABLE))
    again.rest()
    assert again.scheduler.warmer.news()[-1].restored == 300
    assert kept.read_bytes() == content


def test_a_conversation_does_not_replace_the_beginning_it_starts_with() -> None:
    run = large()
    run.scheduler.warmer.want(STABLE, len(STABLE))
    run.rest()
    run.ask([*STABLE, *prompt(3, 40)])
    run.rest()
    lengths = sorted(len(kept.tokens) for kept in run.store.known())
    assert lengths == [300, 343]
    kept, length = run.store.find([*STABLE, *prompt(9, 5)])
    assert kept is not None
    assert (len(kept.tokens), length) == (300, 300)


def test_a_conversation_keeps_its_place_while_what_begins_as_it_does_is_read_ahead() -> None:
    run = large()
    said = [*STABLE, *prompt(3, 8)]
    run.ask(said)
    run.rest()
    run.scheduler.warmer.want([*STABLE, *prompt(7, 40)], len(STABLE))
    run.rest()
    assert evaluated(run, [*said, *prompt(4, 5)]).cached == len(said)


def test_a_beginning_that_is_too_short_or_does_not_fit_is_not_read_ahead() -> None:
    run = Run(FakeBackend(n_ctx=256))
    warmer = run.scheduler.warmer
    warmer.want(STABLE[:8], 8)
    assert warmer.news() == [Warmth(tokens=0)]
    assert not warmer.rest()
    warmer.want(STABLE, len(STABLE))
    run.rest()
    assert evaluated(run, prompt(5, 40)).tokens == 40


def test_what_nothing_keeps_is_still_of_use_to_the_next_prompt() -> None:
    run = large()
    run.store = StateStore()
    run.scheduler._cache._store = run.store
    run.scheduler.warmer.want(WHOLE, len(STABLE))
    run.rest()
    assert evaluated(run, [*WHOLE, *prompt(3, 12)]).cached == 320


CHAT = (
    "{% for m in messages %}<|start|>{{ m.role }}:{{ m.content }}"
    "{% if loop.first and tools %}{{ tools | tojson }}{% endif %}<|end|>{% endfor %}<|start|>a:"
)


def test_a_beginning_is_what_all_prompts_have_in_common_whatever_is_said() -> None:
    builder = PromptBuilder(Characters(), ChatTemplate(CHAT), max_characters=10_000)
    answers = Answers(Characters(), builder, lambda: ())
    system = ChatMessage(role="system", content="You are here.")
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    lead = ChatMessage(role="user", content="<context>\nhour: 9\n</context>\n\n")
    asked = Generate(id=0, messages=(system, lead), tools=(tool,))
    found = answers.beginning_of(asked)
    text = "".join(Characters().piece(token).decode() for token in found.tokens)
    assert text.endswith("</context>\n\n")
    stable = "".join(Characters().piece(token).decode() for token in found.tokens[: found.stable])
    assert stable.endswith("<|start|>user:")
    assert '"look"' in stable
    for said in ("x", "", "\n", "abc", "<|end|>", "7"):
        message = ChatMessage(role="user", content=lead.content + said)
        parts = answers.parts_of(Generate(id=0, messages=(system, message), tools=(tool,)))
        assert tokens_of(parts)[: len(found.tokens)] == found.tokens
