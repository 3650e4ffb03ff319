"""Hints for a router: from a message to the request, kept by the conversation, never lost."""

import pytest
from typing_extensions import override

from clawd.config.schema import ProviderLabels
from clawd.errors import InvalidRequestError
from clawd.providers.base import Capabilities
from clawd.providers.reliable import ReliableProvider
from clawd.providers.router import RoutedProvider, RouterProvider
from tests.runtime.inboxes import House
from tests.runtime.models import Hop, PlannedModel, calls, says
from tests.support.dispatching import Bench
from tests.support.rows import each_row

CALL = calls(("probe", '{"text":"a"}'))


class Heeding(PlannedModel):
    """A model behind a router, as far as the runtime can see."""

    @override
    def capabilities(self) -> Capabilities:
        return Capabilities(heeds_hints=True)


def house_of(bench: Bench, *hops: Hop) -> House:
    house = House(bench)
    house.model = Heeding(*hops, name="mock")
    return house


def hints(house: House) -> list[dict[str, str]]:
    """Return what each hop asked for, beside its conversation."""
    asked = [dict(request.metadata) for request in house.model.requests]
    assert all(metadata.pop("conversation_id").startswith("conv-") for metadata in asked)
    return asked


async def test_every_hop_of_a_turn_carries_the_hints(bench: Bench) -> None:
    house = house_of(bench, CALL, says("ok"))
    await house.say("hi", hints={"privacy": "local", "size": "big"})
    assert hints(house) == [{"privacy": "local", "size": "big"}] * 2


async def test_a_conversation_keeps_its_hints_until_an_empty_one_takes_them_back(
    bench: Bench,
) -> None:
    house = house_of(bench, says("ok"))
    first = await house.say("a secret", hints={"privacy": "local", "cost": "low"})
    await house.say("more", first.conversation_id)
    house.restart()
    await house.say("more", first.conversation_id, hints={"cost": "high"})
    await house.say("more", first.conversation_id, hints={"cost": ""})
    house.restart()
    await house.say("more", first.conversation_id)
    await house.say("something else")
    assert hints(house) == [
        {"privacy": "local", "cost": "low"},
        {"privacy": "local", "cost": "low"},
        {"privacy": "local", "cost": "high"},
        {"privacy": "local"},
        {"privacy": "local"},
        {},
    ]


async def test_a_provider_that_heeds_no_hints_gets_no_message_that_has_some(bench: Bench) -> None:
    house = House(bench, says("ok"))
    with pytest.raises(InvalidRequestError, match="privacy=local, and provider mock is no router"):
        await house.say("a secret", hints={"privacy": "local"})
    assert house.model.requests == []
    public = (await house.say("no secret")).conversation_id
    with pytest.raises(InvalidRequestError):
        await house.say("a secret", public, hints={"privacy": "local"})
    assert (await house.say("no secret", public)).text == "ok"


async def test_a_private_conversation_does_not_go_on_elsewhere(bench: Bench) -> None:
    house = house_of(bench, says("ok"))
    private = (await house.say("a secret", hints={"privacy": "local"})).conversation_id
    house.model = PlannedModel(says("ok"), name="mock")
    house.restart()
    with pytest.raises(InvalidRequestError, match="is no router"):
        await house.say("go on", private)
    assert (await house.say("go on", private, hints={"privacy": ""})).text == "ok"


@each_row(
    ("wrong", "told"),
    [
        ({"secrecy": "local"}, "no hint 'secrecy'; known: model, cost, privacy, size"),
        ({"conversation_id": "x"}, "no hint 'conversation_id'"),
        ({"size": "x" * 201}, "hint size has 201 characters; the limit is 200"),
    ],
    fresh=["bench"],
)
async def test_a_hint_that_nobody_knows_is_refused(
    wrong: dict[str, str], told: str, bench: Bench
) -> None:
    house = house_of(bench, says("ok"))
    with pytest.raises(InvalidRequestError, match=told):
        await house.say("hi", hints=wrong)
    assert house.model.requests == []


async def test_a_router_behind_the_runtime_chooses_by_the_hints(bench: Bench) -> None:
    near, far = PlannedModel(says("near"), name="near"), PlannedModel(says("far"), name="far")
    router = RouterProvider(
        "mock",
        [
            RoutedProvider(provider=far, labels=ProviderLabels(cost="low"), is_probed=False),
            RoutedProvider(provider=near, labels=ProviderLabels(privacy="local"), is_probed=False),
        ],
    )
    house = House(bench)
    house.change(default_model="")
    house.model = router  # type: ignore[assignment]
    try:
        private = await house.say("a secret", hints={"privacy": "local"})
        again = await house.say("more", private.conversation_id)
        other = await house.say("hi", hints={"cost": "low"})
    finally:
        await router.close()
    assert (private.text, again.text, other.text) == ("near", "near", "far")
    plain = PlannedModel(says("x"))
    assert ReliableProvider("both", [router, router]).capabilities().heeds_hints
    assert not ReliableProvider("both", [router, plain]).capabilities().heeds_hints
