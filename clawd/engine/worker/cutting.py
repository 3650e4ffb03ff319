"""Cuts long texts before llama.cpp's tokenizers get them: some take minutes, or end the process.

Measured with 0.3.36: a run of 50,000 letters without a blank overflows the stack of those that use
std::regex, and 100,000 special tokens in one text take 43 s, for the time grows with the square.
A special token is a border for every tokenizer, so a cut there changes nothing; within a run that
is longer than any word it may change a token, never the text.
"""

import re
from collections.abc import Iterable, Iterator

# Shorter texts are left alone.
LONG = 8192


class Cutter:
    """Cuts texts of one vocabulary.

    Args:
        special: how the special tokens are written that the tokenizer looks for.
        cuts_runs: also within long runs without a blank.
    """

    def __init__(self, special: Iterable[str], *, cuts_runs: bool) -> None:
        texts = sorted({text for text in special if text}, key=lambda text: (-len(text), text))
        first = "".join(sorted({re.escape(text[0]) for text in texts}))
        # Looked at first: vocabularies may have thousands of special tokens.
        pattern = f"(?=[{first}])(?:{'|'.join(map(re.escape, texts))})"
        self._special = re.compile(pattern) if texts else None
        self._run = re.compile(rf"\S{{{LONG}}}(?=\S)") if cuts_runs else None

    def cut(self, text: str) -> Iterator[str]:
        """Yield the text in pieces that are none too many and none too hard."""
        if len(text) <= LONG:
            yield text
            return
        begun = 0
        for at in self._places(text):
            yield text[begun:at]
            begun = at
        if begun < len(text):
            yield text[begun:]

    def _places(self, text: str) -> Iterator[int]:
        """Yield where to cut, in order: each LONG at a special token, and within long runs."""
        begun = plain = 0
        matches = self._special.finditer(text) if self._special is not None else iter(())
        for match in matches:
            for at in self._runs(text, plain, match.start()):
                begun = at
                yield at
            plain = match.end()
            if match.end() - begun >= LONG:
                begun = match.end()
                yield begun
        yield from self._runs(text, plain, len(text))

    def _runs(self, text: str, start: int, end: int) -> Iterator[int]:
        if self._run is None or end - start <= LONG:
            return
        for match in self._run.finditer(text, start, end):
            yield match.end()
