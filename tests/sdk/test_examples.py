"""The ten examples of docs/sdk.md, run as they stand there: the page is their only source.

The first is a program of its own; the others run in this process, which has imported what they
need.
"""

import asyncio
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.rig import ECHO, calling
from tests.support.chat_server import DONE, ChatServer, chunk, serving, streamed
from tests.support.here import environment
from tests.support.home import Home
from tests.support.rows import each_row

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sdk.md").read_text(encoding="utf-8")
LIMIT_S = 100.0
HEADING = re.compile(r"^## (\d+)\. .+?\n\n```python\n(.+?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = {int(number): code for number, code in HEADING.findall(PAGE)}
WRITE = calling("file_write", {"path": "hello.txt", "content": "hello world"}, "Done.")


def run_example(number: int, folder: Path, *, is_child: bool = False, **environ: str) -> list[str]:
    """Run an example and return the lines that it prints."""
    work = folder / "cwd"
    work.mkdir()
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "TMPDIR": str(work),
        "PYTHONPATH": str(ROOT),
        **environ,
    }
    said = in_a_child(number, work, environ) if is_child else here(number, work, environ)
    assert list(work.iterdir()) == []  # nothing of the session is left
    return said.splitlines()


def in_a_child(number: int, work: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", EXAMPLES[number]],
        cwd=work,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def here(number: int, work: Path, environ: dict[str, str]) -> str:
    said, warned = io.StringIO(), io.StringIO()
    with (
        environment(environ),
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        contextlib.chdir(work),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(warned),
    ):
        patch.setattr(tempfile, "tempdir", None)  # so that it is looked for anew
        warnings.simplefilter("error")
        exec(compile(EXAMPLES[number], "example", "exec"), {"__name__": "__main__"})
    assert warned.getvalue() == ""
    return said.getvalue()


def with_mock(
    number: int, folder: Path, *replies: dict[str, Any], is_child: bool = False
) -> list[str]:
    """Run an example against a scripted model."""
    script = folder / "script.json"
    script.write_text(json.dumps({"replies": replies}))
    named = {"CLAWD_DEFAULT_PROVIDER": "mock", "CLAWD_MOCK_SCRIPT": str(script)}
    return run_example(number, folder, is_child=is_child, **named)


def test_the_page_has_ten_examples_and_no_python_beside_them() -> None:
    assert sorted(EXAMPLES) == list(range(1, 11))
    assert PAGE.count("```python") == len(EXAMPLES)
    assert len(EXAMPLES[1].strip().splitlines()) == 5


# --- against a scripted model


def test_1_five_lines(tmp_path: Path) -> None:
    replies = calling("file_list", {}, "None: {{last_tool_result}}")
    assert with_mock(1, tmp_path, *replies, is_child=True) == ["None: (empty)"]


def test_2_streaming(tmp_path: Path) -> None:
    answer, tokens = with_mock(2, tmp_path, {"text": "It is noon."})
    assert answer == "It is noon."
    assert re.fullmatch(r"tokens: \d+", tokens)


def test_3_a_function_as_a_tool(tmp_path: Path) -> None:
    assert with_mock(3, tmp_path, *calling("find_shelf", {"subject": "Science"})) == [
        "shelf D1, 1 put aside",
        "find_shelf {'subject': 'Science'} allowed",
    ]


def test_4_asyncio(tmp_path: Path) -> None:
    replies = calling("calculator", {"expression": "12 * 7"}, "It is {{last_tool_result}}.")
    assert with_mock(4, tmp_path, *replies) == ["It is 84."]


def test_5_a_system_prompt_of_ones_own(tmp_path: Path) -> None:
    first, empty, hours, answer = with_mock(5, tmp_path, ECHO)
    assert first == "You answer for a bookshop, in one sentence."
    assert empty == ""
    assert hours in {"closed today", "open from 9 to 18"}
    assert answer == "hello"


def test_6_approvals(tmp_path: Path) -> None:
    assert with_mock(6, tmp_path, *WRITE) == [
        'file_write {"content":"hello world","path":"hello.txt"}',
        "Done.",
        "hello world",
    ]


def test_7_history_and_the_prompt(tmp_path: Path) -> None:
    assert with_mock(7, tmp_path, ECHO) == [
        "['user', 'assistant', 'user', 'assistant']",
        "True",
        "0",
        "0",
    ]


def test_8_events_and_receipts(tmp_path: Path) -> None:
    lines = with_mock(8, tmp_path, *calling("time", {}))
    assert [line for line in lines if re.fullmatch(r"T\w+", line)] == [
        "TurnStarted",
        *["ToolDraft"] * max(lines.count("ToolDraft"), 1),
        "ToolRequested",
        "ToolStarted",
        "ToolFinished",
        *["TextDelta"] * lines.count("TextDelta"),
        "TurnFinished",
    ]
    assert re.fullmatch(r"time receipt-\w{26}", lines[-2])
    assert lines[-1] == "True valid chain of 1 receipt"


async def test_9_a_model_on_a_server(tmp_path: Path) -> None:
    server = ChatServer(streamed(chunk({"content": "hello from afar"}, "stop"), DONE))
    async with serving(server) as url:
        example = partial(run_example, 9, MODEL_URL=url, MODEL_KEY="a key of the test")
        lines = await asyncio.to_thread(example, tmp_path)
    assert lines == ["hello from afar (qwen3-8b)"]
    (request,) = server.requests
    assert (request["model"], request["messages"][-1]["role"]) == ("qwen3-8b", "user")
    assert "a key of the test" in server.headers[0]["Authorization"]


@pytest.mark.daemon
def test_10_joining_the_daemon(tmp_path: Path, home: Home) -> None:
    home.configure(*calling("time", {}, "It is noon."))
    home.start()
    answer, conversation = run_example(10, tmp_path, CLAWD_HOME=str(home.path))
    assert answer == "It is noon."
    name, _, conversation_id = conversation.partition(" ")
    assert name == "conversation"
    assert [line["conversation_id"] for line in home.receipt_lines()] == [conversation_id]


def test_10_without_a_daemon_it_says_what_to_do(tmp_path: Path) -> None:
    reason, hint = run_example(10, tmp_path, CLAWD_HOME=str(tmp_path / "nobody"))
    assert reason.startswith("no daemon answers at ")
    assert "Session.local()" in hint


# --- on the embedded model


@pytest.mark.real_model
@each_row(
    ("number", "told"),
    [
        (1, "empty"),
        (2, "tokens: "),
        (4, "12 * 7 = 84"),
        (6, "hello world"),
        (7, "True"),
        (8, "True valid chain of 1 receipt"),
    ],
)
def test_the_embedded_model_does_the_example(tmp_path: Path, number: int, told: str) -> None:
    assert any(told in line for line in run_example(number, tmp_path))


@pytest.mark.real_model
def test_the_embedded_model_answers_under_a_prompt_and_tools_of_a_program(tmp_path: Path) -> None:
    for number in (3, 5):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run_example(number, folder)[-1]


@pytest.mark.real_model
@pytest.mark.daemon
def test_the_embedded_model_answers_through_the_daemon_that_is_joined(
    tmp_path: Path, home: Home
) -> None:
    home.configure(provider="local")
    home.start()
    run_example(10, tmp_path, CLAWD_HOME=str(home.path))
    assert [line["tool"] for line in home.receipt_lines()] == ["time"]
