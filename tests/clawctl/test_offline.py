"""What works where no daemon runs: doctor and its mending, onboard, logs.

The first one is played as people run it; the others say what it says, in this process.
"""

import json
import os
import shlex
import socket
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.clawctl.conftest import Run
from tests.support.fake_systemd import FakeSystemd
from tests.support.home import Home
from tests.support.terminal import Spawn

pytestmark = pytest.mark.sandbox


def doctor(run: Run, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = run("--no-start", "doctor", *options, "--json")
    found = json.loads(done.stdout)
    # The worst of each kind: a check may have several findings.
    order = {"ok": 0, "note": 1, "wrong": 2}
    found.sort(key=lambda each: order[each["state"]])
    return done.returncode, {each["check"]: each for each in found}


def test_doctor_judges_a_fresh_home_without_a_daemon(clawctl: Run, home: Path) -> None:
    assert clawctl("init").returncode == 0
    code, found = doctor(clawctl)
    wrong = {name for name, each in found.items() if each["state"] == "wrong"}
    assert wrong <= {"sandbox"}, found
    assert code == (1 if wrong else 0)
    assert found["config"]["says"].endswith("is valid")
    assert found["daemon"]["says"].startswith("none runs")
    assert found["receipts"]["state"] == "ok"
    assert {"install", "libraries", "llama.cpp", "model", "disk", "clock", "socket"} <= set(found)
    assert not (home / "clawd.lock").exists()


def test_doctor_mends_what_is_safe_after_saying_so(here: Run, home: Path) -> None:
    assert here("init").returncode == 0
    home.chmod(0o755)
    (home / "receipts.key").chmod(0o644)
    run = home / "run"
    run.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(run / "clawd.sock"))
    (home / "workspace").rmdir()
    code, found = doctor(here)
    assert code == 1
    for check in ("home", "permissions", "socket", "workspace"):
        assert (found[check]["state"], found[check]["can_fix"]) == ("wrong", True), found[check]
        assert found[check]["fix"]
    told = here("--no-start", "doctor", "--fix").stdout
    assert f"doing: Close it: chmod 700 {home}" in told
    assert "(mended)" in told
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "receipts.key").stat().st_mode) == 0o600
    assert not (run / "clawd.sock").exists()
    assert (home / "workspace").is_dir()
    _, after = doctor(here)
    assert not any(each["can_fix"] for each in after.values())


def test_doctor_names_every_problem_of_a_config(here: Run, home: Path) -> None:
    (home / "config.toml").write_text('autonom = 1\n[security]\nautonomy = "godmode"\n')
    (home / "config.toml").chmod(0o600)
    done = here("--no-start", "doctor")
    assert done.returncode == 1
    assert "godmode" in done.stdout
    assert "autonom" in done.stdout


def test_doctor_sees_a_chain_that_was_edited(here: Run, home: Path) -> None:
    assert here("init").returncode == 0
    (home / "tool_receipts.log").write_text('{"not": "a receipt"}\n')
    code, found = doctor(here)
    assert code == 1
    assert found["receipts"]["state"] == "wrong"
    assert "clawctl receipt verify" in found["receipts"]["fix"]


def test_onboard_changes_what_was_answered_only_and_keeps_a_copy(
    here: Run, home: Path, tmp_path: Path
) -> None:
    assert here("init").returncode == 0
    config = home / "config.toml"
    mine = config.read_text("utf-8").replace("[security]", "# mine, keep it\n[security]", 1)
    config.write_text(mine, "utf-8")
    words = ["--yes", "--no-test", "--autonomy", "full", "--workspace", str(tmp_path / "w w")]
    done = here("onboard", *words, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["changed"], report["tested"], report["ok"]) == (True, False, True)
    assert report["workspace"] == str(tmp_path / "w w")
    after = config.read_text("utf-8")
    assert "# mine, keep it" in after
    changed = set(mine.splitlines()) ^ set(after.splitlines())
    assert {line.split(" =")[0] for line in changed} == {"workspace_dir", "autonomy"}
    assert config.with_name("config.toml.before-onboard").read_text("utf-8") == mine
    again = json.loads(here("onboard", *words, "--json").stdout)
    assert again["changed"] is False


def test_onboard_adds_servers_under_names_that_are_free(here: Run, home: Path) -> None:
    for model in ("one", "two"):
        done = here(
            "onboard", "--yes", "--no-test", "--base-url", "http://127.0.0.1:1/v1", "--model", model
        )
        assert done.returncode == 0, done.stderr
    shown = json.loads(here("config", "show", "--json").stdout)["values"]
    assert shown["default_provider"] == "server2"
    assert shown["providers"]["models"]["server"]["model"] == "one"
    assert shown["providers"]["models"]["server2"]["model"] == "two"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--embedded", "--anthropic", "--model", "x"], "exclude each other"),
        (["--model", "x"], "belong together"),
        (["--anthropic"], "belong together"),
        (["--autonomy", "godmode"], "readonly"),
        (["--pull", "hf:a/b", "--embedded"], "exclude each other"),
        (["--workspace", "http://localhost:8080/v1"], "expected a folder"),
    ],
)
def test_onboard_refuses_words_that_contradict(here: Run, words: list[str], why: str) -> None:
    done = here("onboard", *words)
    assert done.returncode == 2
    assert why in done.stderr


def test_onboard_leaves_a_config_alone_that_it_cannot_change(here: Run, home: Path) -> None:
    assert here("init").returncode == 0
    config = home / "config.toml"
    text = 'security = { autonomy = "readonly" }\n'
    config.write_text(text, "utf-8")
    done = here("onboard", "--yes", "--no-test", "--autonomy", "full")
    assert done.returncode == 1
    assert "left to you" in done.stderr
    assert config.read_text("utf-8") == text


def test_onboard_asks_at_most_five_things_on_a_terminal(spawn: Spawn, home: Path) -> None:
    child = spawn("onboard", "--no-test")
    child.expect(r"\[1/4\] Where shall the answers come from")
    child.expect("Choose")
    child.sendline("3")
    child.expect(r"\[2/4\] Which one")
    child.expect("Server")
    child.sendline("nonsense")
    child.expect("That is not ADDRESS MODEL")
    child.expect("Server")
    child.sendline("http://127.0.0.1:1/v1 a-model MY_KEY")
    child.expect(r"\[3/4\] Which folder")
    child.sendline("")
    child.expect(r"\[4/4\] What may it do")
    child.sendline("readonly")
    child.expect("Three things to try")
    child.expect_exact("clawctl receipt list")
    child.wait()
    text = (home / "config.toml").read_text("utf-8")
    assert 'default_provider = "server"' in text
    assert 'api_key_env = "MY_KEY"' in text
    assert 'autonomy = "readonly"' in text


def test_logs_of_a_daemon_that_ended_are_read_from_the_file(here: Run, home: Path) -> None:
    (home / "clawd.log").write_text("".join(f"line {n}\x1b[2J\n" for n in range(9)))
    done = here("--no-start", "logs", "-n", "2")
    assert done.returncode == 0
    assert done.stdout == "line 7‹U+001B›[2J\nline 8‹U+001B›[2J\n"
    items = json.loads(here("logs", "-n", "1", "--json").stdout)
    assert [each["text"] for each in items] == ["line 8\x1b[2J"]


def test_logs_say_where_there_are_none(here: Run) -> None:
    done = here("--no-start", "logs")
    assert done.returncode == 1
    assert "there is no log" in done.stderr
    assert "hint:" in done.stderr


def test_onboard_installs_the_service_when_it_is_told_to(
    here: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    systemd = FakeSystemd(tmp_path / "systemd")
    environ["PATH"] = f"{systemd.path}{os.pathsep}{environ['PATH']}"
    done = here("onboard", "--yes", "--no-test", "--service", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["service"] is True
    assert "systemctl --user enable clawd.socket clawd.service" in systemd.calls()
    assert (tmp_path / ".config/systemd/user/clawd.service").exists()
    systemd.says("fail.enable", "no room\n")
    refused = here("onboard", "--yes", "--no-test", "--service")
    assert refused.returncode == 1
    assert "no room" in refused.stderr


@pytest.mark.daemon
def test_p10_onboard_tries_words_and_a_call_and_leaves_no_conversation(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.configure({"tool_calls": [{"name": "time", "arguments": {}}]}, {"text": "it works"})
    try:
        report = home.json("onboard", "--yes")
        assert (report["tested"], report["ok"], report["message"]) == (True, True, "it works")
        assert report["tool_called"] is True
        assert home.json("conversation", "list") == []
        home.configure({"text": "only words"})
        assert home.ctl("restart").returncode == 0
        told = home.ctl("onboard", "--yes").stdout
        assert "it did not call the tool time" in told
        assert "Ready." in told
    finally:
        home.close()


def test_p10_a_provider_at_a_dead_port_is_wrong_and_one_that_listens_is_not(here: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        words = ["--yes", "--no-test", "--base-url", url, "--model", "m"]
        assert here("onboard", *words).returncode == 0
        _code, found = doctor(here)
        assert found["model"]["state"] == "ok"
    code, found = doctor(here)
    assert (code, found["provider"]["state"]) == (1, "wrong")
    assert f"nobody answers at {url}" in found["provider"]["says"]
    assert "model" not in found


def test_p3_without_llama_cpp_doctor_and_onboard_name_the_line_that_installs_it(
    clawctl: Run, here: Run, spawn: Spawn, environ: dict[str, str], tmp_path: Path
) -> None:
    shim = tmp_path / "shim"
    shim.mkdir()
    hide = "import sys; sys.modules['llama_cpp'] = None\n"
    (shim / "sitecustomize.py").write_text(hide, "utf-8")
    environ["PYTHONPATH"] = f"{shim}{os.pathsep}{environ['PYTHONPATH']}"
    assert here("init").returncode == 0
    code, found = doctor(clawctl)
    assert code == 1
    assert found["model"]["state"] == "wrong"
    assert "llama-cpp-python is not installed" in found["model"]["says"]
    assert f"{shlex.quote(sys.executable)} -m pip install 'clawd[local]'" in found["model"]["fix"]
    child = spawn("onboard", "--no-test")
    child.expect_exact("1 and 2 need llama-cpp-python, which is not installed")
    child.expect_exact("pip install 'clawd[local]'")
    child.expect(r"Choose.*\[3\]")
    child.sendline("")
    child.expect("Which one. Write: ADDRESS MODEL")
