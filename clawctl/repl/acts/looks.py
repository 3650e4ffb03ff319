"""Commands about this terminal: help, colours, reasoning, the external editor, leaving."""

import os
import shutil
import textwrap

from clawctl.render import note, say
from clawctl.repl.host import Host
from clawctl.repl.slash import COMMANDS, Slash, nearest
from clawctl.repl.theme import THEME_VARIABLE, THEMES, theme_name

HELP_COLUMNS = 40


def help_(host: Host, rest: str) -> None:
    """List the commands, or tell more of one."""
    if rest:
        name = f"/{rest.removeprefix('/')}"
        command = COMMANDS.get(name)
        if command is None:
            note(f"{name} is no command here.{nearest(name)}")
            return
        say(f"{command.usage}\n{command.help}")
        if command.more:
            say(command.more)
        return
    present = [command for name, command in COMMANDS.items() if name not in host.absent]
    columns = shutil.get_terminal_size().columns
    width = max(len(command.usage) for command in present if len(command.usage) < 30)
    group = ""
    for command in present:
        if command.group != group:
            print(f"{'' if not group else chr(10)}{command.group}")
            group = command.group
        print("\n".join(_entry(command, width, columns)))
    print(f"\n{host.keys}")


def _entry(command: Slash, width: int, columns: int) -> list[str]:
    """Return the rows of a command: what it does beside it, or below where that is too narrow."""
    left = width + 4 if columns >= width + 4 + HELP_COLUMNS else 6
    text = textwrap.wrap(command.help, max(columns - left, 10))
    usage = f"  {command.usage}"
    if len(usage) + 2 > left:
        return [usage, *(" " * left + row for row in text)]
    return [usage.ljust(left) + text[0], *(" " * left + row for row in text[1:])]


def leave(host: Host, _rest: str) -> None:
    """Leave."""
    host.leave()


def theme(_host: Host, rest: str) -> None:
    """Choose the colours for what comes."""
    names = ", ".join(THEMES)
    if not rest:
        say(f"The theme is {theme_name()}; there are {names}.")
    elif rest not in THEMES:
        note(f"{rest} is no theme; there are {names}")
    else:
        os.environ[THEME_VARIABLE] = rest
        if theme_name() != rest:
            note("NO_COLOR is set or the terminal shows no colours: it stays without them.")
            return
        say(f'The theme is {rest} from now on. To keep it: theme = "{rest}" in client.toml.')


def reasoning(host: Host, rest: str) -> None:
    """Show reasoning whole or folded."""
    if rest not in {"", "whole", "folded"}:
        note("/reasoning takes whole or folded")
        return
    host.shows_reasoning = not host.shows_reasoning if not rest else rest == "whole"
    say(f"Reasoning is shown {'whole' if host.shows_reasoning else 'folded'} from now on.")


def editor(host: Host, rest: str) -> None:
    """Write a message in the external editor; it comes back into the prompt."""
    import click

    try:
        text = click.edit(rest, extension=".md", require_save=False)
    except click.ClickException as error:
        note(f"{error.format_message()} Set $EDITOR to yours.")
        return
    if text and text.strip():
        host.offer(text.rstrip("\n"), is_typed=True)
