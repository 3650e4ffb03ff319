"""The built-in values of the configuration that are longer than a number."""

from typing import Any

from clawd.paths import Layout

ALLOWED_COMMANDS: tuple[str, ...] = (
    "ls", "cat", "head", "tail", "wc", "grep", "rg", "find", "sort", "uniq", "cut", "tr",
    "date", "pwd", "echo", "stat", "file", "du", "df", "diff", "tree", "which",
    "git status", "git log", "git diff", "git show", "git branch",
)  # fmt: skip
FORBIDDEN_COMMANDS: tuple[str, ...] = ("rm", "shutdown", "reboot", "mkfs", "dd")
FORBIDDEN_PATHS: tuple[str, ...] = ("/etc", "/sys", "/boot", "~/.ssh")
WORKSPACE_ROOTS: tuple[str, ...] = ("~",)
POLICY_CASES = "policy-cases.toml"

LOCAL_PROVIDER = "local"
EMBEDDED_MODEL = "embedded"
PROVIDERS: dict[str, dict[str, Any]] = {
    LOCAL_PROVIDER: {"kind": "local", "model": EMBEDDED_MODEL},
    "mock": {"kind": "mock"},
}

SOURCE_DEFAULT = "default"


def default_tree(layout: Layout) -> dict[str, Any]:
    """Return the values that depend on where clawd lives, in the shape of the file."""
    return {
        "workspace_dir": str(layout.workspace),
        "memory": {"path": str(layout.database)},
        "knowledge": {"path": str(layout.knowledge)},
        "receipts": {"path": str(layout.receipts)},
        "security": {
            "forbidden_paths": list(FORBIDDEN_PATHS),
            "workspace_roots": list(WORKSPACE_ROOTS),
            "policy_cases": str(layout.config.with_name(POLICY_CASES)),
        },
        "external_tools": {"dir": str(layout.external_tools)},
        "providers": {"models": {name: dict(values) for name, values in PROVIDERS.items()}},
    }
