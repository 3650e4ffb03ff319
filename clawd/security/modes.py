"""The modes of conversations: how far a model may go in one, beside what is configured for all."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from clawd.errors import ForbiddenError
from clawd.security.policy import PolicySettings
from clawd.security.principal import Principal
from clawd.security.risk import Autonomy, autonomy_rank


class ModeChange(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation's mode becomes another one; "" is the configured autonomy."""

    conversation_id: str
    workspace: Path
    before: Autonomy | str
    mode: Autonomy | str
    by: Principal

    @property
    def is_wider(self) -> bool:
        """Whether more may run behind it; what nobody named counts as the narrowest."""
        return autonomy_rank(self.mode) > autonomy_rank(self.before)


class ModeBook:
    """The modes that were set, by conversation; a restart restores them from what memory kept.

    Args:
        policy: returns the policy in force.
        record: writes the receipt of a change; raises ClawError when it cannot.
    """

    def __init__(
        self,
        policy: Callable[[], PolicySettings],
        *,
        record: Callable[[ModeChange], Awaitable[object]],
    ) -> None:
        self._policy = policy
        self._record = record
        self._modes: dict[str, Autonomy] = {}

    def policy(self, conversation_id: str, principal: Principal) -> PolicySettings:
        """Return the policy by which a call there is judged: never beyond what is allowed now."""
        policy = self._policy()
        mode = self._modes.get(conversation_id)
        if mode is None:
            return policy
        highest = _highest(policy, principal)
        mode = mode if autonomy_rank(mode) <= autonomy_rank(highest) else highest
        return msgspec.structs.replace(policy, autonomy=mode)

    def check(self, mode: Autonomy, principal: Principal) -> None:
        """Refuse a mode that the principal may not set.

        Raises:
            ForbiddenError: it goes further than the policy lets it.
        """
        policy = self._policy()
        highest = _highest(policy, principal)
        if autonomy_rank(mode) <= autonomy_rank(highest):
            return
        is_admins = autonomy_rank(mode) <= autonomy_rank(policy.max_autonomy)
        raise ForbiddenError(
            f"mode {mode} goes further than {highest}, the furthest "
            + ("for those who are no admins" if is_admins else "that [security] allows"),
            hint="An admin of this clawd may set it."
            if is_admins
            else f'[security] max_autonomy = "{mode}" in the config would allow it.',
        )

    async def change(self, change: ModeChange) -> None:
        """Put another mode in force; more is allowed once that is on record, less at once.

        Raises:
            ClawError: the receipt cannot be written; what would allow more is not in force then.
        """
        if change.mode == change.before:
            return
        if change.is_wider:
            await self._record(change)
            self.restore(change.conversation_id, change.mode)
        else:
            self.restore(change.conversation_id, change.mode)
            await self._record(change)

    def restore(self, conversation_id: str, mode: object) -> None:
        """Put in force what memory kept; what is no mode counts as readonly."""
        if not mode:
            self._modes.pop(conversation_id, None)
            return
        try:
            self._modes[conversation_id] = msgspec.convert(mode, Autonomy)
        except msgspec.ValidationError:
            self._modes[conversation_id] = "readonly"

    def copy(self, from_id: str, to_id: str) -> None:
        """Give a fork the mode of what it was forked from."""
        self.restore(to_id, self._modes.get(from_id, ""))

    def forget(self, conversation_id: str) -> None:
        """Drop what is known of a deleted conversation."""
        self._modes.pop(conversation_id, None)


def _highest(policy: PolicySettings, principal: Principal) -> Autonomy:
    """Return how far a principal may let a model go: others than admins never beyond the config."""
    if principal.is_admin or autonomy_rank(policy.autonomy) > autonomy_rank(policy.max_autonomy):
        return policy.max_autonomy
    return policy.autonomy
