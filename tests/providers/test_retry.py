"""How often, after what and how long: the waits between tries before the first byte."""

import asyncio
import logging
from collections.abc import Iterator

import msgspec
import pytest
import stamina.instrumentation
from stamina.instrumentation import RetryDetails

from clawd.errors import ProviderError, ProviderErrorKind
from clawd.providers.reliable import RetrySettings, retrying
from tests.support.rows import each_row

WHO = "provider a at http://a/v1"
SHORT = RetrySettings(initial_s=0.001, max_s=0.004, jitter_s=0.0)


@pytest.fixture
def waits() -> Iterator[list[float]]:
    """The waits that were made, in seconds."""
    found: list[float] = []

    def note(details: RetryDetails) -> None:
        found.append(details.wait_for)

    before = stamina.instrumentation.get_on_retry_hooks()
    stamina.instrumentation.set_on_retry_hooks([note])
    yield found
    stamina.instrumentation.set_on_retry_hooks(before)


class Failing:
    """Fails the same way every time, and counts."""

    def __init__(self, kind: ProviderErrorKind, status: int = 0, after_s: float | None = None):
        self.tries = 0
        self._error = ProviderError("no", kind=kind, status=status, retry_after_s=after_s)

    async def __call__(self) -> None:
        self.tries += 1
        raise self._error


async def test_the_wait_doubles_up_to_its_bound_and_five_extra_tries_are_the_last(
    waits: list[float],
) -> None:
    attempt = Failing("network")
    with pytest.raises(ProviderError):
        await retrying(SHORT, attempt, who=WHO)
    assert attempt.tries == 6
    assert waits == pytest.approx([0.001, 0.002, 0.004, 0.004, 0.004])


def test_the_waits_are_those_of_the_specification() -> None:
    defaults = RetrySettings()
    assert (defaults.extra_attempts, defaults.initial_s, defaults.max_s) == (5, 0.25, 4.0)
    assert defaults.jitter_s > 0


async def test_jitter_is_added_by_chance(waits: list[float]) -> None:
    with pytest.raises(ProviderError):
        await retrying(msgspec.structs.replace(SHORT, jitter_s=0.003), Failing("network"), who=WHO)
    assert waits[0] >= 0.001
    assert all(wait <= 0.007 for wait in waits)
    assert len(set(waits)) > 1


@each_row(
    ("kind", "status", "tries"),
    [
        ("network", 0, 6),
        ("timeout", 0, 6),
        ("http", 408, 6),
        ("http", 429, 6),
        ("http", 500, 6),
        ("http", 503, 6),
        ("http", 400, 1),
        ("http", 404, 1),
        ("auth", 401, 1),
        ("invalid", 0, 1),
    ],
)
async def test_what_is_tried_again(kind: ProviderErrorKind, status: int, tries: int) -> None:
    attempt = Failing(kind, status)
    with pytest.raises(ProviderError):
        await retrying(SHORT, attempt, who=WHO)
    assert attempt.tries == tries


async def test_the_servers_own_wait_is_kept_and_a_long_one_ends_it(waits: list[float]) -> None:
    with pytest.raises(ProviderError):
        await retrying(SHORT, Failing("http", 429, after_s=0.01), who=WHO)
    assert waits == pytest.approx([0.01] * 5)
    attempt = Failing("http", 429, after_s=61)
    with pytest.raises(ProviderError):
        await retrying(SHORT, attempt, who=WHO)
    assert attempt.tries == 1


async def test_nothing_is_tried_after_a_cancel() -> None:
    attempt = Failing("network")
    slow = RetrySettings(initial_s=60, max_s=60)
    trying = asyncio.create_task(retrying(slow, attempt, who=WHO))
    await asyncio.sleep(0)
    trying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await trying
    assert attempt.tries == 1


async def test_m2_each_retry_is_logged_with_who_and_how_many_are_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    two = msgspec.structs.replace(SHORT, extra_attempts=2)
    with caplog.at_level(logging.WARNING), pytest.raises(ProviderError):
        await retrying(two, Failing("http", 503), who=WHO)
    own = [record for record in caplog.records if record.name == "clawd.providers.reliable"]
    assert [record.getMessage() for record in own] == [
        f"{WHO} failed (http, status 503), retry {number} of 2" for number in (1, 2)
    ]


async def test_m2_no_retries_are_possible(caplog: pytest.LogCaptureFixture) -> None:
    attempt = Failing("network")
    with caplog.at_level(logging.WARNING), pytest.raises(ProviderError):
        await retrying(msgspec.structs.replace(SHORT, extra_attempts=0), attempt, who=WHO)
    assert attempt.tries == 1
    assert not caplog.records
