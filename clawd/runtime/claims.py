"""What an answer says was done, compared with what the calls of its turn did. Pure.

A sentence counts only where it is plain: `I wrote notes.txt`, `notes.txt has been deleted`,
`Saved to out.csv`, `Ich habe notes.txt gespeichert`, with an object that is named. Questions,
conditions, plans, denials, quotations and code say nothing. Where an act could have done what is
said and nobody knows whether it did, as a command might, nothing is said of it: a wrong reproach
costs more trust than one that is missing.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, assert_never

import msgspec

from clawd.providers.base import Message
from clawd.tools.base import Effect, Tool, is_builtin, traits_of
from clawd.tools.outcome import DELEGATE, CallOutcome
from clawd.wire.events import Claim, ClaimKind

MAX_CLAIMS = 20
READ_CHARS = 32_000
SPAN_CHARS = 200
MAX_WORDS = 120
"""Of a sentence; a longer one is not plain."""

_Status = Literal["allowed", "denied", "failed"]


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """One call, as far as it tells what was done.

    Attributes:
        is_opaque: what it does to files cannot be told by its arguments, as of a command.
        words: the texts of its arguments that may name what it acts on.
        paths: the files that it changed, or was to change; relative to the workspace, or absolute.
        removed: those of them that it removed.
        output: what it said, where that can name what it did.
    """

    tool: str
    effect: Effect
    status: _Status
    receipt_id: str = ""
    is_opaque: bool = False
    words: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    output: str = ""

    @property
    def is_done(self) -> bool:
        """Whether it changed something, or could have."""
        return self.status == "allowed" and self.effect != "looks"


class Deeds(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to compare with.

    Attributes:
        asked: what the person said in this turn.
        acts: the calls of this turn.
        earlier: those of the conversation before it.
        is_earlier_whole: none of these is missing.
    """

    asked: str
    acts: tuple[Act, ...] = ()
    earlier: tuple[Act, ...] = ()
    is_earlier_whole: bool = True
    workspace: Path = Path("/")


class FoundClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim as it was read.

    Attributes:
        object: a path, a command or a word; "" for one that only a pronoun names.
        is_own: the answer says that it was itself that did it, not that it was done.
        is_earlier: it says that this was before.
    """

    text: str
    kind: ClaimKind
    object: str
    is_own: bool
    is_earlier: bool = False


# --- words


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_WRITTEN_EN = _set(
    "wrote written saved created updated modified edited changed appended added inserted replaced "
    "overwrote overwritten renamed moved copied refactored rewrote rewritten fixed corrected "
    "generated stored restored reverted adjusted extended converted reformatted made put placed"
)
_DELETED_EN = _set("deleted removed erased")
_RUN_EN = _set("ran executed run")
_SENT_EN = _set("sent emailed mailed")
_COMMITTED_EN = _set("committed pushed")
_WRITTEN_PAST_DE = _set(
    "schrieb speicherte erstellte aktualisierte änderte ergänzte ersetzte kopierte verschob "
    "überschrieb erzeugte korrigierte"
)
_DELETED_PAST_DE = _set("löschte entfernte")
_WRITTEN_DE = _set(
    "geschrieben gespeichert erstellt angelegt aktualisiert geändert angepasst bearbeitet "
    "hinzugefügt ergänzt eingefügt angehängt umbenannt verschoben kopiert überschrieben ersetzt "
    "umgebaut refaktorisiert korrigiert behoben erzeugt generiert abgelegt abgespeichert "
    "umgeschrieben eingetragen wiederhergestellt"
)
_DELETED_DE = _set("gelöscht entfernt")
_RUN_DE = _set("ausgeführt")
_SENT_DE = _set("gesendet geschickt verschickt versendet abgeschickt")
_COMMITTED_DE = _set("committet commitet committed eingecheckt gepusht gepushed")

_VERBS: dict[str, ClaimKind] = {
    **dict.fromkeys(_WRITTEN_EN | _WRITTEN_PAST_DE, "written"),
    **dict.fromkeys(_DELETED_EN | _DELETED_PAST_DE, "deleted"),
    **dict.fromkeys(_RUN_EN, "run"),
    **dict.fromkeys(_SENT_EN, "sent"),
    **dict.fromkeys(_COMMITTED_EN, "committed"),
}
_PARTICIPLES: dict[str, ClaimKind] = {
    **dict.fromkeys(_WRITTEN_DE, "written"),
    **dict.fromkeys(_DELETED_DE, "deleted"),
    **dict.fromkeys(_RUN_DE, "run"),
    **dict.fromkeys(_SENT_DE, "sent"),
    **dict.fromkeys(_COMMITTED_DE, "committed"),
}
_DESCRIPTIONS = _set("is are ist sind by von was were has have wird wurde wurden")
_DESCRIBING = _set("in for from using with on at")
_NOT_PARTICIPLES = _set("wrote overwrote rewrote ran") | _WRITTEN_PAST_DE | _DELETED_PAST_DE

_SUBJECTS = _set("i we i've we've ich wir")
_OTHERS = _set(
    "you he she they it who which that someone somebody everyone du sie ihr er man jemand dass "
    "because weil wer you've they've he's she's bevor nachdem before after while während"
)
_ADVERBS = _set(
    "have had just also now already then successfully simply finally first next been therefore "
    "thus so nun jetzt auch bereits schon gerade eben erfolgreich dann soeben direkt automatically "
    "carefully both safely went ahead and, previously earlier happily"
)
_LINKS = _set("and then und dann sowie & as well also auch danach anschließend , both")
_DETS = _set(
    "the a an your my our this these those that new file files called named existing following "
    "text module script folder directory document config configuration test tests local current "
    "same python markdown json html css csv shell bash plain code full whole entire page program "
    "log list main old temporary empty result results path content "
    "der die das den dem des ein eine einen einem einer deine deinen deiner deinem ihre ihren "
    "unsere dir ihnen euch "
    "two three four five zwei drei vier fünf diese dieser diesen diesem dieses neue neuen neuer "
    "neues datei dateien namens skript ordner verzeichnis dokument textdatei konfiguration alte "
    "alten leere leeren gesamte gesamten"
)
_TO = _set("to into in inside within as at under on ins im nach unter auf als zu zur zum an ans")
_INSIDE = _set("in inside within into ins im to nach zu zur zum")
_FROM = _set(
    "of from for about using with by via than like against per without between "
    "aus von vom für über mit gemäß laut durch ohne wie zwischen"
)
_BETWEEN = _DETS | _ADVERBS | _LINKS
_POINTERS = _set("link links reference references pointer path import call calls verweis pfad")
_ADDS = _set(
    "added appended inserted put placed copied moved hinzugefügt ergänzt eingefügt angehängt "
    "eingetragen changed replaced ersetzt geändert renamed umbenannt kopiert verschoben"
)
_PRONOUNS = _set("it them this everything all sie es alles ihn")
_NAMELESS = _set("file files changes change datei dateien änderungen änderung")
_SENT_OBJECTS = _set("email e-mail mail emails e-mails mails")

_NOT = _set(
    "not never cannot unable failed fail fails tried attempted trying almost nearly neither nor "
    "denied refused nicht nie niemals kein keine keinen keiner keinem fehlgeschlagen versucht "
    "versuchte beinahe fast weder noch no none nothing nichts without ohne"
)
_MAYBE = _set(
    "would could should might may can will shall going gonna i'll we'll i'd we'd must want wants "
    "würde würden könnte könnten sollte sollten kann können soll sollen wird werde werden möchte "
    "muss müssen hätte hätten wäre wären let's lass plan planned need needs supposed"
)
_IF = _set(
    "if unless whether suppose imagine assuming example e.g hypothetically wenn falls ob sofern "
    "sobald angenommen beispiel beispielsweise z.b"
)
_IF_FIRST = _set("when once until after before wenn sobald nachdem bevor")
_REPORTED = _set(
    "says said say shows showed show states stated reports reported according lists claims "
    "mentions laut zeigt steht sagt meldet log history commit changelog"
)
_LONG_AGO = _set(
    "last originally yesterday recently ago initially zuletzt ursprünglich gestern kürzlich vor "
    "january february march april june july august september october november december "
    "januar februar märz juni juli oktober dezember "
    "monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch "
    "donnerstag freitag samstag sonntag"
)
_EARLIER = _set(
    "before earlier already previously above prior ago bereits vorhin schon zuvor früher oben eben"
)
_ADMITS = re.compile(
    r"\b(?:denied|failed|fails?|could ?n[o']t|cannot|can't|unable|not|n't|error|refused|"
    r"verweigert|abgelehnt|fehlgeschlagen|nicht|kein\w*|fehler)\b",
    re.IGNORECASE,
)
_DONE = _set("done finished fertig erledigt")
CLAIMING = re.compile("|".join((*_VERBS, *_PARTICIPLES, *_DONE)))
"""In lower case and without marks, nothing is claimed where it finds nothing."""
_LETTER = re.compile(
    r"^[ \t*_#]*(?:dear\b|subject:|betreff:|sehr geehrte|lieber?\s|(?:hallo|hi|hello)\s+\w+,)",
    re.IGNORECASE | re.MULTILINE,
)

_ACTING = re.compile(
    r"\b(?:writ|creat|mak|sav|stor|put|updat|chang|edit|modif|fix|refactor|rewrit|add|append|"
    r"insert|delet|remov|eras|clean|renam|mov|cop[yi]|replac|implement|build|generat|run|execut|"
    r"install|commit|push|send|email|convert|format|sort|download|set|do|correct|extend|finish|"
    r"schreib|erstell|leg|mach|speicher|sicher|änder|aktualisier|füg|ergänz|lösch|entfern|benenn|"
    r"verschieb|kopier|ersetz|führ|bearbeit|korrigier|behebe|bau|trag|schick|send|pass)"
    r"(?:e|es|ed|s|t|y|st|en|ing|n|ier\w*|ify|or)?\b",
    re.IGNORECASE,
)
_POLITE = re.compile(
    r"^\W*(?:please|bitte|ok\w*|hey|hi|hello|hallo|so|and|und|now)?\W*(?:(?:can|could|would|will) "
    r"(?:you|we)|kannst du|könntest du|würdest du|können sie|könnten sie|magst du)",
    re.IGNORECASE,
)
_YES = re.compile(
    r"^\W*(?:yes|yeah|yep|ok|okay|sure|go|please|ja|gerne|klar|bitte|weiter|continue|proceed)\b",
    re.IGNORECASE,
)
_YES_CHARS = 40

# --- reading

_FENCE = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(
    r"`([^`\n]{1,300})`|\"([^\"\n]{1,300})\"|“([^”\n]{1,300})”|„([^“”\n]{1,300})[“”]|"
    r"«([^»\n]{1,300})»|(?<![\w])'([^'\n]{1,300})'(?!\w)|\]\(([^()\s]{1,300})\)"
)
_EXTENSIONS = _set(
    "txt md rst py pyi js mjs ts tsx jsx json jsonl toml yaml yml csv tsv html htm css scss xml sh "
    "bash zsh fish c h cc cpp hpp rs go java kt rb php pl lua sql ini cfg conf log tex pdf png jpg "
    "jpeg gif svg docx xlsx odt ods doc xls zip tar gz tgz bak out dat env lock ipynb diff patch "
    "service timer swift cs ics db sqlite"
)
_NAMES = _set(
    "makefile dockerfile readme license changelog procfile gemfile .gitignore .env .bashrc "
    ".profile .zshrc .editorconfig .dockerignore .vimrc"
)
_NOT_FILES = _set(
    "node.js vue.js next.js react.js three.js d3.js express.js nuxt.js angular.js ember.js "
    "chart.js socket.io asp.net backbone.js p5.js deno.js main.go.tmpl"
)
_FILE = re.compile(
    rf"(?:~?/|\.{{1,2}}/)?[\w.+@()-]+(?:/[\w.+@()-]+)*\.(?:{'|'.join(sorted(_EXTENSIONS))})",
    re.IGNORECASE,
)
_ROOTED = re.compile(r"(?:~/|\.{1,2}/|/)[\w.+@-]+(?:/[\w.+@-]+)*/?|[\w.+@-]+(?:/[\w.+@-]+)*/")
_QUOTED_PATH = re.compile(r"[^\s\"'`<>|]{1,200}")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_WORD = re.compile(r"⟦\d+⟧|[^\s⟦⟧]+")
_END = re.compile(r"(?<=[.!?…])(?=\s|$)|[\n;]|(?<=:)\s+(?=[A-ZÄÖÜ⟦\[])")
_BULLET = re.compile(r"^\s*(?:[-*+•✅✔☑✓➤→]\ufe0f?\s+|\d{1,3}[.)]\s+|#+\s*|\[[ xX]\]\s+)+")
_TRIM = "*_.,!?:;()[]{}…–—\"'`"
_YEAR = re.compile(r"(?:19|20)\d\d|\d{4}-\d\d-\d\d|\d{1,2}\.\d{1,2}\.(?:\d{2,4})?|\d{1,2}:\d\d")
_OWN = re.compile(r"\b(?:I|I've|I have|we|ich|wir|done|fertig|erledigt)\b", re.IGNORECASE)


class _Token(msgspec.Struct, frozen=True, kw_only=True):
    """A word; `object` is the file it names, `code` what stood in backticks or quotes."""

    word: str
    object: str = ""
    code: str = ""
    clause: int = 0
    has_comma: bool = False


class _Sentence(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    tokens: tuple[_Token, ...]
    is_listed: bool
    """It is an item below a line that does not speak of the answer's own doing."""

    @property
    def words(self) -> frozenset[str]:
        return frozenset(token.word for token in self.tokens)


def find_claims(text: str) -> list[FoundClaim]:
    """Return the plain claims of an answer, in order."""
    found: dict[tuple[str, str], FoundClaim] = {}
    text = text[:READ_CHARS]
    letter = _LETTER.search(text)
    for sentence in _sentences(text[: letter.start()] if letter else text):
        for claim in _claims_of(sentence):
            found.setdefault((claim.kind, claim.object), claim)
    return list(found.values())[:MAX_CLAIMS]


def _sentences(text: str) -> Iterator[_Sentence]:
    spans: list[str] = []

    def taken(match: re.Match[str]) -> str:
        spans.append(next(filter(None, match.groups()), ""))
        return f" ⟦{len(spans) - 1}⟧ " if match[0][0] != "]" else " "

    plain = _FENCE.sub("\n", text).replace("⟦", "[").replace("⟧", "]").replace("’", "'")
    heading_is_own = True
    for line in plain.splitlines():
        if line.lstrip().startswith((">", "|", "    ", "\t")) or line.startswith("    "):
            continue
        item = _BULLET.sub("", line)
        is_item = item != line
        if not is_item and item.strip():
            heading_is_own = not item.rstrip("*_ ").endswith(":") or bool(_OWN.search(item))
        marked = _SPAN.sub(taken, item.replace("**", "").replace("__", ""))
        for part in _END.split(marked):
            tokens = _tokens(part, spans)
            if 0 < len(tokens) <= MAX_WORDS and not part.rstrip(" *_)⟧").endswith("?"):
                yield _Sentence(
                    text=_said(part, spans), tokens=tokens, is_listed=is_item and not heading_is_own
                )


def _said(part: str, spans: list[str]) -> str:
    whole = re.sub(r" ?⟦(\d+)⟧ ?", lambda at: f" {spans[int(at[1])]} ", part)
    return " ".join(whole.split())[:SPAN_CHARS]


def _tokens(part: str, spans: list[str]) -> tuple[_Token, ...]:
    tokens, clause = list[_Token](), 0
    for match in _WORD.finditer(part):
        raw = match[0]
        if raw.startswith("⟦"):
            code = spans[int(raw[1:-1])].strip()
            tokens.append(_Token(word="⟦⟧", object=_quoted_file(code), code=code, clause=clause))
            continue
        word = raw.strip(_TRIM).lower()
        if not word:
            clause += raw.strip("*_\"'`") != ""
            if tokens and "," in raw:
                tokens[-1] = msgspec.structs.replace(tokens[-1], has_comma=True)
            continue
        if word in {"but", "aber", "however", "so", "sodass", "damit", "doch"}:
            clause += 1
        has_comma = raw[-1] in ",:;)–—"
        tokens.append(
            _Token(word=word, object=_plain_file(raw), clause=clause, has_comma=has_comma)
        )
        clause += has_comma
    return tuple(tokens)


def _quoted_file(code: str) -> str:
    """Return what stood in quotes or backticks where it can be a file's name."""
    is_file = _FILE.fullmatch(code) or _ROOTED.fullmatch(code)
    if is_file or code.lower() in _NAMES or (" " in code and _FILE.fullmatch(code.split(" ")[-1])):
        return "" if code.lower() in _NOT_FILES or "://" in code or _is_command(code) else code
    has_parts = _QUOTED_PATH.fullmatch(code) and "/" in code and not set(code) & set("(){}=;:*,")
    return code if has_parts else ""


def _is_command(code: str) -> bool:
    head = code.split(" ")[0]
    return " " in code and bool(re.fullmatch(r"[a-z0-9_.-]+", head)) and not _FILE.fullmatch(head)


def _plain_file(raw: str) -> str:
    word = raw.strip("*_,!?:;()[]{}…–—\"'`").removesuffix(".").removesuffix("'s")
    if "://" in word or word.lower() in _NOT_FILES or "@" in word[1:]:
        return ""
    is_file = _FILE.fullmatch(word) or (_ROOTED.fullmatch(word) and len(word) > 2)
    return (
        word
        if is_file
        or (word.lower() in _NAMES and word != word.lower())
        or (word.lower() in _NAMES and (word.startswith(".") or word == "Makefile"))
        else ""
    )


def _claims_of(sentence: _Sentence) -> Iterator[FoundClaim]:
    words = sentence.words
    if words & _IF or sentence.tokens[0].word in _IF_FIRST:
        return
    is_earlier = bool(words & _EARLIER)
    for kind, obj, is_own in (*_active(sentence), *_german(sentence), *_passive(sentence)):
        yield FoundClaim(
            text=sentence.text, kind=kind, object=obj, is_own=is_own, is_earlier=is_earlier
        )
    if not sentence.is_listed:
        yield from _headline(sentence)


_Read = tuple[ClaimKind, str, bool]


def _is_off(sentence: _Sentence, at: int) -> bool:
    """Return whether the clause of a word denies it, or says that it may be."""
    clause = sentence.tokens[at].clause
    words = {token.word for token in sentence.tokens if token.clause == clause}
    first = [token.word for token in sentence.tokens[:2]]
    if first == ["no", "problem"] or first == ["no", "worries"]:
        words.discard("no")
    return bool(words & (_NOT | _MAYBE)) or any(word.endswith("n't") for word in words)


def _active(sentence: _Sentence) -> Iterator[_Read]:
    """Yield what `I wrote X and deleted Y` claims."""
    tokens, is_live, may_follow = sentence.tokens, False, False
    for at, token in enumerate(tokens):
        if token.word in _SUBJECTS:
            is_live, may_follow = True, True
            continue
        if token.word in _OTHERS or (token.word in _MAYBE and is_live):
            is_live = False
        kind = _VERBS.get(token.word)
        if kind and is_live and may_follow and not _is_off(sentence, at):
            for found in _objects(tokens[at + 1 : _end_of(tokens, at)], kind, token.word):
                yield (*found, True)
        is_link = token.word in _LINKS or token.has_comma
        may_follow = is_link or (may_follow and token.word in _ADVERBS)


def _end_of(tokens: Sequence[_Token], at: int) -> int:
    """Return where what belongs to a verb ends."""
    for later in range(at + 1, len(tokens)):
        word = tokens[later].word
        if word in _SUBJECTS or (word in _OTHERS and word not in _PRONOUNS):
            return later
        if word in _PRONOUNS and word in _OTHERS and later > at + 1:
            return later
        if word in _VERBS and tokens[later - 1].word in _LINKS | _ADVERBS:
            return later
    return len(tokens)


def _german(sentence: _Sentence) -> Iterator[_Read]:
    """Yield what `Ich habe X geschrieben und Y gelöscht` claims."""
    tokens = sentence.tokens
    for at, token in enumerate(tokens):
        beside = {each.word for each in tokens[max(at - 3, 0) : at + 2]}
        if token.word not in {"habe", "hab", "haben"} or not beside & {"ich", "wir"}:
            continue
        before = _named_before(tokens, at)
        start = at + 1
        for place in range(at + 1, len(tokens)):
            if tokens[place].word in _OTHERS - {"sie", "ihr"}:
                break
            kind = _PARTICIPLES.get(tokens[place].word)
            if kind is None:
                continue
            verb = tokens[place].word
            if not _is_off(sentence, place) and not _is_off(sentence, at):
                middle = [each for each in tokens[start:place] if each.word not in _SUBJECTS]
                found = _objects(middle, kind, verb) or _objects(
                    tokens[place + 1 : _end_of(tokens, place)], kind, verb, needs_to=True
                )
                for each in found or [(kind, name) for name in before]:
                    yield (*each, True)
            start, before = place + 1, []


def _passive(sentence: _Sentence) -> Iterator[_Read]:
    """Yield what `X has been written` and `X wurde geschrieben` claim."""
    tokens, words = sentence.tokens, sentence.words
    if words & (_LONG_AGO | _REPORTED) or any(_YEAR.fullmatch(word) for word in words):
        return
    if ("by" in words or "von" in words) and not words & {"me", "mir"}:
        return
    for at, token in enumerate(tokens):
        after = tokens[at + 1].word if at + 1 < len(tokens) else ""
        is_perfect = token.word in {"has", "have"} and (
            after == "been" or (after in _ADVERBS and "been" in words)
        )
        is_past = token.word in {"was", "were"}
        is_german = token.word in {"wurde", "wurden"}
        if not (is_perfect or is_past or is_german):
            continue
        table = _PARTICIPLES if is_german else _VERBS
        for place in range(at + 1, len(tokens)):
            word = tokens[place].word
            kind = table.get(word)
            if kind is None or word in _NOT_PARTICIPLES:
                if not is_german and word not in _ADVERBS:
                    break
                continue
            after = tokens[place + 1].word if place + 1 < len(tokens) else ""
            is_told_of = is_past and after in _DESCRIBING  # `was written in Markdown`
            if not (is_told_of or _is_off(sentence, place) or _is_off(sentence, at)):
                yield from _passive_objects(tokens, at, place, kind)
            break


def _passive_objects(
    tokens: Sequence[_Token], at: int, place: int, kind: ClaimKind
) -> Iterator[_Read]:
    names = _named_before(tokens, at)
    verb = tokens[place].word
    around = [*_objects(tokens[at + 1 : place], kind, verb, needs_to=True)]
    around += _objects(tokens[place + 1 : _end_of(tokens, place)], kind, verb, needs_to=True)
    if names and not around:
        for name in names:
            yield kind, name, False
    elif around and kind in {"written", "deleted"}:
        for found in around:
            yield (*found, False)


def _named_before(tokens: Sequence[_Token], at: int) -> list[str]:
    """Return the files that are the subject of a verb: `The files a.txt and b.txt were …`."""
    names: list[str] = []
    for token in reversed(tokens[:at]):
        if token.object:
            names.append(token.object)
        elif token.has_comma and names:
            break
        elif token.word in _TO | _FROM or token.word in _POINTERS:
            if token.word in _INSIDE and names and len(names) == 1:
                return names  # In notes.txt wurde …
            return []
        elif token.word not in _DETS | _LINKS | _ADVERBS:
            return [] if names else names
    return names[::-1]


def _headline(sentence: _Sentence) -> Iterator[FoundClaim]:
    """Yield what `Created notes.txt.`, `Saved to x.csv` and `notes.txt gelöscht.` claim."""
    tokens = list(sentence.tokens)
    while tokens and tokens[0].word in _ADVERBS | _DONE | {"ok", "okay"}:
        tokens.pop(0)
    while tokens and tokens[-1].word in _ADVERBS:
        tokens.pop()
    words = sentence.words
    no = _LONG_AGO | _REPORTED | _SUBJECTS | _NOT | _MAYBE | _DESCRIPTIONS
    if not tokens or words & no:
        return
    is_earlier = bool(words & _EARLIER)
    first, last = tokens[0].word, tokens[-1].word
    table = _VERBS | _PARTICIPLES
    found: Sequence[tuple[ClaimKind, str]] = ()
    if first in table and first not in _NOT_PARTICIPLES - {"wrote", "ran"}:
        rest = tokens[1 : _end_of(tokens, 0)]
        found = _objects(rest, table[first], first, needs_to=first in _PARTICIPLES)
    elif last in table and last not in _NOT_PARTICIPLES and len(tokens) <= 5:
        found = [(table[last], name) for name in _named_before(tokens, len(tokens) - 1)]
    for kind, obj in found:
        if obj:
            yield FoundClaim(
                text=sentence.text, kind=kind, object=obj, is_own=False, is_earlier=is_earlier
            )


def _objects(
    tokens: Sequence[_Token], kind: ClaimKind, verb: str, *, needs_to: bool = False
) -> list[tuple[ClaimKind, str]]:
    """Return what a verb is said of, by the words that belong to it."""
    if kind == "run":
        codes = [token.code for token in _after_dets(tokens)]
        return [(kind, code) for code in codes if code]
    if kind == "sent":
        found = [token.word for token in tokens if _ADDRESS.fullmatch(token.word)]
        mails = [token.word for token in tokens if token.word in _SENT_OBJECTS]
        is_mail = bool(mails) or verb in {"emailed", "mailed"}
        return [(kind, (found or mails)[0])] if (found or mails) and is_mail else []
    if kind == "committed":
        nouns = {"changes", "change", "files", "code", "work", "änderungen", "änderung", "commit"}
        said = [token.word for token in tokens if token.word in nouns or token.object]
        return [(kind, said[0])] if said else []
    if not needs_to and _nameless(tokens):
        return [(kind, "")]
    return _files_of(tokens, kind, verb, needs_to=needs_to)


def _after_dets(tokens: Sequence[_Token]) -> Iterator[_Token]:
    for token in tokens:
        if token.word not in _DETS | {"command", "commands", "befehl"}:
            yield token
            return


def _nameless(tokens: Sequence[_Token]) -> bool:
    """Return whether a verb's object is only a pronoun, or `the file`."""
    words = [token.word for token in tokens if token.word not in _ADVERBS]
    if words[:1] and words[0] in _PRONOUNS:
        return not any(token.object for token in tokens)
    rest = [word for word in words if word not in _DETS - _NAMELESS]
    is_only = len(rest) == 1 or (len(rest) > 1 and rest[1] in {"for", "für", "as", "wie"})
    return bool(rest) and rest[0] in _NAMELESS and is_only and not any(t.object for t in tokens)


def _files_of(
    tokens: Sequence[_Token], kind: ClaimKind, verb: str, *, needs_to: bool
) -> list[tuple[ClaimKind, str]]:
    """Return the files that a verb changed, without those that it only read or names."""
    direct: list[str] = []
    inside: list[str] = []
    apart: list[str] = []  # what the verb is not said of
    gap: list[str] = []
    group = apart
    for token in tokens:
        if not token.object:
            gap.append(token.word)
            continue
        if not (direct or inside or apart) or not set(gap) <= _LINKS | _DETS:
            where = _preposition(gap, from_counts=kind == "deleted")
            is_direct = not where and not (direct or inside) and set(gap) <= _BETWEEN
            group = direct if is_direct else inside if where in _TO else apart
        group.append(token.object)
        gap = []
    if inside and (kind == "deleted" or verb in _ADDS):
        return [("written", name) for name in inside]
    return [(kind, name) for name in (() if needs_to else direct) or inside]


def _preposition(gap: Sequence[str], *, from_counts: bool) -> str:
    """Return the word that says how a file belongs to the verb; "?" where it does not."""
    for place in range(len(gap) - 1, -1, -1):
        word = gap[place]
        if word in _FROM:
            return "in" if from_counts and word in {"from", "aus", "von"} else "?"
        if word in _TO:
            return "?" if place and gap[place - 1] in _POINTERS else word
        if word not in _DETS:
            return "?" if set(gap) & (_TO | _FROM) else ""
    return ""


# --- comparing


def checked(text: str, deeds: Deeds) -> tuple[Claim, ...]:
    """Return the plain claims of an answer with what the receipts say of each.

    What nobody can know is left out.
    """
    asked = deeds.asked
    given = {(claim.kind, claim.object.lower()) for claim in find_claims(asked)}
    acts_are_asked = asks_for_acts(asked)
    claims: list[Claim] = []
    for found in (*find_claims(text), *_bare_done(text)):
        if (found.kind, found.object.lower()) in given or not (
            found.is_own or acts_are_asked or _is_yes(asked)
        ):
            continue
        is_about_now = acts_are_asked and not found.is_earlier
        named = found if found.object else _resolved(found, text, asked, deeds)
        verdict = named and _verdict(named, deeds, is_about_now=is_about_now)
        if named and verdict:
            claims.append(
                Claim(
                    text=named.text,
                    kind=named.kind,
                    object=named.object,
                    verdict=verdict[0],
                    receipt_id=verdict[1],
                )
            )
    return tuple(claims[:MAX_CLAIMS])


def asks_for_acts(asked: str) -> bool:
    """Return whether a person asks for something to be done, and not what there is or was."""
    for sentence in re.split(r"(?<=[.!?])\s+|\n", asked[:READ_CHARS]):
        is_question = sentence.rstrip().endswith("?") and not _POLITE.match(
            sentence.lstrip()[:SPAN_CHARS]
        )
        if not is_question and _ACTING.search(sentence):
            return True
    return False


def _is_yes(asked: str) -> bool:
    return len(asked) <= _YES_CHARS and bool(_YES.match(asked))


def _bare_done(text: str) -> Iterator[FoundClaim]:
    """Yield a claim for an answer that begins with nothing but `Done.`."""
    first = re.match(r"\W*(?:all )?(\w+)\s*(?:[.!]|$)", text, re.IGNORECASE)
    if first and first[1].lower() in _DONE:
        yield FoundClaim(text=first[0].strip(), kind="written", object="", is_own=True)


def _resolved(found: FoundClaim, text: str, asked: str, deeds: Deeds) -> FoundClaim | None:
    """Return a claim with the file that its pronoun can only mean; None where that is unknown."""
    if _ADMITS.search(text):
        return None
    acts = [act for act in deeds.acts if act.effect != "looks"]
    if any(act.is_done for act in acts):
        return None
    names = [name for act in acts[-1:] for name in act.paths or act.words[:1]]
    is_bare = found.text.rstrip(".!").split()[-1].lower() in _DONE
    if not names and asks_for_acts(asked) and not is_bare:
        names = [t.object for s in _sentences(asked) for t in s.tokens if t.object]
    unique = list(dict.fromkeys(names))
    if len(unique) != 1:
        return None
    return msgspec.structs.replace(found, object=unique[0][:SPAN_CHARS])


def _verdict(
    found: FoundClaim, deeds: Deeds, *, is_about_now: bool
) -> tuple[Literal["supported", "contradicted", "failed"], str] | None:
    acts = deeds.acts if is_about_now else (*deeds.earlier, *deeds.acts)
    matching = [act for act in acts if _is_of(act, found, deeds.workspace)]
    good = [act for act in matching if act.is_done or _has_run(act, found)]
    if good:
        return "supported", good[-1].receipt_id
    if any(act.is_opaque and act.is_done for act in acts):
        return None
    bad = [act for act in matching if act.status != "allowed"]
    if bad:
        return "failed", bad[-1].receipt_id
    if not is_about_now and not deeds.is_earlier_whole:
        return None
    return "contradicted", ""


def _has_run(act: Act, found: FoundClaim) -> bool:
    return found.kind == "run" and act.status != "denied"


def _is_of(act: Act, found: FoundClaim, workspace: Path) -> bool:
    """Return whether a call is one that does what is claimed, or was to."""
    if found.kind == "run":
        return any(_mentions_command(word, found.object) for word in act.words)
    if act.effect == "looks":
        return False
    match found.kind:
        case "committed":
            return any("commit" in word or "push" in word for word in (*act.words, act.tool))
        case "sent":
            return act.is_opaque
        case "written" | "deleted":
            return _is_on_file(act, found, workspace)
        case _:
            assert_never(found.kind)


def _is_on_file(act: Act, found: FoundClaim, workspace: Path) -> bool:
    if act.is_opaque:
        base = posixpath.basename(found.object.rstrip("/")).lower()
        return any(base in text.lower() for text in (*act.words, act.output))
    if found.kind == "deleted" and act.status == "allowed" and act.paths:
        return any(_is_same(path, found.object, workspace) for path in act.removed)
    if found.kind == "written" and act.removed and set(act.removed) == set(act.paths):
        return False
    return any(_is_same(path, found.object, workspace) for path in (*act.paths, *act.words))


def _mentions_command(word: str, command: str) -> bool:
    said, want = " ".join(word.split()), " ".join(command.split())
    head = posixpath.basename(want.split(" ")[0]) if want else ""
    return bool(head) and (want in said or head in said)


def _is_same(path: str, named: str, workspace: Path) -> bool:
    """Return whether a name can mean a path; of one without folders its last part is enough."""
    one, other = _normal(path, workspace), _normal(named, workspace)
    if one == other or one.endswith(f"/{other}"):
        return True
    if named.endswith("/") or "." not in posixpath.basename(other):
        return one.startswith(f"{other}/")
    return False


def _normal(path: str, workspace: Path) -> str:
    text = path.partition("://")[2] or path
    text = posixpath.normpath(text.replace("\\", "/")).lower()
    for base in (str(workspace), workspace.name, "/workspace", "workspace"):
        text = text.removeprefix(f"{base.lower()}/")
    return text.removeprefix("~/")


# --- what was done

_DOCUMENTS = _set(
    "content new_text old_text new_string old_string text code find replace replacement body data"
)


def _texts_in(value: Any, *, documents: bool, key: str = "") -> Iterator[str]:
    """Yield the texts of a call's arguments; those that are whole documents only where wanted."""
    if isinstance(value, str):
        if documents or key not in _DOCUMENTS:
            yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _texts_in(each, documents=documents, key=str(name))
    elif isinstance(value, list):
        for each in value:
            yield from _texts_in(each, documents=documents, key=key)


def act_of(outcome: CallOutcome, tool: Tool | None) -> Act:
    """Return what a call comes to; `tool` is what it was read as, None for none."""
    # A command that only looks, as `ls`, has written nothing.
    is_looking = outcome.risk == "low" and outcome.status == "allowed"
    act = _act(tool, outcome.tool, outcome.arguments, is_looking=is_looking)
    # Of what a helper changed, this call tells what came into the workspace.
    merged = outcome.metadata if outcome.tool == DELEGATE else {}
    return msgspec.structs.replace(
        act,
        effect="changes" if merged.get("merged") else act.effect,
        status=outcome.status,
        receipt_id=outcome.receipt_id,
        paths=(*(each.path for each in outcome.changes), *merged.get("merged", ())),
        removed=(
            *(each.path for each in outcome.changes if each.is_removed),
            *merged.get("removed", ()),
        ),
        output=outcome.text if act.is_opaque else "",
    )


def earlier_acts(
    messages: Sequence[Message], find: Callable[[str], Tool | None]
) -> tuple[Act, ...]:
    """Return the calls of earlier turns, as the messages tell of them."""
    told = {each.tool_call_id: each.content or "" for each in messages if each.role == "tool"}
    acts: list[Act] = []
    for call in (call for each in messages for call in each.tool_calls):
        result = told.get(call.id, "error:")
        act = _act(find(call.name), call.name, call.arguments, is_looking=False)
        output = result if act.is_opaque else ""
        status = _status_of(result)
        acts.append(msgspec.structs.replace(act, status=status, output=output))
    return tuple(acts)


def _status_of(result: str) -> _Status:
    """Return how a call ended, by what the model was told of it."""
    if result.startswith("denied:"):
        return "denied"
    return "failed" if result.startswith("error:") else "allowed"


def _act(tool: Tool | None, name: str, arguments: str | bytes, *, is_looking: bool) -> Act:
    effect: Effect = "acts" if tool is None else traits_of(tool).effect
    is_opaque = tool is None or effect == "acts" or not is_builtin(tool)
    try:
        values = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, RecursionError):
        values = {}
    return Act(
        tool=name,
        effect="looks" if is_looking and is_opaque else effect,
        status="failed",
        is_opaque=is_opaque,
        words=tuple(_texts_in(values, documents=is_opaque)),
    )
