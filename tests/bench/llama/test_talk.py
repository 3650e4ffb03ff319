"""What is counted about answers; what is measured is not judged."""

import pytest

from tests.bench.llama.talk import Heard, decode_rate, gaps_within
from tests.bench.streams import BenchError


def heard(*times: float, sent_at: float = 0.0, cached_tokens: int = 0) -> Heard:
    return Heard(
        sent_at=sent_at,
        heard_at=times,
        ended_at=times[-1] + 1,
        tokens=len(times),
        prompt_tokens=100,
        cached_tokens=cached_tokens,
    )


def test_decoding_is_counted_while_all_are_on_their_way() -> None:
    assert decode_rate([heard(10.0, 11.0, 12.0)]) == 1.0
    early, late = heard(10.0, 11.0, 13.0, 14.0, 15.0), heard(12.0, 13.0, 14.0, 15.0, 16.0)
    assert decode_rate([early, late]) == 2.0


def test_answers_that_were_never_on_their_way_together_are_no_measurement() -> None:
    with pytest.raises(BenchError, match="too short"):
        decode_rate([heard(10.0, 11.0), heard(12.0, 13.0)])


def test_a_prefill_rate_leaves_out_what_was_cached() -> None:
    answer = heard(2.0, 3.0, cached_tokens=60)
    assert answer.first_token_ms == 2000.0
    assert answer.prefill_rate == 20.0


def test_gaps_across_the_borders_of_the_span_count_whole() -> None:
    answer = heard(1.0, 2.0, 4.0, 9.0, 10.0)
    assert gaps_within([answer], 3.0, 8.0) == [2.0, 5.0]


def test_an_answer_that_ends_within_the_span_is_no_running_stream() -> None:
    with pytest.raises(BenchError, match="too short"):
        gaps_within([heard(1.0, 2.0)], 1.5, 3.0)
