"""What is near to a text that is not there: found in a bounded time, whatever the texts are."""

from clawd.tools.builtin.file_text import nearest_text

# So many letters that none is common, which is what comparing takes longest for.
_LETTERS = "".join(chr(0x4E00 + number) for number in range(300))


def test_lines_of_any_length_are_compared_by_how_they_begin() -> None:
    # In full these two take hours to compare, in a thread that nothing can end.
    here, wanted = _LETTERS * 3_000, _LETTERS[:250] + _LETTERS[::-1] * 3_000
    assert nearest_text(f"first\n{here}\nlast", wanted) == f"2|{here}"


def test_only_so_many_lines_are_compared() -> None:
    lines = [f"{number:06} {'abcdefgh' * 20}" for number in range(5_000)]
    assert nearest_text("\n".join([*lines, "the one"]), "the ome") == ""
    assert nearest_text("\n".join(["the one", *lines]), "the ome") == "1|the one"
