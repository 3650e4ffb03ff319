"""Which tool a name means, and which choice a word: other spellings, other words, one slip. Pure.

A word from the table means the tool that does that very thing. A misspelt name is followed only
where one tool alone can be meant, never to one that does more to the world than another tool that
the name might be read as, and to tools of clawd alone: what a server, a plugin or a program brings
goes by its own name or not at all (`crm-eu__delete_record` is never `crm-us__delete_record`).
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
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
ALIASES: dict[str, str] = {
    alias: tool
    for tool, aliases in {
        "time": (
            "now datetime date clock get_time current_time time_now get_current_time get_datetime "
            "current_datetime get_date current_date"
        ),
        "calculator": "calc calculate math compute arithmetic",
        "ask_user": "ask ask_human ask_question ask_the_user ask_followup_question",
        "memory_search": "search_conversations conversation_search memory_query",
        "tool_lookup": (
            "help list_tools tool_list lookup_tool tool_help man tool_search describe_tool"
        ),
        "file_list": (
            "ls dir list list_dir list_directory list_files directory_list listdir list_folder"
        ),
        "file_read": (
            "cat read read_file open_file view_file file_view read_text_file file_open load_file "
            "file_cat show_file get_file"
        ),
        "file_write": (
            "write write_file create_file save_file write_to_file file_create file_save new_file"
        ),
        "file_edit": (
            "edit edit_file modify_file file_modify str_replace replace_in_file search_replace "
            "file_replace file_update update_file"
        ),
        "file_append": "append append_file append_to_file add_to_file",
        "glob": "find_files find_file file_search_by_name glob_search file_glob",
        "grep": (
            "rg ripgrep grep_search search_text search_in_files file_grep search_file_content "
            "search_content search_contents grep_files"
        ),
        "check_path": (
            "path_check path_exists file_exists exists stat file_info get_file_info check_file "
            "file_stat"
        ),
        "cwd": "pwd getcwd get_cwd current_directory get_current_directory",
        "workspace": "get_workspace list_allowed_directories",
        "undo": "undo_last undo_edit undo_change",
        "fs_ops": "fs_batch file_ops batch_ops file_batch ops",
        "shell": (
            "bash sh zsh terminal cmd console command run_command run_shell run_bash "
            "run_shell_command execute_command exec_command shell_command shell_exec execute_shell "
            "execute_bash bash_command run_in_terminal command_line shell_run"
        ),
        "evaluate": (
            "python python3 py run_python execute_python python_repl code_interpreter "
            "run_python_code python_interpreter run_code execute_code eval"
        ),
        "http": "http_request request web_request web_http",
        "web_search": (
            "search_web internet_search google google_search ddg duckduckgo duckduckgo_search "
            "online_search websearch"
        ),
        "web_fetch": (
            "fetch fetch_url fetch_page fetch_webpage read_url browse read_webpage get_webpage "
            "web_read webfetch"
        ),
        "pdf_extract": "pdf read_pdf pdf_read extract_pdf pdf_to_text web_pdf",
        "render": "render_markdown markdown_to_html render_mermaid mermaid",
        "plan": "todo todos tasks",
        "knowledge_save": "save_knowledge remember knowledge_write save_memory",
        "knowledge_search": "search_knowledge knowledge_find",
        "knowledge_load": "load_knowledge knowledge_read knowledge_get",
        "knowledge_delete": "delete_knowledge knowledge_remove forget",
    }.items()
    for alias in aliases.split()
}
# Words that two tools answer to; the arguments tell which one is meant, or nobody does.
EITHER: dict[str, tuple[str, ...]] = {
    "execute": ("shell", "evaluate"),
    "exec": ("shell", "evaluate"),
    "run": ("shell", "evaluate"),
    "search": ("grep", "glob", "memory_search", "web_search", "knowledge_search"),
    "find": ("grep", "glob"),
    "search_files": ("grep", "glob"),
    "file_search": ("grep", "glob"),
    "save": ("file_write", "knowledge_save"),
}
SEPARATOR = "__"
_WRAPPERS = re.compile(r"^(?:functions?|tools?|default_api|clawd|assistant)[.:/]+|^mcp__clawd__")
_AFTER = re.compile(r"(?:<\|.*|\(\s*\)|:\d+|\s)+$", re.DOTALL)
_HEAD = re.compile(r"^([A-Za-z0-9-]+)[.:/]")
_MIN_LENGTH = 6
_LONG = 12
_MARGIN_OF_WORDS, _MARGIN_OF_NAMES = 1, 2
_SHOWN = 3
_FAR = 8
_LONGEST = 64
_READ = 512  # with what stands around it; a longer name is never cut down to one that exists


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
    """Return whether one letter was left out, put in, exchanged or swapped with its neighbour."""
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
    return _begin_alike(given.split("_"), meant.split("_")) and is_one_slip(given, meant)


def _begin_alike(given: Sequence[str], meant: Sequence[str]) -> bool:
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


"""What stands between a server and its tool in a name (see mcp.naming)."""


def cleaned(name: str) -> str:
    """Return a name without what models put around it: `functions.`, `()`, quotes."""
    text = name[:_READ].strip().strip("\"'`").strip()
    text = _AFTER.sub("", text)
    return _WRAPPERS.sub("", text)


def words_of(name: str) -> tuple[str, ...]:
    """Return the words of a name: `fileRead`, `file-read` and `FILE_READ` have the same."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return tuple(word for word in re.split(r"[^a-z0-9]+", parted.lower()) if word)


def is_of_a_server(name: str, aliases: Collection[str]) -> bool:
    """Return whether a name is that of a server's tool: `crm__delete`, `crm.delete`.

    Args:
        name: what was called.
        aliases: the servers that have tools here; with two underscores it is any server's.
    """
    head = _HEAD.match(name.strip())
    return SEPARATOR in cleaned(name) or (head is not None and head[1] in aliases)


def near_name(name: str, known: Mapping[str, str], rank: Mapping[str, int]) -> str | None:
    """Return the one tool that a name can mean; None when there is none, or more than one.

    Args:
        name: a cleaned name that is no tool's.
        known: names and other words, and the tool that each of them means.
        rank: how far each tool goes; 0 only looks.
    """
    words = words_of(name)
    joined = "".join(words)
    same = {tool for spelling, tool in known.items() if "".join(words_of(spelling)) == joined}
    if not same and len(words) > 1:
        ordered = sorted(words)
        same = {tool for spelling, tool in known.items() if sorted(words_of(spelling)) == ordered}
    if same:
        return same.pop() if len(same) == 1 else None
    return _misspelt(words, known, rank)


def nearest(name: str, known: Mapping[str, str]) -> list[str]:
    """Return up to three tools that a name is most like, the nearest first."""
    name = name[:_LONGEST]
    words, joined = set(words_of(name)), "".join(words_of(name))
    scores: dict[str, float] = {}
    for spelling, tool in known.items():
        shape = "".join(words_of(spelling))
        longer = max(len(joined), len(shape), 1)
        score = 1 - distance(joined, shape) / longer
        if shared := words & set(words_of(spelling)):
            score = max(score, 0.5 * sum(map(len, shared)) / max(map(len, (joined, shape))) + 0.3)
        scores[tool] = max(score, scores.get(tool, 0.0))
    ordered = sorted(scores, key=lambda tool: (-scores[tool], tool))
    return [tool for tool in ordered if scores[tool] >= 0.45][:_SHOWN]


def _misspelt(
    words: tuple[str, ...], known: Mapping[str, str], rank: Mapping[str, int]
) -> str | None:
    joined = "".join(words)
    if not _MIN_LENGTH <= len(joined) <= _LONGEST:
        return None
    far = [
        (distance(joined, "".join(words_of(spelling))), tool, spelling)
        for spelling, tool in known.items()
        if abs(len(spelling) - len(joined)) <= _FAR
    ]
    best = min((parts for parts, _, _ in far), default=_LONGEST)
    if best > (2 if len(joined) >= _LONG else 1):
        return None
    meant = {tool for parts, tool, _ in far if parts == best}
    readings = {
        tool
        for parts, tool, spelling in far
        if parts <= best + (_MARGIN_OF_NAMES if spelling == tool else _MARGIN_OF_WORDS)
    }
    # `unread_file` and `x_shell` are letters away from names, and no slips of the keys.
    nearest_ones = [words_of(spelling) for parts, _, spelling in far if parts == best]
    if len(meant) != 1 or not any(_is_spelt_like(words, each) for each in nearest_ones):
        return None
    (one,) = meant
    return None if any(rank[tool] < rank[one] for tool in readings) else one


def _is_spelt_like(words: tuple[str, ...], meant: tuple[str, ...]) -> bool:
    if len(words) == 1:
        return words[0][:1] == meant[0][:1]
    return _begin_alike(words, meant)
