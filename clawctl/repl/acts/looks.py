"""Commands about this terminal: colours, reasoning, the external editor, leaving."""

import os

from clawctl.render import note, say
from clawctl.repl.host import Host
from clawctl.repl.theme import THEME_VARIABLE, THEMES, theme_name


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
