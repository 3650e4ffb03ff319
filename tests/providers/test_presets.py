"""The presets as a table."""

import pytest

from clawd.config.schema import ProviderSection
from clawd.engine.protocol import Sampling
from clawd.engine.worker.sampler import plan_stages
from clawd.errors import InvalidRequestError
from clawd.providers.anthropic import build_body as anthropic_body
from clawd.providers.base import ChatRequest, Message
from clawd.providers.local_request import LocalOptions, generate_for, resolve_sampling
from clawd.providers.openai import build_body
from clawd.providers.presets import PRESETS, check_preset, preset_values, with_preset
from tests.support.rows import each_row

PENALTIES = ("repeat_penalty", "frequency_penalty", "presence_penalty", "dry_multiplier")


def test_there_are_five_and_each_is_taken_by_the_samplers() -> None:
    assert list(PRESETS) == ["deterministic", "precise", "balanced", "creative", "wild"]
    for name in PRESETS:
        request = ChatRequest(messages=(), sampling=Sampling(preset=name, seed=1))
        assert plan_stages(resolve_sampling(Sampling(), request))


def test_each_is_hotter_than_the_one_before() -> None:
    heats = [preset.temperature for preset in PRESETS.values()]
    assert heats == sorted(heats, key=lambda heat: heat or 0.0)
    assert heats[0] == 0.0


def test_no_preset_touches_a_penalty() -> None:
    for preset in PRESETS.values():
        assert [getattr(preset, name) for name in PENALTIES] == [None] * len(PENALTIES)


def test_a_preset_leaves_nothing_of_another_one_behind() -> None:
    for other in PRESETS:
        wild = with_preset(Sampling(preset=other))
        defaults = resolve_sampling(Sampling(), ChatRequest(messages=(), sampling=wild))
        request = ChatRequest(messages=(), sampling=Sampling(preset="balanced", seed=3))
        assert plan_stages(resolve_sampling(defaults, request)) == plan_stages(Sampling(seed=3))


def test_values_of_presets_go_by_the_names_of_the_settings() -> None:
    values = preset_values()
    assert list(values) == list(PRESETS)
    assert values["deterministic"] == {
        "temperature": 0.0, "typical_p": 1.0, "xtc_probability": 0.0
    }  # fmt: skip
    for preset in values.values():
        assert set(preset) <= set(Sampling.__struct_fields__)


@each_row("name", ["", *PRESETS])
def test_no_preset_and_each_there_is_pass_the_check(name: str) -> None:
    check_preset(name)


def test_an_unknown_preset_is_refused_with_those_that_are_there() -> None:
    with pytest.raises(InvalidRequestError, match="there are: deterministic, precise"):
        with_preset(Sampling(preset="hot"))
    with pytest.raises(InvalidRequestError, match="no sampling preset 'Wild'; there are: determ"):
        check_preset("Wild")


def test_a_server_elsewhere_gets_what_every_server_knows_of_a_preset() -> None:
    request = ChatRequest(messages=(), sampling=Sampling(preset="wild", min_p=0.2))
    body = build_body(request, model="m", stream=False)
    assert (body["temperature"], body["top_p"], body["min_p"]) == (1.5, 1.0, 0.2)
    assert "xtc_probability" not in body
    assert "top_k" not in body


def test_a_bias_goes_elsewhere_with_ids_as_text() -> None:
    request = ChatRequest(messages=(), sampling=Sampling(logit_bias={5: -1.0}))
    assert build_body(request, model="m", stream=False)["logit_bias"] == {"5": -1.0}


def test_m1_wishes_of_a_request_reach_every_kind_of_backend() -> None:
    wishes = Sampling(temperature=0.2, top_p=0.5, top_k=7, max_tokens=9, stop=("END",))
    request = ChatRequest(messages=(Message(role="user", content="hi"),), sampling=wishes)
    local = generate_for(request, Sampling(), LocalOptions()).sampling
    assert (local.temperature, local.top_p, local.top_k) == (0.2, 0.5, 7)
    assert (local.max_tokens, local.stop) == (9, ("END",))
    openai = build_body(request, model="m", stream=True)
    theirs = anthropic_body(
        request,
        model="m",
        section=ProviderSection(kind="anthropic", thinking="disabled"),
        kept=lambda _: None,
    )
    assert [openai[name] for name in ("temperature", "top_p", "top_k")] == [0.2, 0.5, 7]
    assert (theirs["temperature"], theirs["top_k"]) == (0.2, 7)  # it takes no top_p beside
    assert (openai["max_tokens"], openai["stop"]) == (9, ["END"])
    assert (theirs["max_tokens"], theirs["stop_sequences"]) == (9, ["END"])
