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
        key_id: of the key of the HTTP gateway that it showed; empty for one that came without. A
            key without the scope admin sees what was made with it, and nothing else of its owner.
    """

    uid: int
    gid: int
    pid: int
    role: Role = "user"
    key_id: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether it may see and stop everything."""
        return self.role == "admin"

    @property
    def bound_to(self) -> str:
        """The key that what it sees was made with; empty where it sees all that its owner does."""
        return "" if self.is_admin else self.key_id

    def may_see(self, owner_uid: int, made_by: str = "") -> bool:
        """Return whether a row may be shown to it.

        Args:
            owner_uid: whose row it is.
            made_by: id of the key that the row was made with; empty for none, or where nobody
                knows: then no key sees it.
        """
        if self.is_admin:
            return True
        return self.uid == owner_uid and self.bound_to in {"", made_by}
