"""What a one-shot command does not load."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {"asyncio", "aiohttp", "mcp", "pydantic", "prompt_toolkit", "llama_cpp", "rich"}
ONE_SHOT = [
    "agent",
    "approval",
    "config",
    "conversation",
    "doctor",
    "estop",
    "files",
    "init",
    "key",
    "knowledge",
    "mcp",
    "memory",
    "metrics",
    "model",
    "onboard",
    "plugin",
    "policy",
    "provider",
    "receipt",
    "service",
    "status",
    "tool",
    "undo",
    "version",
]


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_the_command_line_loads_nothing_heavy() -> None:
    assert not loaded_by("import clawctl.main") & HEAVY


def test_help_loads_no_command() -> None:
    code = "import clawctl.main, sys\nsys.argv = ['clawctl', '--help']\nclawctl.main.main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert "status" in done.stdout
    assert "clawctl.commands." not in done.stderr


@pytest.mark.parametrize("name", ONE_SHOT)
def test_a_one_shot_command_loads_nothing_heavy(name: str) -> None:
    assert not loaded_by(f"import clawctl.main, clawctl.commands.{name}, clawctl.daemon") & HEAVY


def test_every_command_is_listed_once_and_has_its_module() -> None:
    from clawctl.main import COMMANDS

    modules = {path.stem for path in (ROOT / "clawctl" / "commands").glob("[a-z]*.py")}
    assert modules == set(COMMANDS)
    assert set(ONE_SHOT) == modules
