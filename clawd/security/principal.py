"""Who is asking: the identity of a peer on the socket and what its role may do."""

from typing import Literal

import msgspec

Role = Literal["user", "admin"]


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """An identity that the kernel vouches for (SO_PEERCRED).

    Attributes:
        uid: the peer's user id; rows in memory and receipts carry it.
        gid: its primary group.
        pid: its process at connect time; 0 for the daemon itself.
        role: admin (owner of the home, root, members of clawd-admin) or user.
    """

    uid: int
    gid: int
    pid: int
    role: Role = "user"

    @property
    def is_admin(self) -> bool:
        """Whether it may see and stop everything."""
        return self.role == "admin"

    def may_see(self, owner_uid: int) -> bool:
        """Tell whether a row of this owner may be shown to it."""
        return self.is_admin or self.uid == owner_uid
