"""Who speaks in a conversation, told when there is more than one.

A conversation belongs to one person; an admin may speak in it as well. Names come from the
system's own list of users, never from a client.
"""

import asyncio
import pwd
from collections.abc import Callable

from clawd.runtime.facts import Fact, FactScope
from clawd.wire.safe_text import NAME_LIMIT, single_line


def user_name(uid: int) -> str:
    """Return the name of a user of this machine; may ask a directory, so it may block."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return f"uid {uid}"


class Participants:
    """The facts `participants` and `speaker`, from when a second person speaks.

    Args:
        name_of: returns the name of a uid; called off the loop.
    """

    names: tuple[str, ...] = ("participants", "speaker")

    def __init__(self, name_of: Callable[[int], str] = user_name) -> None:
        self._name_of = name_of

    async def facts(self, scope: FactScope) -> dict[str, Fact]:
        """Return both, or neither while only the owner has spoken."""
        others = (scope.speakers | {scope.principal.uid}) - {scope.owner}
        if not others:
            return {}
        uids = [scope.owner, *sorted(others)]
        found = await asyncio.to_thread(lambda: [self._name_of(uid) for uid in uids])
        owner, *rest = (single_line(name, NAME_LIMIT) for name in found)
        names = dict(zip(uids, (owner, *rest), strict=True))
        told = ", ".join([f"{owner} (whose conversation it is)", *rest])
        return {
            "participants": Fact(text=told),
            "speaker": Fact(text=names[scope.principal.uid]),
        }
