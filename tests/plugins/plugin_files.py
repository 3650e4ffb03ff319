"""What the tests of plugins share: folders of plugins, and a program that answers."""

from pathlib import Path

ANSWERS = """#!/usr/bin/python3
import json, sys
request = json.load(sys.stdin)
print(json.dumps({"success": True, "output": request}))
"""


def manifest_text(
    name: str = "probe",
    *,
    version: str = "1.0",
    capabilities: tuple[str, ...] = (),
    tool: str = "probe_tool",
    more: str = "",
    schema: str = '{ type = "object", properties = { text = { type = "string" } } }',
) -> str:
    listed = ", ".join(f'"{each}"' for each in capabilities)
    return (
        f'name = "{name}"\nversion = "{version}"\ncapabilities = [{listed}]\n\n'
        f'[[tools]]\nname = "{tool}"\ndescription = "Probes."\ncommand = "run"\n'
        f"schema = {schema}\n{more}\n"
    )


def plugin(folder: Path, program: str = ANSWERS, manifest: str | None = None) -> Path:
    """Write a plugin into a folder that is made; return it."""
    folder.mkdir(parents=True)
    (folder / "manifest.toml").write_text(
        manifest_text() if manifest is None else manifest, encoding="utf-8"
    )
    run = folder / "run"
    run.write_text(program, encoding="utf-8")
    run.chmod(0o755)
    return folder
