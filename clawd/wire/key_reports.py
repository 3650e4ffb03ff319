"""What is told of the keys of the HTTP gateway; see `wire.reports`."""

import msgspec


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
