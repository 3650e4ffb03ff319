"""Kept sequences: what is found, what goes first, what reaches the disk, and no byte too many."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clawd.engine.worker.buffers import Buffer, BufferPool
from clawd.engine.worker.prompt import Part
from clawd.engine.worker.statefolder import StateFolder
from clawd.engine.worker.states import StateStore

PRINT = "ab" * 32
KB = 1024
SIZE = 256 * KB


def tokens(seed: int, length: int = 50) -> list[int]:
    return [seed * 1000 + index for index in range(length)]


class Clock:
    """Wall time that goes on by a second each time it is read."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def fill(value: int) -> "Filler":
    return Filler(value)


class Filler:
    """Writes one value everywhere."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __call__(self, buffer: Buffer) -> int:
        buffer[:] = self.value
        return buffer.nbytes


def keep(store: StateStore, sequence: list[int], size: int = SIZE) -> bool:
    said = Part(text="said", tokens=tuple(sequence), generated=True)
    return store.keep(sequence, (said,), size, fill(sequence[-1] % 256))


def value_of(store: StateStore, sequence: list[int]) -> int | None:
    kept, length = store.find([*sequence, -1])
    if kept is None or length < len(sequence):
        return None
    state = store.state(kept)
    if state is None:
        return None
    assert len(set(state.tolist())) == 1
    return int(state[0])


def never() -> bool:
    return False


def test_the_longest_common_prefix_is_found() -> None:
    store = StateStore(10 * SIZE)
    keep(store, tokens(1, 50))
    keep(store, [*tokens(1, 30), *tokens(2, 40)])
    kept, length = store.find([*tokens(1, 30), *tokens(2, 10), 7])
    assert length == 40
    assert kept is not None
    assert kept.tokens[30:] == tokens(2, 40)
    assert store.find(tokens(1, 50))[1] == 49
    assert store.find(tokens(3))[1] == 0


def test_a_model_that_cannot_cut_finds_whole_sequences_only() -> None:
    store = StateStore(10 * SIZE, whole_only=True)
    keep(store, tokens(1, 50))
    assert store.find(tokens(1, 50)) == (None, 0)
    assert store.find([*tokens(1, 40), 7]) == (None, 0)
    assert store.find([*tokens(1, 50), 7])[1] == 50
    keep(store, tokens(1, 60))
    assert store.find([*tokens(1, 50), 7])[1] == 50


def test_a_longer_copy_replaces_what_it_begins_with() -> None:
    store = StateStore(10 * SIZE)
    keep(store, tokens(1, 50))
    keep(store, tokens(1, 60))
    assert [len(kept.tokens) for kept in store.known()] == [60]
    assert store.covers(tokens(1, 50))
    assert not store.covers(tokens(1, 61))


def test_the_least_recently_used_copy_goes_when_the_budget_is_full() -> None:
    store = StateStore(3 * SIZE)
    for seed in (1, 2, 3):
        keep(store, tokens(seed))
    assert store.covers(tokens(1))
    keep(store, tokens(4))
    there = [seed for seed in (1, 2, 3, 4) if value_of(store, tokens(seed)) is not None]
    assert there == [1, 3, 4]


def test_what_is_over_the_budget_alone_is_not_kept_and_costs_nothing_else() -> None:
    store = StateStore(3 * SIZE)
    keep(store, tokens(1))
    assert not keep(store, tokens(2), 4 * SIZE)
    assert value_of(store, tokens(1)) == tokens(1)[-1] % 256


def test_a_size_that_rounds_up_over_the_budget_costs_nothing_else() -> None:
    store = StateStore(3 * SIZE)
    keep(store, tokens(1))
    assert not keep(store, tokens(2), 3 * SIZE - KB // 2 + KB)
    assert value_of(store, tokens(1)) == tokens(1)[-1] % 256


def test_a_file_too_large_for_the_budget_is_left_for_another_time(tmp_path: Path) -> None:
    store = store_on(tmp_path)
    keep(store, tokens(1))
    store.save(never)
    small = store_on(tmp_path, memory=SIZE // 2)
    assert small.all() == []
    assert small.find([*tokens(1), 7]) == (None, 0)
    assert len(list(tmp_path.iterdir())) == 1


def test_no_budget_keeps_nothing_on_disk_neither(tmp_path: Path) -> None:
    store = StateStore(0, StateFolder(tmp_path, SIZE, PRINT))
    assert not store.is_on
    assert not keep(store, tokens(1))
    store.save(never)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_could_not_be_taken_is_not_kept() -> None:
    store = StateStore(3 * SIZE)
    assert not store.keep(tokens(1), (), SIZE, lambda _: 0)
    assert not store.keep(tokens(1), (), 0, lambda _: 0)
    assert store.known() == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 600)), max_size=25))
def test_copies_are_exact_and_never_over_the_budget(wanted: list[tuple[int, int]]) -> None:
    store = StateStore(1000 * KB)
    for seed, kilobytes in wanted:
        keep(store, tokens(seed), kilobytes * KB)
        store.rest()
        assert store.memory_bytes <= 1000 * KB
        for kept in store.known():
            state = store.state(kept)
            assert state is not None
            assert set(state[::512].tolist()) == {kept.tokens[-1] % 256}


def test_a_buffer_is_used_again_and_one_is_touched_in_advance() -> None:
    pool = BufferPool(3 * SIZE)
    assert not pool.prepare()
    first = pool.take(SIZE)
    assert first is not None
    assert pool.prepare()
    assert not pool.prepare()
    pool.give_back(first)
    taken = [pool.take(SIZE - KB), pool.take(SIZE)]
    assert any(buffer is first for buffer in taken)
    assert pool.total_bytes <= 3 * SIZE


def store_on(folder: Path, memory: int = 10 * SIZE, quota: int = 100 * SIZE) -> StateStore:
    return StateStore(memory, StateFolder(folder, quota, PRINT), clock=Clock())


def test_what_was_saved_is_found_by_the_next_process(tmp_path: Path) -> None:
    store = store_on(tmp_path)
    keep(store, tokens(1))
    keep(store, tokens(2))
    store.save(never)
    later = store_on(tmp_path)
    assert later.known() == []
    assert [kept.tokens for kept in later.all()] == [tokens(1), tokens(2)]
    assert value_of(later, tokens(1)) == tokens(1)[-1] % 256
    assert later.memory_bytes > 0


def test_saving_again_writes_nothing_again(tmp_path: Path) -> None:
    store = store_on(tmp_path)
    keep(store, tokens(1))
    store.save(never)
    inodes = {path.stat().st_ino for path in tmp_path.iterdir()}
    store.save(never)
    keep(store, tokens(1))
    store.save(never)
    assert {path.stat().st_ino for path in tmp_path.iterdir()} == inodes


def test_a_longer_sequence_replaces_the_file_of_its_beginning(tmp_path: Path) -> None:
    store = store_on(tmp_path)
    keep(store, tokens(1, 50))
    store.save(never)
    keep(store, tokens(1, 60))
    assert len(list(tmp_path.iterdir())) == 1
    store.save(never)
    assert [kept.tokens for kept in store_on(tmp_path).all()] == [tokens(1, 60)]


def test_when_the_time_is_over_the_last_used_is_saved_and_nothing_half(tmp_path: Path) -> None:
    store = store_on(tmp_path)
    for seed in (1, 2, 3):
        keep(store, tokens(seed))
    answers = iter([False, False])
    store.save(lambda: next(answers, True))
    assert [kept.tokens for kept in store_on(tmp_path).all()] == [tokens(3)]
    assert [path.suffix for path in tmp_path.iterdir()] == [".kv"]


def test_a_crowded_ram_is_written_out_in_quiet_moments_and_nothing_is_lost(tmp_path: Path) -> None:
    store = store_on(tmp_path, memory=3 * SIZE)
    for seed in range(6):
        keep(store, tokens(seed))
        while store.rest():
            pass
    assert store.memory_bytes <= 3 * SIZE
    for seed in range(6):
        assert value_of(store, tokens(seed)) == tokens(seed)[-1] % 256


def test_ram_with_room_writes_nothing(tmp_path: Path) -> None:
    store = store_on(tmp_path)
    keep(store, tokens(1))
    while store.rest():
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_goes_while_it_is_written_leaves_nothing_half(tmp_path: Path) -> None:
    store = store_on(tmp_path, memory=2 * SIZE)
    keep(store, tokens(1))
    keep(store, tokens(2))
    assert store.rest()
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    keep(store, tokens(3))
    assert list(tmp_path.iterdir()) == []


def test_a_quota_without_room_is_asked_once_only(tmp_path: Path) -> None:
    store = store_on(tmp_path, memory=2 * SIZE, quota=SIZE // 2)
    keep(store, tokens(1))
    keep(store, tokens(2))
    for _ in range(10):
        if not store.rest():
            break
    else:
        pytest.fail("it never comes to rest")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_broken_or_gone_is_forgotten(tmp_path: Path) -> None:
    store = store_on(tmp_path)
    keep(store, tokens(1))
    keep(store, tokens(2))
    store.save(never)
    later = store_on(tmp_path)
    first, second = (kept.stored for kept in later.all())
    assert first is not None
    assert second is not None
    first.path.unlink()
    data = bytearray(second.path.read_bytes())
    data[-100] ^= 1
    second.path.write_bytes(data)
    assert value_of(later, tokens(1)) is None
    assert value_of(later, tokens(2)) is None
    assert later.known() == []
    assert list(tmp_path.iterdir()) == []
