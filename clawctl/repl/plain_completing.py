"""What the Tab key offers at the plain prompt, by readline."""

import readline
from collections.abc import Sequence

from clawctl.repl.offering import Known, Offer, offers
from clawd.errors import ClawError
from clawd.wire.safe_text import visible_line

ABOUT_COLUMNS = 60


def complete_with(known: Known, prompt: str) -> None:
    """Let the Tab key complete what there is; several ways to go on are listed, one on a line."""
    completer = _Completer(known, prompt)
    # The whole line is what is completed: what it means decides where a word begins.
    readline.set_completer_delims("")
    readline.set_completer(completer.complete)
    readline.set_completion_display_matches_hook(completer.show)
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")


class _Completer:
    """Gives readline whole lines, and shows only what is new of them."""

    def __init__(self, known: Known, prompt: str) -> None:
        self._known = known
        self._prompt = prompt
        self._found: dict[str, Offer] = {}

    def complete(self, before: str, number: int) -> str | None:
        """Return one of the lines that may come of what was typed; None behind the last."""
        if number == 0:
            try:
                found = list(offers(before, self._known))
            except ClawError:
                found = []  # a daemon that does not answer knows no names
            self._found = {before[: len(before) - each.typed] + each.text: each for each in found}
        lines = list(self._found)
        return lines[number] if number < len(lines) else None

    def show(self, _typed: str, lines: Sequence[str], _longest: int) -> None:
        """List the ways to go on, and the line below them again."""
        print()
        for line in lines:
            offer = self._found.get(line)
            if offer is not None:
                about = visible_line(offer.about, ABOUT_COLUMNS)
                print(f"{offer.shown or offer.text}  {about}".rstrip())
        print(f"{self._prompt}{readline.get_line_buffer()}", end="", flush=True)
