"""What importing the SDK costs, and that its face is typed."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("aiohttp", "pydantic", "llama_cpp", "mcp", "jinja2", "sqlite_utils", "cryptography")
PROGRAM = """
import asyncio
from typing import Literal
from typing_extensions import assert_type

from clawd.sdk import AsyncSession, ChatResult, Said, Session
from clawd.wire.daemon import Status, StatusReport

def shelf(subject: Literal["a", "b"], copies: int = 1) -> str:
    return subject * copies

session = Session.local("m.gguf", home="x", settings={"a.b": 1}).system("x").add_tool(shelf)
assert_type(session, Session)
assert_type(session.on_event(print).on_token(print).reset(), Session)
assert_type(session.preamble_options(rules=False).no_builtin_system(), Session)
assert_type(session.chat("x"), ChatResult)
assert_type(session.history(), tuple[Said, ...])
assert_type(session.call(Status()), StatusReport)
assert_type([piece for piece in session.stream("x")], list[str])
session.on_approval(lambda question: question.tool == "shell")

async def main() -> None:
    async with AsyncSession.remote("https://x", "m", api_key_env="K", workspace=".") as other:
        assert_type(await other.chat("x"), ChatResult)
        assert_type(await other.call(Status()), StatusReport)
"""
WRONG = """
from clawd.sdk import Session

Session.local(folder="x")
Session.local().preamble_options(weather=True)
Session.local().on_approval(lambda question: 7)
Session.local().add_tool(print, risk="none")
"""


def loaded_after(code: str) -> list[str]:
    """Return the heavy modules that a program has loaded at its end."""
    names = (*HEAVY, "clawd.runtime", "clawd.service")
    told = f"import sys, json; print(json.dumps([n for n in {names!r} if n in sys.modules]))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\n{told}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [str(name) for name in json.loads(done.stdout)]


def typed(folder: Path, **programs: str) -> subprocess.CompletedProcess[str]:
    """Check programs of a user's with mypy, by their names."""
    files = [folder / f"{name}.py" for name in programs]
    for file, code in zip(files, programs.values(), strict=True):
        file.write_text(code)
    options = ["--strict", "--no-error-summary", "--no-incremental", "--follow-imports=silent"]
    return subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_importing_the_sdk_loads_nothing_heavy() -> None:
    assert loaded_after("import clawd.sdk") == []


def test_making_and_telling_a_session_loads_nothing_heavy() -> None:
    code = (
        "from clawd.sdk import AsyncSession, Session\n"
        'Session.local("embedded").system("x").add_tool(print, name="say") if 0 else None\n'
        'Session.remote("https://example.org/v1", "m", api_key_env="KEY").on_token(print)\n'
        'Session.local().system("x").no_builtin_system().preamble_options(rules=False)\n'
        "with Session.daemon() as session: pass"
    )
    assert loaded_after(code) == []


def test_the_check_sees_what_the_first_use_loads() -> None:
    code = (
        "from clawd.sdk import Session\n"
        'with Session.local(settings={"default_provider": "mock"}) as session: session.init()'
    )
    assert {"pydantic", "clawd.runtime", "clawd.service"} <= set(loaded_after(code))


def test_the_face_is_typed_and_mistakes_are_seen_by_a_checker(tmp_path: Path) -> None:
    done = typed(tmp_path, program=PROGRAM, wrong=WRONG)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line for line in lines if "wrong.py:" not in line] == []
    assert {int(line.split(":")[1]) for line in lines if ": error:" in line} == {4, 5, 6, 7}
