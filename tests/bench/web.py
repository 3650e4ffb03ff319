"""`make bench-web`: the page with very long conversations and lists, in Chromium.

    python -m tests.bench.web [--json FILE] [--quick] [--only ROWS] [--rounds N]

docs/benchmarks.md says how each row is taken.
"""

import argparse
import json
import re
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
from playwright.sync_api import Browser, Page, sync_playwright

from clawd.providers.base import Message
from tests.bench.machine import describe
from tests.bench.ours import start
from tests.bench.report import Row, some_of, to_json
from tests.bench.streams import BenchError
from tests.daemon.test_gateway import gateway as gateway_of
from tests.support.home import Home
from tests.support.long_memory import fill, said
from tests.web.conftest import OPTIONS, gateway

AIMS = {
    "first_load": (400.0, "kB"),
    "first_paint": (1_000.0, "ms"),
    "scroll_messages": (50.0, "ms"),
    "scroll_messages_cpu": (50.0, "ms"),
    "scroll_list": (50.0, "ms"),
    "scroll_list_cpu": (50.0, "ms"),
    "stream": (30.0, "%"),
    "stream_cpu": (30.0, "%"),
}
TOKENS_PER_S = 200
PARAGRAPH = (
    "The function reads the **whole** file, `parse()` splits it into rows, and each row is held "
    "against the schema; what does not fit is reported with its line, and nothing is dropped "
    "silently. See [the notes](https://example.org/notes) for why $O(n \\log n)$ is enough.\n\n"
)
CODE = (
    "```python\n"
    + "".join(
        f"def step_{number}(rows: list[str]) -> int:\n    return len(rows) + {number}\n\n"
        for number in range(12)
    )
    + "```\n\n"
)
TABLE = (
    "| name | before | now |\n|---|--:|--:|\n"
    + "".join(f"| row {number} | {number * 7} | {number * 3} |\n" for number in range(8))
    + "\n"
)
ANSWER = "## What was done\n\n" + PARAGRAPH + CODE + "- one\n- two\n- three\n\n" + TABLE + PARAGRAPH


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is, and how often a first visit is measured."""

    messages: int = 10_000
    conversations: int = 5_000
    tokens: int = 3_000
    rounds: int = 7


QUICK = Scale(messages=200, conversations=100, tokens=200, rounds=1)


def main() -> int:
    """Measure, print, keep."""
    options = _arguments()
    scale = QUICK if options.quick else Scale()
    if options.rounds:
        scale = msgspec.structs.replace(scale, rounds=options.rounds)
    # An end by signal must pass the blocks that end the daemon and the browser.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    print(describe(), flush=True)
    if options.quick:
        print("quick: too little to mean anything")
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(prefix="clawd-bench-") as folder:
            for row in _measure(Path(folder), scale, options.only):
                rows.append(row)
                print(_told(row), flush=True)
    except BenchError as error:
        print(f"no result: {error}", file=sys.stderr)
        return 1
    if options.json is not None:
        options.json.write_bytes(to_json(rows))
    return 0


def _measure(folder: Path, scale: Scale, wanted: Sequence[str]) -> Iterator[Row]:
    _say(f"a memory of {scale.conversations:,} conversations, {scale.messages:,} messages in one")
    home = Home(folder)
    with _paced_model(scale.tokens) as address:
        home.configure(provider="paced", tables=gateway() + _provider(address))
        asked = fill(home, 1, said(100))
        long = fill(home, scale.conversations, messages_of(scale.messages))
        start(home)
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path="/usr/bin/chromium", args=OPTIONS
                )
                _say(f"Chromium {browser.version}")
                yield from _rows(browser, home, scale, wanted, (long, asked))
                browser.close()
        finally:
            home.close()


def _rows(
    browser: Browser, home: Home, scale: Scale, wanted: Sequence[str], ids: tuple[str, str]
) -> Iterator[Row]:
    url, (long, asked) = gateway_of(home), ids
    if {"first_load", "first_paint"} & set(wanted):
        visits = [first_visit(browser, f"{url}/#{long}") for _ in range(scale.rounds)]
        sizes, times = zip(*visits, strict=True)
        found = (_row("first_load", sizes), _row("first_paint", times))
        yield from (row for row in found if row.name in wanted)
    for name, act in (("scroll_messages", _scroll_messages), ("scroll_list", _scroll_list)):
        if {name, f"{name}_cpu"} & set(wanted):
            with _opened(browser, f"{url}/#{long}") as page:
                page.wait_for_selector(".message")
                tasks = traced(page, act)
            _say(f"{len(tasks):,} tasks, {sum(took > 50 for took, _ in tasks)} over 50 ms")
            took, spent = (max(each) for each in zip(*tasks, strict=True))
            found = (_row(name, [took]), _row(f"{name}_cpu", [spent]))
            yield from (row for row in found if row.name in wanted)
    if {"stream", "stream_cpu"} & set(wanted):
        with _opened(browser, f"{url}/#{asked}") as page:
            page.wait_for_selector(".message")
            shares = busy_shares(page)
        found = (_row("stream", [shares[0]]), _row("stream_cpu", [shares[1]]))
        yield from (row for row in found if row.name in wanted)


def messages_of(count: int) -> list[Message]:
    """Return questions and answers in turn, of some hundred characters each, with Markdown."""
    kinds = (PARAGRAPH, PARAGRAPH + TABLE, PARAGRAPH * 2 + CODE, "- one\n- two\n\n" + PARAGRAPH)
    return [
        Message(role="user", content=f"Question {number}: what does it read, and why?")
        if number % 2 == 0
        else Message(role="assistant", content=f"Answer {number}. {kinds[number // 2 % 4]}")
        for number in range(count)
    ]


# The first frame after the newest message is in the document.
_WATCH = """
const look = () => document.querySelector('.message')
    ? requestAnimationFrame(() => { window.paintedAt = performance.now(); })
    : requestAnimationFrame(look);
look();
"""


def first_visit(browser: Browser, url: str) -> tuple[float, float]:
    """Return the kB of a first visit's files as sent, and the ms to its newest messages."""
    with _opened(browser, "about:blank") as page:
        session = page.context.new_cdp_session(page)
        session.send("Network.enable")
        asked: dict[str, str] = {}
        sizes: list[float] = []

        def note(event: dict[str, Any]) -> None:
            if "/methods/" not in asked.get(event["requestId"], "/methods/"):
                sizes.append(event["encodedDataLength"])

        session.on(
            "Network.requestWillBeSent",
            lambda event: asked.update({event["requestId"]: event["request"]["url"]}),
        )
        session.on("Network.loadingFinished", note)
        page.add_init_script(_WATCH)
        page.goto(url)
        page.wait_for_function("() => window.paintedAt")
        return sum(sizes) / 1000, float(page.evaluate("window.paintedAt"))


def traced(page: Page, act: Callable[[Page], None]) -> list[tuple[float, float]]:
    """Return the ms of each task of the page's main thread while that is done; see `tasks_of`."""
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=["disabled-by-default-devtools.timeline"])
    act(page)
    tasks = tasks_of(json.loads(browser.stop_tracing())["traceEvents"])
    if not tasks:
        raise BenchError("the trace has no task of the page")
    return tasks


def tasks_of(events: Sequence[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return how long each task of the main threads took, and its processor time, in ms.

    A main thread is one that lays pages out.
    """
    mains = {(each["pid"], each["tid"]) for each in events if each["name"] == "UpdateLayoutTree"}
    return [
        (each["dur"] / 1000, each.get("tdur", each["dur"]) / 1000)
        for each in events
        if each["name"] == "RunTask" and (each["pid"], each["tid"]) in mains and "dur" in each
    ]


_STEP = """([place, by]) => new Promise(done => {
  const list = document.querySelector(place);
  list.scrollTop += by;
  requestAnimationFrame(() => setTimeout(() => {
    const rows = list.querySelectorAll('.message, .line').length;
    const left = by < 0 ? list.scrollTop : list.scrollHeight - list.scrollTop - list.clientHeight;
    const isMore = [...list.querySelectorAll('button.quiet')].some(
        each => each.textContent === 'Older messages');
    done([rows, left < 2 && !isMore]);
  }));
})"""


def _scroll_messages(page: Page) -> None:
    """Scroll from the newest message to the oldest, a screen and a half at a time."""
    most, steps, is_done = 0, 0, False
    while not is_done:
        rows, is_done = page.evaluate(_STEP, [".messages", -1_000])
        most, steps = max(most, rows), steps + 1
    oldest = page.locator(".message").first.text_content() or ""
    if not oldest.startswith("Question 0:"):
        raise BenchError(f"the oldest message was not reached: {oldest[:40]!r}")
    _say(f"messages: {steps:,} steps, at most {most} rows in the document")


def _scroll_list(page: Page) -> None:
    """Scroll to the oldest conversation and back."""
    place, most, steps = "nav .list", 0, 0
    while "conversation 0." not in (page.locator("nav .line").last.text_content() or ""):
        rows, _ = page.evaluate(_STEP, [place, 1_000])
        most, steps = max(most, rows), steps + 1
    is_done = False
    while not is_done:
        rows, is_done = page.evaluate(_STEP, [place, -1_000])
        most, steps = max(most, rows), steps + 1
    _say(f"conversations: {steps:,} steps, at most {most} rows in the document")


def busy_shares(page: Page) -> tuple[float, float]:
    """Return how busy the main thread is while an answer streams: in tasks, and of a processor.

    Both in percent of the time from the first token to the last.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def now() -> dict[str, float]:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return {each["name"]: each["value"] for each in metrics}

    page.fill("#field", "Tell me")
    page.press("#field", "Enter")
    page.wait_for_selector(".caret")
    first = now()
    page.wait_for_selector(".caret", state="detached", timeout=120_000)
    last = now()
    took = last["Timestamp"] - first["Timestamp"]
    names = ("ScriptDuration", "LayoutDuration", "TaskDuration", "ThreadTime")
    scripts, layout, tasks, processor = (100 * (last[name] - first[name]) / took for name in names)
    _say(f"stream: {took:.1f} s, of it scripts {scripts:.1f} %, layout {layout:.1f} %")
    return tasks, processor


class _Paced(BaseHTTPRequestHandler):
    """Answers a chat with tokens of four characters at a steady rate."""

    tokens = 0
    protocol_version = "HTTP/1.0"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        text = ANSWER * (1 + 4 * self.tokens // len(ANSWER))
        began = time.monotonic()
        for number, piece in enumerate(re.findall(r"(?s).{1,4}", text)[: self.tokens]):
            time.sleep(max(0.0, began + number / TOKENS_PER_S - time.monotonic()))
            self._send({"choices": [{"index": 0, "delta": {"content": piece}}]})
        self._send({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def _paced_model(tokens: int) -> Iterator[str]:
    """Serve a model that streams `TOKENS_PER_S`; gives its address."""
    handler = type("Paced", (_Paced,), {"tokens": tokens})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()


def _provider(address: str) -> str:
    return f"""
[providers.models.paced]
kind = "openai-compatible"
base_url = "{address}"
model = "paced"
"""


@contextmanager
def _opened(browser: Browser, url: str) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en")
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(url)
    yield page
    context.close()


def _row(name: str, values: Sequence[float]) -> Row:
    aim, unit = AIMS[name]
    ratios = [value / aim for value in values]
    spread = (min(ratios), max(ratios))
    middle = statistics.median(values)
    return Row(name=name, ours=middle, peer=aim, ratio=middle / aim, spread=spread, unit=unit)


def _told(row: Row) -> str:
    reached = "reached" if row.ratio <= 1 else "NOT reached"
    low, high = (row.peer * end for end in row.spread)
    spread = f" ({low:,.0f} to {high:,.0f})" if high > low else ""
    return f"{row.name}: {row.ours:,.1f} {row.unit}{spread}, aim ≤ {row.peer:,.0f}: {reached}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.web", description="Measure the page.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows there")
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    rows = tuple(AIMS)
    parser.add_argument(
        "--only", type=some_of(rows), default=rows, metavar="ROWS", help=f"of {', '.join(rows)}"
    )
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="visits; 7 by default")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
