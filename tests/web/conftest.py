"""A browser, and a daemon with its page for it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.daemon.test_gateway import gateway as gateway_of
from tests.support.home import Home

# Of Debian's Chromium, as root may start it; nothing of its own goes to any network.
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync"]
LIMIT_MS = 60_000
AXE = Path(__file__).resolve().parents[2] / "web/node_modules/axe-core/axe.min.js"
expect.set_options(timeout=LIMIT_MS)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    """A home of this story alone, ended with it."""
    made = Home(tmp_path)
    yield made
    made.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for the stories of one file."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=OPTIONS)
        yield started
        started.close()


class Shown:
    """A page in a browser, and all that went wrong in it."""

    def __init__(self, home: Home, browser: Browser, **options: Any) -> None:
        self.home = home
        self.context = browser.new_context(**options)
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self.page = self.open()

    def open(self) -> Page:
        """Return a new tab."""
        page = self.context.new_page()
        page.set_default_timeout(LIMIT_MS)
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda line: self._note(line.type, line.text))
        page.on("request", lambda request: self.requests.append(request.url))
        return page

    def _note(self, kind: str, text: str) -> None:
        if kind == "error" and "Failed to load resource" not in text:
            self.wrong.append(text)

    @property
    def url(self) -> str:
        """Where the gateway listens."""
        return gateway_of(self.home)

    def elsewhere(self) -> list[str]:
        """Return what was asked for at other addresses."""
        own = self.url
        return [url for url in self.requests if not url.startswith(own)]

    def visit(self, page: Page | None = None) -> Page:
        """Open the gateway's address and wait until the page follows the daemon."""
        shown = page or self.page
        shown.goto(self.url + "/")
        shown.wait_for_selector("#field, .lock")
        expect(shown.locator(".bar:not(.red)")).to_have_count(0)
        return shown

    def say(self, text: str, page: Page | None = None) -> None:
        """Type a message and send it."""
        shown = page or self.page
        shown.fill("#field", text)
        shown.press("#field", "Enter")

    def close(self) -> None:
        """Close all tabs; nothing went wrong in any of them."""
        self.context.close()
        assert not self.wrong, self.wrong


@pytest.fixture
def shown(home: Home, browser: Browser) -> Iterator[Shown]:
    """A tab on a gateway that is configured by the story before it visits."""
    opened = Shown(home, browser)
    yield opened
    opened.close()


def gateway(*lines: str) -> str:
    """Return the table that switches the gateway on."""
    return "\n".join(["[channels.http]", "enabled = true", "port = 0", *lines])


def conversation_of(page: Page) -> str:
    """Return the id of the conversation that is shown."""
    found = re.search(r"#(conv-\w+)", page.url)
    assert found, page.url
    return found[1]


def serious(page: Page) -> list[str]:
    """Return what axe finds serious or critical; its script runs beside the page's policy."""
    source = AXE.read_text(encoding="utf-8")
    session = page.context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": source})
    script = (
        "axe.run().then(found => JSON.stringify(found.violations"
        ".filter(each => ['serious', 'critical'].includes(each.impact))"
        ".map(each => each.id + ': ' + each.nodes.map(node => node.html).join(' | '))))"
    )
    wanted = {"expression": script, "awaitPromise": True, "returnByValue": True}
    told = session.send("Runtime.evaluate", wanted)
    session.detach()
    return list(json.loads(told["result"]["value"]))
