"""Which commands an answer proposes."""

from clawctl.shell.turn import MAX_COMMAND_CHARS, MAX_PROPOSALS, proposals_in
from tests.support.rows import each_row


def commands(text: str) -> list[str]:
    return [each.command for each in proposals_in(text)]


@each_row(
    ("text", "expected"),
    [
        ("no command", []),
        ("Run:\n```sh\nmake clean && make\n```\nthen", ["make clean && make"]),
        ("```bash\ncd src\nmake\n```", ["cd src\nmake"]),
        ("```console\n$ ls -l\ntotal 0\n$ pwd\n```", ["ls -l\npwd"]),
        ("```sh\n$ ls\n```", ["ls"]),
        ("```python\nprint()\n```", []),
        ("```\nplain block\n```", []),
        ("CMD: ls -l\ntext CMD: no\n CMD: no", ["ls -l"]),
        ("```text\nCMD: quoted\n```", []),
        ("~~~~shell\n```\necho\n~~~~", ["```\necho"]),
        ("```sh\nnever closed", []),
        ("```sh\n# only a comment\n```", []),
        ("```sh\n# why\nls\n```", ["# why\nls"]),
        ("```sh\nls\n```\nCMD: ls", ["ls"]),
        ("```sh\r\nls\r\n```\r\n", ["ls"]),
    ],
)
def test_finds_what_is_proposed(text: str, expected: list[str]) -> None:
    assert commands(text) == expected


@each_row(
    "command", ["ls \x1b[2J", "ls \u202etxt", "rm\u00a0-r x", "a\rb", "x\u200b", "\U000e0041"]
)
def test_what_hides_something_may_not_stand_in_a_prompt(command: str) -> None:
    (found,) = proposals_in(f"CMD: echo {command} end")
    assert found.problem
    assert "‹U+" in found.shown
    assert "\x1b" not in found.shown


def test_a_command_has_a_length_and_an_answer_a_number_of_them() -> None:
    (found,) = proposals_in(f"CMD: {'x' * (MAX_COMMAND_CHARS + 1)}")
    assert found.problem
    assert len(commands("\n".join(f"CMD: echo {n}" for n in range(50)))) == MAX_PROPOSALS
