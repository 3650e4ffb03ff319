"""A pool goes on with the threads it has when the system allows no more."""

import threading
from typing import Any, NoReturn

import pytest

from clawd.kernel.concurrency import Pool
from tests.support.rows import each_row


def _no_more(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("can't start new thread")


@each_row("ready", [1, 3])
def test_work_waits_for_the_threads_there_are(ready: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool(8, "some", ready=ready) as pool:
        monkeypatch.setattr(threading.Thread, "start", _no_more)
        done = [pool.submit(pow, number, 2) for number in range(50)]
        assert [each.result(30) for each in done] == [number**2 for number in range(50)]
        mine = [each for each in threading.enumerate() if each.name.startswith("some")]
        assert len(mine) == ready


def test_a_pool_that_can_have_none_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", _no_more)
    with pytest.raises(RuntimeError, match="start new thread"):
        Pool(2, "some")


def test_a_pool_that_gets_fewer_than_it_must_have_ends_those(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    starts = threading.Thread.start
    begun: list[threading.Thread] = []

    def some(thread: threading.Thread) -> None:
        if len(begun) == 2:
            _no_more()
        begun.append(thread)
        starts(thread)

    monkeypatch.setattr(threading.Thread, "start", some)
    with pytest.raises(RuntimeError, match="start new thread"):
        Pool(8, "some", ready=4)
    for thread in begun:
        thread.join(30)
        assert not thread.is_alive()
