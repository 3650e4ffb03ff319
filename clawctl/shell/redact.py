"""Takes secrets out of terminal text before it leaves this process. Pure.

What it looks for, in this order: values that are known (those of variables whose names say that
they are secret), private keys and other blocks of base64, tokens by their shape, headers and
addresses that carry a password, `name=value` where the name says what the value is, and strings
without words or order in them. A secret becomes `[secret]`. It errs towards taking out too much:
the model can ask, and what was sent cannot be taken back.
"""

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from urllib.parse import quote

TAG = "[secret]"
MIN_KNOWN_CHARS = 6

_TELLING = (
    r"(?:passw(?:or)?d|passphrase|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|signing[_-]?key|encryption[_-]?key|credentials?|auth[_-]?key|session[_-]?(?:id|key)|dsn)"
)
_SECRET_NAME = re.compile(
    rf"(?:^|[_-])(?:{_TELLING}|auth|key|pass|salt|pin)(?:$|[_-])|{_TELLING}$", re.IGNORECASE
)

# A block whose beginning or end was cut away is still one.
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}(?:PRIVATE KEY|SECRET)[A-Z0-9 ]{0,20}-----.{0,65536}?"
    r"(?:-----END [A-Z0-9 ]{1,60}-----|\Z)",
    re.DOTALL,
)
# What cat -n, grep -n and diff put before a line.
_FRONT = r"[ \t|>+-]{0,8}(?:[0-9]{1,7}[:\t-][ \t]{0,4})?"
_BASE64_LINES = re.compile(
    rf"(?:^{_FRONT}[A-Za-z0-9+/]{{56,100}}={{0,2}}[ \t]*(?:\n|\Z)){{2,}}"
    rf"(?:^{_FRONT}[A-Za-z0-9+/]{{1,100}}={{0,2}}[ \t]*$)?",
    re.MULTILINE,
)
_KEY_END = re.compile(
    rf"(?:^{_FRONT}[A-Za-z0-9+/]{{40,100}}={{0,2}}[ \t]*\n){{0,150}}"
    rf"(?:^{_FRONT}[A-Za-z0-9+/]{{1,100}}={{0,2}}[ \t]*\n)?{_FRONT}-----END [A-Z0-9 ]{{1,60}}-----",
    re.MULTILINE,
)
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{16,255}|[rs]k_(?:live|test)_[A-Za-z0-9]{10,99}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}"
    r"|glpat-[A-Za-z0-9_-]{20,64}|xox[abeprs]-[A-Za-z0-9-]{10,255}|hf_[A-Za-z0-9]{20,64}"
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,255}|npm_[A-Za-z0-9]{36}"
    r"|pypi-[A-Za-z0-9_-]{16,255}|dop_v1_[a-f0-9]{64}|clawd_[a-z0-9]{8,16}_[a-z0-9]{32,128}"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,99}"
    r"|eyJ[A-Za-z0-9_-]{6,4000}\.[A-Za-z0-9_-]{6,4000}(?:\.[A-Za-z0-9_-]{4,4000})?)"
)
_HEADER = re.compile(
    r"(?P<kept>\b(?:authorization|proxy-authorization|x-api-key|x-auth-token|cookie|set-cookie)"
    r"[\"']?[ \t]{0,4}[:=][ \t]{0,4}[\"']?(?:(?:bearer|basic|token|digest)[ \t]{1,4})?)"
    r"(?!\[secret\])[^\s\"'][^\n\"']{0,4000}",
    re.IGNORECASE,
)
_BEARER = re.compile(
    r"(?P<kept>\b(?:bearer|basic)[ \t]{1,4})(?P<value>[A-Za-z0-9._~+/=-]{12,4000})", re.IGNORECASE
)
# The last @ before the host ends the password: it may hold one itself.
_ADDRESS = re.compile(r"(?P<kept>://[^\s/:@]{0,255}:)[^\s/\"'<>]{1,255}(?=@)")
_QUOTED = r"\"(?:[^\"\\\n]|\\.){1,2000}\"|'[^'\n]{1,2000}'"
_NAMED = re.compile(
    rf"(?P<kept>(?<![A-Za-z0-9])(?:[A-Za-z0-9]{{1,40}}[_.-]){{0,6}}[A-Za-z0-9]{{0,24}}{_TELLING}"
    rf"(?:[_-]?[A-Za-z0-9]{{1,12}}){{0,2}}[\"']?[ \t]{{0,4}}(?:=>|:=|[=:])[ \t]{{0,4}})"
    rf"(?P<value>{_QUOTED}|(?!\[secret\])[^\s\"',;&|]{{3,2000}})",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"(?P<kept>(?<![\w-])--?(?:[a-z0-9]{{1,20}}-){{0,3}}{_TELLING}[ \t]{{1,4}})"
    rf"(?P<value>{_QUOTED}|(?!\[secret\]|-)[^\s\"',;&|]{{3,2000}})",
    re.IGNORECASE,
)
# A word of the shell: the password in `PASSWORD=a,b;"c d"` ends with it and not at the comma.
_ASSIGNED = re.compile(
    r"(?P<kept>^[ \t+|>-]{0,8}(?:(?:export|set|setenv|declare -x|env)[ \t]{1,4})?"
    rf"(?:[A-Za-z0-9]{{1,40}}[_.-]){{0,6}}[A-Za-z0-9]{{0,24}}(?:{_TELLING}|pass)"
    rf"(?:[_-]?[A-Za-z0-9]{{1,12}}){{0,2}}=)(?!\[secret\])(?:{_QUOTED}|\S){{1,2000}}",
    re.IGNORECASE | re.MULTILINE,
)
# In files of settings blanks are part of it, up to the end of the line.
_PHRASE = re.compile(
    r"(?P<kept>^[ \t+|>-]{0,8}[A-Za-z0-9_.-]{0,40}(?:password|passphrase)"
    r"[ \t]{0,4}(?::|=)[ \t]{1,4})"
    r"(?!\[secret\])[^\s\"'][^\n]{2,500}",
    re.IGNORECASE | re.MULTILINE,
)
_SHORT_NAMED = re.compile(
    rf"(?P<kept>(?:\b[A-Za-z0-9]{{1,40}}[_-]pass|\bpsk|\"auth\")[\"']?[ \t]{{0,4}}[:=][ \t]{{0,4}})"
    rf"(?P<value>{_QUOTED}|(?!\[secret\])[^\s\"',;&|]{{3,2000}})",
    re.IGNORECASE,
)
_USER = re.compile(
    r"(?P<kept>(?<!\S)(?:-u|--user|--proxy-user)[ \t=]{0,4}[\"']?[^\s:\"']{1,200}:)[^\s\"']{1,500}"
)
_GLUED = re.compile(
    r"(?P<kept>\b(?:sshpass[ \t]+-p[ \t]*|(?:mysql|mysqldump|mysqladmin|mariadb)\b"
    r"(?:[ \t]+[^\s|;&]{1,200}){0,20}?[ \t]+-p)(?!\[secret\]))[^\s|;&]{1,200}"
)
_NETRC = re.compile(
    r"(?P<kept>\b(?:login|machine|account)[ \t]+\S{1,200}[ \t]+password[ \t]+"
    r"|^[ \t|>+-]{0,8}(?:password|requirepass|masterauth)[ \t]+)(?!\[secret\])\S{1,500}"
    r"(?=[ \t]*$|[ \t]+(?:login|account|machine|macdef)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_PGPASS = re.compile(
    r"(?P<kept>^[^\s:]{1,200}:(?:[0-9]{1,5}|\*):[^\s:]{1,100}:[^\s:]{1,100}:)\S{1,200}$",
    re.MULTILINE,
)
_CRYPTED = re.compile(r"\$(?:1|2[abxy]|5|6|7|y|gy)\$[./A-Za-z0-9$=,]{8,250}")
_KEY_OF_40 = re.compile(r"(?<![A-Za-z0-9+/=._-])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=._-])")
_CANDIDATE = re.compile(r"(?<![A-Za-z0-9+_=-])[A-Za-z0-9+_-]{20,512}={0,2}(?![A-Za-z0-9+_-])")
_LEAST_ENTROPY = 3.6
_AFTER_NAMES = (
    *(_HEADER, _BEARER, _ADDRESS, _USER, _GLUED, _ASSIGNED, _PHRASE, _NAMED, _SHORT_NAMED),
    *(_OPTION, _NETRC, _PGPASS),
)


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Return the text with every secret that is recognised replaced by `[secret]`.

    Args:
        text: without control sequences, which would part a secret.
        known: values that are secret; those under six characters are ignored.
    """
    forms = {form for each in known if len(each) >= MIN_KNOWN_CHARS for form in _forms(each)}
    for value in sorted(forms, key=_longest):
        text = text.replace(value, TAG)
    text = _KEY_BLOCK.sub(_block, text)
    if "-----END " in text:  # looking for what stands before it takes long where nothing ends
        text = _KEY_END.sub(_block, text)
    text = _BASE64_LINES.sub(_block, text)
    text = _CRYPTED.sub(TAG, _TOKEN.sub(TAG, text))
    for pattern in _AFTER_NAMES:
        text = pattern.sub(_after_kept, text)
    return _CANDIDATE.sub(_by_chance, _KEY_OF_40.sub(_by_chance, text))


def known_secrets(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of those variables whose names say that they are secret."""
    return tuple(
        value
        for name, value in environ.items()
        if is_secret_name(name) and len(value) >= MIN_KNOWN_CHARS and not _is_place(value)
    )


def is_secret_name(name: str) -> bool:
    """Tell whether a variable of this name holds a secret."""
    return _SECRET_NAME.search(name) is not None


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


def _block(match: re.Match[str]) -> str:
    return TAG + ("\n" if match.group().endswith("\n") else "")


def _after_kept(match: re.Match[str]) -> str:
    value = match.groupdict().get("value")
    if value is not None and value[0] in "\"'" and value.strip("\"'").startswith(TAG):
        return match.group()
    return match["kept"] + TAG


def _by_chance(match: re.Match[str]) -> str:
    return TAG if _looks_random(match.group()) else match.group()


def _looks_random(text: str) -> bool:
    """Tell whether a string is a key rather than a name: three kinds of characters, often changing.

    Digests in hex are left: a commit's hash is what a question may be about.
    """
    body = text.rstrip("=")
    kinds = [_kind(character) for character in body]
    if not {"digit", "upper", "lower"} <= set(kinds):
        return False
    # A word that begins with a capital is no change, or names like this one would be keys.
    changes = sum(
        1
        for before, after in pairwise(kinds)
        if before != after and (before, after) != ("upper", "lower")
    )
    return changes >= len(body) * 0.3 and _entropy(body) >= _LEAST_ENTROPY


def _kind(character: str) -> str:
    if character.isdigit():
        return "digit"
    if character.isupper():
        return "upper"
    return "lower" if character.islower() else "other"


def _entropy(text: str) -> float:
    """Return bits per character, by how often each stands in the text."""
    size = len(text)
    return -sum(count / size * math.log2(count / size) for count in Counter(text).values())
