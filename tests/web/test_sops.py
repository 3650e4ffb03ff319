"""Procedures on the page: looked at, enabled, run, approved, answered and ended."""

import pytest
from playwright.sync_api import Page, expect

from tests.sop.procedures import procedure, shell
from tests.support.home import Home
from tests.web.conftest import Shown, gateway, serious

pytestmark = [pytest.mark.daemon, pytest.mark.page]

FULL = '[security]\nautonomy = "full"\n'
HOSTILE = '<img src=x onerror="document.title=1">'
ASKS = f"[[steps]]\nid = \"look\"\nkind = \"approval\"\nprompt = '''Write {HOSTILE}?'''\n"


def machine(shown: Shown) -> Page:
    page = shown.visit()
    page.locator(".tab", has_text="Machine").click()
    return page


def test_a_procedure_is_started_with_its_inputs_and_goes_on_after_a_yes(
    home: Home, shown: Shown
) -> None:
    home.configure(tables=FULL + gateway())
    given = '[inputs]\nword = { description = "What to write." }\n'
    procedure(home.path / "sops", "check", given + ASKS + shell("one", "echo {{ inputs.word }}"))
    home.start()
    page = machine(shown)
    sop = page.locator("[data-sop=check]")
    sop.get_by_role("button", name="check").click()
    expect(sop.locator("ol")).to_contain_text("wait for a yes")
    sop.get_by_text("Mermaid").click()
    expect(sop.locator("pre")).to_contain_text("flowchart TD")
    sop.locator("[name=word]").fill("hello")
    sop.get_by_role("button", name="Run", exact=True).click()
    row = page.locator("[data-run]")
    expect(row).to_contain_text("waits")
    expect(row.locator("pre").first).to_have_text(f"Write {HOSTILE}?")
    expect(page).to_have_title("clawd")
    assert not serious(page)
    row.get_by_role("button", name="Approve").click()
    expect(row.locator(".tag").first).to_have_text("done")
    row.get_by_text("Output").last.click()
    expect(row.locator("pre").last).to_have_text("hello")
    expect(row.get_by_role("button", name="Cancel")).to_have_count(0)
    (run,) = home.json("sop", "history")["items"]
    assert run["status"] == "succeeded"


def test_a_run_is_denied_or_ended_on_the_page_and_a_workspaces_is_looked_at_first(
    home: Home, shown: Shown
) -> None:
    home.configure(tables=FULL + gateway())
    procedure(home.workspace / "sops", "check", ASKS + shell("one", "touch made.txt"))
    home.start()
    page = machine(shown)
    sop = page.locator("[data-sop=check]")
    expect(sop.locator(".tag").first).to_have_text("untrusted")
    sop.get_by_role("button", name="check").click()
    expect(sop.get_by_role("button", name="Run", exact=True)).to_have_count(0)
    sop.get_by_role("button", name="I have looked at it").click()
    expect(sop.locator(".tag").first).to_have_text("ready")
    for button, ends in (("Deny", "failed"), ("Cancel", "cancelled")):
        sop.get_by_role("button", name="check").click()
        sop.get_by_role("button", name="Run", exact=True).click()
        row = page.locator("[data-run]", has_text="waits")
        row.get_by_role("button", name=button).click()
        expect(row).to_have_count(0)
        expect(page.locator("[data-run]", has_text=ends)).to_have_count(1)
        sop.get_by_role("button", name="check").click()
    assert {each["status"] for each in home.json("sop", "history")["items"]} == {
        "failed",
        "cancelled",
    }
    assert not (home.workspace / "made.txt").exists()
