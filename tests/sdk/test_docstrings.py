"""What is read out of docstrings."""

from clawd.sdk.docstrings import Told, read_docstring

GOOGLE = """Find a book.

    It may be in the cellar.

    Args:
        title: of the book, which may
            be long: very long.
        copies (int): how many.
        **more: whatever.

    Returns:
        shelf: not an argument.

    Raises:
        KeyError: no such book.
    """

SPHINX = """Find a book.

    :param title: of the book,
        on its cover
    :param int copies: how many
    :returns: the shelf
    :raises KeyError: never
    """


def test_google_style_is_read() -> None:
    assert read_docstring(GOOGLE) == Told(
        short="Find a book.",
        text="Find a book.\n\nIt may be in the cellar.",
        arguments={
            "title": "of the book, which may be long: very long.",
            "copies": "how many.",
            "more": "whatever.",
        },
    )


def test_param_fields_are_read() -> None:
    assert read_docstring(SPHINX) == Told(
        short="Find a book.",
        text="Find a book.",
        arguments={"title": "of the book, on its cover", "copies": "how many"},
    )


def test_a_line_that_looks_like_an_entry_belongs_to_its_argument_when_it_is_set_in() -> None:
    told = read_docstring("Do.\n\nArgs:\n    mode: one of\n        fast: no checks\n    other: x")
    assert told.arguments == {"mode": "one of fast: no checks", "other": "x"}


def test_nothing_is_read_out_of_nothing() -> None:
    assert read_docstring(None) == Told()
    assert read_docstring("  \n ") == Told()
    assert read_docstring("Args:\n    x: a value") == Told(arguments={"x": "a value"})
