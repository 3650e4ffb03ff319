"""Titles for conversations: the first words of what was said first."""

from typing import Literal

from clawd.wire.safe_text import shortened, single_line

Titles = Literal["first-words", "model"]

TITLE_LIMIT = 60


def title_of(text: str) -> str:
    """Return a title of at most 60 characters on one line; "conversation" for empty text."""
    words = " ".join(single_line(text, 1000).split())
    return shortened(words, TITLE_LIMIT) or "conversation"
