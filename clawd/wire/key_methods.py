"""The methods of the control socket about the keys of the HTTP gateway; see `wire.methods`."""

from clawd.wire.key_reports import KeyList, NewKey
from clawd.wire.method import Method
from clawd.wire.reports import Done


class CreateKey(Method[NewKey], frozen=True, kw_only=True):
    """Make a key that acts as the caller; `days` is how long it works, 0 for ever.

    `scopes` are some of models, chat, tools and admin; the last is for admins only.
    """

    name: str = ""
    scopes: tuple[str, ...] = ("models",)
    days: int = 0


class ListKeys(Method[KeyList], frozen=True, kw_only=True):
    """List the caller's keys; an admin sees all."""


class RevokeKey(Method[Done], frozen=True, kw_only=True):
    """Take a key out of force, by its id or its name."""

    key: str
