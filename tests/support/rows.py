"""A table in one test: every row runs, and one failure names all rows that differ.

`each_row` takes what `pytest.mark.parametrize` takes, for rows that need no test of their own:

    @each_row(("given", "expected"), [("1", 1), ("2", 2)])
    def test_a_number_is_read(given: str, expected: int) -> None:
        assert number(given) == expected

Where a test asks for `tmp_path`, `monkeypatch`, `caplog` or `capsys`, each row gets a folder of its
own, its patches are taken back after it, and what the row before wrote is gone. Fixtures named in
`fresh` are made anew for each row, in its folder; all others are shared by the rows.
"""

import asyncio
import contextlib
import functools
import inspect
import os
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
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

    @contextlib.contextmanager
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


async def all_at_once(
    rows: Iterable[tuple[str, Callable[[], Awaitable[None]]]], *, width: int = 6
) -> None:
    """Play rows that mostly wait side by side, `width` at a time; one failure names all that fail.

    Raises:
        AssertionError: a row failed, or there was none.
    """
    found, gate = Rows(), asyncio.Semaphore(width)

    async def play(name: str, act: Callable[[], Awaitable[None]]) -> None:
        async with gate:
            with found.row(name):
                await act()

    async with asyncio.TaskGroup() as group:
        for name, act in rows:
            group.create_task(play(name, act))
    found.check()


def each_row(
    names: str | Sequence[str],
    table: Iterable[Any],
    *,
    ids: Callable[[Any], object] | Iterable[object] | None = None,
    fresh: Sequence[str] = (),
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
                    with found.row(name):
                        async with contextlib.AsyncExitStack() as stack:
                            fixtures = stack.enter_context(_own(kwargs, found, fresh))
                            for each in fresh:
                                await _make_later(each, fixtures, stack)
                            await test(*args, **_taken(fixtures, test, fresh), **values)
                found.check()
        else:

            @functools.wraps(test)
            def run(*args: Any, **kwargs: Any) -> None:
                __tracebackhide__ = True
                found = Rows()
                for name, values in rows:
                    with found.row(name), contextlib.ExitStack() as stack:
                        fixtures = stack.enter_context(_own(kwargs, found, fresh))
                        for each in fresh:
                            _make(each, fixtures, stack)
                        test(*args, **_taken(fixtures, test, fresh), **values)
                found.check()

        _sign(run, test, {*keys, *fresh}, ("request", "tmp_path") if fresh else ())
        return run

    return joined


def _sign(run: _Test, test: _Test, gone: set[str], wanted: Sequence[str]) -> None:
    """Let pytest see what fixtures the joined test takes."""
    taken = inspect.signature(test).parameters
    unknown = gone - set(taken)
    assert not unknown, f"{test.__name__} takes no {', '.join(sorted(unknown))}"
    kept = [each for name, each in taken.items() if name not in gone]
    kept += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
        for name in wanted
        if name not in taken
    ]
    run.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]


def _taken(fixtures: dict[str, Any], test: _Test, fresh: Sequence[str]) -> dict[str, Any]:
    """Leave out what only the fixtures of the row were made from."""
    if not fresh:
        return fixtures
    taken = inspect.signature(test).parameters
    return {name: value for name, value in fixtures.items() if name in taken}


def _parts(name: str, fixtures: dict[str, Any]) -> tuple[Callable[..., Any], list[str]]:
    """Return what makes a fixture and the names of what it is made from."""
    request = fixtures["request"]
    (*_, found) = request._fixturemanager.getfixturedefs(name, request.node)
    if found.scope != "function":
        return lambda: request.getfixturevalue(name), []
    return found.func, list(inspect.signature(found.func).parameters)


def _make(name: str, fixtures: dict[str, Any], stack: contextlib.ExitStack) -> None:
    if name in fixtures:
        return
    function, needed = _parts(name, fixtures)
    for each in needed:
        _make(each, fixtures, stack)
    made = function(**{each: fixtures[each] for each in needed})
    if inspect.isgenerator(made):
        stack.callback(next, made, None)
        made = next(made)
    fixtures[name] = made


async def _make_later(
    name: str, fixtures: dict[str, Any], stack: contextlib.AsyncExitStack
) -> None:
    if name in fixtures:
        return
    function, needed = _parts(name, fixtures)
    for each in needed:
        await _make_later(each, fixtures, stack)
    made = function(**{each: fixtures[each] for each in needed})
    if inspect.isasyncgen(made):
        stack.push_async_callback(anext, made, None)
        made = await anext(made)
    elif inspect.isgenerator(made):
        stack.callback(next, made, None)
        made = next(made)
    elif inspect.iscoroutine(made):
        made = await made
    fixtures[name] = made


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


@contextlib.contextmanager
def _own(kwargs: dict[str, Any], found: Rows, fresh: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the fixtures of a row: what another row could have left in them is not there."""
    fixtures = dict(kwargs)
    with pytest.MonkeyPatch.context() as patch:
        if fresh or "monkeypatch" in fixtures:
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
