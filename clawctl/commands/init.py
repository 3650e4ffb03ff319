"""`clawctl init`: home, config and workspace."""

import click
import msgspec

from clawctl.app import Exit, json_option


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What was created or kept, a sentence each."""

    done: list[str]


@click.command()
@json_option(Made)
def command(*, as_json: bool) -> int:
    """Create home, config and workspace; what is there is kept. Needs no daemon."""
    from clawctl.daemon import relay_clawd

    done = relay_clawd(["--init", "--json"] if as_json else ["--init"])
    return Exit.DONE if done else Exit.FAILED
