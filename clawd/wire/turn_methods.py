"""The method of the control socket about turns that run; see `wire.methods`."""

from clawd.wire.method import Method
from clawd.wire.turn_reports import TurnList


class ListTurns(Method[TurnList], frozen=True, kw_only=True):
    """List the turns that run, and what each does just now."""
