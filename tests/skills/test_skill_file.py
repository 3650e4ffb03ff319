"""Forty files and more, and what the standard says of each; each problem with its line."""

from clawd.skills.skill_file import MAX_FILE_BYTES, read_skill_file
from tests.support.rows import each_row

FOLDER = "notes"


def fields(*lines: str) -> str:
    return "\n".join(("---", *lines, "---", "Body", ""))


NAME, ABOUT = f"name: {FOLDER}", "description: Sorts notes."

GOOD: dict[str, str] = {
    "the least": fields(NAME, ABOUT),
    "an empty body": f"---\n{NAME}\n{ABOUT}\n---\n",
    "no line break at the end": f"---\n{NAME}\n{ABOUT}\n---",
    "line ends of windows": fields(NAME, ABOUT).replace("\n", "\r\n"),
    "comments and empty lines": fields("# by ada", NAME, "", ABOUT + "  # short"),
    "double quotes": fields(NAME, r'description: "Sorts: \"notes\"."'),
    "single quotes": fields(NAME, "description: 'It''s for: notes.'"),
    "a folded block": fields(NAME, "description: >-", "  Sorts", "  notes."),
    "a literal block": fields(NAME, "description: |", "  Sorts", "", "  - notes: all"),
    "a text over two lines": fields(NAME, "description: Sorts", "  notes."),
    "a text that begins below": fields(NAME, "description:", "  Sorts notes."),
    "quotes over two lines": fields(NAME, 'description: "Sorts', '  notes."'),
    "the longest description": fields(NAME, "description: " + "x" * 1024),
    "all fields": fields(
        NAME,
        ABOUT,
        "license: Apache-2.0",
        "compatibility: Needs git",
        "metadata:",
        "  author: ada",
        '  version: "1.0"',
        "allowed-tools: Read Bash(git:*)",
    ),
    "a list of tools": fields(NAME, ABOUT, "allowed-tools:", "  - Read", "  - Bash(git:*)"),
    "a list that is not set in": fields(NAME, ABOUT, "allowed-tools:", "- Read", "- Grep"),
    "a list on one line": fields(NAME, ABOUT, "allowed-tools: [Read, Grep]"),
    "the longest compatibility": fields(NAME, ABOUT, "compatibility: " + "x" * 500),
    "other letters": fields(NAME, "description: Räumt Notizen auf 🧹 整理"),
    "a number as text": fields(NAME, "description: 42"),
    "a body with fences": fields(NAME, ABOUT) + "\n---\nname: other\n---\n",
    "an address": fields(NAME, "description: See https://example.org/#top"),
}

BAD: dict[str, tuple[str, int, str]] = {
    "nothing": ("", 1, "does not begin"),
    "no fields": ("# Notes\n", 1, "does not begin"),
    "a mark of byte order": ("\ufeff" + fields(NAME, ABOUT), 1, "does not begin"),
    "no end of the fields": (f"---\n{NAME}\n{ABOUT}\n", 1, "second line"),
    "no name": (fields(ABOUT), 1, "`name` is missing"),
    "no description": (fields(NAME), 1, "`description` is missing"),
    "an empty name": (fields("name:", ABOUT), 2, "`name` is empty"),
    "an empty description": (fields(NAME, 'description: ""'), 3, "`description` is empty"),
    "blanks for a description": (fields(NAME, "description: '  '"), 3, "is empty"),
    "another name than the folder's": (fields("name: other", ABOUT), 2, "the folder is"),
    "capitals": (fields("name: Notes", ABOUT), 2, "lower-case"),
    "a leading hyphen": (fields("name: -notes", ABOUT), 2, "lower-case"),
    "a hyphen at the end": (fields("name: notes-", ABOUT), 2, "lower-case"),
    "two hyphens": (fields("name: my--notes", ABOUT), 2, "lower-case"),
    "an underscore": (fields("name: my_notes", ABOUT), 2, "lower-case"),
    "a dot": (fields("name: ../notes", ABOUT), 2, "lower-case"),
    "a blank in the name": (fields("name: my notes", ABOUT), 2, "lower-case"),
    "letters that look like others": (fields("name: n\u043etes", ABOUT), 2, "lower-case"),
    "a name of 65": (fields("name: " + "a" * 65, ABOUT), 2, "65 characters"),
    "a description of 1025": (fields(NAME, "description: " + "x" * 1025), 3, "1025 characters"),
    "a compatibility of 501": (fields(NAME, ABOUT, "compatibility: " + "x" * 501), 4, "501"),
    "an empty compatibility": (fields(NAME, ABOUT, "compatibility:"), 4, "leave it out"),
    "an unknown field": (fields(NAME, ABOUT, "version: 1.0"), 4, "no field of the standard"),
    "a field twice": (fields(NAME, ABOUT, "name: notes"), 4, "twice"),
    "a colon in plain text": (fields(NAME, "description: Use when: notes"), 3, "quotes"),
    "quotes that stay open": (fields(NAME, 'description: "Sorts'), 3, "end with it"),
    "text after quotes": (fields(NAME, "description: 'Sorts' notes"), 3, "end with it"),
    "an unknown escape": (fields(NAME, r'description: "a\qb"'), 3, "knows only"),
    "an anchor": (fields(NAME, "description: &x Sorts"), 3, "more of YAML"),
    "an alias": (fields(NAME, "description: *x"), 3, "more of YAML"),
    "a tag": (fields(NAME, "description: !!python/name:os.system x"), 3, "more of YAML"),
    "a list for a name": (fields("name: [notes]", ABOUT), 2, "more of YAML"),
    "a map for a description": (fields(NAME, "description:", "  a: b"), 3, "must be a text"),
    "a list for a description": (fields(NAME, "description:", "  - a"), 3, "must be a text"),
    "a text for metadata": (fields(NAME, ABOUT, "metadata: ada"), 4, "must be a map"),
    "a map within metadata": (fields(NAME, ABOUT, "metadata:", "  a:", "    b: c"), 6, "set in"),
    "metadata in braces": (fields(NAME, ABOUT, "metadata: {a: b}"), 4, "more of YAML"),
    "a key of metadata twice": (fields(NAME, ABOUT, "metadata:", "  a: 1", "  a: 2"), 6, "twice"),
    "a map of tools": (fields(NAME, ABOUT, "allowed-tools:", "  a: b"), 4, "text or a list"),
    "a list within the list": (fields(NAME, ABOUT, "allowed-tools:", "- a", "  - b"), 6, "item"),
    "a line without a key": (fields(NAME, ABOUT, "notes"), 4, "no `key: value`"),
    "no blank behind the colon": (fields("name:notes", ABOUT), 2, "no `key: value`"),
    "set in from the start": (fields("  x: y", NAME, ABOUT), 2, "nothing stands above"),
    "an escape sequence": (fields(NAME, "description: a\x1b[2Jb"), 3, "hidden"),
    "a character that turns the line": (fields(NAME, "description: a\u202eb"), 3, "hidden"),
    "one that is written out": (fields(NAME, r'description: "a\u202eb"'), 3, "hidden"),
    "hidden letters": (fields(NAME, "description: a\U000e0041b"), 3, "hidden"),
    "half a character": (fields(NAME, r'description: "a\ud800b"'), 3, "hidden"),
}


@each_row("what", GOOD)
def test_what_the_standard_allows_is_a_skill(what: str) -> None:
    found = read_skill_file(GOOD[what].encode(), FOLDER)
    assert found.problems == ()
    assert found.name == FOLDER
    assert found.description


@each_row("what", BAD)
def test_what_it_does_not_allow_is_none_and_the_line_is_told(what: str) -> None:
    text, line, why = BAD[what]
    found = read_skill_file(text.encode(), FOLDER)
    assert any(each.line == line and why in each.text for each in found.problems), found.problems


def test_values_are_what_yaml_makes_of_them() -> None:
    found = read_skill_file(GOOD["all fields"].encode(), FOLDER)
    assert found.metadata == {"author": "ada", "version": "1.0"}
    assert found.allowed_tools == ("Read", "Bash(git:*)")
    assert (found.license, found.compatibility, found.body) == ("Apache-2.0", "Needs git", "Body")
    texts = {what: read_skill_file(text.encode(), FOLDER) for what, text in GOOD.items()}
    assert texts["double quotes"].description == 'Sorts: "notes".'
    assert texts["single quotes"].description == "It's for: notes."
    assert texts["a folded block"].description == "Sorts notes."
    assert texts["a literal block"].description == "Sorts\n\n- notes: all"
    assert texts["quotes over two lines"].description == "Sorts notes."
    assert texts["comments and empty lines"].description == "Sorts notes."
    assert texts["an address"].description == "See https://example.org/#top"
    assert texts["a list on one line"].allowed_tools == ("Read", "Grep")
    assert texts["a list that is not set in"].allowed_tools == ("Read", "Grep")


def test_every_problem_is_told_in_the_order_of_lines() -> None:
    text = fields("name: My Notes", "version: 1", "metadata: x", "compatibility:")
    found = read_skill_file(text.encode(), FOLDER)
    assert [each.line for each in found.problems] == [1, 2, 3, 4, 5]


def test_what_is_no_text_or_too_large_is_told() -> None:
    assert "no UTF-8" in read_skill_file(b"---\nname: \xff", FOLDER).problems[0].text
    assert read_skill_file(b"---\nname: \xff", FOLDER).problems[0].line == 2
    large = fields(NAME, ABOUT).encode() + b"x" * MAX_FILE_BYTES
    assert "at most" in read_skill_file(large, FOLDER).problems[0].text


@each_row("piece", ["a", " ", "(", '"', "a: ", "- ", "#", "\\", "'", "---\n", ": "])
def test_a_file_of_one_thing_is_read_at_once(piece: str) -> None:
    text = f"---\nallowed-tools: {piece * 60_000}\nmetadata:\n  {piece * 60_000}\n---\n"
    read_skill_file(text.encode(), FOLDER)  # or the test runs into its time limit
