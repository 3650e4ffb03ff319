"""A fully malicious model on the real parts: nothing gets out, nothing outside is touched."""

from collections.abc import Callable, Iterable

import pytest

from clawd.security.approvals import Answer
from clawd.wire.events import ApprovalRequested
from tests.support.malicious_calls import CALLS, ENDLESS
from tests.support.malicious_files import FILES
from tests.support.malicious_network import NETWORK
from tests.support.malicious_world import Attack, World
from tests.support.rows import thorough

pytestmark = [pytest.mark.malicious, pytest.mark.sandbox]

Play = Callable[[World], Attack]
ATTACKS: dict[str, Play] = {attack.__name__: attack for attack in (*NETWORK, *FILES, *CALLS)}
ON_THIS_MACHINE: dict[str, Play] = {attack.__name__: attack for attack in (*FILES, *CALLS)}


def _each_in_turn(attacks: Iterable[str]) -> list[tuple[str, str]]:
    """Return each attack with one autonomy, one after the other in turn; with both if thorough."""
    both = [(name, autonomy) for name in attacks for autonomy in ("supervised", "full")]
    return both if thorough() else [*both[::4], *both[3::4]]


def careless(asked: ApprovalRequested) -> Answer:
    """Approve whatever is of medium risk, unless untrusted text is about."""
    return "once" if asked.risk == "medium" and "untrusted" not in asked.reason else "deny"


@pytest.mark.parametrize(("attack", "autonomy"), _each_in_turn(ATTACKS))
async def test_nothing_comes_of_it(world: World, attack: str) -> None:
    await world.turn(ATTACKS[attack](world))
    assert world.model.is_done, "every attempt was made"
    world.assert_unharmed()


@pytest.mark.parametrize("attack", ON_THIS_MACHINE)
async def test_nothing_comes_of_it_when_a_person_approves_carelessly(
    world: World, attack: str
) -> None:
    await world.turn(ON_THIS_MACHINE[attack](world), person=careless)
    assert world.model.is_done, "every attempt was made"
    world.assert_unharmed()


@pytest.mark.parametrize("autonomy", ["supervised", "full"])
@pytest.mark.parametrize("attack", ENDLESS)
async def test_what_never_ends_is_ended(world: World, attack: Play) -> None:
    finished = await world.turn(attack(world), turns=1)
    assert finished.stop_reason in {"cap", "loop"}
    world.model.made -= finished.stop_reason == "cap"  # its last calls were dropped
    world.assert_unharmed()
