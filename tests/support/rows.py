"""A table in one test: every row runs, and one failure names all rows that differ.

`each_row` takes what `pytest.mark.parametrize` takes, for rows that need no test of their own:

    @each_row(("given", "expected"), [("1", 1), ("2", 2)])
    def test_a_number_is_read(given: str, expected: int) -> None:
        assert number(given) == expected

Where a test asks for `tmp_path`, `monkeypatch`, `caplog` or `capsys`, each row gets a folder of its
own, its patches are taken back after it, and what the row before wrote is gone. All other fixtures
are shared by the rows.
"""

import functools
import inspect
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_LONGEST_MESSAGE = 1200
_Test = Callable[..., Any]


def thorough() -> bool:
    """Return whether long tests run in full, with every round that they know."""
    return bool(os.environ.get("CLAWD_TEST_THOROUGH"))


class Rows:
    """What the rows of one table came to. Use `row` around each, `check` after the last."""

    def __init__(self) -> None:
        self.count = 0  # rows begun
        self._failures: list[tuple[str, BaseException]] = []

    @contextmanager
    def row(self, name: object) -> Iterator[None]:
        """Keep what is raised inside under the name of its row, so that the next row still runs."""
        self.count += 1
        try:
            yield
        except Exception as error:  # noqa: BLE001 - kept for the message that names all rows
            self._failures.append((str(name), error))
        except pytest.fail.Exception as error:
            if "pytest-timeout" in str(error):  # the time of the whole table is over
                error.add_note(f"in row {name}")
                raise
            self._failures.append((str(name), error))

    def check(self) -> None:
        """Raise one AssertionError that names every row that failed.

        Raises:
            AssertionError: a row failed, or there was none.
        """
        __tracebackhide__ = True
        assert self.count, "the table has no row"
        if self._failures:
            lines = [f"{len(self._failures)} of {self.count} rows failed:"]
            lines += [f"- {name}: {_described(error)}" for name, error in self._failures]
            raise AssertionError("\n".join(lines)) from self._failures[0][1]


def each_row(
    names: str | Sequence[str],
    table: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Iterable[object] | None = None,
) -> Callable[[_Test], _Test]:
    """Return a decorator that runs a test with every row of `table` in one case."""
    keys = _keys(names)
    rows = _named(keys, list(table), ids)

    def joined(test: _Test) -> _Test:
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run(*args: Any, **kwargs: Any) -> None:
                __tracebackhide__ = True
                found = Rows()
                for name, values in rows:
                    with found.row(name), _own(kwargs, found) as fixtures:
                        await test(*args, **fixtures, **values)
                found.check()
        else:

            @functools.wraps(test)
            def run(*args: Any, **kwargs: Any) -> None:
                __tracebackhide__ = True
                found = Rows()
                for name, values in rows:
                    with found.row(name), _own(kwargs, found) as fixtures:
                        test(*args, **fixtures, **values)
                found.check()

        signature = inspect.signature(test)
        unknown = set(keys) - set(signature.parameters)
        assert not unknown, f"{test.__name__} takes no {', '.join(sorted(unknown))}"
        kept = [each for name, each in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run

    return joined


def _keys(names: str | Sequence[str]) -> list[str]:
    if isinstance(names, str):
        return [name.strip() for name in names.split(",")]
    return list(names)


def _named(
    keys: list[str], table: list[Any], ids: Callable[[Any], object] | Iterable[object] | None
) -> list[tuple[str, dict[str, Any]]]:
    given = None if ids is None or callable(ids) else list(ids)
    assert given is None or len(given) == len(table), "there is not one id for each row"
    rows = []
    for at, each in enumerate(table):
        name: object = None if given is None else given[at]
        row: Any = each
        if hasattr(each, "marks"):  # pytest.param
            assert not each.marks, "a row that needs a mark needs a test of its own"
            name = each.id or name
            row = each.values if len(keys) > 1 else each.values[0]
        values = list(row) if len(keys) > 1 else [row]
        assert len(values) == len(keys), f"row {at} has {len(values)} values for {keys}"
        if name is None:
            label = ids if callable(ids) else _shortened
            name = ", ".join(str(label(value)) for value in values)
        rows.append((str(name), dict(zip(keys, values, strict=True))))
    return rows


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


@contextmanager
def _own(kwargs: dict[str, Any], found: Rows) -> Iterator[dict[str, Any]]:
    """Yield the fixtures of a row: what another row could have left in them is not there."""
    fixtures = dict(kwargs)
    with pytest.MonkeyPatch.context() as patch:
        if "monkeypatch" in fixtures:
            fixtures["monkeypatch"] = patch
        if isinstance(folder := fixtures.get("tmp_path"), Path):
            fixtures["tmp_path"] = folder / f"r{found.count}"
            fixtures["tmp_path"].mkdir()
        if "caplog" in fixtures:
            fixtures["caplog"].clear()
        if "capsys" in fixtures:
            fixtures["capsys"].readouterr()
        yield fixtures


def _described(error: BaseException) -> str:
    here = [each for each in traceback.extract_tb(error.__traceback__) if each.filename != __file__]
    at = next((each for each in here if "/tests/" in each.filename), None)
    place = f" ({Path(at.filename).name}:{at.lineno})" if at else ""
    message = str(error).strip()
    if len(message) > _LONGEST_MESSAGE:
        message = f"{message[:_LONGEST_MESSAGE]}..."
    return f"{type(error).__name__}{place}: {message}".replace("\n", "\n    ")
