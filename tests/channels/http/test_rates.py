"""How often each key may ask."""

from clawd.channels.http.guard import MAX_BUCKETS, Rates


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_minutes_requests_are_taken_and_the_next_must_wait() -> None:
    clock = Clock()
    rates = Rates(3, clock)
    assert [rates.take("a") for _ in range(4)] == [0, 0, 0, 20]
    clock.now = 19.9
    assert 0 < rates.take("a") < 0.2
    clock.now = 20.0
    assert [rates.take("a"), rates.take("a")] == [0, 20]
    clock.now = 1_000.0
    assert [rates.take("a") for _ in range(4)] == [0, 0, 0, 20]


def test_each_key_has_its_own_and_none_means_no_limit() -> None:
    rates = Rates(1, Clock())
    assert [rates.take("a"), rates.take("b")] == [0, 0]
    assert rates.take("a") > 0
    assert not any(Rates(0, Clock()).take("a") for _ in range(1_000))


def test_very_many_keys_take_bounded_room() -> None:
    rates = Rates(1, Clock())
    for number in range(MAX_BUCKETS + 10):
        rates.take(str(number))
    assert rates.take(str(MAX_BUCKETS + 9)) > 0
    assert rates.take("0") == 0  # forgotten: it was idle longest
