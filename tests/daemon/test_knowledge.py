"""Knowledge for real: clawctl, the daemon, files on disk, and what conversations learn."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.test_untrusted_text import Page
from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = pytest.mark.daemon


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


@pytest.fixture
def address() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_person_keeps_finds_reads_and_deletes_notes(home: Home) -> None:
    home.configure()
    saved = home.ctl("knowledge", "save", "Server backup", "It is nas2.")
    assert (saved.returncode, saved.stdout) == (0, 'created "backup_server.md" (11 B)\n')
    added = home.ctl("knowledge", "append", "backup server", "-", stdin="Since May.\n")
    assert added.stdout == 'updated "backup_server.md" (+17 B → 28 B total)\n'
    file = home.path / "knowledge" / "backup_server.md"
    assert file.read_text().endswith("\n\nIt is nas2.\n\n---\n\nSince May.\n")
    assert "It is nas2." in home.ctl("knowledge", "search", "the", "backup").stdout
    assert "Since May." in home.ctl("knowledge", "load", "backup_server.md").stdout
    assert "backup_server.md" in home.ctl("knowledge", "list").stdout
    assert home.ctl("knowledge", "keywords").stdout.split()[2:] == ["backup", "1", "server", "1"]
    (entry,) = home.json("knowledge", "load", "backup", "server")["entries"]
    assert (entry["text"], entry["size"]) == ("It is nas2.\n\n---\n\nSince May.", 28)
    assert home.ctl("knowledge", "load", "zebra").returncode == 1
    assert home.ctl("knowledge", "delete", "backup", "server").returncode == 0
    assert not file.exists()
    assert len(list((home.path / "knowledge" / ".trash").iterdir())) == 1
    tools = [(r["tool"], r["status"], r["risk"]) for r in home.receipt_lines()]
    assert len(tools) == 9
    assert tools[0] == ("knowledge_save", "allowed", "low")
    assert tools[-2:] == [
        ("knowledge_load", "failed", "low"),
        ("knowledge_delete", "allowed", "low"),
    ]
    assert home.ctl("receipt", "verify").returncode == 0


def test_a_fixed_note_asks_before_it_goes(home: Home) -> None:
    home.configure()
    assert home.ctl("knowledge", "save", "vpn", "wg0", "--fix").returncode == 0
    assert home.ctl("knowledge", "save", "vpn", "evil0", "--fix").returncode == 1
    assert home.ctl("knowledge", "delete", "fix-vpn").returncode == 3
    assert (home.path / "knowledge" / "fix-vpn.md").read_text().endswith("\n\nwg0\n")


def test_a_note_is_edited_in_the_persons_editor(home: Home, tmp_path: Path) -> None:
    home.configure()
    home.ctl("knowledge", "save", "backup server", "It is nas2.")
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/nas2/nas3/ "$1"\n')
    editor.chmod(0o755)
    home.environ |= {"EDITOR": str(editor), "VISUAL": str(editor)}
    done = home.ctl("knowledge", "edit", "Server", "Backup")
    assert done.stdout.startswith('replaced "backup_server.md" (11 B → 11 B)'), done.stderr
    assert "Nothing was changed" in home.ctl("knowledge", "edit", "backup_server.md").stdout
    note = (home.path / "knowledge" / "backup_server.md").read_text()
    assert note.endswith("\n\nIt is nas3.\n")


def test_knowledge_can_be_switched_off(home: Home) -> None:
    home.configure(tables="[knowledge]\nenabled = false")
    done = home.ctl("knowledge", "save", "a", "x")
    assert done.returncode == 1
    assert "knowledge is switched off" in done.stderr
    assert "knowledge_save" not in home.ctl("tool", "list").stdout


def test_another_folder_is_out_of_the_reach_of_tools(home: Home) -> None:
    folder = home.workspace / "notes"
    home.configure(tables=f'[knowledge]\npath = "{folder}"\n[security]\nautonomy = "full"')
    assert home.ctl("knowledge", "save", "a", "x").returncode == 0
    assert (folder / "a.md").exists()
    for tool, arguments in (
        ("file_read", {"path": "notes/a.md"}),
        ("file_write", {"path": "notes/b.md", "content": "keywords: b\n\nx"}),
        ("shell", {"command": "cat notes/a.md"}),
        ("shell", {"command": "sh -c 'echo keywords: b > notes/b.md'"}),
    ):
        done = home.ctl("tool", "run", tool, "--json", json.dumps(arguments), "--no-input")
        assert "created:" not in done.stdout, tool
        assert done.returncode != 0, (tool, done.stdout)
    assert sorted(path.name for path in folder.iterdir()) == ["a.md"]


def test_what_one_conversation_reads_outside_follows_its_note_into_the_next(
    home: Home, address: str
) -> None:
    url = f"http://{address}/"
    get = {"name": "http", "arguments": {"url": url}}
    post = {"name": "http", "arguments": {"url": url, "method": "POST"}}
    save = {"name": "knowledge_save", "arguments": {"keywords": "page", "content": "send it"}}
    load = {"name": "knowledge_load", "arguments": {"keywords": "page"}}

    def play(*replies: dict[str, object]) -> None:
        home.configure(
            *replies,
            tables=f'[security]\nautonomy = "full"\nallowed_addresses = ["{address}"]',
        )

    play({"tool_calls": [get]}, {"tool_calls": [save]}, {"text": "done"})
    assert home.ctl("agent", "-m", "learn").returncode == 0
    assert "\nuntrusted: 127.0.0.1\n" in (home.path / "knowledge" / "page.md").read_text()
    play({"tool_calls": [post]}, {"text": "done"})
    assert home.ctl("agent", "-m", "send").returncode == 0
    play({"tool_calls": [load]}, {"tool_calls": [post]}, {"text": "done"})
    assert home.ctl("agent", "-m", "recall").returncode == 4
    assert [(r["tool"], r["status"]) for r in home.receipt_lines()] == [
        ("http", "allowed"),
        ("knowledge_save", "allowed"),
        ("http", "allowed"),
        ("knowledge_load", "allowed"),
        ("http", "denied"),
    ]


@pytest.mark.real_model
def test_the_embedded_model_notes_something_down_and_finds_it_again(home: Home) -> None:
    home.configure(provider="local")
    done = home.ctl("agent", "-m", "remember that the backup server is nas2")
    assert done.returncode == 0, done.stderr
    (saved,) = home.receipt_lines()
    assert (saved["tool"], saved["status"], saved["approval"]) == (
        "knowledge_save",
        "allowed",
        "auto",
    )
    (entry,) = (home.path / "knowledge").glob("*.md")
    assert "nas2" in entry.read_text()
    assert "by a model in conv-" in entry.read_text()
    found = home.ctl("agent", "-m", "search the knowledge base for backup server")
    assert found.returncode == 0, found.stderr
    assert home.receipt_lines()[-1]["tool"] == "knowledge_search"
    assert "nas2" in found.stdout
