"""Invents whole conversations: a request, the calls it needs, their results, the answer."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from training.data.arguments import Arguments
from training.data.lists import BARE_COMMANDS
from training.data.phrasings import (
    CLOSINGS,
    OPENINGS,
    disturb,
    expand,
    request_kinds,
    request_words,
    topics,
)
from training.data.results import EMPTY_FOLDER, Outcome, Results
from training.data.texts import keywords

SMALL_TALK_SHARE = 0.125
NO_TOOLS_ANSWER = "No tools are enabled, so I cannot do that."
_QUOTES = "\"'`"

Call = tuple[str, dict]


@dataclass(frozen=True)
class Step:
    """One call and what came back."""

    tool: str
    arguments: dict
    result: str


@dataclass(frozen=True)
class Conversation:
    """One user turn, complete."""

    kind: str
    request: str
    steps: list[Step]
    answer: str
    has_tools: bool = True


@dataclass(frozen=True)
class _Request:
    """What is asked: the words that fill the phrasing, and the first call that answers it."""

    slots: dict[str, str]
    tool: str
    arguments: dict


class Conversations:
    """An endless source of conversations.

    With `held_out` the arguments come from the words no training text contains, with `unseen` the
    phrasings do too. `for_training` draws the weak and the important kinds more often.
    """

    def __init__(
        self, seed: int, *, held_out: bool = False, unseen: bool = False, for_training: bool = True
    ) -> None:
        self._rng = random.Random(seed)
        self._make = Arguments(self._rng, request_words(), held_out=held_out)
        self._results = Results(self._rng, self._make, unseen=unseen)
        self._unseen = unseen
        self._disturbed = not held_out
        self._kinds = list(request_kinds())
        self._shares = [
            kind.training_share if for_training else kind.share for kind in request_kinds().values()
        ]

    def __iter__(self) -> Iterator[Conversation]:
        while True:
            yield self.draw()

    def draw(self) -> Conversation:
        if self._rng.random() < SMALL_TALK_SHARE:
            return self._small_talk()
        kind = self._rng.choices(self._kinds, self._shares)[0]
        has_tools = self._rng.random() >= 0.02
        if kind == "plan_items":
            text, request = self._several_plan_items()
        else:
            request = self._request(kind)
            text = self._sentence(kind, request.slots)
        if not has_tools:
            return Conversation(kind, text, [], NO_TOOLS_ANSWER, has_tools=False)
        steps, answer = self._run(kind, request)
        return Conversation(kind, text, steps, answer)

    # what is asked

    def _request(self, kind: str) -> _Request:
        make = self._make
        match kind:
            case "time" | "plan_list" | "file_list_here" | "file_list_here_long":
                tool = {"time": "time", "plan_list": "plan"}.get(kind, "file_list")
                fixed = {"time": {}, "plan": {"action": "list"}, "file_list": {"path": "."}}
                return _Request({}, tool, fixed[tool])
            case "then_write_time":
                return _Request({"P": make.path()}, "time", {})
            case "file_list" | "file_list_long" | "then_read_first":
                folder = make.directory()
                return _Request({"D": folder}, "file_list", {"path": folder})
            case "file_read" | "file_read_cat" | "then_save" | "then_read_second":
                return self._read_request(kind)
            case "file_write" | "file_write_about" | "then_read_back":
                return self._write_request(kind)
            case "shell" | "shell_bare":
                bare = kind == "shell_bare"
                command = self._rng.choice(BARE_COMMANDS) if bare else make.command()
                return _Request({"C": command}, "shell", {"command": command})
            case "http":
                url = make.url()
                return _Request({"U": url}, "http", {"url": url})
            case "calculator":
                asked, sent = make.expression()
                return _Request({"E": asked}, "calculator", {"expression": sent})
            case "plan":
                goal = make.goal()
                return _Request({"Q": goal}, "plan", {"action": "add", "text": goal})
            case _:
                return self._lookup_request(kind)

    def _read_request(self, kind: str) -> _Request:
        path = self._make.path()
        if kind == "file_read_cat" and self._rng.random() < 0.5:
            path = "/" + path.lstrip("./~")
        slots = {"P": path}
        if kind == "then_read_second":
            slots["P2"] = self._make.path()
        return _Request(slots, "file_read", {"path": path})

    def _write_request(self, kind: str) -> _Request:
        path = self._make.path()
        content = self._make.text(may_be_code=True)
        if kind == "file_write_about":
            stem = path.rsplit("/", 1)[-1].split(".")[0] or "file"
            content = self._make.sentence_about(
                stem.replace("_", " ").replace("-", " ").strip() or stem
            )
            if self._rng.random() < 0.5:
                content = content[0].upper() + content[1:]
        slots = {"P": path, "X": content}
        return _Request(slots, "file_write", {"path": path, "content": content})

    def _lookup_request(self, kind: str) -> _Request:
        make = self._make
        match kind:
            case "memory_search" | "web_search":
                query = make.query()
                return _Request({"Q": query}, kind, {"query": query})
            case "knowledge_search":
                query = make.query()
                return _Request({"Q": query}, kind, {"keywords": keywords(query, limit=8)})
            case "knowledge_save":
                content = make.text()
                arguments = {"keywords": keywords(content), "content": content}
                return _Request({"X": content}, kind, arguments)
            case "knowledge_save_under":
                given = " ".join(make.noun() for _ in range(self._rng.choice([1, 1, 2])))
                content = make.text()
                arguments = {"keywords": given, "content": content}
                return _Request({"K": given, "X": content}, "knowledge_save", arguments)
            case _:
                raise ValueError(f"kind {kind!r} of phrasings.toml has no request")

    def _several_plan_items(self) -> tuple[str, _Request]:
        slots = {name: self._make.goal() for name in ("Q", "Q2", "Q3")}
        phrasing = self._phrasing("plan_items")
        text = expand(self._rng, phrasing)
        items = [{"text": slots[name]} for name in slots if "{" + name + "}" in phrasing]
        if self._rng.random() < 0.3:
            text = text[0].upper() + text[1:]
        for name, goal in slots.items():
            text = text.replace("{" + name + "}", goal)
        return text, _Request(slots, "plan", {"action": "add", "items": items})

    # how it is said

    def _phrasing(self, kind: str) -> str:
        phrasings = request_kinds()[kind]
        return self._rng.choice(phrasings.unseen if self._unseen else phrasings.known)

    def _sentence(self, kind: str, slots: dict[str, str]) -> str:
        """Fills a phrasing. Courtesies and marks stand only where they cannot be content."""
        rng = self._rng
        text = expand(rng, self._phrasing(kind))
        if self._disturbed:
            text = disturb(rng, text, self._make.words_list)
        if not text.startswith(("{", "$", "I ")):
            text = rng.choice(OPENINGS) + text
        closing = rng.choice(CLOSINGS)
        ends_in_slot = text.rstrip().endswith("}")
        last = text.rstrip()[:-1].split("{")[-1] if ends_in_slot else ""
        if rng.random() < 0.4 and text[0] != "{":
            text = text[0].upper() + text[1:]
        if self._disturbed and not slots and rng.random() < 0.06:
            text = text.upper()
        last_is_quoted = False
        for slot, value in slots.items():
            shown = self._maybe_quoted(value, self._quote_chance(kind, slot, last, value))
            if slot == last:
                last_is_quoted = shown != value
            text = text.replace("{" + slot + "}", shown)
        open_end = last != "" and last[0] in "XQCKE" and not last_is_quoted
        if open_end:
            return text + self._open_end_mark(kind, last, slots[last])
        text += closing
        if kind in {"shell", "shell_bare"} or rng.random() >= 0.3:
            return text
        bare_address = last != "" and not closing and not last_is_quoted and last[0] in "PDU"
        return (
            text
            if bare_address and rng.random() < 0.5
            else text + rng.choice([".", "?", "!", ".", "?"])
        )

    def _quote_chance(self, kind: str, slot: str, last: str, value: str) -> float:
        if slot == "X":
            if value[-1] in ".!?":
                return 1.0
            if kind.startswith("knowledge"):
                return 0.2 if slot == last else 0.6
            return 0.4 if slot == last else 0.75
        if slot == "C":
            return 0.35 if slot == last else 0.6
        if slot in {"E", "K"}:
            return 0.1
        return 0.3 if slot[0] in "PDU" else 0.35

    def _maybe_quoted(self, value: str, chance: float) -> str:
        free = [quote for quote in _QUOTES if quote not in value]
        if self._rng.random() >= chance or not free:
            return value
        quote = self._rng.choice(free)
        return quote + value + quote

    def _open_end_mark(self, kind: str, last: str, value: str) -> str:
        """What may follow an unquoted text at the end: it must not read as a part of it."""
        rng = self._rng
        if kind == "calculator" and rng.random() < 0.25:
            return rng.choice(CLOSINGS) + rng.choice(["", "?", "."])
        if kind in {"calculator", "memory_search", "knowledge_search"} and rng.random() < 0.45:
            return rng.choice("??.")
        if last == "Q" and rng.random() < 0.12:
            return rng.choice(".?!")
        if (
            last == "X"
            and value[-1] not in ".!?"
            and kind.startswith("knowledge")
            and rng.random() < 0.1
        ):
            return "."
        return ""

    # what happens then

    def _run(self, kind: str, request: _Request) -> tuple[list[Step], str]:
        steps: list[Step] = []
        call: Call | None = (request.tool, request.arguments)
        answer = ""
        while call is not None:
            tool, arguments = call
            outcome = self._results.of(tool, arguments, long=kind.endswith("_long"))
            steps.append(Step(tool, arguments, outcome.result))
            answer = outcome.answer
            done = outcome.failed or len(steps) == 2
            call = None if done else _second_call(kind, request, outcome)
        return steps, answer

    # no tool

    def _small_talk(self) -> Conversation:
        rng = self._rng
        topic = rng.choices(topics(), [topic.share for topic in topics()])[0]
        text = self._fill_small_talk(
            expand(rng, rng.choice(topic.unseen if self._unseen else topic.known))
        )
        if rng.random() < 0.12:
            openings = ["hey, ", "please ", "so ", "hi, ", "well, ", "ok, ", "now "]
            text = rng.choice(openings) + text
        if rng.random() < 0.5:
            text = text[0].upper() + text[1:]
        if rng.random() < 0.55:
            text += rng.choice(["?", "!", ".", "?"])
        return Conversation("talk", text, [], topic.answer, has_tools=rng.random() >= 0.1)

    def _fill_small_talk(self, text: str) -> str:
        rng, make = self._rng, self._make
        makers = {
            "{Q}": make.query,
            "{W}": make.word,
            "{S}": make.sentence,
            "{G}": make.goal,
            "{L}": lambda: rng.choice(make.places),
            "{J}": lambda: rng.choice(make.adjectives),
            "{N}": make.noun,
            "{V}": lambda: rng.choice(make.verbs),
        }
        for slot, maker in makers.items():
            while slot in text:
                text = text.replace(slot, maker(), 1)
        return text


def _second_call(kind: str, request: _Request, outcome: Outcome) -> Call | None:
    """The call that the first result leads to, if the request asks for more than one."""
    result = outcome.result
    match kind:
        case "then_read_first" if result not in EMPTY_FOLDER:
            folder = request.arguments["path"]
            first = result.split("\n")[0]
            return "file_read", {"path": folder + ("" if folder.endswith("/") else "/") + first}
        case "then_save" if "|" in result:
            line = result.split("\n")[0].split("|", 1)[1]
            return "knowledge_save", {"keywords": keywords(line), "content": line}
        case "then_write_time":
            moment = outcome.answer.removeprefix("It is ").removesuffix(".")
            return "file_write", {"path": request.slots["P"], "content": moment}
        case "then_read_second":
            return "file_read", {"path": request.slots["P2"]}
        case "then_read_back":
            return "file_read", {"path": request.arguments["path"]}
        case _:
            return None
