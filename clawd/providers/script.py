"""The script of the `mock` provider: its JSON form, checked in one pass.

{"replies": [
  {"when": "files", "tool_calls": [{"name": "file_list", "arguments": {"path": "."}}]},
  {"when": "files", "after": "tool", "text": "I see: {{last_tool_result}}"},
  {"text": "Hello.", "reasoning": "A greeting.", "delay_s": 0.1},
  {"error": {"kind": "http", "status": 500}}
]}
"""

import json
from pathlib import Path
from typing import Any, Literal

import msgspec

from clawd.errors import ConfigError

After = Literal["user", "tool", "any"]

MAX_SCRIPT_BYTES = 16 * 1024 * 1024


class ScriptedError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a reply fails; `status` belongs to kind `http`."""

    kind: Literal["network", "auth", "timeout", "http"]
    status: int = 500


class ScriptedCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call: arguments as an object, or as raw text that need not be JSON."""

    name: str
    arguments: dict[str, Any] | str = {}

    def raw_arguments(self) -> str:
        """Return the arguments as a model would have written them."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments, ensure_ascii=False)


class Reply(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reply of the script.

    Attributes:
        when: it answers a last user message that holds this text; None takes its turn in order.
        after: role of the last message; None is `user` with `when`, else `any`.
        first_offered: of the calls only the first whose tool is offered.
        error: what it ends with, after its text.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ScriptedCall, ...] = ()
    delay_s: float = 0.0
    error: ScriptedError | None = None
    when: str | None = None
    after: After | None = None
    first_offered: bool = False

    def fits(self, last_role: str) -> bool:
        """Say whether it may answer a message of this role."""
        after = self.after or ("any" if self.when is None else "user")
        return after in {"any", last_role}


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """All replies, in the order of the file."""

    replies: tuple[Reply, ...]


def load_script(path: Path) -> Script:
    """Read a script file.

    Raises:
        ConfigError: it cannot be read or is no script; names every problem.
    """
    try:
        if path.stat().st_size > MAX_SCRIPT_BYTES:
            raise ConfigError(f"script {path} is over {MAX_SCRIPT_BYTES} bytes")
        text = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"script {path} cannot be read: {error}",
            hint="Check `script` of the provider, or CLAWD_MOCK_SCRIPT.",
        ) from error
    return parse_script(text, source=str(path))


def parse_script(text: str, *, source: str = "script") -> Script:
    """Check a script's text.

    Raises:
        ConfigError: it is no script; names every problem.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{source} is not JSON: {error}", problems=(str(error),)) from error
    problems: list[str] = []
    replies = _replies(document, problems)
    if problems:
        lines = "\n".join(problems)
        raise ConfigError(f"{source} is no script:\n{lines}", problems=tuple(problems))
    return Script(replies=tuple(replies))


def _replies(document: object, problems: list[str]) -> list[Reply]:
    if not isinstance(document, dict) or not isinstance(document.get("replies"), list):
        problems.append('expected an object with a list "replies"')
        return []
    problems += [f"unknown key {key!r}; expected: replies" for key in document if key != "replies"]
    if not document["replies"]:
        problems.append("replies: the list is empty")
    replies: list[Reply] = []
    for number, entry in enumerate(document["replies"]):
        if reply := _reply(entry, f"replies[{number}]", problems):
            replies.append(reply)
    return replies


def _reply(entry: object, where: str, problems: list[str]) -> Reply | None:
    """Check key by key, so that every problem of a reply is named."""
    if not isinstance(entry, dict):
        problems.append(f"{where}: expected an object, got {entry!r}")
        return None
    types = {field.name: field.type for field in msgspec.structs.fields(Reply)}
    found: list[str] = []
    values: dict[str, Any] = {}
    for key, value in entry.items():
        if key not in types:
            found.append(f"{where}: unknown key {key!r}; expected: {', '.join(types)}")
            continue
        try:
            values[key] = msgspec.convert(value, types[key])
        except (msgspec.ValidationError, RecursionError) as error:
            found.append(f"{where}.{key}: {error}")
    delay_s = values.get("delay_s", 0.0)
    if not 0.0 <= delay_s < float("inf"):
        found.append(f"{where}.delay_s: expected seconds of 0 or more, got {delay_s!r}")
    problems += found
    return None if found else Reply(**values)
