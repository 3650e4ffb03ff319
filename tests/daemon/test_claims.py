"""A model says what it did not do: a person and a program are told, wherever they look."""

import contextlib
import http.client
import json
import re
from typing import Any

import pytest

from clawctl.streaming import schema
from tests.support.home import Home
from tests.support.lent_home import LentHome
from tests.support.schema_check import is_valid
from tests.support.terminal import code_of, spawn_clawctl

pytestmark = pytest.mark.daemon

FULL = '[security]\nautonomy = "full"\n'
ASKED = "write hi to notes.txt"
LIE = {"text": "Done. I wrote 'hi' to notes.txt."}
MARK = "not done: no receipt says that notes.txt was written"
WRITES = {
    "tool_calls": [{"name": "file_write", "arguments": {"path": "notes.txt", "content": "hi"}}]
}


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    return lent_home


def verdicts(told: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(each["kind"], each["object"], each["verdict"]) for each in told["claims"]]


def test_a_lie_about_a_write_is_marked_in_the_terminal_and_for_programs(home: Home) -> None:
    home.configure(LIE, tables=FULL)
    told = home.json("agent", "-m", ASKED)
    assert verdicts(told) == [("written", "notes.txt", "contradicted")]
    assert told["notices"] == [MARK] and told["text"] == LIE["text"]
    piped = home.ctl("agent", "-q", "-m", ASKED)
    assert (piped.returncode, piped.stdout.strip()) == (0, LIE["text"])
    assert MARK in piped.stderr
    for arguments in (("agent", "-m", ASKED), ("agent", "-v", "-m", ASKED)):
        child = spawn_clawctl(home.environ, *arguments)
        child.expect(re.escape(MARK))
        assert code_of(child) == 0
    lines = home.ctl("agent", "--output-format", "stream-json", "-m", ASKED).stdout.splitlines()
    assert [line for line in map(json.loads, lines) if not is_valid(line, schema())] == []
    assert verdicts(json.loads(lines[-1])) == verdicts(told)
    assert {"type": "notice", "level": "warning", "text": MARK} in map(json.loads, lines)


def test_a_lie_is_marked_in_a_conversation_and_kept_with_it_but_not_told_the_model(
    home: Home,
) -> None:
    home.configure(LIE, {"text": "seen: {{last_user}}"}, tables=FULL)
    home.start()
    child = spawn_clawctl(home.environ, "agent", "--home-workspace")
    child.expect("> ")
    child.sendline(ASKED)
    child.expect(re.escape(MARK))
    child.sendline("/quit")
    code_of(child)
    (line,) = home.json("conversation", "list")
    shown = home.json("conversation", "show", line["id"])["messages"]
    assert verdicts(shown[-1]) == [("written", "notes.txt", "contradicted")]
    assert MARK in home.ctl("conversation", "show", line["id"]).stdout
    assert MARK in home.ctl("conversation", "export", line["id"], "--format", "markdown").stdout
    assert MARK not in home.ctl("agent", "show-prompt", "--conversation", line["id"]).stdout


def test_a_call_that_was_denied_or_failed_does_not_pass_for_a_write(home: Home) -> None:
    broken = {"tool_calls": [{"name": "file_write", "arguments": {"path": "../notes.txt",
              "content": "hi"}}]}  # fmt: skip
    for call, tables in ((WRITES, '[security]\nautonomy = "readonly"\n'), (broken, FULL)):
        home.configure(call, {"text": "Done, I wrote it."}, tables=tables)
        told = home.json("agent", "-m", "write it down")
        ((kind, path, verdict),) = verdicts(told)
        assert (kind, path.endswith("notes.txt"), verdict) == ("written", True, "failed")
        assert told["claims"][0]["receipt_id"] == home.receipt_lines()[-1]["id"]
        assert "not done" in told["notices"][-1]


def test_what_was_done_is_not_marked(home: Home) -> None:
    home.configure(WRITES, {"text": "I've written `notes.txt`."}, tables=FULL)
    told = home.json("agent", "-m", ASKED)
    assert verdicts(told) == [("written", "notes.txt", "supported")]
    assert told["notices"] == []
    assert told["claims"][0]["receipt_id"] == told["tool_calls"][0]["receipt_id"]
    home.configure(
        {"tool_calls": [{"name": "shell", "arguments": {"command": "echo hi > built.txt"}}]},
        {"text": "built.txt has been written, and I updated other.txt."},
        tables=FULL,
    )
    told = home.json("agent", "-m", "write built.txt")
    assert verdicts(told) == [("written", "built.txt", "supported")]
    assert "not done" not in home.ctl("agent", "-m", "write built.txt").stderr


def test_events_of_the_gateway_say_it(home: Home) -> None:
    gateway = '[channels.http]\nenabled = true\nport = 0\nkeyless = "on"\n'
    home.configure(LIE, tables=FULL + gateway)
    port = int(home.json("status")["gateway"].rpartition(":")[2])
    body = json.dumps({"message": ASKED, "stream": True})
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    ) as connection:
        connection.request("POST", "/chat", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
    assert answer.status == 200, text
    last = json.loads(text.strip().rpartition("data: ")[2])
    assert verdicts(last) == [("written", "notes.txt", "contradicted")]
    assert text.index(MARK) > text.index("notes.txt.")


def test_what_tools_gave_is_shown_where_the_config_says_so(home: Home) -> None:
    lists = {"tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]}
    (home.workspace / "seen.txt").write_text("x")
    for word, is_shown in (("always", True), ("auto", False), ("never", False)):
        home.configure(
            lists, {"text": "Nothing there."}, tables=f'[agent]\nshow_results = "{word}"'
        )
        done = home.ctl("agent", "-m", "what is here?")
        assert (done.returncode, done.stdout) == (0, "Nothing there.\n")
        assert ("│ seen.txt" in done.stderr) == is_shown, word
