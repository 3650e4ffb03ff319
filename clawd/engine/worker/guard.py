"""Keeps the text of messages from becoming control tokens.

A marker, a character that no text may interchange (Unicode noncharacter U+FDD0), is put behind
the first character of every special token that is written out in a message. Rendered text is
cut at the markers before it is tokenised, so a tokeniser sees `<` and `|im_end|>` apart and finds
no special token, whatever the template did with the text around it.
"""

import re
from collections.abc import Iterable
from typing import Any

from clawd.engine.worker.backend import SpecialToken

MARKER = "\ufdd0"
_REPLACEMENT = "\ufffd"


class Guard:
    """Marks special tokens in text; made for one vocabulary and its template.

    Control tokens are marked everywhere. User-defined ones (`<tool_call>`, `<think>`) only where
    the template gives them a meaning, as vocabularies list HTML tags and white space among them
    too, and not in what the model itself said before.
    """

    def __init__(self, special_tokens: Iterable[SpecialToken], template_source: str) -> None:
        tokens = [token for token in special_tokens if token.text]
        control = {token.text for token in tokens if token.is_control}
        defined = {
            token.text
            for token in tokens
            if len(token.text.strip()) > 2 and token.text in template_source
        }
        self._any = _pattern({token.text for token in tokens})
        self._control = _pattern(control)
        self._all = _pattern(control | defined)

    def mark(self, text: str) -> str:
        """Return text of a user, a tool or an operator with special tokens marked."""
        return _mark(text, self._all)

    def mark_own(self, text: str) -> str:
        """Return text that the model wrote with control tokens marked."""
        return _mark(text, self._control)

    def mark_value(self, value: Any) -> Any:
        """Return a JSON-like value with every string in it marked."""
        if isinstance(value, str):
            return self.mark(value)
        if isinstance(value, dict):
            return {self.mark_value(key): self.mark_value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.mark_value(item) for item in value]
        return value

    def is_border(self, text: str, position: int) -> bool:
        """Return whether a tokeniser cuts at this position: the end, or a special token."""
        if position >= len(text):
            return True
        return self._any is not None and self._any.match(text, position) is not None


def _pattern(texts: set[str]) -> re.Pattern[str] | None:
    if not texts:
        return None
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, longest_first)))


def _mark(text: str, pattern: re.Pattern[str] | None) -> str:
    text = text.replace(MARKER, _REPLACEMENT)
    if pattern is None:
        return text
    # Marking one may leave another that began inside it; each round marks shorter ones.
    while pattern.search(text):
        text = pattern.sub(_with_marker, text)
    return text


def _with_marker(match: re.Match[str]) -> str:
    found = match.group()
    return f"{found[0]}{MARKER}{found[1:]}" if len(found) > 1 else _REPLACEMENT
