"""Offers proposed commands: shown whole, one of them goes into the shell's edit line, or none.

Nothing runs here. What is chosen stands at the person's prompt, where it can be changed, and runs
when they press Enter there.
"""

import os
import select
import sys
import termios

from clawctl.render import Palette, note
from clawctl.shell.proposals import Proposal

MAX_ANSWER_BYTES = 4_096


def choose(proposals: tuple[Proposal, ...], descriptor: int = 0) -> str:
    """Show the proposals and return the one that was chosen, "" for none.

    Enter takes the first, a number that one, anything else none. What was typed before is dropped.
    """
    palette = Palette.of(sys.stdout)
    for number, proposal in enumerate(proposals, 1):
        first, *more = proposal.shown.split("\n")
        print(f"{palette.cyan(f'  {number}')}  {palette.bold(first)}")
        for line in more:
            print(f"     {palette.bold(line)}")
        if proposal.problem:
            print(palette.red(f"     cannot be put into your prompt: {proposal.problem}"))
    usable = [each for each in proposals if not each.problem]
    if not usable:
        return ""
    answer = _asked(palette, len(proposals), descriptor)
    if answer is None:
        return ""
    if not answer:
        return usable[0].command
    number = int(answer) if answer.isascii() and answer.isdigit() and len(answer) < 3 else 0
    if not 1 <= number <= len(proposals):
        return ""
    chosen = proposals[number - 1]
    if chosen.problem:
        note(f"{number} cannot be put into your prompt: {chosen.problem}")
        return ""
    return chosen.command


def _asked(palette: Palette, count: int, descriptor: int) -> str | None:
    """Return what was answered; None at Ctrl-C, Ctrl-D, or when it is no single line."""
    which = "Enter" if count == 1 else f"Enter or 1-{count}"
    hint = palette.dim("(n leaves it)")
    try:
        termios.tcflush(descriptor, termios.TCIFLUSH)
        print(f"{which} puts it into your prompt {hint} ", end="", flush=True)
        data = os.read(descriptor, MAX_ANSWER_BYTES)
    except (KeyboardInterrupt, OSError, termios.error):
        print()
        return None
    # Several lines at once are a paste and no answer.
    if not data.endswith(b"\n") or select.select([descriptor], [], [], 0)[0]:
        print()
        return None
    return data.decode(errors="replace").strip()
