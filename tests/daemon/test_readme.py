"""What README and its pictures show of a terminal is what a terminal shows."""

import pytest

from tests.booted.first_minute import comparable
from tests.screenshots import IMAGES, README, SCRIPT, at_home, made, played, shown_in, text_of

pytestmark = [pytest.mark.daemon, pytest.mark.timeout(300)]
AGAIN = "make them anew: python -m tests.screenshots"


@pytest.mark.real_model
@pytest.mark.smollm2
def test_the_transcript_of_readme_is_what_the_assistant_does() -> None:
    with at_home() as home:
        shown = played(home)
    told = shown_in(README.read_text(encoding="utf-8"))
    assert comparable(told) == comparable(shown), AGAIN


def test_the_pictures_of_readme_show_what_clawctl_draws() -> None:
    with at_home(*SCRIPT) as home:
        pictures = made(home)
    pictures.pop("status")  # it tells of the machine
    for name, picture in pictures.items():
        told = text_of((IMAGES / f"{name}.svg").read_text(encoding="utf-8"))
        assert comparable(told) == comparable(text_of(picture)), f"{name}: {AGAIN}"
