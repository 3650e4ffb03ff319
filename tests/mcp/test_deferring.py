"""Which schemas are left out of requests: none while all fit, then the largest, always the same."""

from hypothesis import given
from hypothesis import strategies as st

from clawd.mcp.catalogue import Cost, deferred_names, hidden_names

COSTS = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=4),
    st.builds(Cost, whole=st.integers(1, 500), deferred=st.integers(1, 60)),
    max_size=12,
)


def test_nothing_is_left_out_while_all_fit() -> None:
    costs = {"a": Cost(whole=60, deferred=10), "b": Cost(whole=40, deferred=10)}
    assert deferred_names(costs, 100) == frozenset()


def test_the_largest_are_left_out_first() -> None:
    costs = {
        "large": Cost(whole=500, deferred=20),
        "small": Cost(whole=40, deferred=20),
        "middle": Cost(whole=90, deferred=20),
    }
    assert deferred_names(costs, 200) == {"large"}
    assert deferred_names(costs, 100) == {"large", "middle"}
    assert deferred_names(costs, 0) == {"large", "middle", "small"}


@given(COSTS, st.integers(0, 2_000))
def test_what_is_carried_fits_or_is_as_small_as_it_can_be(
    costs: dict[str, Cost], budget: int
) -> None:
    left_out = deferred_names(costs, budget)
    carried = sum(c.deferred if name in left_out else c.whole for name, c in costs.items())
    smallest = sum(min(cost.whole, cost.deferred) for cost in costs.values())
    assert carried <= max(budget, smallest)
    assert left_out == deferred_names(dict(reversed(costs.items())), budget)


@given(COSTS, st.integers(0, 1_000), st.integers(0, 1_000))
def test_a_larger_budget_never_leaves_out_more(
    costs: dict[str, Cost], budget: int, more: int
) -> None:
    assert deferred_names(costs, budget + more) <= deferred_names(costs, budget)


SERVERS = st.dictionaries(st.sampled_from("abcd"), COSTS.filter(bool), max_size=4)


@given(SERVERS, st.integers(0, 2_000))
def test_p11_names_and_lines_stay_within_the_budget_and_each_server_is_named(
    servers: dict[str, dict[str, Cost]], budget: int
) -> None:
    # Names are those of the whole catalogue, so no two servers share one.
    costs = {
        server: {f"{server}__{name}": cost for name, cost in found.items()}
        for server, found in servers.items()
    }
    hidden = hidden_names(costs, budget)
    least = {n: min(c.whole, c.deferred) for found in costs.values() for n, c in found.items()}
    named = [cost for name, cost in least.items() if name not in hidden]
    assert sum(named) <= budget + sum(max(c.deferred for c in f.values()) for f in costs.values())
    assert all(found.keys() - hidden for found in costs.values())
    assert hidden == hidden_names(dict(reversed(costs.items())), budget)
    if sum(least.values()) <= budget:
        assert not hidden


def test_a_small_server_keeps_its_tools_beside_one_that_has_too_many() -> None:
    one = Cost(whole=100, deferred=10)
    servers = {"big": {f"b{i}": one for i in range(500)}, "small": {"s1": one, "s2": one}}
    hidden = hidden_names(servers, 200)
    assert not hidden & {"s1", "s2"}
    assert len(hidden) == 500 - 18
    assert "b499" in hidden
