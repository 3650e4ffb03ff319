"""The verifier of the page and that of `clawctl receipt verify` agree on damaged chains."""

import base64
import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Browser, Page

from clawd.receipts import logfiles
from clawd.receipts.record import Receipt
from clawd.receipts.verify import verify
from tests.clients.places import node
from tests.daemon.test_gateway import gateway as gateway_of
from tests.receipts.samples import FIRST_KEY, forged, line, signed_chain
from tests.support.home import Home
from tests.web.conftest import gateway

pytestmark = [pytest.mark.daemon, pytest.mark.page]

WEB = Path(__file__).resolve().parents[2] / "web"
COUNT, SIGNED_AT = 24, (8, 9, 16)
ENTRIES = signed_chain(COUNT, SIGNED_AT)
LINES = [line(entry) for entry in ENTRIES]
OTHERS = [line(entry) for entry in signed_chain(COUNT, SIGNED_AT, word="other", first_key=40)]
DAMAGED = 500


@pytest.fixture(scope="module")
def verifier(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> Iterator[Callable[..., Any]]:
    """The page's verifier alone, in a document of the gateway: only there is WebCrypto."""
    folder = tmp_path_factory.mktemp("verifier")
    packed = folder / "verify.js"
    command = [str(WEB / "node_modules/.bin/rolldown"), str(WEB / "src/verify.ts")]
    command += ["--file", str(packed), "--format", "iife", "--name", "verifier"]
    path = f"{node_folder()}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path}
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environ)
    home = Home(folder)
    home.configure(tables=gateway())
    home.start()
    page: Page = browser.new_page()
    page.goto(f"{gateway_of(home)}/health")
    page.evaluate(packed.read_text(encoding="utf-8") + ";globalThis.verifier = verifier;0")

    def judged(log: bytes, known: dict[str, Any]) -> Any:
        asked = {"log": base64.b64encode(log).decode(), "known": known}
        return page.evaluate(
            "({log, known}) => verifier.verify(verifier.linesOf("
            "Uint8Array.from(atob(log), letter => letter.charCodeAt(0))), known)",
            asked,
        )

    try:
        yield judged
    finally:
        page.close()
        home.close()


def node_folder() -> Path:
    """Return where the Node.js is that the set-up fetched; the machine's own may be older."""
    return Path(node()).parent


def flip(drawn: random.Random) -> list[bytes]:
    lines = list(LINES)
    at = drawn.randrange(len(lines))
    text = bytearray(lines[at])
    text[drawn.randrange(len(text))] ^= 1 << drawn.randrange(8)
    lines[at] = bytes(text)
    return lines


def drop(drawn: random.Random) -> list[bytes]:
    lines = list(LINES)
    del lines[drawn.randrange(len(lines))]
    return lines


def copy(drawn: random.Random) -> list[bytes]:
    lines = list(LINES)
    lines.insert(drawn.randrange(len(lines)), drawn.choice(LINES))
    return lines


def swap(drawn: random.Random) -> list[bytes]:
    lines = list(LINES)
    first, second = drawn.sample(range(len(lines)), 2)
    lines[first], lines[second] = lines[second], lines[first]
    return lines


def put_in(drawn: random.Random) -> list[bytes]:
    lines = list(LINES)
    rubbish = [b"\n", b"{}\n", b"null\n", b"\xff\xfe\n", b'{"type":"note"}\n', b"[" * 900 + b"\n"]
    lines.insert(drawn.randrange(len(lines)), drawn.choice([*rubbish, drawn.choice(OTHERS)]))
    return lines


def cut(drawn: random.Random) -> list[bytes]:
    whole = b"".join(LINES)
    return [whole[: drawn.randrange(len(whole))]]


def forge(drawn: random.Random) -> list[bytes]:
    """Write one receipt anew, with a hash that fits it, and maybe all that follow."""
    lines = list(LINES)
    at = drawn.choice([at for at, entry in enumerate(ENTRIES) if isinstance(entry, Receipt)])
    entry = ENTRIES[at]
    assert isinstance(entry, Receipt)
    fields: dict[str, Any] = drawn.choice(
        [{"reason": "other"}, {"tool": "shell"}, {"seq": entry.seq + 1}]
    )
    lines[at] = line(forged(entry, **fields))
    return lines


def respell(drawn: random.Random) -> list[bytes]:
    """Write one line with the same values in another form."""
    lines = list(LINES)
    at = drawn.randrange(len(lines))
    values = json.loads(lines[at])
    forms = [json.dumps(values).encode(), msgspec.json.encode(dict(reversed(values.items())))]
    lines[at] = drawn.choice(forms) + b"\n"
    return lines


DAMAGES = (flip, drop, copy, swap, put_in, cut, forge, respell)
HEAD = (
    max(entry.seq for entry in ENTRIES),
    next(entry.receipt_hash for entry in reversed(ENTRIES) if isinstance(entry, Receipt)),
)


@pytest.mark.timeout(600)
def test_they_agree_on_damaged_chains(
    verifier: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logfiles, "_TAIL_WAIT_S", 0.0)
    drawn, log, wrong, broken = random.Random(7), tmp_path / "log", [], 0
    for number in range(DAMAGED):
        damage = DAMAGES[number % len(DAMAGES)]
        data = b"".join(damage(drawn))
        log.write_bytes(data)
        head, key = drawn.choice([(None, None), (HEAD, None), (None, FIRST_KEY), (HEAD, FIRST_KEY)])
        ours = verify(log, anchor=head, public_key=key)
        known: dict[str, Any] = {"head": list(head)} if head else {}
        known |= {"key": key} if key else {}
        found = verifier(data, known)
        theirs = found["ok"], found["receipts"], found["signed"], found["firstBad"]
        broken += not ours.ok
        if theirs != (ours.ok, ours.receipts, ours.signed, ours.first_bad):
            wrong.append((number, damage.__name__, theirs, ours.message))
    assert not wrong, wrong
    assert broken > DAMAGED * 0.9


def test_they_agree_on_the_chain_that_nobody_touched(
    verifier: Callable[..., Any], tmp_path: Path
) -> None:
    data = b"".join(LINES)
    (tmp_path / "log").write_bytes(data)
    ours = verify(tmp_path / "log")
    found = verifier(data, {"head": list(HEAD), "key": FIRST_KEY})
    assert (found["ok"], found["receipts"], found["signed"]) == (True, COUNT, ours.signed)
    assert (found["head"], found["firstKey"]) == (HEAD[1], FIRST_KEY)
    assert not verifier(data, {"key": "0" * 64})["ok"]
