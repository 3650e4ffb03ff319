"""API keys of the HTTP gateway: their form, whose they are, what they allow, and who keeps them.

    clawd_<id>_<256 random bits in hex>             a key
    clawd_pagelogin_<256 random bits in hex>        a one-time link to the page
    clawd_hook_<256 random bits in hex>             what begins a schedule, and nothing else

Only the SHA-256 of the random part is kept: it is too long to be guessed, so a slow hash would
add nothing. A key is found by its id and compared in constant time.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal, Protocol

import msgspec

from clawd.errors import BusyError, ForbiddenError, InvalidRequestError, NotFoundError
from clawd.security.principal import Principal
from clawd.wire.safe_text import single_line

Scope = Literal["models", "chat", "tools", "admin"]

SCOPES: tuple[Scope, ...] = ("models", "chat", "tools", "admin")
MAX_KEYS = 1_000
MAX_DAYS = 3_650
NAME_LIMIT = 64
USED_EVERY = timedelta(hours=1)

LINK_S = 120.0
MAX_LINKS = 16

KEY_START = "clawd_"
LINK_START = "clawd_pagelogin_"
HOOK_START = "clawd_hook_"
_FORM = re.compile(r"clawd_([a-z2-7]{10})_([0-9a-f]{64})")
_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH = 10
_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a key.

    Attributes:
        id: stands in the key itself and names it.
        digest: SHA-256 of its random part, in hex.
        owner: uid that requests with it act as.
        scopes: what it allows.
        created_at: UTC, `2026-11-21T08:00:00Z`, as the other times are.
        expires_at: empty for never.
        used_at: within the hour; empty for never.
    """

    id: str
    digest: str
    owner: int
    name: str
    scopes: tuple[Scope, ...]
    created_at: str
    expires_at: str = ""
    used_at: str = ""


class LoginLink(msgspec.Struct, frozen=True, kw_only=True):
    """A one-time link to the page.

    Attributes:
        principal: the user whom a browser acts as that opens it.
        is_here: it is for browsers of that user on this machine alone.
        ends_at: of the monotonic clock, in seconds.
    """

    principal: Principal
    is_here: bool
    ends_at: float


class LoginLinks:
    """One-time links that nobody opened yet; held in memory, each by its hash."""

    def __init__(self) -> None:
        self._links: dict[str, LoginLink] = {}

    def make(self, principal: Principal, *, is_here: bool) -> str:
        """Return the text of a new link; of more than MAX_LINKS the oldest ends."""
        secret = secrets.token_hex(32)
        self._links[_digest(secret)] = LoginLink(
            principal=principal, is_here=is_here, ends_at=time.monotonic() + LINK_S
        )
        while len(self._links) > MAX_LINKS:
            self._links.pop(next(iter(self._links)))
        return LINK_START + secret

    def take(self, text: str) -> LoginLink | None:
        """Return the link whose text this is, and end it; None for one that is over or used."""
        secret = text.removeprefix(LINK_START)
        if secret == text or not secret.isascii():
            return None
        link = self._links.pop(_digest(secret), None)
        return link if link is not None and link.ends_at > time.monotonic() else None


class KeyStore(Protocol):
    """Where keys are kept; each method returns when it is on disk, or raises StorageError."""

    async def load(self) -> tuple[ApiKey, ...]:
        """Return every key, oldest first."""
        ...

    async def put(self, key: ApiKey) -> None:
        """Keep a key, in place of the one of this id."""
        ...

    async def drop(self, key_id: str) -> None:
        """Keep it no longer."""
        ...

    async def had_any(self) -> bool:
        """Return whether a key was ever kept, also one that is there no longer."""
        ...


def _utc_now() -> datetime:
    return datetime.now(UTC)


class KeyBook:
    """The keys of a daemon, held in memory and in the store alike.

    Args:
        store: where they are kept.
        now: the time in UTC.

    Attributes:
        links: one-time links to the page.
    """

    def __init__(self, store: KeyStore, now: Callable[[], datetime] = _utc_now) -> None:
        self._store = store
        self._now = now
        self._keys: dict[str, ApiKey] = {}
        self._had_any = False
        self._on_revoked: list[Callable[[str], None]] = []
        self.links = LoginLinks()

    def add_listener(self, on_revoked: Callable[[str], None]) -> None:
        """Tell a part of the daemon the id of every key that is revoked, at once."""
        self._on_revoked.append(on_revoked)

    async def load(self) -> None:
        """Read what is kept.

        Raises:
            StorageError: it cannot be read.
        """
        self._keys = {key.id: key for key in await self._store.load()}
        self._had_any = bool(self._keys) or await self._store.had_any()

    def __len__(self) -> int:
        """Return how many keys there are, expired ones too."""
        return len(self._keys)

    @property
    def had_any(self) -> bool:
        """Whether there is a key, or ever was one."""
        return self._had_any

    @property
    def in_force(self) -> int:
        """How many keys have not expired."""
        return sum(not self.is_expired(key) for key in self._keys.values())

    def is_expired(self, key: ApiKey) -> bool:
        """Return whether a key's time is over."""
        return bool(key.expires_at) and key.expires_at <= _text(self._now())

    def left_s(self, key_id: str) -> float | None:
        """Return how many seconds a key has left, 0 out of force; None where it has no end."""
        key = self._keys.get(key_id)
        if key is None or self.is_expired(key):
            return 0.0
        if not key.expires_at:
            return None
        end = datetime.strptime(key.expires_at, _FORMAT).replace(tzinfo=UTC)
        return max(0.0, (end - self._now()).total_seconds())

    def visible_to(self, principal: Principal) -> tuple[ApiKey, ...]:
        """Return the principal's own keys, oldest first; an admin sees all."""
        return tuple(key for key in self._keys.values() if principal.may_see(key.owner))

    async def create(
        self, principal: Principal, *, name: str, scopes: Iterable[str], days: int = 0
    ) -> tuple[ApiKey, str]:
        """Make a key that acts as the principal; return it and its text, which is kept nowhere.

        Raises:
            InvalidRequestError: there is no such scope, or no such time.
            ForbiddenError: the principal may not do what the key would.
            BusyError: there are too many keys.
            StorageError: it was not kept.
        """
        wanted = set(scopes)
        if not wanted or not wanted <= set(SCOPES):
            unknown = ", ".join(sorted(wanted - set(SCOPES))) or "no scope"
            raise InvalidRequestError(f"{unknown}: expected some of {', '.join(SCOPES)}")
        if not 0 <= days <= MAX_DAYS:
            raise InvalidRequestError(f"{days} days: expected 1 to {MAX_DAYS}, or 0 for no end")
        if "admin" in wanted and not principal.is_admin:
            raise ForbiddenError(
                "a key with scope admin can be made by an admin only",
                hint="Make one without: clawctl key create --scope chat,tools",
            )
        if len(self._keys) >= MAX_KEYS:
            raise BusyError(
                f"there are {MAX_KEYS} keys already",
                retry_after_s=60,
                hint="Revoke those that nobody uses: clawctl key list",
            )
        secret = secrets.token_hex(32)
        now = self._now()
        key = ApiKey(
            id="".join(secrets.choice(_ID_LETTERS) for _ in range(_ID_LENGTH)),
            digest=_digest(secret),
            owner=principal.uid,
            name=single_line(name, NAME_LIMIT),
            scopes=tuple(scope for scope in SCOPES if scope in wanted),
            created_at=_text(now),
            expires_at=_text(now + timedelta(days=days)) if days else "",
        )
        await self._store.put(key)
        self._keys[key.id] = key
        self._had_any = True
        return key, f"clawd_{key.id}_{secret}"

    async def revoke(self, name: str, principal: Principal) -> ApiKey:
        """Take a key out of force, by its id or a name that is one key's only.

        Raises:
            NotFoundError: the principal has none such.
            InvalidRequestError: several have the name.
            StorageError: it is out of force, but only until the daemon is started again.
        """
        own = self.visible_to(principal)
        found = [key for key in own if key.id == name] or [key for key in own if key.name == name]
        if not found:
            raise NotFoundError(
                f"there is no key {single_line(name)!r}", hint="See clawctl key list."
            )
        if len(found) > 1:
            ids = ", ".join(key.id for key in found)
            raise InvalidRequestError(f"several keys have the name {name!r}: {ids}")
        self._keys.pop(found[0].id, None)
        for told in self._on_revoked:
            told(found[0].id)
        await self._store.drop(found[0].id)
        return found[0]

    def find(self, text: str) -> ApiKey | None:
        """Return the key whose text this is, or None; an expired one is none."""
        match = _FORM.fullmatch(text)
        if match is None:
            return None
        key = self._keys.get(match[1])
        # Compared even where there is none, so that time does not tell which ids exist.
        is_right = hmac.compare_digest(_digest(match[2]), key.digest if key else _NOBODYS)
        return key if key is not None and is_right and not self.is_expired(key) else None

    async def note_use(self, key: ApiKey) -> None:
        """Remember that a key was used, to the hour.

        Raises:
            StorageError: it was not kept.
        """
        now = self._now()
        if key.used_at and key.used_at > _text(now - USED_EVERY):
            return
        if key.id not in self._keys:
            return
        used = msgspec.structs.replace(key, used_at=_text(now))
        self._keys[key.id] = used
        await self._store.put(used)


def hook_digest(text: str) -> str:
    """Return the SHA-256 of the secret of a hook; "" for what has not the form of one."""
    secret = text.removeprefix(HOOK_START)
    is_one = secret != text and re.fullmatch(r"[0-9a-f]{64}", secret)
    return _digest(secret) if is_one else ""


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()


_NOBODYS = "0" * 64


def _text(time: datetime) -> str:
    return time.strftime(_FORMAT)
