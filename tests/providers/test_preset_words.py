"""Presets that a message begins with, and what only looks like one."""

from hypothesis import given
from hypothesis import strategies as st

from clawd.providers.base import Sampling
from clawd.providers.presets import PRESETS, PresetWord, preset_word
from tests.support.rows import each_row


@each_row(
    ("text", "preset", "temperature", "rest"),
    [
        ("creative 0.9 a poem", "creative", 0.9, "a poem"),
        ("creative a poem", "creative", None, "a poem"),
        ("precise\nwhat is it?\n", "precise", None, "what is it?\n"),
        ("wild .5  two\nlines", "wild", 0.5, "two\nlines"),
        ("deterministic 0.0 go", "deterministic", 0.0, "go"),
        ("balanced 2.0 go", "balanced", 2.0, "go"),
        ("wild 5 horses", "wild", None, "5 horses"),
        ("precise 1 sentence", "precise", None, "1 sentence"),
    ],
)
def test_a_preset_word_is_taken_off(
    text: str, preset: str, temperature: float | None, rest: str
) -> None:
    assert preset_word(text) == PresetWord(text=rest, preset=preset, temperature=temperature)


@each_row(
    "text",
    [
        "", "creative", "creative ", "creative 0.9", "creative 0.9 \n", "Creative people",
        " creative a poem", "creatively said", "creative: a poem", "be creative now",
        "creative 9.5 is a version", "normal 0.5 text",
    ],
)  # fmt: skip
def test_other_text_stays_as_it_is(text: str) -> None:
    assert preset_word(text) == PresetWord(text=text)


@given(st.text())
def test_nothing_but_a_word_is_ever_lost(text: str) -> None:
    found = preset_word(text)
    assert text.endswith(found.text)
    assert bool(found.preset) == (found.text != text)


def test_the_word_goes_before_what_a_program_always_sends() -> None:
    sent = Sampling(temperature=0.7, top_p=0.5, max_tokens=9, stop=("x",), preset="precise")
    over = preset_word("creative 0.9 go").over(sent)
    assert over == Sampling(temperature=0.9, max_tokens=9, stop=("x",), preset="creative")
    over = preset_word("wild go").over(sent)
    assert (over.temperature, over.top_p, over.preset) == (None, None, "wild")
    assert preset_word("go").over(sent) is sent


def test_every_preset_is_a_word() -> None:
    assert {preset_word(f"{name} go").preset for name in PRESETS} == set(PRESETS)
