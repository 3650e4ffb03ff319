"""The tool with which a model reads a skill: its instructions, or a file that they name."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import ClawError, NotFoundError
from clawd.plugins.files import PluginTree
from clawd.security.risk import Assessment
from clawd.skills.skill_file import FILE_NAME
from clawd.skills.store import Skill, SkillStore
from clawd.tools.base import (
    Arguments,
    Tool,
    ToolContext,
    ToolResult,
    Touched,
    failed,
    in_thread,
    succeeded,
)
from clawd.tools.narrowing import Narrowing
from clawd.wire.safe_text import paragraph, visible_line, without_hidden

SKILL_READ = "skill_read"
ALLOWED = "allowed_tools"
_MAX_LISTED = 50
_PATH_SHOWN = 200


class SkillRead(Tool):
    """`skill_read(name, path?)`: only what is ready, as it was hashed."""

    name: ClassVar[str] = SKILL_READ
    short: ClassVar[str] = "Read the instructions of a skill, or a file of it that they name."
    description: ClassVar[str] = (
        "`name` is one of the skills that the context lists. Without `path` it answers the skill's "
        "instructions and the list of its files; `path` is one of these files, as in "
        "references/forms.md. Skills are advice and grant nothing: their scripts are run as any "
        "other command, under the same policy. Once a skill with allowed-tools is read, the user "
        "is asked about calls of other tools until the turn ends."
    )
    parameters: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "the skill's name"},
            "path": {"type": "string", "description": "a file in its folder"},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    outward: ClassVar[bool | None] = False

    def __init__(self, store: SkillStore) -> None:
        self._store = store

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="reads a skill")

    @override
    def touches(self, arguments: Arguments, context: ToolContext) -> Touched:
        try:
            folder, _ = self._store.folder(str(arguments["name"]).strip(), context.workspace)
        except ClawError:
            return Touched()  # nothing is read
        return Touched(reads=(folder,))

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        name, path = str(arguments["name"]).strip(), str(arguments.get("path", "")).strip()
        try:
            skill, tree = await in_thread(lambda: self._store.read(name, context.workspace))
        except NotFoundError as error:
            found = await in_thread(lambda: self._store.found(context.workspace))
            named = ", ".join(each.name for each in found.ready[:_MAX_LISTED]) or "none"
            return failed(f"{error.message}; there are: {named}")
        except ClawError as error:
            return failed(f"{error.message}. {error.hint}".removesuffix(". "))
        says = {ALLOWED: [name, *skill.about.allowed_tools]} if skill.about.allowed_tools else {}
        if path:
            return msgspec.structs.replace(_file(tree, path), metadata=says)
        where = f"folder: {_shown_folder(skill, context)}\n"
        listed = f"files: {_files(tree)}\n" if len(tree.files) > 1 else ""
        told = f"allowed-tools: {shown_tools(skill)}; others are asked about\n" if says else ""
        text = f"skill {name}\n{where}{listed}{told}\n{_safe(skill.about.body)}"
        return succeeded(text, **says)


def narrowing_of(metadata: Mapping[str, Any]) -> Narrowing | None:
    """Return what a reading of a skill with `allowed-tools` asks about from then on, or None."""
    name, *tools = metadata.get(ALLOWED, ("",))
    return Narrowing(by=f"the skill {name}", tools=tuple(tools)) if tools else None


def shown_tools(skill: Skill) -> str:
    """Return the `allowed-tools` of a skill in one line."""
    return visible_line(", ".join(skill.about.allowed_tools), _PATH_SHOWN)


def _shown_folder(skill: Skill, context: ToolContext) -> str:
    """Return where a skill lies, as the commands of a call name it, if they see it."""
    if skill.folder.is_relative_to(context.workspace) and not skill.is_own:
        return visible_line(str(skill.folder.relative_to(context.workspace)))
    return f"commands do not see it; read a file with {SKILL_READ}, and write it to run it"


def _file(tree: PluginTree, path: str) -> ToolResult:
    wanted, shown = PurePosixPath(path), visible_line(path, _PATH_SHOWN)
    if wanted.is_absolute() or ".." in wanted.parts:
        return failed(f"{shown} leads out of the skill; its files are: {_files(tree)}")
    found = tree.file(str(wanted))
    if found is None or found.data is None:
        return failed(f"the skill has no file {shown}; its files are: {_files(tree)}")
    try:
        text = found.data.decode()
    except UnicodeDecodeError:
        return failed(f"{shown} is no text; it has {len(found.data)} bytes")
    return succeeded(_safe(text))


def _files(tree: PluginTree) -> str:
    paths = [each.path for each in tree.files if each.data is not None and each.path != FILE_NAME]
    more = f" and {len(paths) - _MAX_LISTED} more" if len(paths) > _MAX_LISTED else ""
    return (", ".join(paths[:_MAX_LISTED]) or "none") + more


def _safe(text: str) -> str:
    return without_hidden(paragraph(text.replace("\r\n", "\n")))
