"""Takes secrets out of terminal text before it leaves this process. Pure.

Values that are known (those of variables whose names say that they are secret) go first, then what
`clawd.wire.secrets` finds, eagerly: the model can ask, and what was sent cannot be taken back. A
secret becomes `[secret]`.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from urllib.parse import quote

from clawd.wire.secrets import find_secrets, is_secret_variable

TAG = "[secret]"
MIN_KNOWN_CHARS = 6
MAX_PASSES = 4


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Return the text with every secret that is recognised replaced by `[secret]`.

    Args:
        text: without control sequences, which would part a secret.
        known: values that are secret; those under six characters are ignored.
    """
    forms = {form for each in known if len(each) >= MIN_KNOWN_CHARS for form in _forms(each)}
    for value in sorted(forms, key=_longest):
        text = text.replace(value, TAG)
    # What stood beside a secret may read as one itself, now that the secret is gone.
    for _ in range(MAX_PASSES):
        found = find_secrets(text, is_eager=True)
        parts, at = list[str](), 0
        for secret in found:
            parts += (text[at : secret.start], TAG)
            at = secret.end
        before, text = text, "".join([*parts, text[at:]])
        if text == before:
            break
    return text


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of those variables whose names say that they are secret."""
    return tuple(
        value
        for name, value in environ.items()
        if is_secret_variable(name) and len(value) >= MIN_KNOWN_CHARS and not _is_place(value)
    )


def _is_place(value: str) -> bool:
    # SSH_AUTH_SOCK, GPG_KEY_FILE and their kind say where a secret is, and are none.
    return value.startswith(("/", "~/", "./"))


def _forms(value: str) -> set[str]:
    """Return a value as it is, and as addresses, JSON and base64 (from any byte on) have it."""
    data = value.encode(errors="replace")
    forms = {value, quote(value, safe=""), json.dumps(value)[1:-1]}
    for before in range(3):
        # The characters at both ends depend on what stands around it.
        body = base64.b64encode(bytes(before) + data).rstrip(b"=")[before and before + 1 :]
        body = body[: len(body) - (1 if (before + len(data)) % 3 else 0)]
        if len(body) >= MIN_KNOWN_CHARS + 2:
            forms.add(body.decode())
    return forms


def _longest(value: str) -> tuple[int, str]:
    return -len(value), value
