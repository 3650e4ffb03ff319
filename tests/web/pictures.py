"""Makes the pictures of the page that the docs show, on a real daemon with scripted replies.

    python -m tests.web.pictures

Eight states, each a PNG in docs/images: chat, approval, tool, receipts, verified, machine, narrow,
stopped.
"""

import tempfile
from pathlib import Path

from playwright.sync_api import Page, ViewportSize, sync_playwright

from tests.support.home import Home
from tests.web.conftest import OPTIONS, Shown, gateway

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SIZE: ViewportSize = {"width": 1100, "height": 700}
NARROW: ViewportSize = {"width": 360, "height": 640}
REPORT = """The tests fail at one place: `total()` adds the tax **twice**.

```python
def total(prices, tax=0.19):
    return sum(price * (1 + tax) for price in prices)
```

| prices | before | now |
|---|--:|--:|
| 10, 20 | 42.48 | 35.70 |

So $t = (1 + r) \\sum_i p_i$, once. Shall I write it?
"""
FIXED = "def total(prices, tax=0.19):\n    return sum(price * (1 + tax) for price in prices)\n"
BROKEN = FIXED.replace("for price in prices)", "for price in prices) * (1 + tax)")
REPLIES = (
    {"when": "Why", "text": REPORT, "reasoning": "The tax is in the sum, and again behind it."},
    {
        "when": "Yes",
        "tool_calls": [
            {"name": "file_write", "arguments": {"path": "shop/total.py", "content": FIXED}}
        ],
    },
    {"when": "Yes", "after": "tool", "text": "`shop/total.py` adds the tax once now."},
)


def states(shown: Shown, page: Page) -> None:
    """Go through the eight states and take a picture of each."""

    def take(name: str) -> None:
        page.wait_for_timeout(300)
        page.screenshot(path=IMAGES / f"page-{name}.png")

    shown.say("Why do the tests of the shop fail?")
    page.locator(".message.assistant footer").wait_for()
    take("chat")
    shown.say("Yes, please")
    page.locator(".card").wait_for()
    take("approval")
    page.keyboard.press("o")
    page.locator(".call.allowed summary").click()
    page.locator(".message.assistant footer").nth(1).wait_for()
    take("tool")
    page.locator(".tab", has_text="Receipts").click()
    page.locator(".timeline .row").first.click()
    page.locator(".opened").wait_for()
    take("receipts")
    page.locator(".timeline .row").first.click()
    page.get_by_text("Verify in this browser").click()
    page.locator(".chain .good").wait_for()
    take("verified")
    page.locator(".tab", has_text="Machine").click()
    page.locator(".part").first.wait_for()
    take("machine")
    page.locator(".tab", has_text="Chat").click()
    page.set_viewport_size(NARROW)
    take("narrow")
    page.set_viewport_size(SIZE)
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Emergency stop").click()
    page.locator(".bar.red").wait_for()
    take("stopped")


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        home = Home(Path(name))
        (home.workspace / "shop").mkdir()
        (home.workspace / "shop" / "total.py").write_text(BROKEN)
        home.configure(*REPLIES, tables=gateway())
        home.start()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=OPTIONS)
        shown = Shown(home, browser, viewport=SIZE, locale="en")
        try:
            states(shown, shown.visit())
        finally:
            shown.close()
            browser.close()
            home.close()


if __name__ == "__main__":
    main()
