"""What a one-shot command does not load."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = {"asyncio", "aiohttp", "mcp", "pydantic", "prompt_toolkit", "llama_cpp", "rich"}
ONE_SHOT = [
    "agent",
    "approval",
    "backup",
    "cache",
    "completion",
    "config",
    "conversation",
    "doctor",
    "estop",
    "files",
    "init",
    "jobs",
    "key",
    "knowledge",
    "logs",
    "mcp",
    "memory",
    "metrics",
    "model",
    "onboard",
    "page",
    "plugin",
    "policy",
    "provider",
    "receipt",
    "restart",
    "schedule",
    "service",
    "shell",
    "skill",
    "sop",
    "status",
    "stop",
    "tool",
    "top",
    "undo",
    "version",
]


CODE = """
import importlib, json, sys
loaded = {}
for name in json.load(sys.stdin):
    before = set(sys.modules)
    importlib.import_module(name)
    loaded[name] = sorted({each.partition(".")[0] for each in set(sys.modules) - before})
print(json.dumps(loaded))
"""


def loaded_by(*modules: str) -> dict[str, list[str]]:
    """Import modules one after another in a fresh interpreter; tell what each brought with it."""
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        cwd=ROOT,
        input=json.dumps(modules),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded: dict[str, list[str]] = json.loads(done.stdout)
    return loaded


def test_this_check_sees_a_heavy_import() -> None:
    assert "asyncio" in loaded_by("clawctl.main", "asyncio")["asyncio"]


def test_help_loads_no_command() -> None:
    code = "import clawctl.main, sys\nsys.argv = ['clawctl', '--help']\nclawctl.main.main()"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert "status" in done.stdout
    assert "clawctl.commands." not in done.stderr


def test_the_command_line_and_its_one_shot_commands_load_nothing_heavy() -> None:
    commands = [f"clawctl.commands.{name}" for name in ONE_SHOT]
    loaded = loaded_by("clawctl.main", "clawctl.client", "clawctl.daemon", *commands)
    heavy = {name: sorted(HEAVY.intersection(found)) for name, found in loaded.items()}
    assert {name: found for name, found in heavy.items() if found} == {}


def test_every_command_is_listed_once_and_has_its_module() -> None:
    from clawctl.main import COMMANDS

    modules = {path.stem for path in (ROOT / "clawctl" / "commands").glob("[a-z]*.py")}
    assert modules == set(COMMANDS)
    assert set(ONE_SHOT) == modules
