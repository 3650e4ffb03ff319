"""Which backend answers: a table of choices, labels, failures and backoff, remembered homes."""

from hypothesis import given
from hypothesis import strategies as st

from clawd.config.schema import ProviderLabels
from clawd.errors import BusyError, EngineError, ProviderError
from clawd.providers.base import ChatRequest
from clawd.providers.router import (
    BackendHealth,
    BackendStanding,
    Homes,
    RouterSettings,
    after_failure,
    choose,
    meets,
    moves_on,
    nobody_meets,
    takes_down,
    wanted_labels,
)
from tests.support.rows import each_row

SETTINGS = RouterSettings(backoff_initial_s=1.0, backoff_max_s=10.0)


def down(name: str, retry_at: float, **fields: int) -> BackendStanding:
    return BackendStanding(name=name, is_up=False, retry_at=retry_at, **fields)


@each_row(
    ("standings", "home", "chosen"),
    [
        ([], "", None),
        ([BackendStanding(name="a"), BackendStanding(name="b")], "", "a"),
        ([BackendStanding(name="a", running=1), BackendStanding(name="b")], "", "b"),
        ([BackendStanding(name="a", conversations=1), BackendStanding(name="b")], "", "b"),
        (
            [BackendStanding(name="a", conversations=9), BackendStanding(name="b", running=1)],
            "",
            "a",
        ),
        ([BackendStanding(name="a"), BackendStanding(name="b", conversations=9)], "b", "b"),
        ([BackendStanding(name="a"), BackendStanding(name="b", running=3)], "b", "b"),
        ([BackendStanding(name="a"), BackendStanding(name="b", running=4)], "b", "a"),
        ([BackendStanding(name="a", running=5), BackendStanding(name="b", running=8)], "b", "b"),
        ([BackendStanding(name="a", running=9), down("b", 5)], "b", "a"),
        ([down("a", 7), down("b", 5)], "a", "b"),
        ([BackendStanding(name="a")], "gone", "a"),
    ],
)
def test_the_choice(standings: list[BackendStanding], home: str, chosen: str | None) -> None:
    assert choose(standings, home=home, overload_lead=4) == chosen


@given(
    st.lists(
        st.builds(
            BackendStanding,
            name=st.text("abc", min_size=1, max_size=3),
            is_up=st.booleans(),
            running=st.integers(0, 9),
        ),
        max_size=6,
        unique_by=lambda each: each.name,
    ),
    st.text("abc", max_size=3),
)
def test_no_choice_is_a_backend_that_is_down_while_another_is_up(
    standings: list[BackendStanding], home: str
) -> None:
    chosen = choose(standings, home=home)
    assert (chosen is None) == (not standings)
    up = {each.name for each in standings if each.is_up}
    if up:
        assert chosen in up


@each_row(
    ("labels", "wanted", "is_met"),
    [
        (ProviderLabels(), ProviderLabels(), True),
        (ProviderLabels(privacy="local", size="small"), ProviderLabels(), True),
        (ProviderLabels(privacy="local", size="small"), ProviderLabels(privacy="local"), True),
        (
            ProviderLabels(privacy="local", size="small"),
            ProviderLabels(privacy="local", size="big"),
            False,
        ),
        (ProviderLabels(), ProviderLabels(privacy="local"), False),
        (ProviderLabels(), ProviderLabels(cost="low"), False),
        (ProviderLabels(cost="high"), ProviderLabels(cost="low"), False),
        (ProviderLabels(), ProviderLabels(model="m"), True),
        (ProviderLabels(model="m"), ProviderLabels(model="m"), True),
        (ProviderLabels(model="other"), ProviderLabels(model="m"), False),
    ],
)
def test_a_backend_carries_what_is_asked_for(
    labels: ProviderLabels, wanted: ProviderLabels, is_met: bool
) -> None:
    assert meets(labels, wanted) is is_met


def test_hints_come_from_the_metadata_and_the_requests_model_goes_first() -> None:
    hints = {"cost": "low", "privacy": "local", "size": "7b", "model": "m", "conversation_id": "c"}
    wanted = wanted_labels(ChatRequest(messages=(), metadata=hints))
    assert wanted == ProviderLabels(cost="low", privacy="local", size="7b", model="m")
    own = wanted_labels(ChatRequest(messages=(), metadata=hints, model="own"))
    assert own.model == "own"
    assert wanted_labels(ChatRequest(messages=())) == ProviderLabels()


def test_a_request_that_nobody_may_answer_is_told_what_there_is() -> None:
    error = nobody_meets(
        "fleet",
        ProviderLabels(cost="low"),
        {"a": ProviderLabels(cost="high"), "b": ProviderLabels()},
    )
    assert error.message == (
        "no backend of fleet carries cost=low; there are a: cost=high; b: no labels"
    )
    assert error.kind == "invalid"


@each_row(
    ("error", "goes_on", "is_down"),
    [
        (ProviderError("x", kind="network"), True, True),
        (ProviderError("x", kind="timeout"), True, True),
        (ProviderError("x", kind="auth", status=401), True, True),
        (ProviderError("x", kind="http", status=502), True, True),
        (ProviderError("x", kind="http", status=503), True, True),
        (ProviderError("x", kind="http", status=504), True, True),
        (ProviderError("x", kind="http", status=429), True, False),
        (BusyError("x", retry_after_s=1), True, False),
        (ProviderError("x", kind="http", status=500), False, False),
        (ProviderError("x", kind="http", status=400), False, False),
        (ProviderError("x", kind="invalid"), False, False),
        (EngineError("x"), False, False),
        (ValueError("x"), False, False),
    ],
)
def test_what_a_failure_says_of_its_backend(error: Exception, goes_on: bool, is_down: bool) -> None:
    assert (moves_on(error), takes_down(error)) == (goes_on, is_down)


def test_the_wait_doubles_up_to_its_bound() -> None:
    health, waits = BackendHealth(), []
    for _ in range(6):
        now = health.retry_at
        health = after_failure(health, now=now, settings=SETTINGS)
        waits.append(health.retry_at - now)
    assert waits == [1, 2, 4, 8, 10, 10]
    assert health.is_down
    many = BackendHealth(failures=10_000)
    assert after_failure(many, now=0, settings=SETTINGS).retry_at == 10


def test_failures_of_one_moment_count_once() -> None:
    first = after_failure(BackendHealth(), now=100, settings=SETTINGS)
    assert after_failure(first, now=100.5, settings=SETTINGS) == first
    assert after_failure(first, now=101, settings=SETTINGS).failures == 2


def test_homes_move_are_counted_and_the_oldest_is_forgotten() -> None:
    homes = Homes(2)
    homes.put("", "a")
    homes.put("1", "a")
    homes.put("2", "a")
    homes.put("1", "b")
    assert (homes.of("1"), homes.of("2"), homes.of("3")) == ("b", "a", "")
    assert (homes.count("a"), homes.count("b"), homes.count("c")) == (1, 1, 0)
    homes.put("3", "a")
    assert (homes.of("2"), homes.of("1"), homes.of("3")) == ("", "b", "a")
    assert (homes.count("a"), homes.count("b")) == (1, 1)
