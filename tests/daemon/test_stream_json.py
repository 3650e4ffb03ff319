"""One run as programs have it: the page's follower of its lines, and rules of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from clawctl.streaming import schema
from tests.support.lent_home import LentHome
from tests.support.schema_check import is_valid

pytestmark = [pytest.mark.daemon, pytest.mark.sandbox]

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
LIMIT_S = 60


def test_the_consumer_of_the_page_follows_a_whole_turn_with_an_approval(
    lent_home: LentHome,
) -> None:
    home = lent_home
    call = {"name": "shell", "arguments": {"command": "make built"}}
    home.configure({"tool_calls": [call], "text": "I build."}, {"text": "It is built."})
    (home.workspace / "Makefile").write_text("built:\n\ttouch built\n")
    program = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    assert len(program.splitlines()) <= 30
    folder = home.path.parent / "bin"
    folder.mkdir()
    words, log = f"'{sys.executable}' -m clawctl", home.path.parent / "lines"
    (folder / "clawctl").write_text(f"#!/bin/sh\n{words} \"$@\" | tee '{log}'\n")
    (folder / "clawctl").chmod(0o755)
    home.start()
    done = subprocess.run(
        [sys.executable, "-c", program, "build it"],
        env=home.environ | {"PATH": f"{folder}:{home.environ['PATH']}"},
        cwd=home.workspace,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    (receipt,) = [each for each in home.receipt_lines() if each["tool"] == "shell"]
    assert (receipt["status"], receipt["approval"]) == ("allowed", "user")
    assert (home.workspace / "built").exists()
    shown = done.stdout.splitlines()
    assert shown[0] == f"I build.[shell allowed, {receipt['id']}]"
    assert shown[1] == "It is built."
    assert re.fullmatch(r"\[stop, \d+ tokens\]", shown[-1])
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    assert [line for line in lines if not is_valid(line, schema())] == []
    kinds = [line["type"] for line in lines]
    assert (kinds[0], kinds[-1]) == ("begin", "end")
    assert kinds.index("approval") < kinds.index("approval_answered") < kinds.index("tool_result")


def test_rules_of_one_run_hold_in_its_conversation_alone_and_leave_receipts(
    lent_home: LentHome,
) -> None:
    home = lent_home
    build, touch = ({"command": "make built"}, {"command": "touch other"})
    home.configure(
        {"tool_calls": [{"name": "shell", "arguments": build}]},
        {"tool_calls": [{"name": "shell", "arguments": touch}]},
        {"text": "done"},
        {"tool_calls": [{"name": "shell", "arguments": build}]},
        {"text": "done"},
    )
    (home.workspace / "Makefile").write_text("built:\n\ttouch built\n")
    rules = ("--allow", "make *", "--deny", "touch *")
    home.ctl("agent", "--no-input", *rules, "-m", "go")
    assert (home.workspace / "built").exists()
    assert not (home.workspace / "other").exists()
    made = [each for each in home.receipt_lines() if each["tool"] == "shell"]
    assert [each["status"] for each in made] == ["allowed", "denied"]
    granted = [each for each in home.receipt_lines() if each["tool"] != "shell"]
    assert len(granted) == 2, granted
    # Another run has to ask again, and nobody is there.
    assert home.ctl("agent", "--no-input", "-m", "go").returncode == 4
