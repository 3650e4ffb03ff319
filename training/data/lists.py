"""The word lists of words/lists.toml as constants, and their split."""

import tomllib
from pathlib import Path

WORDS = Path(__file__).parents[1] / "words"
_LISTS: dict[str, list[str]] = tomllib.loads((WORDS / "lists.toml").read_text("utf-8"))

EXTENSIONS = _LISTS["extensions"]
FUNCTION_WORDS = _LISTS["function_words"]
STOP_WORDS = frozenset(_LISTS["stop_words"])
DIRECTORIES = _LISTS["directories"]
FILE_STEMS = _LISTS["file_stems"]
WELL_KNOWN_FILES = _LISTS["well_known_files"]
NOUNS = _LISTS["nouns"]
VERBS = _LISTS["verbs"]
ADJECTIVES = _LISTS["adjectives"]
PEOPLE = _LISTS["people"]
PLACES = _LISTS["places"]
WEEKDAYS = _LISTS["weekdays"]
DAYS = [*WEEKDAYS, "tomorrow", "today", "March", "June"]
BARE_COMMANDS = _LISTS["bare_commands"]
COMMANDS = [*BARE_COMMANDS, *_LISTS["other_commands"]]
COMMAND_FORMS = _LISTS["command_forms"]
URL_SEGMENTS = _LISTS["url_segments"]


def side(items: list[str], *, held_out: bool) -> list[str]:
    """Returns the last sixth of a list for evaluation, or the rest for training."""
    cut = max(2, len(items) // 6)
    return items[-cut:] if held_out else items[:-cut]
