"""A table in one case is as strong as one case for each row."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.rows import Rows, each_row


def test_every_row_that_fails_is_named_and_the_others_ran() -> None:
    ran = []

    @each_row(("given", "expected"), [(1, 1), (2, 3), pytest.param(0, 0, id="nothing"), (4, 5)])
    def doubled(given: int, expected: int) -> None:
        ran.append(given)
        assert 12 // given
        assert given == expected

    with pytest.raises(AssertionError) as failure:
        doubled()
    assert ran == [1, 2, 0, 4]
    said = str(failure.value)
    assert said.startswith("3 of 4 rows failed:")
    assert "- 2, 3: AssertionError (test_rows.py:" in said
    assert "assert 2 == 3" in said
    assert "- nothing: ZeroDivisionError" in said
    assert "- 4, 5: " in said


def test_a_row_that_should_have_raised_fails_and_hides_no_other() -> None:
    @each_row("text", ["x", "1", "y"])
    def refused(text: str) -> None:
        with pytest.raises(ValueError, match="invalid literal"):
            int(text)

    with pytest.raises(AssertionError, match=r"(?s)1 of 3 rows failed:\n- '1': Failed .*DID NOT"):
        refused()


def test_rows_of_a_coroutine_are_awaited() -> None:
    @each_row("value", [1, 2])
    async def odd(value: int) -> None:
        await asyncio.sleep(0)
        assert value % 2

    with pytest.raises(AssertionError, match="1 of 2 rows failed:\n- 2: "):
        asyncio.run(odd())


@each_row("value", ["a", "b"])
def test_each_row_has_a_folder_and_patches_of_its_own(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not list(tmp_path.iterdir())
    (tmp_path / "same").write_text(value)
    assert "CLAWD_TEST_ROW" not in os.environ
    monkeypatch.setenv("CLAWD_TEST_ROW", value)


ENDED: list[str] = []


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "place").mkdir()
    yield tmp_path / "place"
    ENDED.append("place")


@pytest.fixture
async def guest(place: Path) -> AsyncIterator[list[Path]]:
    yield [place]
    ENDED.append("guest")


@each_row("value", ["a", "b"], fresh=["guest", "place"])
async def test_a_fresh_fixture_is_made_and_ended_for_each_row(
    guest: list[Path], place: Path, value: str
) -> None:
    assert guest == [place]
    assert ([] if value == "a" else ["guest", "place"]) == ENDED
    guest.append(place)


@each_row("value", ["a", "b"], fresh=["place"])
def test_so_is_one_of_a_plain_test(place: Path, value: str) -> None:
    assert not list(place.iterdir())
    (place / value).touch()


def test_the_limit_of_the_whole_test_is_no_row_that_failed() -> None:
    @each_row("value", [1, 2])
    def hangs(value: int) -> None:
        pytest.fail(f"Timeout (>{value}s) from pytest-timeout.")

    with pytest.raises(pytest.fail.Exception) as failure:
        hangs()
    assert failure.value.__notes__ == ["in row 1"]


def test_a_table_without_rows_fails() -> None:
    with pytest.raises(AssertionError, match="the table has no row"):
        Rows().check()
