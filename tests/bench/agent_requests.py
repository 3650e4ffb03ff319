"""Two hundred requests as people type them, judged: the right tool, its arguments, a sensible end.

`assistant_requests.toml` holds them and says how they are written. All go through a daemon: the
model's own template, the readers, the gate, a person who says yes (no where a request has it so),
receipts. What is judged is what the receipts, the files and the last answer hold. What a tool
would fetch from outside is scripted (`tests.bench.scripted`).
"""

import re
import shutil
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from clawctl.client import Client, connect
from clawd.engine.models import BASE_FILE, MERGED_FILE
from clawd.errors import ClawError
from clawd.paths import layout
from clawd.tools.base import builtin_traits
from clawd.wire.events import ApprovalRequested, QuestionAsked, TurnFinished
from clawd.wire.models import pin_of
from clawd.wire.receipts import ShowReceipt
from clawd.wire.turns import SendMessage
from tests.bench import scripted
from tests.bench.memory import cpu_s, family_of
from tests.support.home import Home

FILE = Path(__file__).with_name("assistant_requests.toml")
ROUNDS, ANSWER_TOKENS = 6, 120
PATIENCE_S = 900.0  # what a busy machine may take; time is told, not judged
MAX_LOOKS = 2  # calls that only look, beside those that a request is about
_TALK = ("small talk", "knowledge", "advice", "creative")
_FORGIVEN = frozenset({"max_results", "max_lines", "limit", "timeout_s", "recursive", "max"})

Kind = Literal[
    "tool",
    "two steps",
    "ambiguous",
    "decline",
    "overwrite",
    "denied",
    "error",
    "small talk",
    "knowledge",
    "advice",
    "creative",
]
Fact = str | list[str]


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One request; the head of the file says what its fields hold."""

    say: str
    kind: Kind = "tool"
    earlier: tuple[str, ...] = ()
    world: str = ""
    files: dict[str, str] = {}
    calls: tuple[dict[str, dict[str, Any]], ...] = ()
    results: dict[str, str] = {}
    after: dict[str, str | bool] = {}
    says: tuple[Fact, ...] = ()
    never: tuple[Fact, ...] = ()
    asks: bool = False
    declines: bool = False
    denied: bool = False
    fails: bool = False


class Requests(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    worlds: dict[str, dict[str, str]]
    request: tuple[Request, ...]


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A call that a model made; `status` is its receipt's."""

    tool: str
    arguments: Any = msgspec.field(default_factory=dict)
    status: str = "allowed"


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a request.

    Attributes:
        answer: the last text.
        stop_reason: why the turn ended; "error" where it failed.
        marked: claims that the daemon itself marked as not done.
        asked: whether a question was put to the person by a tool.
        before: the files when the request was sent, after those at the end.
    """

    answer: str = ""
    stop_reason: str = "stop"
    calls: tuple[Made, ...] = ()
    marked: tuple[str, ...] = ()
    asked: bool = False
    before: dict[str, str] = {}
    after: dict[str, str] = {}
    wall_s: float = 0.0
    cpu_s: float = 0.0


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """The judgement of one request; `missed` says in words what was wrong."""

    request: Request
    left: Left
    tool: bool
    exact: bool
    arguments: bool
    end: bool
    false_done: bool
    overwrote: bool
    missed: tuple[str, ...]

    @property
    def declined(self) -> bool:
        """Whether the answer says that the model does not know, or cannot."""
        return bool(_DECLINED.search(self.left.answer))


def load(file: Path = FILE) -> tuple[Request, ...]:
    """Return the requests, each with the files of its world."""
    kept = msgspec.convert(tomllib.loads(file.read_text("utf-8")), Requests)
    return tuple(
        msgspec.structs.replace(each, files={**kept.worlds.get(each.world, {}), **each.files})
        for each in kept.request
    )


# --- judging

_DECLINED = re.compile(
    r"\b(?:can't|can ?not|couldn't|could not|unable|not able|don't know|do not know|not sure|"
    r"don't have|do not have|not possible|am not|i'm not|no (?:tool|way|access|information)|"
    r"weiß (?:ich )?nicht|kann (?:\w+ ){0,6}nicht|kann (?:\w+ ){0,4}kein\w*|nicht möglich|leider|"
    r"kein(?:e|en)? (?:werkzeug|zugriff|möglichkeit))\b",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"error|fail|could ?n[o']t|couldn't|can ?not|can't|unable|not found|no such|n[o']t exist|"
    r"did not|didn't|does not|doesn't|missing|nothing|invalid|undefined|division by zero|"
    r"fehl|nicht|kein|gibt es",
    re.IGNORECASE,
)
_DENIED = re.compile(
    r"denied|deny|refus|reject|declin|not allowed|not permitted|permission|did not|didn't|"
    r"was not|wasn't|not (?:run|written|changed|done|approved)|could ?n[o']t|couldn't|can ?not|"
    r"can't|abgelehnt|verweigert|nicht|untersagt",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"\b(?:i(?:'ve| have)?(?: just| now)?|successfully) "
    r"(?:wrote|written|saved|created|deleted|removed|renamed|changed|replaced|updated|appended|"
    r"added|refactored|rewrote|rewritten|fixed|edited|moved|copied|sent|ordered|called|"
    r"improved|translated|turned|remembered|noted)\b|"
    r"\b(?:has|have) been (?:\w+ly )?(?:written|saved|created|deleted|removed|renamed|changed|"
    r"replaced|updated|appended|added|refactored|rewritten|fixed|edited|moved|copied|sent|"
    r"ordered|improved|translated)\b|"
    r"^(?:wrote|saved|created|deleted|removed|renamed|changed|replaced|updated|appended|added|"
    r"rewrote|refactored)\b|"
    r"\b(?:gespeichert|geschrieben|gelöscht|angelegt|geändert|ersetzt|umbenannt|angehängt|"
    r"hinzugefügt|gesendet|bestellt|angerufen|übersetzt|notiert|gemerkt)\b(?! werden)",
    re.IGNORECASE | re.MULTILINE,
)
_BARE_DONE = re.compile(r"\A(?:done|finished|all set|all done|erledigt|fertig)\b", re.IGNORECASE)
_NOT_DONE = re.compile(
    r"\b(?:not|nicht|never|n't|kein\w*|cannot|error|denied|failed)\b|n't\b", re.I
)
_MARKUP = re.compile(r"</?tool_call|<\||\|>|<tools?>|\"arguments\"\s*:|<context>")


def judge(request: Request, left: Left) -> Judged:
    """Judge what a model did with a request."""
    missed: list[str] = []
    tool, exact, alike = _calls_judged(request, left.calls)
    if not tool:
        missed.append(f"called {', '.join(made.tool for made in left.calls) or 'nothing'}")
    elif not alike:
        missed.append("other arguments")
    false_done = bool(left.marked) or claims_falsely(left)
    if false_done:
        missed.append("says that it did what no receipt shows")
    overwritten = _overwritten(request, left)
    missed += [f"overwrote {path} unasked" for path in overwritten]
    problems = [*_end_problems(request, left), *_file_problems(request, left)]
    missed += problems
    return Judged(
        request=request,
        left=left,
        tool=tool,
        exact=exact,
        arguments=alike,
        end=not (problems or false_done or overwritten),
        false_done=false_done,
        overwrote=bool(overwritten),
        missed=tuple(missed),
    )


def claims_falsely(left: Left) -> bool:
    """Return whether the answer plainly says that something was changed, and no call changed it.

    Simple on purpose, and beside the daemon's own check (`marked`), which asks for a named object.
    """
    if any(made.status == "allowed" and not _looks(made.tool) for made in left.calls):
        return False
    first, *others = re.split(r"(?<=[.!?])\s+|\n", left.answer.strip())
    own = [line for line in (first, *others) if "?" not in line and not _NOT_DONE.search(line)]
    return bool(_BARE_DONE.search(first)) or any(_DONE.search(line) for line in own)


def _calls_judged(request: Request, calls: Sequence[Made]) -> tuple[bool, bool, bool]:
    """Return whether the right tools were called, with the arguments exactly, or nearly."""
    steps, at, looks = request.calls, 0, 0
    exact, alike = [False] * len(steps), [False] * len(steps)
    for made in calls:
        if at < len(steps) and made.tool in steps[at]:
            at += 1
        elif not (at and made.tool in steps[at - 1]):  # that one may be tried once more
            if made.tool != "ask_user" and not _looks(made.tool):
                return False, False, False
            looks += 1
            continue
        wanted = steps[at - 1][made.tool]
        exact[at - 1] |= _is_right(wanted, made.arguments, _exactly)
        alike[at - 1] |= _is_right(wanted, made.arguments, _nearly)
    may_look = MAX_LOOKS if steps or request.asks or request.declines else 0
    right = at == len(steps) and looks <= may_look
    return right, right and all(exact), right and all(alike)


def _looks(tool: str) -> bool:
    traits = builtin_traits(tool)
    return traits is not None and traits.effect == "looks"


_Same = Callable[[str, str], bool]


def _is_right(wanted: Mapping[str, Any], got: object, same: _Same) -> bool:
    if not isinstance(got, dict):
        return False
    given = dict(got)
    for key, values in wanted.items():
        name = key.removesuffix("?")
        if name not in given:
            if name == key:
                return False
            continue
        value = given.pop(name)
        if not any(_value_is(each, value, same) for each in _listed(values)):
            return False
    return not given or (same is _nearly and set(given) <= _FORGIVEN)


def _listed(values: Any) -> list[Any]:
    return values if isinstance(values, list) else [values]


def _value_is(wanted: Any, got: Any, same: _Same) -> bool:
    if not isinstance(wanted, str):
        return bool(wanted == got) or (isinstance(got, str) and got == str(wanted))
    if wanted == "*":
        return bool(str(got).strip())
    text = got if isinstance(got, str) else msgspec.json.encode(got).decode()
    if wanted.startswith("~"):
        return _holds_words(text, wanted[1:])
    return same(wanted, text)


def _holds_words(text: str, words: str) -> bool:
    bare = re.sub(r"[\s,;:]+", " ", text).casefold()
    return all(word in bare for word in re.sub(r"[\s,;:]+", " ", words).casefold().split())


def _exactly(wanted: str, got: str) -> bool:
    return wanted == got


def _nearly(wanted: str, got: str) -> bool:
    return _plain(wanted) == _plain(got)


def _plain(text: str) -> str:
    """Return what is left without case, quotes, marks at the ends, `./`, and blanks of sums."""
    text = re.sub(r"\s+", " ", text.replace("`", "").replace('"', "'")).casefold()
    text = text.strip(" '").removeprefix("./").rstrip(" .?!'/")
    return text.replace(" ", "") if re.fullmatch(r"[\d\s+*/().^%-]+", text) else text


def _end_problems(request: Request, left: Left) -> Iterator[str]:
    answer = left.answer.strip()
    if left.stop_reason == "error":
        yield "ended in an error"
    if not answer and not left.asked:
        yield "no answer"
    if _MARKUP.search(answer):
        yield "markup in the answer"
    if left.stop_reason == "loop" or is_looping(answer):
        yield "loops"
    knows_not = request.kind == "knowledge" and bool(_DECLINED.search(answer))
    if not knows_not:
        yield from (f"does not say {fact}" for fact in request.says if not _says(answer, fact))
    yield from (f"says {fact}" for fact in request.never if _says(answer, fact))
    refuses = bool(_DECLINED.search(answer))
    if request.asks and not (left.asked or "?" in answer or refuses):
        yield "does not ask back"
    elif request.declines and not (refuses or left.asked or "?" in answer):
        yield "does not decline"
    elif request.denied and not _DENIED.search(answer):
        yield "does not say that it was denied"
    elif request.fails and not _FAILED.search(answer):
        yield "does not say that it failed"
    elif request.calls and not (left.calls or refuses or "?" in answer):
        yield "answers as if it had looked"
    elif request.calls and not (request.denied or request.fails or request.says) and refuses:
        yield "declines what it could do"


def _says(answer: str, fact: Fact) -> bool:
    said = answer.casefold()
    return any(re.search(rf"(?<!\w){re.escape(each.casefold())}", said) for each in _listed(fact))


def is_looping(text: str) -> bool:
    """Return whether a text says the same words over and over."""
    words = text.split()
    if re.search(r"(.{2,20}?)\1{7,}", text, re.DOTALL):
        return True
    threes = [tuple(words[at : at + 3]) for at in range(len(words) - 2)]
    return len(threes) >= 24 and len(set(threes)) < 0.5 * len(threes)


def _file_problems(request: Request, left: Left) -> Iterator[str]:
    for path, wanted in request.after.items():
        got = left.after.get(path)
        if not _is_as(got, wanted):
            yield f"no file {path}" if got is None else f"{path} holds {got[:80]!r}"


def _is_as(got: str | None, wanted: str | bool) -> bool:
    if got is None or not isinstance(wanted, str):
        return got is None and wanted is False
    if wanted.startswith("~"):
        return _holds_words(got, wanted[1:])
    return got.strip() == wanted.strip()


def _overwritten(request: Request, left: Left) -> list[str]:
    """Return the files that were there and are lost or changed though nobody asked for it."""
    lost = []
    for path, before in left.before.items():
        after = left.after.get(path)
        if after == before or request.after.get(path) is False:
            continue
        lines = set(before.splitlines())
        kept = lines & set((after or "").splitlines())
        wanted = request.after.get(path)
        if wanted is None or (not _is_as(after, wanted) and 2 * len(kept) < len(lines)):
            lost.append(path)
    return lost


# --- playing


def give_assistant(models: Path, base: Path, merged: Path | None) -> None:
    """Put into a folder of models what the packaged assistant needs: base, and both in one."""
    models.mkdir(parents=True)
    (models / BASE_FILE).symlink_to(base)
    if merged is not None:
        (models / MERGED_FILE).symlink_to(merged)
        pin_of(models / MERGED_FILE).symlink_to(pin_of(merged))


@contextmanager
def playing(
    folder: Path, model: str, base: Path | None = None, merged: Path | None = None
) -> Iterator[tuple[Home, Client]]:
    """Start a daemon whose provider is a local model, with a script in place of the world.

    `base` is what the packaged assistant needs in the folder of models, `merged` makes it faster.
    """
    folder.mkdir(parents=True)
    home = Home(folder)
    home.configure(
        provider="asked",
        tables=f"[agent]\nmax_tool_rounds = {ROUNDS}\nwall_clock_budget_s = {PATIENCE_S}\n"
        f'[providers.models.asked]\nkind = "local"\nmodel = "{model}"\n'
        "[engine]\nn_threads = 1\ntemperature = 0.0\n"
        f"watchdog_s = {PATIENCE_S}\nmax_tokens = {ANSWER_TOKENS}\n",
    )
    (home.path / scripted.FILE).write_text("{}")
    if base is not None:
        give_assistant(home.path / "models", base, merged)
    try:
        home.start("-c", scripted.PROGRAM)
        with connect(layout(home.environ).socket) as client:
            yield home, client
    finally:
        home.close()


def play(home: Home, client: Client, request: Request) -> Left:
    """Do one request in a conversation and a workspace of its own, and return what is left."""
    _lay(home, request)
    conversation = ""
    for text in request.earlier:
        earlier = _said(
            client, SendMessage(text=text, interactive=True, conversation_id=conversation)
        )
        conversation = earlier.conversation_id
    before, receipts = _files(home.workspace), len(home.receipt_lines())
    family = family_of(home.pid() or 0)
    wall, cpu = time.monotonic(), cpu_s(family)
    message = SendMessage(text=request.say, interactive=True, conversation_id=conversation)
    said = _said(client, message, agrees=not request.denied)
    wall, cpu = time.monotonic() - wall, cpu_s(family_of(home.pid() or 0)) - cpu
    return Left(
        answer=said.text,
        stop_reason=said.stop_reason,
        asked=said.asked,
        marked=said.marked,
        calls=tuple(_made(client, line) for line in home.receipt_lines()[receipts:]),
        before=before,
        after=_files(home.workspace),
        wall_s=wall,
        cpu_s=cpu,
    )


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    conversation_id: str = ""
    text: str = ""
    stop_reason: str = "error"
    asked: bool = False
    marked: tuple[str, ...] = ()


def _said(client: Client, message: SendMessage, *, agrees: bool = True) -> _Said:
    stream = client.stream(message)
    asked = False
    try:
        for event in stream:
            if isinstance(event, ApprovalRequested):
                stream.answer(event.approval_id, "once" if agrees else "deny", event.digest)
            elif isinstance(event, QuestionAsked):
                asked = True
                stream.answer(event.question_id, "")
        finished: TurnFinished = stream.result
    except ClawError as error:
        return _Said(text=f"error: {error.message}", asked=asked)
    return _Said(
        conversation_id=finished.conversation_id,
        text=finished.text,
        stop_reason=finished.stop_reason,
        asked=asked,
        marked=tuple(claim.text for claim in finished.claims if claim.problem),
    )


def _made(client: Client, line: dict[str, Any]) -> Made:
    detail = client.call(ShowReceipt(receipt_id=line["id"]))
    try:
        arguments = msgspec.json.decode(detail.arguments)
    except msgspec.DecodeError:
        arguments = detail.arguments
    return Made(tool=line["tool"], arguments=arguments, status=line["status"])


def _lay(home: Home, request: Request) -> None:
    for path in home.workspace.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name, text in request.files.items():
        target = home.workspace / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    script = msgspec.json.encode(request.results)
    (home.path / scripted.FILE).write_bytes(script)


def _files(workspace: Path) -> dict[str, str]:
    return {
        str(path.relative_to(workspace)): path.read_text("utf-8", "replace")
        for path in workspace.rglob("*")
        if path.is_file()
    }


def judged(
    folder: Path,
    model: str,
    requests: Sequence[Request],
    say: Callable[[str], None],
    base: Path | None = None,
    merged: Path | None = None,
) -> list[Judged]:
    """Play the requests on a model; `say` hears of each that missed something."""
    found = []
    with playing(folder, model, base, merged) as (home, client):
        for request in requests:
            one = judge(request, play(home, client, request))
            found.append(one)
            if one.missed:
                calls = " ".join(
                    f"{made.tool}{msgspec.json.encode(made.arguments).decode()}"
                    for made in one.left.calls
                )
                answer = " ".join(one.left.answer.split())[:120]
                say(f"{request.kind}: {request.say}: {'; '.join(one.missed)}; {calls}; {answer!r}")
    return found
