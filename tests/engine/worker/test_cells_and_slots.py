"""Cells against a naive model, and which slot a prompt gets."""

from hypothesis import given
from hypothesis import strategies as st

from clawd.engine.worker.cells import CellMap
from clawd.engine.worker.slots import SlotCache
from tests.engine.worker.fake_backend import FakeBackend

OPERATION = st.tuples(
    st.sampled_from(["extend", "share", "cut"]),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 12),
)


@given(st.lists(OPERATION, max_size=40))
def test_cells_are_counted_like_sets_of_cells(
    operations: list[tuple[str, int, int, int]],
) -> None:
    cells = CellMap(4)
    naive: list[list[object]] = [[] for _ in range(4)]
    for name, first, second, count in operations:
        if name == "extend":
            cells.extend(first, count)
            naive[first] += [object() for _ in range(count)]
        elif name == "cut":
            cells.cut(first, count)
            del naive[first][count:]
        elif first != second:
            cells.cut(second, 0)
            cells.share_prefix(first, second, count)
            naive[second] = naive[first][:count]
        assert cells.used == len({cell for row in naive for cell in row})
        assert cells.used_by([0, 2]) == len({*naive[0], *naive[2]})
        assert [cells.length(index) for index in range(4)] == [len(row) for row in naive]


class Cache:
    """A slot cache whose backend holds what the cache believes."""

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.slots = SlotCache(backend)

    def keep(self, tokens: list[int]) -> int:
        slot = self.slots.acquire(tokens)
        assert slot is not None
        rest = tokens[len(slot.tokens) :]
        row = self.backend.add_prompt(rest, len(slot.tokens), slot.number, last_output=True)
        self.backend.decode()
        self.slots.extend(slot, rest)
        assert self.backend.outputs[row] == tokens
        self.slots.release(slot, ())
        return slot.number


def test_a_short_shared_beginning_does_not_claim_a_long_idle_slot() -> None:
    cache = Cache(FakeBackend(n_batch=256, n_sequences=3))
    long = list(range(100))
    first = cache.keep(long)
    other = cache.keep([*range(7), *range(500, 510)])
    assert other != first
    slot = cache.slots.acquire([*long, 1])
    assert slot is not None
    assert (slot.number, len(slot.tokens)) == (first, 100)


def test_a_slot_is_taken_over_when_most_of_it_matches() -> None:
    cache = Cache(FakeBackend(n_batch=256, n_sequences=3))
    first = cache.keep(list(range(100)))
    assert cache.keep([*range(80), *range(500, 510)]) == first
    assert cache.slots.idle_count == 1


def test_the_least_recently_used_slot_is_evicted() -> None:
    cache = Cache(FakeBackend(n_batch=256, n_sequences=2))
    first = cache.keep([1, 2, 3, 4])
    second = cache.keep([11, 12, 13, 14])
    assert cache.keep([1, 2, 3, 4, 5]) == first
    assert cache.keep([21, 22, 23]) == second


def test_the_only_free_slot_is_cut_down_to_what_is_shared() -> None:
    cache = Cache(FakeBackend(n_batch=256, n_sequences=1))
    cache.keep(list(range(100)))
    slot = cache.slots.acquire([0, 1, 2, 900])
    assert slot is not None
    assert slot.tokens == [0, 1, 2]
    assert cache.backend.used_cells == 3


def test_no_slot_is_free_when_all_are_in_use() -> None:
    cache = Cache(FakeBackend(n_sequences=1))
    assert cache.slots.acquire([1, 2]) is not None
    assert cache.slots.acquire([1, 2]) is None
