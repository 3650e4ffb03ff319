"""A small terminal that breaks old rows anew when its width changes, as most terminals do.

It knows what a drawing writes and refuses anything else. pyte stands for those that do not reflow.
"""

import re

from clawctl.safe_stream import columns_of

_PARTS = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


class ReflowTerminal:
    """Lines as they were written, and a cursor in them; rows are what the width makes of them."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self._text: list[list[str]] = [[]]
        self._line, self._column, self._top = 0, 0, 0
        self._is_full = False  # the cursor waits in the last column of a row, and not in the next

    @property
    def text(self) -> list[str]:
        """Everything in scrollback and screen, without blanks at ends."""
        lines = ["".join(line).rstrip() for line in self._text]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def resize(self, columns: int, lines: int) -> None:
        self.columns, self.lines = columns, lines
        self._is_full = self._column > 0 and self._column % columns == 0
        self._top = max(sum(map(self._height, self._text)) - lines, 0)

    def feed(self, data: str) -> None:
        at = 0
        for match in _PARTS.finditer(data):
            assert match.start() == at, repr(data[at : match.start()])
            at = match.end()
            parameters, final, control, text = match.groups()
            if final:
                self._code(parameters, final)
            elif control == "\r":
                self._column = self._row_of_line() * self.columns
                self._is_full = False
            elif control == "\n":
                self._next()
            else:
                for character in text:
                    self._put(character)
        assert at == len(data), repr(data[at:])

    def _code(self, parameters: str, final: str) -> None:
        count = int(parameters) if parameters.isdecimal() else 1
        match final:
            case "A":
                for _ in range(count):
                    self._up()
            case "C":
                self._column += count
            case "K":
                del self._text[self._line][self._column :]
            case "J":
                del self._text[self._line][self._column :]
                del self._text[self._line + 1 :]
            case "m" | "h" | "l":
                pass
            case _:
                raise AssertionError(f"a drawing never sends {parameters}{final}")

    def _put(self, character: str) -> None:
        line = self._text[self._line]
        size = columns_of(character)
        if size == 0:
            if line:
                line[max(self._column - 1, 0)] += character
            return
        line += [" "] * (self._column - len(line))
        line[self._column : self._column + size] = [character, *[""] * (size - 1)]
        self._column += size
        self._is_full = self._column % self.columns == 0
        self._follow()

    def _next(self) -> None:
        self._line += 1
        if self._line == len(self._text):
            self._text.append([])
        self._column, self._is_full = 0, False
        self._follow()

    def _up(self) -> None:
        if self._row() <= self._top:
            return
        if self._row_of_line():
            self._column -= self.columns
        else:
            self._line -= 1
            self._column += (self._height(self._text[self._line]) - 1) * self.columns

    def _row(self) -> int:
        before = sum(self._height(line) for line in self._text[: self._line])
        return before + self._row_of_line()

    def _row_of_line(self) -> int:
        return (self._column - self._is_full) // self.columns

    def _follow(self) -> None:
        self._top = max(self._top, self._row() - self.lines + 1)

    def _height(self, line: list[str]) -> int:
        return max(-(-len(line) // self.columns), 1)
