"""Which of a few choices a word means: other verbs, other cases, one slip of the keys. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# What callers say for the choices of `action` and `status`; a word counts for a choice only where
# no other choice of the same argument could be meant by it.
_SAID_FOR: dict[str, tuple[str, ...]] = {
    "add": ("create", "new", "insert", "append", "push"),
    "append": ("add", "add_to", "append_to"),
    "check": ("exists", "stat", "check_exists", "file_info", "info", "check_path"),
    "cwd": ("pwd", "getcwd", "get_cwd", "current_dir", "current_directory", "where"),
    "delete": ("remove", "rm", "del", "erase", "drop"),
    "deleted": ("removed", "cancelled", "canceled", "dropped"),
    "done": ("complete", "completed", "finished", "ok", "success"),
    "edit": ("replace", "modify", "update", "change", "patch", "str_replace"),
    "error": ("failed", "failure", "blocked"),
    "fetch": ("read", "open", "browse", "visit", "read_page"),
    "glob": ("find_files", "find_file", "match_files"),
    "grep": ("search_text", "search_content", "search_contents", "rg"),
    "http": ("request", "http_request"),
    "list": ("ls", "dir", "show", "show_all", "list_files", "list_dir", "list_directory", "view"),
    "ops": ("batch", "operations", "multi"),
    "pdf": ("read_pdf", "extract_pdf", "extract"),
    "pending": ("todo", "to_do", "open", "not_started", "waiting"),
    "read": ("cat", "get", "open", "view", "show", "load", "read_file"),
    "search": ("web_search", "search_web", "google", "find", "query"),
    "undo": ("revert", "rollback", "undo_last"),
    "update": ("change", "set", "modify", "edit", "mark", "set_status"),
    "working": ("in_progress", "doing", "started", "active", "wip", "running"),
    "write": ("create", "save", "put", "overwrite", "new", "write_file", "create_file"),
}
MIN_LENGTH_OF_A_SLIP = 4

NO_CHOICE: Any = object()


def choice_of(
    value: Any,
    choices: Iterable[Any],
    said: Mapping[str, str] | None = None,
    *,
    is_exact: bool = False,
) -> Any:
    """Return the one choice that a value means; NO_CHOICE when there is none, or more than one.

    Args:
        value: what was given.
        choices: what may be given.
        said: further words for choices.
        is_exact: no other word and no slip counts, only case and separators are overlooked.
    """
    known = list(choices)
    if any(value == choice and type(value) is type(choice) for choice in known):
        return value
    word = _plain(value)
    if is_exact:
        same = [choice for choice in known if _plain(choice) == word]
        return same[0] if len(same) == 1 and isinstance(value, str) else NO_CHOICE
    by_text = {_plain(choice): choice for choice in known}
    if word in by_text:
        return by_text[word]
    if said and word in said and said[word] in known:
        return said[word]
    meant = [choice for text, choice in by_text.items() if word in _SAID_FOR.get(text, ())]
    if not meant:
        long = [text for text in by_text if min(len(word), len(text)) >= MIN_LENGTH_OF_A_SLIP]
        meant = [by_text[text] for text in long if is_slip_of_keys(word, text)]
    return meant[0] if len(meant) == 1 else NO_CHOICE


def is_one_slip(given: str, meant: str) -> bool:
    """Tell whether one letter was left out, put in, exchanged or swapped with its neighbour."""
    if abs(len(given) - len(meant)) > 1 or given == meant:
        return False
    at = next((i for i, (a, b) in enumerate(zip(given, meant, strict=False)) if a != b), None)
    if at is None:
        return True  # one is the beginning of the other
    tails = (
        (given[at + 1 :], meant[at + 1 :]),
        (given[at:], meant[at + 1 :]),
        (given[at + 1 :], meant[at:]),
    )
    is_swap = given[at : at + 2] == meant[at : at + 2][::-1] and given[at + 2 :] == meant[at + 2 :]
    return is_swap or any(one == other for one, other in tails)


def is_slip_of_keys(given: str, meant: str) -> bool:
    """Return whether a word is another one with one slip inside.

    The first letter of each part must be the same: `sync` and `async`, `mount` and `amount`,
    `hire` and `fire` are a letter apart, too, and no slips.
    """
    return begin_alike(given.split("_"), meant.split("_")) and is_one_slip(given, meant)


def begin_alike(given: Sequence[str], meant: Sequence[str]) -> bool:
    """Return whether as many words begin with the same letters."""
    return [word[:1] for word in given] == [word[:1] for word in meant]


def distance(given: str, meant: str) -> int:
    """Return how many letters part two words: put in, left out, exchanged or swapped."""
    before: list[int] = []
    row = list(range(len(meant) + 1))
    for i, letter in enumerate(given, 1):
        after = [i]
        for j, other in enumerate(meant, 1):
            cost = min(row[j] + 1, after[j - 1] + 1, row[j - 1] + (letter != other))
            if i > 1 and j > 1 and letter == meant[j - 2] and given[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            after.append(cost)
        before, row = row, after
    return row[-1]


def _plain(value: Any) -> str:
    """Return a word in lower case, its parts joined by underscores."""
    text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(value).strip().strip("\"'`"))
    return re.sub(r"[\s_.-]+", "_", text).strip("_").lower()
