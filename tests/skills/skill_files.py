"""Skills to test with."""

from pathlib import Path


def skill_text(name: str, description: str = "Sorts notes. Use when notes pile up.") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n# How\n\nRun scripts/sort.sh.\n"


def skill(folder: Path, *, name: str = "", description: str = "Sorts notes.") -> Path:
    """Write a skill into a folder and return it."""
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(skill_text(name or folder.name, description))
    script = folder / "scripts" / "sort.sh"
    script.write_text("#!/bin/sh\nsort\n")
    script.chmod(0o755)
    return folder
