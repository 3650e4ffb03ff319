"""Takes secrets out of terminal text before it leaves this process. Pure.

What it looks for, in this order: values that are known (those of variables whose names say that
they are secret), private keys and other blocks of base64, tokens by their shape, headers and
addresses that carry a password, `name=value` where the name says what the value is, and strings
without words or order in them. A secret becomes `[secret]`. It errs towards taking out too much:
the model can ask, and what was sent cannot be taken back.

The text is hostile: every pass goes through it once. A run is taken whole (`++`, `*+`: no pattern
gives back what it took), starts where nothing of its kind stands before it, and what it means is
decided on a piece of bounded length.
"""

import base64
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from urllib.parse import quote

from clawctl.shell.key_blocks import TAG as TAG
from clawctl.shell.key_blocks import without_key_blocks

MIN_KNOWN_CHARS = 6

_TELLING = (
    r"(?:passw(?:or)?d|passphrase|passwd|pwd|secret|token|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|signing[_-]?key|encryption[_-]?key|credentials?|auth[_-]?key|session[_-]?(?:id|key)|dsn)"
)
_SECRET_NAME = re.compile(
    rf"(?:^|[_-])(?:{_TELLING}|auth|key|pass|salt|pin)(?:$|[_-])|{_TELLING}$", re.IGNORECASE
)
# The end of a name that tells: `client_secret`, `apiKey`, `PASSWORD_FILE_2`.
_TELLING_END = re.compile(
    rf"{_TELLING}(?:[_-]?[A-Za-z0-9]{{1,12}}){{0,2}}\Z|[A-Za-z0-9][_-]pass\Z|(?<![A-Za-z0-9])psk\Z",
    re.IGNORECASE,
)
_TELLING_CHARS = 48

_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{16,}+|[rs]k_(?:live|test)_[A-Za-z0-9]{10,}+"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{20,}+|github_pat_[A-Za-z0-9_]{20,}+"
    r"|glpat-[A-Za-z0-9_-]{20,}+|xox[abeprs]-[A-Za-z0-9-]{10,}+|hf_[A-Za-z0-9]{20,}+"
    r"|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}+|npm_[A-Za-z0-9]{36}"
    r"|pypi-[A-Za-z0-9_-]{16,}+|dop_v1_[a-f0-9]{64}|clawd_[a-z0-9]{8,16}_[a-z0-9]{32,}+"
    r"|AGE-SECRET-KEY-1[A-Z0-9]{20,}+)"
)
_DOTTED = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]{17,}+")
_WEB_TOKEN = re.compile(r"(?<![A-Za-z0-9])eyJ")
_HEADER = re.compile(
    r"(?P<kept>(?P<quote>[\"']?)\b(?:proxy-authorization|authorization|x-api-key|x-auth-token"
    r"|set-cookie|cookie)(?P<end>[\"']?)[ \t]{0,4}[:=][ \t]{0,4}(?P<open>[\"']?)"
    r"(?:(?:bearer|basic|token|digest)[ \t]{1,4})?)",
    re.IGNORECASE,
)
_BEARER = re.compile(
    r"(?P<kept>\b(?:bearer|basic)[ \t]{1,4})(?P<value>[A-Za-z0-9._~+/=-]{12,}+)", re.IGNORECASE
)
_ADDRESS = re.compile(r"://(?P<authority>[^\s/\"'<>?#]++)")
_USER = re.compile(
    r"(?<!\S)(?P<kept>(?:-u|--user|--proxy-user)[ \t=]{0,4}[\"']?[^\s:\"']{1,200}+:)[^\s\"']++"
)
_GLUED = re.compile(
    r"(?P<kept>\b(?:sshpass[ \t]{1,9}+-p[ \t]{0,9}+|(?:mysql|mysqldump|mysqladmin|mariadb)\b"
    r"(?:[ \t]{1,9}+(?!-p)[^\s|;&]{1,200}+){0,20}+[ \t]{1,9}+-p))[^\s|;&]++"
)
_QUOTED = r"\"(?:[^\"\\\n]++|\\[^\n])*+\"?|'[^'\n]*+'?"
_NAME = re.compile(
    r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]++)[\"']?[ \t]{0,4}(?:=>|:=|[=:])[ \t]{0,4}"
)
_VALUE = re.compile(rf"{re.escape(TAG)}|{_QUOTED}|\S++")
# A word of the shell: the password in `PASSWORD=a,b;"c d"` ends with it and not at the comma.
_FRONT = r"^[ \t+|>-]{0,8}+(?:(?:export|set|setenv|declare -x|env)[ \t]{1,4}+)?+"
_ASSIGNED = re.compile(
    rf"{_FRONT}(?P<name>[A-Za-z0-9_.-]++)=(?P<value>(?:{_QUOTED}|[^\s\"'])++)", re.MULTILINE
)
_PASS_END = re.compile(r"pass(?:[_-]?[A-Za-z0-9]{1,12}){0,2}\Z", re.IGNORECASE)
# In files of settings blanks are part of it, up to the end of the line.
_PHRASE = re.compile(
    rf"{_FRONT}(?P<name>[A-Za-z0-9_.-]++)[ \t]{{0,4}}[:=][ \t]{{1,4}}"
    r"(?P<value>[^\s\"'][^\n]{2,}+)",
    re.MULTILINE,
)
_OPTION = re.compile(r"(?<![\w-])-(?P<name>-?[A-Za-z0-9_-]++)[ \t]{1,4}(?!-)")
_NETRC = re.compile(
    r"(?P<kept>\b(?:login|machine|account)[ \t]++\S{1,200}+[ \t]++password[ \t]++"
    r"|^[ \t|>+-]{0,8}+(?:password|requirepass|masterauth)[ \t]++)\S++"
    r"(?=[ \t]*+$|[ \t]++(?:login|account|machine|macdef)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_PGPASS = re.compile(
    r"(?P<kept>^[^\s:]{1,200}+:(?:[0-9]{1,5}+|\*):[^\s:]{1,100}+:[^\s:]{1,100}+:)\S++$",
    re.MULTILINE,
)
_CRYPTED = re.compile(r"\$(?:1|2[abxy]|5|6|7|y|gy)\$[./A-Za-z0-9$=,]{8,}+")
_KEY_OF_40 = re.compile(r"(?<![A-Za-z0-9+/=._-])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=._-])")
_CANDIDATE = re.compile(r"(?<![A-Za-z0-9+_-])[A-Za-z0-9+_-]{20,}+={0,2}+")
_LEAST_ENTROPY = 3.6
_JUDGED_CHARS = 64


def redacted(text: str, known: Iterable[str] = ()) -> str:
    """Return the text with every secret that is recognised replaced by `[secret]`.

    Args:
        text: without control sequences, which would part a secret.
        known: values that are secret; those under six characters are ignored.
    """
    forms = {form for each in known if len(each) >= MIN_KNOWN_CHARS for form in _forms(each)}
    for value in sorted(forms, key=_longest):
        text = text.replace(value, TAG)
    text = _CRYPTED.sub(TAG, _TOKEN.sub(TAG, without_key_blocks(text)))
    text = _DOTTED.sub(_without_web_token, text)
    text = _values_taken_out(text, _HEADER, _header_end)
    text = _BEARER.sub(_after_kept, text)
    text = _ADDRESS.sub(_without_user_s, text)
    text = _GLUED.sub(_after_kept, _USER.sub(_after_kept, text))
    text = _PHRASE.sub(_phrase, _ASSIGNED.sub(_assigned, text))
    text = _values_taken_out(text, _NAME, _value_end)
    text = _values_taken_out(text, _OPTION, _value_end)
    text = _PGPASS.sub(_after_kept, _NETRC.sub(_after_kept, text))
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


def _values_taken_out(
    text: str, name: re.Pattern[str], end_of: Callable[[str, re.Match[str]], int]
) -> str:
    """Replace what follows each name; `end_of` says where that ends, the name's end for nothing."""
    parts, at, copied = list[str](), 0, 0
    while (match := name.search(text, at)) is not None:
        begin, at = match.end(), max(end_of(text, match), match.end())
        if at > begin:
            parts += (text[copied:begin], TAG)
            copied = at
    return "".join([*parts, text[copied:]])


def _header_end(text: str, name: re.Match[str]) -> int:
    """Return where a header's value ends: at the quote that it stands in, else with the line."""
    begin = name.end()
    line_end = text.find("\n", begin)
    line_end = len(text) if line_end < 0 else line_end
    quote = name["open"] or ("" if name["end"] else name["quote"])
    closing = text.find(quote, begin, line_end) if quote else -1
    end = closing if closing >= 0 else line_end
    return end if text[begin:end].strip() else begin


def _is_telling(name: str) -> bool:
    return _TELLING_END.search(name[-_TELLING_CHARS:]) is not None


def _value_end(text: str, name: re.Match[str]) -> int:
    """Return where the value ends that a name tells of; the name's end where there is none."""
    begin = name.end()
    is_entry = name["name"] == "auth" and text[max(name.start() - 1, 0)] == '"'
    if not is_entry and not _is_telling(name["name"]):
        return begin
    value = _VALUE.match(text, begin)
    if value is None or value.group() == TAG or len(value.group().strip("\"'")) < 3:
        return begin
    return begin if value.group().strip("\"'") == TAG else value.end()


def _assigned(match: re.Match[str]) -> str:
    name = match["name"]
    is_secret = _is_telling(name) or _PASS_END.search(name[-_TELLING_CHARS:])
    return _kept(match) + TAG if is_secret else match.group()


def _phrase(match: re.Match[str]) -> str:
    is_secret = match["name"].lower().endswith(("password", "passphrase"))
    return _kept(match) + TAG if is_secret else match.group()


def _kept(match: re.Match[str]) -> str:
    return match.group()[: match.start("value") - match.start()]


def _after_kept(match: re.Match[str]) -> str:
    value = match.groupdict().get("value") or ""
    # "Basic authentication failed" holds no secret.
    if value.isalpha() and value.islower():
        return match.group()
    return match["kept"] + TAG


def _without_web_token(match: re.Match[str]) -> str:
    text = match.group()
    begin = _WEB_TOKEN.search(text)
    if begin is None or text.find(".", begin.end() + 6) < 0:
        return text
    return text[: begin.start()] + TAG


def _without_user_s(match: re.Match[str]) -> str:
    """Return an address without the password, or the token, of the user in it."""
    user, at, host = match["authority"].rpartition("@")
    name, colon, _ = user.partition(":")
    if colon:
        return f"://{name}:{TAG}@{host}"
    return f"://{TAG}@{host}" if at and len(user) >= 20 else match.group()


def _by_chance(match: re.Match[str]) -> str:
    text = match.group()
    pieces = range(0, max(len(text) - _JUDGED_CHARS // 2, 1), _JUDGED_CHARS)
    # The last piece takes what is left over: a piece of few characters says nothing.
    ends = [*pieces[1:], len(text)]
    is_random = any(_looks_random(text[at:end]) for at, end in zip(pieces, ends, strict=True))
    return TAG if is_random else text


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
