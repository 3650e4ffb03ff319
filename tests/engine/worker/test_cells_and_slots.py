"""Cells against a naive model, and which slot a prompt gets."""

from hypothesis import given
from hypothesis import strategies as st

from clawd.engine.worker.slots import CellMap, Slot, SlotCache
from clawd.engine.worker.states import StateStore
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

    def __init__(self, backend: FakeBackend, store: StateStore | None = None) -> None:
        self.backend = backend
        self.slots = SlotCache(backend, store)

    def begin(self, tokens: list[int]) -> Slot:
        slot = self.slots.acquire(tokens)
        assert slot is not None
        rest = tokens[len(slot.tokens) :]
        row = self.backend.add_prompt(rest, len(slot.tokens), slot.number, last_output=True)
        self.backend.decode()
        self.slots.extend(slot, rest)
        assert self.backend.outputs[row] == tokens
        return slot

    def end(self, slot: Slot) -> None:
        self.slots.release(slot, ())

    def keep(self, tokens: list[int]) -> int:
        slot = self.begin(tokens)
        self.end(slot)
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


def test_r10_sequences_with_cells_of_their_own_hold_a_whole_context_each() -> None:
    cache = Cache(FakeBackend(n_ctx=64, n_batch=64, n_sequences=3, shares_cells=False))
    kept = [cache.keep([100 * number + at for at in range(60)]) for number in range(3)]
    assert sorted(kept) == [0, 1, 2]
    assert cache.slots.idle_count == 3
    assert cache.slots.free_cells == 3 * 64 - 3 * 60


def test_r10_a_prefix_shared_by_cells_of_their_own_is_a_copy_beside_its_source() -> None:
    cache = Cache(FakeBackend(n_ctx=64, n_batch=64, n_sequences=4, shares_cells=False))
    first = [*range(20, 60)]
    slot = cache.slots.acquire(first)
    assert slot is not None
    cache.backend.add_prompt(first, 0, slot.number, last_output=True)
    cache.backend.decode()
    cache.slots.extend(slot, first)
    beside = cache.keep([*first[:30], 7])
    # Next to the one that runs: neighbours are computed at once.
    assert abs(beside - slot.number) == 1
    assert cache.backend.sequences[slot.number] == [[token] for token in first]
    cache.backend.cut(slot.number, 0)
    assert [cell[0] for cell in cache.backend.sequences[beside]] == [*first[:30], 7]


def test_r10_a_long_sequence_is_not_copied_for_the_few_tokens_that_it_shares() -> None:
    for beginning, copies in ((5, 0), (60, 1)):
        backend = FakeBackend(n_ctx=2048, n_batch=2048, n_sequences=3, shares_cells=False)
        cache = Cache(backend)
        long = [*range(10, 1010)]
        cache.keep(long)
        cache.keep([*long[:beginning], *range(5000, 5100)])
        assert backend.copied == copies, beginning
        assert cache.slots.idle_count == 2


def test_r10_who_comes_goes_beside_what_runs_wherever_idle_ones_lie() -> None:
    idle = [[*range(1000 * number, 1000 * number + 40)] for number in range(1, 6)]
    # Without room for copies, nothing is lost for it.
    for room, places in ((1 << 20, [0, 1, 2]), (0, [0, 2, 3])):
        cache = Cache(FakeBackend(n_batch=64, n_sequences=5, shares_cells=False), StateStore(room))
        slots = [cache.begin(tokens) for tokens in idle]
        for number in (0, 2, 3, 4, 1):
            cache.end(slots[number])
        newcomers = [[7000 + number] * 40 for number in range(3)]
        assert [cache.begin(tokens).number for tokens in newcomers] == places, room
        again = cache.slots.acquire([*idle[1], 5])
        assert again is not None
        assert len(again.tokens) == 40, room


def test_r10_a_conversation_goes_on_beside_what_runs() -> None:
    for shares, place in ((False, 1), (True, 3)):
        backend = FakeBackend(n_batch=64, n_sequences=5, shares_cells=shares)
        cache = Cache(backend, StateStore(1 << 20))
        said = [*range(100, 140)]
        slots = [cache.begin([7000 + number] * 40) for number in range(3)]
        idle = cache.begin(said)
        for slot in (*slots[1:], idle):
            cache.end(slot)
        slot = cache.begin([*said, 5])
        assert slot.number == place, shares
