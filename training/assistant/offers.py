"""The tools that conversations offer: clawd's own, as requests carry them, in some fixed lists.

A model is to read what it is offered, so the lists differ: all tools, a core, a few, in another
order, under other names. They are fixed, so that a training run can keep each one's prefix.
"""

import random
import tempfile
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from clawd.config.sections import CORE_TOOLS
from clawd.memory.tools import MemorySearch, knowledge_tools
from clawd.security.policy import PolicySettings
from clawd.security.sandbox.run import Sandbox, SandboxSettings
from clawd.tools.builtin.catalogue import builtin_tools
from clawd.tools.builtin.deps import BuiltinDeps
from clawd.tools.offer import ToolLookup, specs

_LOOKING = [
    "calculator",
    "check_path",
    "cwd",
    "file_list",
    "file_read",
    "glob",
    "grep",
    "time",
    "workspace",
]
_FILES = ["file_append", "file_edit", "file_list", "file_read", "file_write", "undo"]
_WEB = ["http", "open_url", "pdf_extract", "web_fetch", "web_search"]
_ACTING = ["shell", "evaluate", "job"]
_OTHER_NAMES = {
    "file_read": "read_file",
    "file_write": "write_file",
    "file_list": "list_directory",
    "file_edit": "edit_file",
    "file_append": "append_file",
    "shell": "bash",
    "grep": "search_text",
    "glob": "find_files",
    "web_fetch": "fetch_page",
    "web_search": "search_web",
    "calculator": "compute",
    "time": "clock",
    "ask_user": "ask",
    "knowledge_save": "save_note",
    "knowledge_search": "search_notes",
    "memory_search": "recall",
    "plan": "todo",
    "undo": "revert",
}


@dataclass(frozen=True)
class OfferedList:
    """One list of tools.

    Attributes:
        key: says which one it is; the same key has the same tools in the same order.
        tools: the tools in OpenAI's form.
        names: what clawd's tools are called here; those that are missing are not offered.
        share: how often it is drawn.
    """

    key: str
    tools: list[dict[str, Any]]
    names: dict[str, str] = field(repr=False)
    share: float


@cache
def product_tools(*, lean: bool = True) -> dict[str, dict[str, Any]]:
    """Return clawd's own tools by name, in the order offered, with the schemas that requests carry.

    Lean schemas leave out what hardly any call needs; they are what small contexts get.
    """
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(SandboxSettings(home=Path(folder)))
        deps = BuiltinDeps(policy=PolicySettings(), home=Path(folder), sandbox=sandbox)
        made: list[Any] = [*builtin_tools(deps), ToolLookup(), *_without_stores()]
    made.sort(key=lambda tool: tool.name)
    return {
        spec.name: {
            "type": "function",
            "function": {
                "name": spec.name,
                "description": spec.description,
                "parameters": msgspec.to_builtins(spec.parameters),
            },
        }
        for spec in specs(made, is_lean=lean)
    }


def _without_stores() -> list[Any]:
    """Return the tools over stores, of which only the descriptions are wanted."""
    none: Any = None
    return [MemorySearch(none), *knowledge_tools(none, none)]


@cache
def offered_lists() -> tuple[OfferedList, ...]:
    """Return the lists that conversations draw from."""
    everything = list(product_tools())

    def without(*names: str) -> list[str]:
        return [name for name in everything if name not in names]

    notes = [name for name in everything if name.startswith("knowledge")]
    shuffled = []
    for seed in (1, 2):
        order = list(everything)
        random.Random(seed).shuffle(order)
        shuffled.append(order)
    return (
        _list("all", everything, 44),
        _list("all_in_full", everything, 8, lean=False),
        _list("core", sorted(CORE_TOOLS), 8),
        _list("no_web", without(*_WEB), 6),
        _list("no_acting", without(*_ACTING, "fs_ops", "render"), 6),
        _list("no_notes", without(*notes, "memory_search", "plan"), 5),
        _list("looking", _LOOKING, 5),
        _list("files", _FILES, 5),
        _list("shuffled_1", shuffled[0], 4),
        _list("shuffled_2", shuffled[1][: len(everything) * 2 // 3], 4),
        _list("other_names", list(_OTHER_NAMES), 3, names=_OTHER_NAMES),
        _list("none", [], 2),
    )


def _list(
    key: str,
    chosen: list[str],
    share: float,
    *,
    lean: bool = True,
    names: dict[str, str] | None = None,
) -> OfferedList:
    known = product_tools(lean=lean)
    called = {name: (names or {}).get(name, name) for name in chosen}
    tools = []
    for name in chosen:
        function = known[name]["function"]
        tools.append({"type": "function", "function": {**function, "name": called[name]}})
    return OfferedList(key=key, tools=tools, names=called, share=share)
