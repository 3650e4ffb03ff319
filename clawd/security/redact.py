r"""Takes secrets out of text, bytes and JSON trees before they are hashed, logged or stored.

A secret becomes a tag, `[secret:1f0c9a2b]`: eight hex digits of HMAC-SHA256 under the key of
this home, so the same secret has the same tag and nobody without the key can test a guess.
Known values are replaced first, then what has the shape of a secret.
"""

import hashlib
import hmac
import json
import logging
import os
import re
import secrets as random
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typing_extensions import override

from clawd.errors import StorageError

KEY_BYTES = 32
MIN_SECRET_LENGTH = 6
MAX_DEPTH = 64

# Each pattern's group `secret` is replaced; what stands around it stays readable.
_SHAPES = re.compile(
    r"(?P<block>-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----.{0,16384}?"
    r"(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY-----|\Z))"
    r"|\b(?P<token>sk-[A-Za-z0-9_-]{16,200}|(?:AKIA|ASIA)[A-Z0-9]{16}\b|gh[pousr]_[A-Za-z0-9]{20,255}"
    r"|github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{20,64}|xox[abprs]-[A-Za-z0-9-]{10,255}"
    r"|hf_[A-Za-z0-9]{20,64}|AIza[A-Za-z0-9_-]{35}|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{16,255}"
    r"|clawd_[a-z0-9]{8,16}_[a-z0-9]{32,128}"
    r"|eyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,2000})"
    r"|\b[Bb]earer[ ]+(?P<bearer>[A-Za-z0-9._~+/=-]{12,4000})"
    r"|://[^\s/:@]{0,255}:(?P<url>[^\s/@]{1,255})@"
    r"|\b(?!secret:[0-9a-f]{8}\])(?:password|passwd|pwd|secret|token|api_?key|access_?key)"
    r"[\"']?[ ]?[=:][ ]?[\"']?(?P<named>(?!\[secret:)[^\s\"'&,;\\]{4,255})",
    re.DOTALL | re.IGNORECASE,
)


class Redactor:
    """Replaces secrets by keyed tags. Immutable; safe in any thread.

    Args:
        secrets: the values that are known (API keys, tokens); shorter than six characters
            they are ignored, because they would match ordinary text.
        key: what the tags are keyed with; see `load_or_create_key`.
    """

    def __init__(self, secrets: Iterable[str], key: bytes) -> None:
        self._key = key
        known = {each for each in secrets if len(each) >= MIN_SECRET_LENGTH}
        # In JSON text a secret with quotes or backslashes is escaped: look for that form too.
        forms = {form: each for each in known for form in (json.dumps(each)[1:-1], each)}
        self._forms = forms
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def text(self, text: str) -> str:
        """Return the text with every secret replaced by its tag."""
        if self._known is not None:
            text = self._known.sub(lambda match: self._tag(self._forms[match.group()]), text)
        return _SHAPES.sub(self._tag_shape, text)

    def data(self, data: bytes) -> bytes:
        """Return the bytes with every secret replaced; what is no UTF-8 stays as it is."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def tree(self, value: Any) -> Any:
        """Return a JSON-like value with the secrets in its strings and keys replaced.

        What is nested deeper than `MAX_DEPTH` is replaced whole.
        """
        return self._tree(value, 0)

    def _tree(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            return "[too deep]"
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.data(value)
        if isinstance(value, dict):
            return {
                self._tree(name, depth + 1): self._member(name, each, depth + 1)
                for name, each in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._tree(each, depth + 1) for each in value]
        return value

    def _member(self, name: object, value: Any, depth: int) -> Any:
        """Redact a value by its key too: `{"password": "hunter2"}` has no shape of its own."""
        if isinstance(name, str) and isinstance(value, str) and _NAMES.fullmatch(name) and value:
            return self._tag(value)
        return self._tree(value, depth)

    def _tag_shape(self, match: re.Match[str]) -> str:
        group = match.lastgroup or ""
        start, end = match.span(group)
        whole, offset = match.group(), match.start()
        secret = match.group(group)
        return whole[: start - offset] + self._tag(secret) + whole[end - offset :]

    def _tag(self, secret: str) -> str:
        digest = hmac.new(self._key, secret.encode("utf-8", "surrogateescape"), hashlib.sha256)
        return f"[secret:{digest.hexdigest()[:8]}]"


_NAMES = re.compile(
    r"(?:[a-z0-9_.-]*[_.-])?(?:password|passwd|secret|token|api[_-]?key|access[_-]?key"
    r"|authorization|cookie|set-cookie|private[_-]?key)",
    re.IGNORECASE,
)


_KINDS = {
    "block": "a private key",
    "token": "a token",
    "bearer": "a bearer token",
    "url": "a password in an address",
    "named": "a password or key",
}


def secret_shapes(text: str) -> Iterator[tuple[int, str]]:
    """Yield where text has the shape of a secret, and of which kind.

    What follows a name (`token = …`) counts only in quotes, since programs name variables so.
    """
    for match in _SHAPES.finditer(text):
        group = match.lastgroup or ""
        start = match.start(group)
        if group != "named" or text[start - 1 : start] in {'"', "'"}:
            yield start, _KINDS[group]


_RECORD_FIELDS = frozenset(logging.makeLogRecord({}).__dict__)


class RedactingFilter(logging.Filter):
    """Redacts log records: message, arguments, extra fields and the text of exceptions.

    It belongs on handlers, where every record passes. The record itself is changed, so that no
    handler after it sees more.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redactor = redactor

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Redact the record; it always passes."""
        record.msg = self._redactor.text(record.getMessage())
        record.args = None
        if record.exc_info and not record.exc_text:
            record.exc_text = logging.Formatter().formatException(record.exc_info)
        if record.exc_text:
            record.exc_text = self._redactor.text(record.exc_text)
        if record.stack_info:
            record.stack_info = self._redactor.text(record.stack_info)
        for name, value in record.__dict__.items():
            if name not in _RECORD_FIELDS and isinstance(value, str):
                record.__dict__[name] = self._redactor.text(value)
        return True


def load_or_create_key(path: Path) -> bytes:
    """Return the 32 bytes of a key file (mode 0600), made at the first call.

    Raises:
        StorageError: unreadable, of another length, or others may read or write it.
    """
    try:
        return _load_key(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}") from error
    partial = path.with_name(f".{path.name}.{random.token_hex(4)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(random.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            # link, not rename: of two that make the key at once the first one wins.
            path.hardlink_to(partial)
        except FileExistsError:
            pass
        finally:
            partial.unlink()
        return _load_key(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be made: {error}") from error


def _load_key(path: Path) -> bytes:
    with path.open("rb") as file:
        facts = os.fstat(file.fileno())
        key = file.read(KEY_BYTES + 1)
    mode = stat.S_IMODE(facts.st_mode)
    if facts.st_uid != os.geteuid() or mode & 0o077:
        raise StorageError(
            f"{path} must belong to uid {os.geteuid()} with mode 0600: it has uid "
            f"{facts.st_uid}, mode {mode:04o}",
            hint=f"chmod 600 {path}, and think about who may have read it",
        )
    if len(key) != KEY_BYTES:
        raise StorageError(
            f"{path} holds {len(key)} bytes, a key has {KEY_BYTES}",
            hint="Restore it or move it away; with a new key, secrets get other tags.",
        )
    return key
