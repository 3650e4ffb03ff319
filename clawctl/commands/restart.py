"""`clawctl restart`: see `clawctl.commands.stop`, which knows how a daemon ends."""

from clawctl.commands.stop import restart as command

__all__ = ["command"]
