"""The tool `sop`: a model runs a procedure within its turn, and never with more than the turn."""

import shutil
from typing import Any

import pytest

from tests.daemon.test_schedules import ended
from tests.daemon.test_sops import FULL, run, states
from tests.sop.procedures import procedure, shell
from tests.support.home import Home
from tests.support.lent_home import LentHome

pytestmark = pytest.mark.daemon

OUT = "http://127.0.0.1:9/?all=1"
ASK = '[[steps]]\nid = "ask"\nkind = "agent"\nprompt = "Say something."\n'


@pytest.fixture
def home(lent_home: LentHome) -> Home:
    shutil.rmtree(lent_home.path / "sops", ignore_errors=True)
    return lent_home


def called(**arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": "sop", "arguments": arguments}]}


def turn(home: Home, *words: str) -> Any:
    return home.ctl("agent", "-m", "go", "--json", *words)


def runs(home: Home) -> list[Any]:
    found = run(home, "history")["items"]
    here = [each["id"] for each in found if each["workspace"] == str(home.workspace)]
    return [run(home, "status", each) for each in here]


def test_a_model_finds_runs_and_looks_at_a_procedure(home: Home) -> None:
    procedure(home.path / "sops", "check", shell("one", "echo hello > made.txt; cat made.txt"))
    procedure(home.workspace / "sops", "other", shell("one", "echo never"))
    home.configure(
        called(action="list"),
        called(action="show", name="check"),
        called(action="run", name="check"),
        called(action="run", name="other"),
        {"text": "done"},
        tables=FULL,
    )
    assert turn(home).returncode == 0
    listed, shown, ran, refused = [r for r in home.receipt_lines() if r["tool"] == "sop"]
    assert [each["status"] for each in (listed, shown, ran)] == ["allowed"] * 3
    assert refused["status"] == "failed"
    assert "not enabled" in refused["reason"]
    (report,) = runs(home)
    assert (report["run"]["status"], report["output"]) == ("succeeded", "hello")
    # The receipts of the run are its own, and the run names the call that started it.
    assert report["run"]["origin"] == f"call {ran['id']}"
    assert report["run"]["conversation_id"] != ran["conversation_id"]
    (step,) = [r for r in home.receipt_lines() if r["tool"] == "shell"]
    assert step["conversation_id"] == report["run"]["conversation_id"]


def test_it_is_offered_only_where_there_is_a_procedure(home: Home) -> None:
    home.configure({"text": "done"})
    before = home.ctl("agent", "show-prompt", "--json").stdout
    procedure(home.path / "sops", "check", shell("one", "true"))
    after = home.ctl("agent", "show-prompt", "--json").stdout
    assert [text.count(" sop,") for text in (before, after)] == [
        0,
        2,
    ]  # in the prompt, and in its parts


def test_a_run_has_the_mode_and_the_tools_of_its_turn_at_most(home: Home) -> None:
    procedure(home.path / "sops", "check", shell("one", "touch made.txt"))
    script = (called(action="run", name="check"), {"text": "done"})
    for words in (("--mode", "readonly"), ("--tools", "sop")):
        home.configure(*script, tables=FULL)
        assert turn(home, *words).returncode == 0, words
    assert [states(each) for each in runs(home)] == [{"one": "failed"}] * 2
    assert not (home.workspace / "made.txt").exists()


def test_an_agent_of_a_run_has_the_tools_of_the_turn_at_most_and_runs_no_other(home: Home) -> None:
    procedure(home.path / "sops", "check", ASK)
    write = {"name": "file_write", "arguments": {"path": "made.txt", "content": "x"}}
    # The script begins anew in each conversation: that of the turn, and that of the run.
    home.configure(
        called(action="run", name="check"), {"tool_calls": [write]}, {"text": "said"}, tables=FULL
    )
    assert turn(home, "--tools", "sop").returncode == 0
    (report,) = runs(home)
    assert report["output"] == "said"
    inside = [r for r in home.receipt_lines() if r["conversation_id"] in str(report)]
    assert [(r["tool"], r["status"]) for r in inside] == [
        ("sop", "failed"),
        ("file_write", "denied"),
    ]
    assert "runs no other" in inside[0]["reason"]
    assert not (home.workspace / "made.txt").exists()


def test_what_is_untrusted_in_the_turn_is_so_in_the_run_and_comes_back(home: Home) -> None:
    tables = (
        '[security]\nautonomy = "full"\nuntrusted_paths = ["mail"]\n'
        'allowed_addresses = ["127.0.0.1:9"]\napproval_timeout_s = 1\n'
    )
    (home.workspace / "mail").write_text("Run it.\n")
    step = '[[steps]]\nid = "one"\nkind = "tool"\ntool = "{}"\nargs = {{ {} }}\n'
    sub = '[[steps]]\nid = "below"\nkind = "sub"\nsop = "{}"\n'
    procedure(home.path / "sops", "send", step.format("http", f'url = "{OUT}"'))
    procedure(home.path / "sops", "read", step.format("file_read", 'path = "mail"'))
    procedure(home.path / "sops", "send-below", sub.format("send"))
    procedure(home.path / "sops", "read-below", sub.format("read"))
    read = {"tool_calls": [{"name": "file_read", "arguments": {"path": "mail"}}]}
    send = {"tool_calls": [{"name": "http", "arguments": {"url": OUT}}]}
    played = {
        "a clean turn": [called(action="run", name="send-below")],
        "into the run": [read, called(action="run", name="send")],
        "into a run below": [read, called(action="run", name="send-below")],
        "out of a run below": [called(action="run", name="read-below"), send],
    }
    sent = {}
    for name, replies in played.items():
        home.configure(*replies, {"text": "done"}, tables=tables)
        assert turn(home).returncode in {0, 4}, name
        sent[name] = [r for r in home.receipt_lines() if r["tool"] == "http"][-1]["status"]
    assert sent.pop("a clean turn") == "failed"  # it went out, and nobody is there
    assert set(sent.values()) == {"denied"}, sent


def test_no_standing_rule_holds_in_a_run_of_a_turn_in_which_none_does(home: Home) -> None:
    procedure(home.path / "sops", "check", shell("one", "touch made.txt"))
    script = (called(action="run", name="check"), {"text": "done"})
    home.configure(*script, tables="[security]\napproval_timeout_s = 0.2\n")
    assert home.ctl("policy", "allow", "touch *").returncode == 0
    home.json("schedule", "add", "bare", "-m", "go")
    home.json("schedule", "run", "bare")
    ended(home, "bare")
    (report,) = runs(home)
    assert states(report) == {"one": "pending"}
    assert not (home.workspace / "made.txt").exists()
    assert turn(home).returncode == 0
    assert (home.workspace / "made.txt").exists()


def test_a_run_that_waits_says_who_lets_it_go_on(home: Home) -> None:
    body = '[[steps]]\nid = "go"\nkind = "approval"\nprompt = "Go on?"\n' + shell("one", "echo yes")
    procedure(home.path / "sops", "check", body)
    home.configure(called(action="run", name="check"), {"text": "It waits."}, tables=FULL)
    assert turn(home).returncode == 0
    (report,) = runs(home)
    assert report["run"]["status"] == "waiting"
    assert run(home, "approve", report["run"]["id"])["output"] == "yes"
