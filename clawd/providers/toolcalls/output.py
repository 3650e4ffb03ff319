"""Gathers what a parser found as deltas, and settles the blanks between text, reasoning, calls."""

from clawd.providers.base import CallDelta, Reasoning, Text
from clawd.providers.toolcalls.base import ParsedDelta


class Output:
    """The deltas of one answer.

    Blanks around a call and around reasoning belong to neither; parts that they separate are
    joined by one line break. All other blanks stay as they were written.
    """

    def __init__(self) -> None:
        self._text = _Stream(is_apart=False)
        self._reasoning = _Stream(is_apart=True)
        self._deltas: list[ParsedDelta] = []
        self._calls = 0
        self._ids: set[str] = set()
        self._written: list[str] | None = None  # a call that is being told: name, arguments

    def add_text(self, text: str) -> None:
        """Append text of the answer."""
        if text := self._text.take(text):
            self._deltas.append(Text(text=text))

    def add_reasoning(self, text: str) -> None:
        """Append reasoning."""
        if text := self._reasoning.take(text):
            self._deltas.append(Reasoning(text=text))

    def add_call(self, name: str, arguments: str, call_id: str = "") -> None:
        """Append a whole call; an id that was there before is left out.

        Of one that was told while it was written, what is left to tell.
        """
        if self._written is not None:
            rest = arguments.removeprefix("".join(self._written[1:]))
            is_same = name == self._written[0] and rest != arguments
            if rest and is_same:
                self._deltas.append(CallDelta(index=self._calls, arguments=rest))
            self.leave_call()
            return
        self.part()
        if call_id in self._ids:
            call_id = ""
        self._ids.add(call_id)
        self._deltas.append(
            CallDelta(index=self._calls, id=call_id, name=name, arguments=arguments)
        )
        self._calls += 1

    def write_call(self, name: str, arguments: str) -> None:
        """Tell more of the arguments of the call that is being written; its name comes first."""
        if self._written is None:
            self.part()
            self._written = [name]
            self._deltas.append(CallDelta(index=self._calls, name=name))
        self._written.append(arguments)
        self._deltas.append(CallDelta(index=self._calls, arguments=arguments))

    def leave_call(self) -> bool:
        """End the call that is being written, as far as it came; return whether there was one."""
        was_written, self._written = self._written is not None, None
        self._calls += was_written
        return was_written

    def part(self) -> None:
        """End the part of text or reasoning that is being written."""
        self._text.part()
        self._reasoning.part()

    def take(self) -> list[ParsedDelta]:
        """Return the deltas since the last time."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def finish(self) -> list[ParsedDelta]:
        """Return the last deltas: blanks at the end of text are text."""
        if text := self._text.rest():
            self._deltas.append(Text(text=text))
        return self.take()


class _Stream:
    def __init__(self, *, is_apart: bool) -> None:
        self._is_apart = is_apart
        self._has_any = False
        self._blanks: list[str] = []

    def take(self, text: str) -> str:
        """Return what can be told of it; blanks wait until something follows them."""
        if self._is_apart:
            text = text.lstrip()
        body = text.rstrip()
        told = ""
        if body:
            if self._is_apart and self._has_any:
                self._blanks.append("\n")
            told = "".join((*self._blanks, body))
            self._blanks.clear()
            self._is_apart = False
            self._has_any = True
        if not self._is_apart and len(body) < len(text):
            self._blanks.append(text[len(body) :])
        return told

    def part(self) -> None:
        self._blanks.clear()
        self._is_apart = True

    def rest(self) -> str:
        return "".join(self._blanks)
