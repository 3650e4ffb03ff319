"""What a person does with the machine on the page: models, MCP servers, knowledge, memory."""

import hashlib
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, expect

from tests.support.home import Home
from tests.support.model_server import Faults, hub_document, model_bytes, model_server
from tests.web.conftest import Shown, gateway, serious

pytestmark = [pytest.mark.daemon, pytest.mark.page]

DATA = model_bytes(300_000)
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=2</script>'
SERVER = f"""
import json, sys
TOOL = {{"name": "look", "description": {HOSTILE!r}, "inputSchema": {{"type": "object"}}}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    told = {{"tools": [TOOL]}}
    if asked["method"] == "initialize":
        about = {{"name": "by-hand", "version": "1"}}
        revision = asked["params"]["protocolVersion"]
        told = {{"protocolVersion": revision, "capabilities": {{"tools": {{}}}}}}
        told["serverInfo"] = about
    print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": told}}), flush=True)
"""


def accept(dialog: Dialog) -> None:
    dialog.accept()


def test_a_model_is_pulled_with_its_progress_looked_at_and_removed(
    home: Home, shown: Shown
) -> None:
    with model_server() as server:
        server.files["/org/repo/resolve/c0ffee/fine.gguf"] = DATA
        told = hub_document({"fine.gguf": DATA})
        server.documents["/api/models/org/repo/revision/main?blobs=true"] = told
        server.faults = Faults(refusals=1_000)  # it is asked again and again
        home.environ["HF_ENDPOINT"] = server.url
        home.configure(tables=gateway())
        home.start()
        page = shown.visit()
        page.on("dialog", accept)
        page.locator(".tab", has_text="Machine").click()
        page.get_by_label("Bring a model here").fill("hf.co/org/repo")
        page.get_by_role("button", name="Pull", exact=True).click()
        expect(page.locator(".pulling")).to_contain_text("hf.co/org/repo")
        expect(page.get_by_role("progressbar")).to_have_count(1)
        page.locator(".pulling").get_by_text("Cancel").click()
        expect(page.locator(".pulling")).to_have_count(0)
        expect(page.locator(".bar.red")).to_have_count(0)
        server.faults = Faults()
        mine = page.locator("[data-model=fine]")
        while not mine.count():  # until the one that was cancelled has left
            page.get_by_role("button", name="Pull", exact=True).click()
            expect(page.locator(".pulling")).to_have_count(0)
            mine.or_(page.locator(".bar.red", has_text="already")).first.wait_for()
        folder = Path(home.json("model", "list")["folder"])
        found = hashlib.sha256((folder / "fine.gguf").read_bytes())
        assert found.hexdigest() == hashlib.sha256(DATA).hexdigest()
        page.get_by_role("button", name="Delete fine").click()
        expect(mine).to_have_count(0)
        assert not (folder / "fine.gguf").exists()


def test_what_a_model_can_do_and_what_would_fit_is_displayed(home: Home, shown: Shown) -> None:
    home.configure(tables=gateway())
    home.start()
    page = shown.visit()
    page.locator(".tab", has_text="Machine").click()
    toy = page.locator("[data-model=embedded]")
    toy.get_by_role("button", name="Details").click()
    expect(toy.locator(".tag").first).to_have_text("Text")
    expect(toy.locator(".facts")).to_contain_text("file")
    toy.get_by_role("button", name="Load embedded").click()
    expect(toy).to_contain_text("loaded · ctx")
    memory = page.locator(".chart", has_text="Models in memory")
    expect(memory.locator("figcaption")).not_to_contain_text(" 0 B")
    expect(memory.locator("svg")).to_have_attribute(
        "aria-label", re.compile("Models in memory: .*B")
    )
    page.get_by_role("button", name="What fits this machine?").click()
    page.get_by_role("button", name="Pull assistant").wait_for()
    assert not serious(page)


def test_the_model_that_answers_is_chosen(home: Home, shown: Shown) -> None:
    home.configure(tables=gateway())
    (home.path / "models").mkdir(exist_ok=True)
    (home.path / "models" / "Other one.gguf").write_bytes(DATA)
    home.start()
    page = shown.visit()
    page.locator(".tab", has_text="Machine").click()
    toy = page.locator("[data-model=embedded]")
    expect(toy.locator(".tag.good")).to_have_count(0)  # the provider of the tests answers
    toy.get_by_role("button", name="Let it answer embedded").click()
    expect(toy.locator(".tag.good")).to_have_text("answers")
    assert home.json("model", "list")["default"] == "embedded"
    page.get_by_role("button", name="Let it answer Other one").click()
    expect(page.locator("[data-model='Other one'] .tag.good")).to_have_text("answers")
    expect(toy.locator(".tag.good")).to_have_count(0)
    assert 'default_model = "Other one"' in home.config.read_text()
    assert not serious(page)


def test_a_server_is_added_tested_looked_at_switched_off_and_removed(
    home: Home, shown: Shown
) -> None:
    (home.workspace / "server.py").write_text(SERVER)
    home.configure(tables=gateway())
    home.start()
    page = shown.visit()
    page.on("dialog", accept)
    page.locator(".tab", has_text="Machine").click()
    page.get_by_text("Add a server").click()
    page.locator("[name=alias]").fill("eyes")
    page.locator("[name=where]").fill(f'/usr/bin/python3 "{home.workspace}/server.py"')
    page.get_by_role("button", name="Add", exact=True).click()
    row = page.locator("[data-server=eyes]")
    expect(row).to_contain_text("ready · 1 Tools")
    assert home.json("mcp", "list")["items"][0]["alias"] == "eyes"
    row.get_by_role("button", name="Tools eyes").click()
    row.get_by_role("button", name="look").click()
    expect(row.locator("pre").first).to_have_text(HOSTILE)
    expect(page).to_have_title("clawd")
    assert page.locator(".part img, .part script").count() == 0
    assert not serious(page)
    row.get_by_role("button", name="Switch off eyes").click()
    row.get_by_role("button", name="Switch on eyes").wait_for()
    assert "enabled = false" in home.config.read_text()
    row.get_by_role("button", name="Switch on eyes").click()
    row.get_by_role("button", name="Test eyes").click()
    expect(row).to_contain_text("ready")
    row.get_by_role("button", name="Delete eyes").click()
    expect(row).to_have_count(0)
    assert "eyes" not in home.config.read_text()
    assert not home.json("mcp", "list")["items"]


def test_a_note_is_written_changed_after_a_yes_and_deleted(home: Home, shown: Shown) -> None:
    home.configure(tables=gateway())
    home.start()
    page = shown.visit()
    page.on("dialog", accept)
    page.locator(".tab", has_text="Machine").click()
    part = page.locator(".part", has=page.get_by_role("heading", name="Knowledge"))
    part.get_by_text("New note").click()
    part.get_by_label("Keywords").fill("backup server")
    part.get_by_label("Text").fill("It is **beside** the printer.")
    part.get_by_role("button", name="Save").click()
    part.get_by_role("button", name="backup server").click()
    expect(part.locator("strong")).to_have_text("beside")
    part.get_by_role("button", name="Edit").click()
    part.get_by_label("Text").fill("It is **gone**.")
    part.get_by_role("button", name="Save").click()
    expect(part.locator("strong")).to_have_text("gone")
    told = json.loads(home.ctl("knowledge", "load", "backup server", "--json").stdout)
    assert told["entries"][0]["text"].strip() == "It is **gone**."
    assert not serious(page)
    part.get_by_role("button", name="Delete").click()
    expect(part.get_by_role("button", name="backup server")).to_have_count(0)


def test_memory_is_checked(home: Home, shown: Shown) -> None:
    home.configure({"text": "Hello."}, tables=gateway())
    home.start()
    page = shown.visit()
    shown.say("hi")
    expect(page.locator(".message.assistant")).to_contain_text("Hello.")
    page.locator(".tab", has_text="Machine").click()
    part = page.locator(".part", has=page.get_by_role("heading", name="Memory"))
    expect(part).to_contain_text("1 conversations")
    part.get_by_role("button", name="Check").click()
    expect(part.get_by_role("status")).to_contain_text("Memory is good")
