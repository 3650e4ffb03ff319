"""Procedures that tests write, and the schemas of the tools that they name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

HEAD = 'name = "{name}"\ndescription = "Does it."\n'

SCHEMAS: Mapping[str, dict[str, Any]] = {
    "file_write": {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    },
    "file_read": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "max_lines": {"type": "integer", "minimum": 1, "maximum": 2000},
        },
        "required": ["path"],
    },
    "plan": {
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["add", "list"]},
            "items": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["action"],
    },
    "shell": {"type": "object", "properties": {"command": {"type": "string"}}},
    "sop": {"type": "object", "properties": {"name": {"type": "string"}}},
}


def procedure(place: Path, name: str, body: str) -> Path:
    """Write a procedure below a place for them; return its folder."""
    folder = place / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SOP.toml").write_text(HEAD.format(name=name) + body)
    return folder


def shell(identity: str, command: str, more: str = "") -> str:
    """Return a step that runs a command."""
    return f'[[steps]]\nid = "{identity}"\nkind = "shell"\ncommand = {command!r}\n{more}\n'
