"""Methods about the keys of the HTTP gateway, and what they report; see `wire.methods`."""

import msgspec

from clawd.wire.method import Method
from clawd.wire.reports import Done


class KeyLine(msgspec.Struct, frozen=True, kw_only=True):
    """One key; times are UTC, empty for never."""

    id: str
    name: str
    owner: int
    scopes: tuple[str, ...]
    created_at: str
    expires_at: str = ""
    used_at: str = ""
    is_expired: bool = False


class KeyList(msgspec.Struct, frozen=True, kw_only=True):
    """The keys, oldest first."""

    items: tuple[KeyLine, ...]


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was made: the only time that its text is told."""

    key: str
    line: KeyLine


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
