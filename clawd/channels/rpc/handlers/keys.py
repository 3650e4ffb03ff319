"""Handlers about the keys of the HTTP gateway."""

import logging

from clawd.channels.rpc.connection import Call
from clawd.channels.rpc.handlers.parts import Handler
from clawd.security.keys import ApiKey
from clawd.wire.key_methods import CreateKey, ListKeys, RevokeKey
from clawd.wire.key_reports import KeyLine, KeyList, NewKey
from clawd.wire.reports import Done

_log = logging.getLogger(__name__)


class KeyHandlers(Handler):
    """Each method handles the wire method of its name."""

    async def create_key(self, params: CreateKey, call: Call) -> NewKey:
        """Make a key that acts as the caller."""
        key, text = await self.parts.keys.create(
            call.principal, name=params.name, scopes=params.scopes, days=params.days
        )
        extra = {"key": key.id, "uid": key.owner, "scopes": ",".join(key.scopes)}
        _log.info("a key was made", extra=extra)
        return NewKey(key=text, line=self._key_line(key))

    async def list_keys(self, _params: ListKeys, call: Call) -> KeyList:
        """List the caller's keys."""
        return KeyList(items=tuple(map(self._key_line, self.parts.keys.visible_to(call.principal))))

    async def revoke_key(self, params: RevokeKey, call: Call) -> Done:
        """Take a key out of force."""
        key = await self.parts.keys.revoke(params.key, call.principal)
        _log.info("a key was revoked", extra={"key": key.id, "by": call.principal.uid})
        told = f"revoked {key.id}"
        if not len(self.parts.keys):
            told += (
                "; no key is left, and the gateway goes on asking for one: make one with "
                'clawctl key create, or set keyless = "on" in [channels.http] for programs of '
                "the owner on this machine"
            )
        return Done(message=told)

    def _key_line(self, key: ApiKey) -> KeyLine:
        return KeyLine(
            id=key.id,
            name=key.name,
            owner=key.owner,
            scopes=key.scopes,
            created_at=key.created_at,
            expires_at=key.expires_at,
            used_at=key.used_at,
            is_expired=self.parts.keys.is_expired(key),
        )
