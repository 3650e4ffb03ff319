"""What is known of a tool beyond its schema: its effect, a call to copy, other words.

Tools of clawd have their line here; any other tool may bring `traits` of its own, and is taken for
one that acts when it does not.
"""

from typing import Any, Literal

import msgspec

Effect = Literal["looks", "adds", "replaces", "changes", "acts"]

EFFECTS: tuple[Effect, ...] = ("looks", "adds", "replaces", "changes", "acts")


Takes = tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
"""The ways to call an action: the arguments that must be there, and those that may."""


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """The traits of a tool.

    Attributes:
        effect: `looks` changes nothing; `adds` and takes nothing away; `replaces`, and a second
            time makes no difference; `changes` what is there; `acts` in ways that cannot be told.
        example: arguments of a call that works; the required ones of the schema when empty.
        other_names: what callers call an argument of this tool, by its real name.
        actions: for a tool with `action`: which of them a call without it can mean.
        documents: arguments that hold whole texts, kept to the letter whatever their name.
        stand_ins: words that callers write for its `action`, and the arguments that they mean.
    """

    effect: Effect = "acts"
    example: dict[str, Any] = {}
    other_names: dict[str, tuple[str, ...]] = {}
    actions: dict[str, Takes] = {}
    documents: tuple[str, ...] = ()
    stand_ins: dict[str, dict[str, Any]] = {}

    @property
    def rank(self) -> int:
        """How far it goes: 0 looks, 4 acts."""
        return EFFECTS.index(self.effect)


_FILE: dict[str, Any] = {"path": "notes.txt"}
# Copied as it stands it should not hit a file that somebody has.
_WRITTEN: dict[str, Any] = {"path": "example.txt", "content": "some text"}
_EDITED = {
    "new_text": ("new_string", "new_str", "new", "replacement", "replace_with", "content"),
    "old_text": ("old_string", "old_str", "old", "find", "search", "target"),
    "start_line": ("start", "line", "from_line", "first_line"),
    "end_line": ("end", "to_line", "last_line"),
}  # fmt: skip

# Of a plan's items: what is done with them, in place of an action.
_STEPS = {
    "done": ("done", "complete", "completed", "finish", "finished", "markdone", "markcomplete"),
    "working": ("start", "started", "begin", "working", "inprogress"),
    "error": ("fail", "failed", "error"),
}

_TRAITS: dict[str, Traits] = {
    "time": Traits(effect="looks"),
    "calculator": Traits(effect="looks"),
    "ask_user": Traits(effect="looks", other_names={"options": ("choices", "answers")}),
    "open_url": Traits(
        effect="looks",
        example={"url": "https://example.org/"},
        other_names={"url": ("address", "link", "page", "href")},
    ),
    "tool_lookup": Traits(effect="looks", other_names={"name": ("tool", "tool_name", "query")}),
    "memory_search": Traits(effect="looks", other_names={"limit": ("max_results", "count", "n")}),
    "file_list": Traits(effect="looks", example={"path": "."}),
    "file_read": Traits(
        effect="looks",
        other_names={
            "start_line": ("start", "from_line", "first_line", "line"),
            "max_lines": ("lines", "line_count", "num_lines"),
        },
    ),
    "file_write": Traits(effect="replaces", example=_WRITTEN),
    "file_edit": Traits(
        effect="changes",
        example={"path": "notes.txt", "old_text": "old words", "new_text": "new words"},
        other_names=_EDITED,
    ),
    "file_append": Traits(effect="adds", example=_WRITTEN),
    "glob": Traits(
        effect="looks",
        example={"pattern": "*.txt"},
        other_names={"pattern": ("glob", "glob_pattern", "file_pattern", "name", "filename")},
    ),
    "grep": Traits(
        effect="looks",
        example={"pattern": "words", "path": "."},
        other_names={
            "pattern": ("regex", "regexp", "query", "text", "search", "q"),
            "glob": ("include", "file_pattern", "glob_pattern"),
            "ignore_case": ("case_insensitive", "insensitive"),
            "max_results": ("limit", "head_limit", "max_count"),
        },
    ),
    "check_path": Traits(effect="looks", example=_FILE),
    "cwd": Traits(effect="looks"),
    "workspace": Traits(effect="looks"),
    "undo": Traits(effect="changes"),
    "fs_ops": Traits(
        effect="changes",
        example={"operations": [{"op": "read", "path": "notes.txt"}]},
        other_names={"operations": ("ops", "steps", "batch", "actions")},
    ),
    "shell": Traits(effect="acts", other_names={"timeout_s": ("timeout", "timeout_seconds")}),
    "evaluate": Traits(
        effect="looks",
        example={"code": "print(6 * 7)"},
        other_names={"code": ("python", "script", "source", "program", "input")},
    ),
    "http": Traits(effect="acts"),
    "web_search": Traits(effect="looks", other_names={"max_results": ("limit", "count", "n")}),
    "web_fetch": Traits(effect="looks"),
    "pdf_extract": Traits(
        effect="looks",
        example={"source": "paper.pdf"},
        other_names={"source": ("path", "file", "url", "filename", "file_path")},
    ),
    "render": Traits(
        effect="replaces",
        example={"source": "# Title\n\nSome text."},
        other_names={
            "source": ("markdown", "mermaid", "content", "text", "code", "diagram", "input"),
            "name": ("filename", "file", "path", "output"),
            "format": ("kind", "mode", "language"),
        },
        documents=("source",),
    ),
    "knowledge_save": Traits(
        effect="replaces", example={"keywords": "router password", "content": "It is on the box."}
    ),
    "knowledge_append": Traits(
        effect="adds", example={"keywords": "router password", "content": "Changed in May."}
    ),
    "knowledge_search": Traits(effect="looks", other_names={"keywords": ("query", "q", "search")}),
    "knowledge_load": Traits(effect="looks"),
    "knowledge_list": Traits(effect="looks"),
    "knowledge_delete": Traits(effect="changes"),
    "knowledge_keywords": Traits(effect="looks"),
    "plan": Traits(
        effect="adds",
        example={"action": "add", "text": "Read the notes"},
        other_names={"text": ("task", "title", "description", "content")},
        actions={
            "add": ((("text",), ()),),
            "update": ((("id", "status"), ("text",)), (("id", "text"), ())),
            "list": (((), ()),),
        },
        stand_ins={
            word: {"action": "update", "status": status}
            for status, words in _STEPS.items()
            for word in words
        },
    ),
}


def builtin_traits(name: str) -> Traits | None:
    """Return the traits of a tool of clawd; None for any other name."""
    return _TRAITS.get(name)
