r"""Finds secrets in text: what is a password, a key or a token, and where it begins and ends. Pure.

Receipts, logs, exports, the scan of plugins and the shell all ask here; what they put in the place
of a secret is theirs. A secret is known by its own shape (`ghp_…`, a private key, a web token), by
what leads to it (`Authorization: Basic …`, `https://user:…@host`, `curl -u user:…`), or by a name
that says so: `DB_PASSWORD=…`, `"clientSecret": "…"`, `--api-key …`, `<password>…</password>`.

After a name, a value must look like one: `password = os.environ["X"]`, `token: str`, `<your token>`
and "the password: see below" hold no secret. Who would rather lose a word than let a secret out
says `is_eager`, and gets every value after such a name, and strings without words or order.

The text is hostile: every pattern goes through it once. A run is taken whole (`++`, `*+`), begins
where nothing of its kind stands before it, and is judged on a piece of bounded length.
"""

import base64
import binascii
import bisect
import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Literal

import msgspec

Kind = Literal["a private key", "a token", "a password in an address", "a password or key"]

BLOCK: Kind = "a private key"
TOKEN: Kind = "a token"  # noqa: S105 - what it is called
ADDRESS: Kind = "a password in an address"
NAMED: Kind = "a password or key"


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """Where a secret stands: `text[start:end]`."""

    start: int
    end: int
    kind: Kind


def find_secrets(text: str, *, is_eager: bool = False) -> list[Secret]:
    """Return the secrets of a text in their order; no two of them overlap.

    Args:
        text: without control sequences, which would part a secret.
        is_eager: take every value after a telling name, and what looks random, too.
    """
    lower = text.replace("\u0130", "i").lower()  # as in `_found`
    if (
        not is_eager
        and text.count(":") < _COLONS_OF_PGPASS
        and not any(each in text for each in _WRITTEN)
        and not any(each in lower for each in _IN_LOWER_CASE)
    ):
        return []  # as nearly every text
    # What was taken out before is neither a secret nor a part of one.
    text = _TAGS.sub(_blanked, text) if "[secret" in text else text
    found = _found(text, is_eager=is_eager)
    bare, starts, moved = _without_fronts(text)
    for secret in _found(bare, is_eager=is_eager) if starts else ():
        start, end = (
            at + moved[bisect.bisect_right(starts, at) - 1] for at in (secret.start, secret.end - 1)
        )
        found.append(Secret(start=start, end=end + 1, kind=secret.kind))
    return _merged(found)


def _without_fronts(text: str) -> tuple[str, list[int], list[int]]:
    """Return a text without what programs put before its lines, and how its parts have moved.

    Returns:
        The text, where each part of it begins, and how far before its old place that is. Without
        any such line there are no parts.
    """
    parts, starts, moved = list[str](), list[int](), list[int]()
    size = last = 0
    for match in _BEFORE_LINES.finditer(text):
        parts.append(text[last : match.start()])
        starts.append(size)
        moved.append(last - size)
        size += match.start() - last
        last = match.end()
    if not parts:
        return text, [], []
    return "".join([*parts, text[last:]]), [*starts, size], [*moved, last - size]


def _found(text: str, *, is_eager: bool) -> list[Secret]:
    # The one letter that two stand for in lower case: places must be the same in both.
    lower = text.replace("\u0130", "i").lower()
    found = [*_blocks(text, is_eager=is_eager), *_by_shape(text, lower), *_addresses(text)]
    found += _named(text, lower, is_eager=is_eager)
    found += _led_to(text, lower, is_eager=is_eager)
    if is_eager:
        found += _by_chance(text)
    return found


@functools.lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether the value of this name is a secret, in text as in a tree.

    `DB_PASSWORD`, `apiKey`, `x-auth-token`, `_authToken`, `Cookie`; not `max_tokens`, `token_type`,
    `password_file` or `public_key`.
    """
    return _class_of(name) != ""


def is_secret_variable(name: str) -> bool:
    """Return whether a variable of the environment holds a secret: here `MY_KEY` counts, too."""
    words = {word.lower() for word in _PARTED.split(name)}
    return is_secret_name(name) or not words.isdisjoint(_OF_VARIABLES)


# --- shapes

_TAGS = re.compile(r"\[secret(?::[0-9a-f]{8})?\]")
_GONE = "\x00"
# What file_read, cat -n, grep -n, diff and a quotation put before each line.
_BEFORE_LINES = re.compile(
    r"^(?:(?:[^\s:|]{1,200}[:-])?[ \t]{0,8}[0-9]{1,7}[|:\t-] ?|[+>-] ?)", re.MULTILINE
)

_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"sk-(?!ssh-|ecdsa-)[A-Za-z0-9_-]{16,}+|(?:[rs]k|whsec)_(?:live_|test_)?[A-Za-z0-9]{16,}+"
    r"|(?:[rs]k_(?:live|test)|nvapi|figd|tvly|xai|pplx|lsv2_pt)[_-][A-Za-z0-9_-]{10,}+"
    # What words and branches begin with, too: `r8-fix-the-build`, `fw_update_count`.
    r"|(?:sbp|gsk|r8|rnd|ntn|fw|phx)_"
    r"(?:[A-Za-z0-9]{20,}+|(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{10,}+)"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}(?![A-Za-z0-9])"
    r"|gh[opusr]_[A-Za-z0-9]{20,}+|github_pat_[A-Za-z0-9_]{20,}+"
    r"|gl(?:pat|dt|rt|soat|cbt|ptt|oas|ft|imt|agent)-[A-Za-z0-9_-]{16,}+"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}+|xapp-[A-Za-z0-9-]{20,}+"
    r"|hf_[A-Za-z0-9]{20,}+|AIza[A-Za-z0-9_-]{35}|ya29\.[A-Za-z0-9_-]{20,}+|GOCSPX-[\w-]{20,}+"
    r"|1//0[A-Za-z0-9_-]{30,}+|npm_[A-Za-z0-9]{36}|pypi-[A-Za-z0-9_-]{16,}+"
    r"|do[opr]_v1_[a-f0-9]{64}|dckr_pat_[A-Za-z0-9_-]{20,}+|shp(?:at|ss|ca|pa)_[a-fA-F0-9]{32}"
    r"|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}+|key-[0-9a-f]{32}(?![0-9a-f])"
    r"|SK[0-9a-f]{32}(?![0-9a-f])|lin_api_[A-Za-z0-9]{32,}+|PMAK-[A-Za-z0-9-]{40,}+"
    r"|NRAK-[A-Z0-9]{20,}+|hv[sbr]\.[A-Za-z0-9_-]{20,}+|dp\.(?:pt|st|ct|sa)\.[A-Za-z0-9]{30,}+"
    r"|[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}+|pul-[a-f0-9]{40}|ATATT3[A-Za-z0-9_=-]{40,}+"
    r"|ATBB[A-Za-z0-9]{24,}+|sntry[su]_[A-Za-z0-9+/=_-]{30,}+|gl(?:sa|c)_[A-Za-z0-9_+/=-]{30,}+"
    r"|rubygems_[a-f0-9]{40,}+|xkeysib-[a-f0-9]{40,}+|sq0[a-z]{3}-[A-Za-z0-9_-]{20,}+"
    r"|ops_ey[A-Za-z0-9_-]{40,}+|AGE-SECRET-KEY-1[A-Z0-9]{20,}+|CFPAT-[A-Za-z0-9_-]{30,}+"
    r"|[a-zA-Z0-9_~.]{3}8Q~[a-zA-Z0-9_~.-]{31,34}|[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"
    r"|clawd_[a-z0-9]{8,16}_[a-z0-9]{32,}+)"
)
_PREFIXES = (
    "sk- sk_ rk_ whsec_ sbp gsk r8 rnd nvapi figd ntn fw tvly xai pplx lsv2 phx AKIA ASIA "
    "ABIA ACCA gho_ ghp_ ghu_ ghs_ ghr_ github_pat_ glpat- gldt- glrt- glsoat- glcbt- glptt- "
    "gloas- glft- glimt- glagent- xox xapp- hf_ AIza ya29. GOCSPX- 1//0 npm_ pypi- doo_ dop_ "
    "dor_ dckr_ shpat_ shpss_ shpca_ shppa_ SG. key- SK lin_api_ PMAK- NRAK- hvs. hvb. hvr. "
    "dp. .atlasv1. pul- ATATT3 ATBB sntrys_ sntryu_ glsa_ glc_ rubygems_ xkeysib- sq0 ops_ey "
    "AGE-SECRET CFPAT- 8Q~ :AA clawd_"
)
_WEBHOOK = re.compile(
    r"(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/"
    r"|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/webhookb2/)"
    r"(?P<secret>[\w/@.-]{20,}+)"
)
_WEBHOOK_AT = ("hooks.slack", "discord", "webhook.office")
_WEB_TOKEN = re.compile(r"(?<![A-Za-z0-9])eyJ")
_RUN = re.compile(r"[A-Za-z0-9_.-]*+")
_CRYPTED = re.compile(
    r"\$(?:1|2[abxy]|5|6|7|y|gy|apr1|argon2i?d?)\$[./A-Za-z0-9$=,]{8,}+"
    r"|\{S?SHA(?:256|512)?\}[A-Za-z0-9+/]{20,}+={0,2}"
)
_CRYPTED_AT = ("$", "{SHA", "{SSHA")
_SIGNED = re.compile(
    r"[?&;](?:sig|x-(?:amz|goog)-signature)=(?P<secret>[A-Za-z0-9%+/=_-]{20,}+)", re.IGNORECASE
)
_SIGNED_AT = ("sig=", "signature=")


def _by_shape(text: str, lower: str) -> Iterator[Secret]:
    for match in _near(_SHAPES, text, text, _PREFIXES.split(), before=16):
        yield Secret(start=match.start(), end=match.end(), kind=TOKEN)
    for match in _near(_CRYPTED, text, text, _CRYPTED_AT, before=1):
        yield Secret(start=match.start(), end=match.end(), kind=TOKEN)
    for match in _near(_WEBHOOK, text, text, _WEBHOOK_AT, before=1):
        yield _group(match, TOKEN)
    for match in _near(_SIGNED, text, lower, _SIGNED_AT, before=20):
        yield _group(match, TOKEN)
    at = 0
    while (begin := _WEB_TOKEN.search(text, at) if "eyJ" in text else None) is not None:
        run = _RUN.match(text, begin.start())
        assert run is not None
        at = max(run.end(), begin.end())
        if 0 <= text.find(".", begin.end() + 4, at) < at - 4:
            yield Secret(start=begin.start(), end=at, kind=TOKEN)


def _near(
    pattern: re.Pattern[str], text: str, where: str, needles: Iterable[str], *, before: int
) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern, looked for only where one of the needles stands.

    Most texts hold none, and a text is searched for a few letters much faster than by a pattern.

    Args:
        pattern: what to find; it begins at most `before` characters before a needle.
        text: in which it is found.
        where: the text, or what it is in lower case, for the needles.
        needles: of which each match holds one.
        before: see `pattern`.
    """
    for start, end in _windows(text, where, needles, before=before):
        yield from pattern.finditer(text, start, end)


def _windows(
    text: str, where: str, needles: Iterable[str], *, before: int, after: int = 400
) -> list[tuple[int, int]]:
    """Return the pieces of a text around needles; each goes on to the end of a word."""
    hits: list[int] = []
    for needle in needles:
        at = where.find(needle)
        while at >= 0:
            hits.append(at)
            at = where.find(needle, at + len(needle))
    windows: list[tuple[int, int]] = []
    for hit in sorted(hits):
        start, end = max(hit - before, 0), hit + after
        if windows and start <= windows[-1][1]:
            start, last = windows.pop()
            end = max(end, last) if end > last else last
            if end == last:
                windows.append((start, end))
                continue
        word = _WORD.match(text, min(end, len(text)))
        windows.append((start, word.end() if word else len(text)))
    return windows


_WORD = re.compile(r"\S*+")

_AUTHORITY = re.compile(r"://(?P<authority>(?:(?!://)[^\s/\"'`<>?#\\\x00])++)")


def _addresses(text: str) -> Iterator[Secret]:
    """Yield the password, or the token, of the user in each address."""
    for match in _near(_AUTHORITY, text, text, ("://",), before=0):
        user, at, _ = match["authority"].rpartition("@")
        name, colon, password = user.partition(":")
        start = match.start("authority")
        if colon and not _is_placeholder(password, "password"):
            start += len(name) + 1
            yield Secret(start=start, end=start + len(password), kind=ADDRESS)
        elif at and not colon and len(user) >= 20:
            yield Secret(start=start, end=start + len(user), kind=ADDRESS)


# --- blocks

_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,60}(?:PRIVATE KEY|SECRET)[A-Z0-9 ]{0,20}-----")
_END = re.compile(r"-----END [A-Z0-9 ]{1,80}-----")
_BODY = re.compile(
    r"(?:\s|\\[nr]|Proc-Type|Version|Comment)+[A-Za-z0-9+/=]{2}|[\"'+\s\\nr]{1,80}[A-Za-z0-9+/]{40}|\Z"
)
_TAIL = re.compile(r"[A-Za-z0-9+/]{40}={0,2}[ \t\r]*\Z")
_LINE_OF_A_KEY = 120
_LONG_CHARS, _MIDDLE_CHARS = 56, 40
# Before a line may stand what cat -n, grep -n and diff put there.
_BASE64 = re.compile(
    r"[ \t|>+-]{0,8}+(?:[0-9]{1,7}[:\t-][ \t]{0,4})?+([A-Za-z0-9+/]++)={0,2}+[ \t\r]*+"
)


def _blocks(text: str, *, is_eager: bool) -> Iterator[Secret]:
    """Yield private keys, whole or cut off at either end; eagerly also rows of base64 alone."""
    at = 0
    while (begin := _BEGIN.search(text, at) if "-----BEGIN " in text else None) is not None:
        if not is_eager and not _BODY.match(text, begin.end()):
            at = begin.end()  # a program that names the line
            continue
        end = _END.search(text, begin.end())
        at = len(text) if end is None else end.end()
        yield Secret(start=begin.start(), end=at, kind=BLOCK)
    if is_eager or "-----END " in text:
        yield from _rows(text, is_eager=is_eager)


def _rows(text: str, *, is_eager: bool) -> Iterator[Secret]:
    lines = text.split("\n")
    sizes = list(map(_base64_chars, lines))
    is_key = [False] * len(lines)
    for at in range(1, len(lines) if is_eager else 0):
        if sizes[at - 1] >= _LONG_CHARS and sizes[at] >= _LONG_CHARS:
            is_key[at - 1 : at + 1] = True, True
        elif sizes[at] and is_key[at - 1] and sizes[at - 1] >= _LONG_CHARS:
            is_key[at] = True
    for at, line in enumerate(lines):
        end = _END.search(line)
        is_key_end = end is not None and "PRIVATE KEY" in end.group() and sizes[max(at - 1, 0)]
        if end is not None and (is_eager or is_key_end):
            first = _mark_back(at, sizes, is_key)
            # What a program says before the key: `told MIIE…`
            if first and _TAIL.search(lines[first - 1][-_LINE_OF_A_KEY:]):
                is_key[first - 1] = True
    start = 0
    for is_gone, line in zip(is_key, lines, strict=True):
        if is_gone:
            yield Secret(start=start, end=start + len(line), kind=BLOCK)
        start += len(line) + 1


def _mark_back(end: int, sizes: list[int], is_key: list[bool]) -> int:
    """Mark the line of an END and the key before it, whose last line may be short.

    Returns its first line.
    """
    is_key[end] = True
    at = end - 1
    while at >= 0 and not is_key[at] and sizes[at] >= (1 if at == end - 1 else _MIDDLE_CHARS):
        is_key[at] = True
        at -= 1
    return at + 1


def _base64_chars(line: str) -> int:
    """Return how many characters of base64 a line is, 0 when it is anything else."""
    match = _BASE64.fullmatch(line) if line else None
    return len(match[1]) if match else 0


# --- names

_PASSWORD, _KEY, _HEADER = "password", "key", "header"
_LONGEST_NAME = 128
_PARTED = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[^A-Za-z0-9]+")
_WORDS_OF_VARIABLES = (
    "key keys auth pass salt pin password passwd secret secrets token tokens credential credentials"
)
_OF_VARIABLES = frozenset(_WORDS_OF_VARIABLES.split())
_SUFFIX = (
    r"(?:_(?:[0-9]{1,4}|v[0-9]|old|new|prod|production|dev|test|staging|live|value|base|plain|raw"
    r"|text|primary|secondary|current|next|previous|backup|main|default|b64|base64|hash|data|key"
    r"|admin|root))*$"
)
_PASSWORD_NAME = re.compile(
    rf"(?:passw(?:or)?ds?|passphrase|passcode|(?:^|_)(?:[a-z]{{1,8}})?pwd|(?:^|_)psk|_pass"
    rf"|requirepass|masterauth){_SUFFIX}"
)
_KEY_NAME = re.compile(
    r"(?:secret|token|(?:^|_)api_?keys?|credentials?|dsn|(?:^|_)(?:_?auth)|connection_?string"
    r"|(?:access|secret|private|signing|encryption|encrypt|auth|account|master|session|service"
    r"|service_role|application|app|client|consumer|storage|deploy|shared|pre_?shared|subscription"
    rf"|license|web_?hook|admin)_?key(?:_id)?|preshared_?key|session_?(?:id|key)){_SUFFIX}"
)
_HEADER_NAME = re.compile(r"^(?:proxy_)?(?:authorization|(?:set_)?cookie)$")
# Of words that end so, these are about text and not about who one is.
_OF_TEXT = re.compile(
    r"(?:^|_)(?:eos|bos|pad|sep|cls|mask|unk|stop|end|start|begin|image|video|audio|special|max|min"
    r"|num|next|prev|previous|last|first|this|current|continuation|page|cursor|sync|lookahead|new"
    r"|left|right|open|close|string|word|prompt|completion|per|text|public)_token(?:_.*)?$"
    r"|access_key_id$|public_?key"
)


@functools.lru_cache(maxsize=4096)
def _class_of(name: str) -> str:
    """Return what a name says of its value: a password, a key, a header's; "" for nothing."""
    words = "_".join(filter(None, _PARTED.split(name[-_LONGEST_NAME:]))).lower()
    if _HEADER_NAME.search(words):
        return _HEADER
    if _PASSWORD_NAME.search(words):
        return _PASSWORD
    if words == "pass" and name.isupper():
        return _PASSWORD
    return _KEY if _KEY_NAME.search(words) and not _OF_TEXT.search(words) else ""


# A name, perhaps in quotes that are themselves escaped, what parts it from its value, the value.
_QUOTE = r"\\{0,3}[\"'`]"
_NAME = r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z0-9_.-]++)"
_PAIR = re.compile(
    _NAME + rf"(?P<closed>{_QUOTE}|\])?+" + r"[ \t]{0,20}+(?P<mark>=>|:=|\?=|={1,3}|:)"
    r"(?P<blank>[ \t]{0,20}+)"
)
_TUPLE = re.compile(
    rf"(?P<quote>[\"']){_NAME}(?P=quote)[ \t]{{0,4}}+,(?P<blank>[ \t]{{0,4}}+)(?=[bBrRuUfF]?[\"'])"
)
_OPTION = re.compile(r"(?<![\w-])-(?P<name>-?[A-Za-z0-9_-]++)(?P<blank>[ \t]{1,4}+)(?![-=:])")
# Dockerfile, csh, fish and Windows part a name from its value by a blank, Gradle and nginx, too.
_SPACED = re.compile(
    r"(?:^|[ \t+>-])(?:ENV|ARG|setenv|setx|set[ \t]{1,4}+-[A-Za-z-]{1,12}+)[ \t]{1,4}+"
    r"(?P<name>[A-Za-z0-9_]++)(?P<blank>[ \t]{1,4}+)(?!=)",
    re.MULTILINE,
)
_SPACED_QUOTED = re.compile(r"(?<![\w.\"'-])(?P<name>[A-Za-z_]++)(?P<blank>[ \t]{1,4}+)(?=[\"'])")
_TAG_OF_XML = re.compile(
    r"<(?P<name>[A-Za-z0-9_.:-]++)(?:[ \t][^<>\n]{0,200}+)?>(?P<blank>)(?=[^<>\s][^<>\n]{0,512}</)"
)
# {"name": "DB_PASSWORD", "value": "…"}, <add key="ApiKey" value="…"/>, - name: X / value: …
_ENTRY = re.compile(
    r"(?<![A-Za-z0-9_])(?:[Nn]ame|[Kk]ey|[Ii]d)[\"']?[ \t]{0,4}+[=:>][ \t]{0,4}+[\"']?"
    r"(?P<name>[A-Za-z0-9_.-]++)[\"']?(?:</key>)?[\s,]{0,40}+[\"'<]?"
    r"(?:value|Value|string)(?:[\"']?[ \t]{0,4}+[=:]|>)(?P<blank>[ \t]{0,4}+)"
)
_PREFIX = re.compile(r"[bBrRuUfF]{1,2}(?=[\"'])|@(?=[\"'])")
_OPENED = re.compile(r"(?P<esc>\\{0,3})(?P<quote>\"{3}|'{3}|[\"'`])")
_BODIES = {
    "\\": re.compile(r"[^\"'`\\\n\x00]*+"),  # the quotes themselves are escaped
    '"': re.compile(r"(?:[^\"\\\n\x00]|\\.)*+"),
    "'": re.compile(r"(?:[^'\\\n\x00]|\\.)*+"),
    "`": re.compile(r"[^`\n\x00]*+"),
    '"""': re.compile(r"[^\"\x00]*+"),
    "'''": re.compile(r"[^'\x00]*+"),
}
_SPACE = re.compile(r"[ \t\r\n]{0,40}+")
# Up to where a language, an address or a sentence would end it.
_BARE = re.compile(r"[^\s\"'`;&,<>|\\\x00)\]}]++")
_WORD_OF_SHELL = re.compile(r"(?:\"(?:[^\"\\\n]|\\.)*+\"?|'[^'\n]*+'?|[^\s\"'\x00])++")
_LINE = re.compile(r"[^\n]++")
_FOLDED = re.compile(r"[|>][+-]?[ \t]*+\n[ \t]*+(?=\S)")
# What may stand before an assignment that a shell or a file of settings reads.
_FRONT = re.compile(
    r"(?:^|\n|\\n|[ \t](?:-e|--env|export|env)[ \t=])[ \t+|>$#-]{0,12}"
    r"(?:(?:export|set|setenv|env|ENV|ARG|declare[ \t]-x|local|readonly|Environment=[\"']?|-)"
    r"[ \t]{0,4})?\Z"
)


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """A value after a name.

    Attributes:
        kind: what the name says of it.
        is_quoted: whether it stood in quotes.
        is_line: whether it is a whole word of the shell or of a file of settings.
    """

    name: str
    kind: str
    start: int
    end: int
    is_quoted: bool = False
    is_line: bool = False


# What stands in every name that tells, and in every pair of a name and a value of an entry.
_TELLING = (
    "passw passphrase passcode pwd psk _pass pass requirepass masterauth secret token apikey "
    "api_key api-key api.key credential dsn auth connection key cookie session"
)
_NAMED_BY = (_PAIR, _TUPLE, _OPTION, _SPACED, _SPACED_QUOTED, _TAG_OF_XML, _ENTRY)
_LONGEST_LEAD = 300
_BEFORE_A_VARIABLE = frozenset(" \t\"'`;&|(")
# `PASS: tests/test_a.py`, `auth: the server refused it`
_WORDS_OF_A_LINE = frozenset({"pass", "auth"})


def _named(text: str, lower: str, *, is_eager: bool) -> Iterator[Secret]:
    """Yield the values after names that say what they are."""
    reader = _Reader(text, is_eager=is_eager)
    windows = _windows(text, lower, _TELLING.split(), before=_LONGEST_LEAD, after=_LONGEST_LEAD)
    for start, end in windows:
        for pattern in _NAMED_BY:
            for match in pattern.finditer(text, start, end):
                kind = _class_of(match["name"])
                if not kind or (pattern is _SPACED_QUOTED and kind != _PASSWORD):
                    continue
                place = reader.value(match, kind)
                is_listed = pattern is _TUPLE and kind != _KEY
                if place is not None and reader.is_secret(place, is_listed=is_listed):
                    yield Secret(start=place.start, end=place.end, kind=NAMED)


class _Reader:
    """Reads the values after telling names of one text.

    Where a run (a line, a word) ends is remembered: a hostile text names a thousand values in one.
    """

    def __init__(self, text: str, *, is_eager: bool) -> None:
        self._text = text
        self._is_eager = is_eager
        self._ends: dict[re.Pattern[str], tuple[int, int]] = {}

    def value(self, match: re.Match[str], kind: str) -> _Place | None:
        """Return where the value after a name stands; None where there is none."""
        text, at = self._text, match.end()
        groups = match.groupdict()
        mark, blank = groups.get("mark"), groups["blank"]
        place = _Place(name=match["name"], kind=kind, start=at, end=at)
        if groups.get("closed") and text[at : at + 1] in {"\n", "\r"}:  # JSON over two lines
            at = _end(_SPACE, text, at)
        if prefix := _PREFIX.match(text, at):
            at = prefix.end()
        if kind == _HEADER:
            return self._of_header(place, at, match.start(), mark)
        if mark == ":" and (folded := _FOLDED.match(text, at)):
            return self._run(_LINE, place, folded.end(), is_line=True)
        is_own = bool(_FRONT.search(text, max(match.start() - 60, 0), match.start()))
        # A variable of the environment is set in the middle of a line, too.
        is_own = is_own or (
            place.name.isupper() and text[match.start() - 1 : match.start()] in _BEFORE_A_VARIABLE
        )
        if mark == "=" and not blank and is_own and (word := self._assigned(place, at)):
            return word
        if is_own and blank and self._is_phrase(match["name"], at):
            return self._quoted(place, at) or self._run(_LINE, place, at, is_line=True)
        # With blanks around `=` it may be a program that names its constants.
        is_line = is_own and (mark == ":" or (mark == "=" and not (blank and place.name.isupper())))
        return self._quoted(place, at) or self._bare(place, at, is_line=is_line)

    def is_secret(self, place: _Place, *, is_listed: bool) -> bool:
        """Return whether a value is what its name says."""
        value = self._text[place.start : min(place.end, place.start + _JUDGED)]
        value = value.replace(_GONE, "")
        if not any(map(str.isalnum, value)):
            return False
        if self._is_eager and place.name.lower() not in _WORDS_OF_A_LINE:
            return len(value) >= 3
        if len(value) < 4 or _is_placeholder(value, place.name):
            return False
        return _is_value(value, place) and not (is_listed and not any(map(str.isdigit, value)))

    def _assigned(self, place: _Place, at: int) -> _Place | None:
        """Return the word of a shell, or of a file of settings: it goes on over a comma.

        In lower case it may be an argument of a call in a program, which does not.
        """
        word = self._run(_WORD_OF_SHELL, place, at, is_line=True)
        if word is None or _quoted_span(self._text, at)[1] == word.end:
            return None
        is_call = self._text[word.end - 1] == "," and not place.name.isupper()
        return None if is_call and not self._is_eager else word

    def _quoted(self, place: _Place, at: int) -> _Place | None:
        (start, end), _ = _quoted_span(self._text, at)
        if start < 0:
            return None
        return msgspec.structs.replace(place, start=start, end=end, is_quoted=True)

    def _bare(self, place: _Place, at: int, *, is_line: bool) -> _Place | None:
        """Return a word without quotes; a call, an index or a name that goes on is code."""
        word = self._run(_WORD_OF_SHELL if self._is_eager else _BARE, place, at, is_line=False)
        if word is None:
            return None
        if not self._is_eager and _CODE.match(self._text, at, min(word.end + 1, at + _JUDGED)):
            return None
        is_line = is_line and self._text[word.end : word.end + 1] in {"", "\n", "\r"}
        return msgspec.structs.replace(word, is_line=is_line)

    def _is_phrase(self, name: str, at: int) -> bool:
        """Return whether blanks are part of a value, as in files of settings."""
        if self._is_eager:
            return name.lower().endswith(("password", "passphrase"))
        return name.lower().endswith("passphrase") and bool(_WORDS.match(self._text, at))

    def _of_header(self, place: _Place, at: int, begin: int, mark: str | None) -> _Place | None:
        """Return the value of `Authorization` or `Cookie`: to its quote, else to the line's end."""
        text = self._text
        quoted = self._quoted(place, at)
        line = self._run(_LINE, place, at, is_line=False)
        if quoted is None and mark != ":" and not self._is_eager:
            return None  # `cookie = jar.get(name)`
        if quoted is None and line is not None:
            before = text[max(begin - 1, 0) : begin]
            closing = (
                text.find(before, at, min(line.end, at + 8192)) if before in {'"', "'"} else -1
            )
            line = msgspec.structs.replace(line, end=closing) if closing >= 0 else line
        found = quoted or line
        if found is None:
            return None
        scheme = _SCHEME.match(text, found.start, found.end)
        return msgspec.structs.replace(found, start=scheme.end()) if scheme else found

    def _run(
        self, pattern: re.Pattern[str], place: _Place, at: int, *, is_line: bool
    ) -> _Place | None:
        """Return what a pattern takes from here on."""
        begun, end = self._ends.get(pattern, (0, 0))
        if not begun <= at < end:
            end = _end(pattern, self._text, at)
            self._ends[pattern] = at, end
        return (
            msgspec.structs.replace(place, start=at, end=end, is_line=is_line) if end > at else None
        )


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where a match that begins here ends; here for none."""
    match = pattern.match(text, at)
    return match.end() if match else at


def _quoted_span(text: str, at: int) -> tuple[tuple[int, int], int]:
    """Return what stands between quotes, and where these end; (-1, -1) where there are none."""
    opened = _OPENED.match(text, at)
    if opened is None:
        return (-1, -1), -1
    end = _end(_BODIES["\\" if opened["esc"] else opened["quote"]], text, opened.end())
    return (opened.end(), end), end + len(opened.group())


_WORDS = re.compile(r"[A-Za-z0-9'-]{1,40}+(?: [A-Za-z0-9'-]{1,40}+){1,20}+[ \t\r]*+(?:\n|\Z)")
_CODE = re.compile(r"[A-Za-z_$@&*!][\w$]*(?:(?:\.|::|->|\?\.|!\.)[\w$]+)*[(\[{?]|[({\[*&!~|^:-]")
_SCHEME = re.compile(
    r"(?:bearer|basic|token|digest|apikey|api-key|negotiate|splunk|key|genie ?key|aws4-hmac-sha256"
    r"|ntlm|hawk)[ \t]{1,4}+",
    re.IGNORECASE,
)


# --- values

_NOTHING = (
    "string str text bool boolean int integer number bytes object any none null nil "
    "undefined void true false yes no on off required optional hidden input output field "
    "label default unset empty invalid missing incorrect wrong expired unknown unchanged "
    "changed prompt ask env file stdin value example sample test dummy fake mock "
    "placeholder redacted masked removed encrypted here secretstr password passwd passwort "
    "passphrase pass pwd secret token key apikey access bearer basic user username "
    "admin_password user_password change_me todo tbd see the that this your my from with "
    "for not and only must should will can may are was has auto random generated hash "
    "plain plaintext raw type self other params data request config settings options "
    "kwargs args contraseña contrasena senha wachtwoord"
)
_WORDS_FOR_NOTHING = frozenset(_NOTHING.split())
_EMPTY = re.compile(
    r"[*•x.X_?#:-]+|<.*>?|\[.*|%[A-Za-z_(].*|\$[A-Za-z_({].*|\{.*|#[0-9A-Fa-f]{3,8}"
    r"|!(?:vault|env|ref|sub|secret|getatt)\b.*|[@#]\{.*|.*\$\{[^}]*\}?|.*\{\{.*|.*\.\.\..*|.*….*"
    r"|(?i:(?:your|my|the|some|an?|enter|insert|replace|put|add|change|example|dummy|fake|test|user"
    r"|new|old|db|api|auth|access|client|app|secret|token|password|key|here|with|this|me|please|to|_"
    r"|-|\.|\s|in|it|goes)+)|[a-z_]+(?::[a-z0-9,]+)?(?:\|[a-z_]+(?::[a-z0-9,]+)?)+"
)
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9A-Fa-f]+|[0-9][0-9.,_]*(?:e[+-]?[0-9]+)?[A-Za-z%]{0,3})")
_PATH = re.compile(
    r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][^+=]*|[a-z0-9_.@-]+(?:/[a-z0-9_.@-]+)+|https?:.*"
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z_]*[0-9]{0,2}|[A-Za-z_]+(?:[_-][A-Za-z0-9]{1,8})+")
_DOTTED_NAME = re.compile(r"\$?[A-Za-z_]\w{0,30}(?:(?:\.|::|->)[A-Za-z_]\w{0,30})+[.:]?")
_JUDGED = 512


def _is_value(value: str, place: _Place) -> bool:
    """Return whether a value is what its name says; it is four characters long or more."""
    if place.kind == _HEADER:
        return _is_in_header(value)
    is_setting = place.is_line and not place.is_quoted
    if place.kind == _PASSWORD:
        return _is_password(value, place, is_setting=is_setting)
    return _is_key(value, is_setting=is_setting and place.name.isupper(), place=place)


def _is_placeholder(value: str, name: str) -> bool:
    """Return whether a value stands for one: `${TOKEN}`, `<password>`, `your-token`, `null`."""
    plain = value.strip().strip(".,;:!").lower()
    shape = _shape(plain)
    named = _shape(name.lower())
    # `DB_PASSWORD = "password"`, `Oid.CHALLENGE_PASSWORD: "challengePassword"`
    if plain in _WORDS_FOR_NOTHING or not plain or (shape and named.endswith(shape)):
        return True
    if len(named) >= 8 and shape.endswith(named) and plain.isalnum():
        return True  # `private_key: Ed25519PrivateKey`
    return _EMPTY.fullmatch(value.strip()) is not None


def _shape(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text)


def _is_in_header(value: str) -> bool:
    value = value.strip()
    if "=" in value and not value.endswith("="):
        pairs = (part.partition("=")[2] for part in value.split(";"))
        return any(_is_random_enough(each.strip()) for each in pairs) or _is_random_enough(value)
    first = value.split()[0]
    return _is_random_enough(first) or _is_user_and_password(first)


def _is_random_enough(value: str) -> bool:
    has_digit = any(map(str.isdigit, value))
    has_letter = any(map(str.isalpha, value))
    is_plain = value.isalpha() and (value.islower() or value.isupper() or value.istitle())
    if len(value) < 6 or value.isdigit() or _CODE.match(value) or _PATH.fullmatch(value):
        return False
    if _is_placeholder(value, ""):
        return False
    return (has_digit and has_letter) or (len(value) >= 16 and not is_plain and " " not in value)


def _is_user_and_password(value: str) -> bool:
    """Return whether a value is base64 of `user:password`, as Basic has it."""
    if len(value) < 8 or not re.fullmatch(r"[A-Za-z0-9+/_-]+={0,2}", value):
        return False
    try:
        plain = base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_").decode()
    except (binascii.Error, ValueError):
        return False
    return ":" in plain and plain.isprintable()


_SENTENCE = (
    "the to your is a an of for and or must enter please new confirm forgot password "
    "passwords change reset set show hide at least be not in it with this that current old "
    "wrong invalid incorrect required optional missing too short long weak strong again "
    "repeat no was has from use used user if when characters"
)
_WORDS_OF_A_SENTENCE = frozenset(_SENTENCE.split())


def _is_password(value: str, place: _Place, *, is_setting: bool) -> bool:
    name = place.name
    if any(map(str.isspace, value.strip())):
        return _is_phrase_of_words(value, place, is_setting=is_setting)
    if _PATH.fullmatch(value) or (_DOTTED_NAME.fullmatch(value) and not place.is_quoted):
        return False
    if place.is_quoted:
        return not (value.istitle() and value.isalpha() and len(value) < 6)
    if re.fullmatch(r"[A-Za-z_]+", value):
        is_word = value.isalpha() and value.islower() and len(value) >= 6
        return (is_setting and name.isupper()) or (place.is_line and is_word)
    if value.isdigit():
        return not name.lower().endswith("_pass")
    return any(map(str.isdigit, value)) or not re.fullmatch(r"[A-Za-z_.:,/()-]+", value)


def _is_phrase_of_words(value: str, place: _Place, *, is_setting: bool) -> bool:
    """Return whether several words are a passphrase, and not what a field or a message says."""
    words = value.split()
    is_sentence = not set(map(str.lower, words)).isdisjoint(_WORDS_OF_A_SENTENCE)
    if place.name.isupper() or "phrase" in place.name.lower():
        return place.name.isupper() or not is_sentence
    are_plain = all(word.isalpha() and word.islower() for word in words)
    return len(words) >= 3 and are_plain and not is_sentence and not is_setting


def _is_key(value: str, *, is_setting: bool, place: _Place) -> bool:
    digits, lower, upper = (
        any(map(kind, value)) for kind in (str.isdigit, str.islower, str.isupper)
    )
    is_mixed = digits and lower and upper
    if _is_user_and_password(value):
        return True
    if _is_no_key(value, is_mixed=is_mixed):
        return False
    if is_setting:
        return len(value) >= 24 or not (_DOTTED_NAME.fullmatch(value) and value.islower())
    is_name = _DOTTED_NAME.fullmatch(value) and len(value) < 40
    is_name = is_name or (_IDENTIFIER.fullmatch(value) and not (is_mixed and len(value) >= 16))
    # `my-secret` is the name of one
    if is_name or value.replace("-", "").isalpha():
        return False
    if digits and (lower or upper):
        return len(value) >= (6 if place.is_quoted or place.is_line else 8)
    return len(value) >= 16 and (lower or upper) and bool(re.search(r"[^A-Za-z_.:/-]", value))


def _is_no_key(value: str, *, is_mixed: bool) -> bool:
    """Return whether a value is a number, a path, or several words."""
    is_path = _PATH.fullmatch(value) and not (is_mixed and len(value) >= 32)
    is_path = is_path or "*" in value or "(?" in value
    return bool(is_path or _NUMBER.fullmatch(value) or any(map(str.isspace, value.strip())))


# --- what leads to a secret without a name of it

_BEARER = re.compile(
    r"(?<![A-Za-z0-9])(?P<scheme>bearer|basic)[ \t]{1,4}+(?P<secret>[A-Za-z0-9._~+/=-]{8,}+)",
    re.IGNORECASE,
)
_SCHEMES = ("bearer", "basic")
_USER_AT = ("-u", "--user", "--proxy-user")
_USER = re.compile(
    r"(?<!\S)(?:-u|--user|--proxy-user)[ \t=]{0,4}+[\"']?(?P<user>[^\s:\"']{1,200}+):"
    r"(?P<secret>[^\s\"']++)"
)
_GLUED = re.compile(
    r"\b(?:sshpass[ \t]{1,9}+-p[ \t]{0,9}+|(?:mysql|mysqldump|mysqladmin|mariadb)\b"
    r"(?:[ \t]{1,9}+(?!-p)[^\s|;&]{1,200}+){0,20}+[ \t]{1,9}+-p"
    r"|redis-cli\b(?:[ \t]{1,9}+(?!-a)[^\s|;&]{1,200}+){0,20}+[ \t]{1,9}+-a[ \t]{1,9}+)"
    r"(?P<secret>[^\s|;&]++)"
)
_NETRC = re.compile(
    r"(?:\b(?:login|machine|account)[ \t]++\S{1,200}+\s++password[ \t]++"
    r"|^[ \t|>+-]{0,8}+(?:password|requirepass|masterauth)[ \t]++)(?P<secret>\S++)"
    r"(?=[ \t]*+$|[ \t]++(?:login|account|machine|macdef)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_PGPASS = re.compile(
    r"^[ \t>|+-]{0,8}+[^\s:]{1,200}+:(?:[0-9]{1,5}+|\*):[^\s:]{1,100}+:[^\s:]{1,100}+:"
    r"(?P<secret>\S{4,}+)$",
    re.MULTILINE,
)
_COLONS_OF_PGPASS = 4
_SQL = re.compile(
    r"\b(?:IDENTIFIED[ \t]++(?:WITH[ \t]++\S{1,60}+[ \t]++)?BY|ConvertTo-SecureString"
    r"(?:[ \t]++-String)?)[ \t]++[\"'](?P<secret>[^\"'\n]++)",
    re.IGNORECASE,
)
_GO_DSN = re.compile(r"(?<![\w/@])[\w.-]{1,60}:(?P<secret>[^\s:@\"'/]{4,200}+)@(?:tcp|unix)\(")


def _led_to(text: str, lower: str, *, is_eager: bool) -> Iterator[Secret]:
    for match in _near(_BEARER, text, lower, _SCHEMES, before=0):
        if _is_presented(match, is_eager=is_eager):
            yield _group(match, TOKEN)
    for match in _near(_USER, text, text, _USER_AT, before=0):
        if is_eager or _is_of_client(text, match):
            yield _group(match, NAMED)
    for pattern, where, needles in _COMMANDS:
        for match in _near(pattern, text, lower, needles, before=where):
            if is_eager or not _is_placeholder(match["secret"], ""):
                yield _group(match, NAMED)
    for match in _PGPASS.finditer(text):
        if is_eager or not _is_placeholder(match["secret"], ""):
            yield _group(match, NAMED)


# Each with where it begins before one of its words.
_COMMANDS: tuple[tuple[re.Pattern[str], int, tuple[str, ...]], ...] = (
    (_GLUED, 0, ("sshpass", "mysql", "mariadb", "redis-cli")),
    (_NETRC, 300, ("password", "requirepass", "masterauth")),
    (_SQL, 0, ("identified", "convertto-securestring")),
    (_GO_DSN, 300, ("@tcp(", "@unix(")),
)
# A text that holds none of these, as it is written or in lower case, holds no secret.
_WRITTEN = (
    *("://", "eyJ", "-----BEGIN ", "-----END "),
    *(*_CRYPTED_AT, *_USER_AT, *_WEBHOOK_AT, *_PREFIXES.split()),
)
_IN_LOWER_CASE = (
    *(*_TELLING.split(), *_SIGNED_AT, *_SCHEMES),
    *(word for _, _, words in _COMMANDS for word in words),
)


def _is_of_client(text: str, match: re.Match[str]) -> bool:
    """Return whether `-u user:password` is an option of a client, and not `docker run -u 0:0`."""
    secret, user = match["secret"], match["user"]
    if _is_placeholder(secret, "") or (secret.isdigit() and user.isdigit()):
        return False
    line = text[max(match.start() - _JUDGED, 0) : match.start()].rpartition("\n")[2]
    return re.search(r"\b(?:curl|https?|lftp|wget)\b", line) is not None


def _is_presented(match: re.Match[str], *, is_eager: bool) -> bool:
    """Return whether what follows `Bearer` or `Basic` is a token, and not a word of a sentence."""
    value = match["secret"]
    if match["scheme"].lower() == "basic":
        return _is_user_and_password(value) or (is_eager and not _is_lower_word(value))
    if is_eager:
        return len(value) >= 12 and not _is_lower_word(value)
    is_cut = match.string.startswith("…", match.end())
    return len(value) >= 12 and not is_cut and _is_random_enough(value[:_JUDGED])


def _is_lower_word(value: str) -> bool:
    return value.isalpha() and value.islower()


# --- strings without words or order, for those who are eager

_KEY_OF_40 = re.compile(r"(?<![A-Za-z0-9+/=._-])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=._-])")
_CANDIDATE = re.compile(r"(?<![A-Za-z0-9+_-])[A-Za-z0-9+_-]{20,}+={0,2}+")
_LEAST_ENTROPY = 3.6
_PIECE = 64


def _by_chance(text: str) -> Iterator[Secret]:
    for pattern in (_KEY_OF_40, _CANDIDATE):
        for match in pattern.finditer(text):
            run = match.group()
            pieces = range(0, max(len(run) - _PIECE // 2, 1), _PIECE)
            # The last piece takes what is left over: a piece of few characters says nothing.
            ends = [*pieces[1:], len(run)]
            if any(_looks_random(run[at:end]) for at, end in zip(pieces, ends, strict=True)):
                yield Secret(start=match.start(), end=match.end(), kind=TOKEN)


def _looks_random(text: str) -> bool:
    """Return whether a string is a key rather than a name: three kinds of characters, mixed.

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


# --- helpers


def _blanked(match: re.Match[str]) -> str:
    return _GONE * len(match.group())


def _group(match: re.Match[str], kind: Kind) -> Secret:
    start, end = match.span("secret")
    return Secret(start=start, end=end, kind=kind)


def _merged(found: Iterable[Secret]) -> list[Secret]:
    """Return the secrets in their order, those that overlap as one."""
    merged: list[Secret] = []
    for each in sorted(found, key=lambda secret: (secret.start, -secret.end)):
        if each.start >= each.end:
            continue
        if merged and each.start < merged[-1].end:
            last = merged.pop()
            end = max(last.end, each.end)
            merged.append(Secret(start=last.start, end=end, kind=last.kind))
        else:
            merged.append(each)
    return merged
