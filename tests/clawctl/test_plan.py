"""How a plan is drawn on a terminal."""

from clawctl.call_text import plan_text
from clawctl.render import Palette
from clawd.tools.plans import MARKS, PlanItem, markdown
from tests.support.hostile import HOSTILE

ITEMS = [PlanItem(id=n, text=f"step {s}", status=s) for n, s in enumerate(MARKS, 1)]


def test_without_colour_it_is_the_list_that_the_model_sees_without_its_dashes() -> None:
    assert plan_text(markdown(ITEMS), Palette(is_on=False)) == (
        "[ ] 1. step pending\n[~] 2. step working\n[x] 3. step done\n[!] 4. step error\n"
        "[-] 5. step deleted"
    )


def test_each_status_has_its_colour() -> None:
    lines = plan_text(markdown(ITEMS), Palette(is_on=True)).split("\n")
    assert [line.startswith("\x1b[") for line in lines] == [False, True, True, True, True]
    assert [line[:5] for line in lines[1:]] == ["\x1b[33m", "\x1b[32m", "\x1b[31m", "\x1b[2m["]


def test_what_a_hostile_daemon_sends_drives_no_terminal() -> None:
    for text in (HOSTILE, f"- [x] 1. {HOSTILE}", "- [x] 1. a\rb"):
        shown = plan_text(text, Palette(is_on=False))
        assert not set(shown) & set("\x1b\r\x07\x9b\u202e")
