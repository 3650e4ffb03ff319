"""The page about the first minute says what happens."""

import pytest

from tests.booted.first_minute import INTRODUCTION, PAGE, STEPS, comparable, play

pytestmark = [pytest.mark.booted, pytest.mark.timeout(300)]


def test_a_new_users_first_minute_is_as_the_page_tells_it() -> None:
    assert comparable(play()) == comparable(PAGE.read_text(encoding="utf-8"))


def test_the_comparison_ignores_names_and_times_only() -> None:
    told = (
        "✓ shell allowed  519 ms  receipt-01M80AC1A31FTTA232SHPZ8573\nhead: receipt 1, c62f8ed8c2"
    )
    again = "✓ shell allowed  7 ms  receipt-01M80AC55SG5G3Y6EE6GJ4ZSNG\nhead: receipt 1, 0000ed8c2a"
    other = again.replace("allowed", "denied")

    assert comparable(told) == comparable(again)
    assert comparable(told) != comparable(other)


def test_the_page_holds_every_step() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page.startswith(INTRODUCTION)
    assert [step.typed for step in STEPS if step.typed not in page] == []
