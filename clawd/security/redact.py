"""Takes secrets out of text, bytes and JSON trees before they are hashed, logged or stored.

A secret becomes a tag, `[secret:1f0c9a2b]`: eight hex digits of HMAC-SHA256 under the key of
this home, so the same secret has the same tag and nobody without the key can test a guess.
Known values are replaced first, then what `clawd.wire.secrets` finds.
"""

import hashlib
import hmac
import json
import logging
import os
import re
import secrets as random
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from typing_extensions import override

from clawd.errors import StorageError
from clawd.wire.secrets import find_secrets, is_secret_name

KEY_BYTES = 32
MIN_SECRET_LENGTH = 6
MAX_DEPTH = 64

_TAG = re.compile(r"\[secret:[0-9a-f]{8}\]")
# Where an entry of a list, as Kubernetes has it, keeps the name and the value of a variable.
_NAMES, _VALUES = ("name", "key", "Name", "Key"), frozenset({"value", "Value"})
_canonical = msgspec.json.Encoder(order="sorted")


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
        parts, at = list[str](), 0
        for secret in find_secrets(text):
            parts += (text[at : secret.start], self._tag(text[secret.start : secret.end]))
            at = secret.end
        return "".join([*parts, text[at:]]) if parts else text

    def data(self, data: bytes) -> bytes:
        """Return the bytes with every secret replaced; what is no UTF-8 stays as it is."""
        return self.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def json(self, data: bytes) -> bytes:
        """Return canonical JSON with the secrets in it replaced, by their names, too.

        What is no JSON is taken for text.
        """
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self.data(data)
        clean = self.tree(value)
        return data if clean == value else _canonical.encode(clean)

    def tree(self, value: Any, depth: int = 0) -> Any:
        """Return a JSON-like value with the secrets in its strings and keys replaced.

        What is nested deeper than `MAX_DEPTH` is replaced whole.
        """
        if depth > MAX_DEPTH:
            return "[too deep]"
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.data(value)
        if isinstance(value, dict):
            names = (value.get(each) for each in _NAMES)  # of what stands in the value beside it
            named = next((name for name in names if isinstance(name, str)), "")
            clean: dict[Any, Any] = {}
            for name, each in value.items():
                by = named if name in _VALUES and named else name
                is_telling = isinstance(by, str) and each and is_secret_name(by)
                redacted = self._member if is_telling else self.tree
                clean[self.tree(name, depth + 1)] = redacted(each, depth + 1)
            return clean
        if isinstance(value, list | tuple):
            return [self.tree(each, depth + 1) for each in value]
        return value

    def _member(self, value: Any, depth: int) -> Any:
        """Redact a value that its key tells of: `{"password": "…"}` has no shape of its own."""
        if isinstance(value, str):
            return value if not value or _TAG.fullmatch(value) else self._tag(value)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return [self._member(each, depth) for each in value]
        return self.tree(value, depth)

    def _tag(self, secret: str) -> str:
        digest = hmac.new(self._key, secret.encode("utf-8", "surrogateescape"), hashlib.sha256)
        return f"[secret:{digest.hexdigest()[:8]}]"


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
