"""An endless, seeded source of conversations for the assistant.

Each is a list of messages in OpenAI's form and the list of tools it offers. The model is to learn
what its assistant messages say. What is asked and how stands in training/words/assistant_*.toml.
"""

import random
import re
import shlex
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from clawd.tools.builtin import file_text
from clawd.tools.builtin.files import as_it_is
from clawd.tools.builtin.user import NO_ANSWER
from training.assistant.documents import Asked, Document, Documents, Folder
from training.assistant.offers import OfferedList, offered_lists, product_tools
from training.assistant.outcomes import Outcome, Outcomes, computed
from training.assistant.scene import Scene
from training.assistant.units import unit_asked_for
from training.assistant.values import Value, Values, growing_files
from training.data.lists import STOP_WORDS, WORDS
from training.data.phrasings import expand

TALK_SHARE = 0.27
ASKS = 0.4  # of the shares of topics that ask back: with more, plain requests are asked back, too
CALL_ONLY_SHARE = 0.4
EARLY_END_SHARE = 0.08  # of those end before the last call: what follows is the harder part
DOCUMENT_SHARE = 0.18  # of the working ones ask for what stands in a file, a page or a PDF
DOCUMENT_CALL_ONLY_SHARE = 0.2  # of those; the answer is what has to be learnt
DOCUMENT_AGAIN_SHARE = 0.25  # of those that got an answer ask for something else in it
DOCUMENT_TWO_SHARE = 0.22  # of them ask for two things at once
FOLDER_SHARE = 0.07  # of the questions about files are about several that lie in a folder
GERMAN_SHARE = 0.3
QUESTION_SHARE = 0.48  # of what is answered without a tool
OTHER_REPLY_SHARE = 0.08  # of what is asked back for or declined
SHARE_POWER = 0.85  # of the sorts' shares, so that rare ones are seen often enough
TOOL_POWER = 0.7  # of what the sorts that call a tool first have together, so that no tool is rare
# Of those that call nothing else: each sort is a formula or a command of its own, and short.
FORMULA_SHARES = {"calculator": 2.5, "shell": 2.0}
CHAIN_SHARE = 0.65  # of the sorts that need several calls: most requests need one
NEXT_TURN_SHARE = 0.3  # of the conversations that got an answer
THIRD_TURN_SHARE = 0.3  # of those whose second turn was called for and got an answer, if short
GOES_ON_LONGEST = 480  # letters; longer ones have no further turn, as they would not be learnt from
LINE_THERE_SHARE = 0.75  # of the lines asked for in a file that was read or written
OTHER_DRAWS = 3
SLIP_SHARE = 0.08  # of the calls that name a file name it wrongly, to be put right
EDIT_SLIP_SHARE = 0.15  # of the edits have a wrong text, to be put right
APPEND_SLIP_SHARE = 0.12  # of what is to be added would replace the file, and is refused
THERE_SHARE = 0.12  # of the files that are to be made are there already
REPLACED_SHARE = 0.5  # of those that are to be replaced
CHOSEN_SHARE = 0.5  # of the people who are asked whether to replace or to add say so
THANKS_SHARE = 0.1  # of the second turns that call a tool
SECOND_SUBJECT_SHARE = 0.2  # of the short ones that end in words
MAX_RESULT = 420
MAX_REQUEST = 420
NO_ANSWERS = ("", f"error: {NO_ANSWER}", f"error: there is nobody to ask: {NO_ANSWER}")
_JUDGED = Path(__file__).parents[2] / "tests" / "bench"
_GREETINGS = {
    "en": [
        "hey, ",
        "hi! ",
        "ok, ",
        "now ",
        "next, ",
        "so, ",
        "hi, ",
        "hello, ",
        "alright, ",
        "well, ",
        "and now ",
        "also, ",
        "hey clawd, ",
        "yo, ",
        "good morning, ",
        "one thing: ",
        "ok so ",
        "quick one: ",
        "actually, ",
        "right, ",
    ],
    "de": [
        "hallo, ",
        "ok, ",
        "hey, ",
        "so, ",
        "also ",
        "hi, ",
        "moin, ",
        "gut, ",
        "und jetzt: ",
        "kurze Sache: ",
        "hey clawd, ",
        "äh, ",
        "guten Morgen, ",
    ],
}
_COURTESIES = {
    "en": [
        "please ", "please ", "pls ", "can you ", "could you ", "would you ", "I want you to ",
        "could you please ", "quickly ", "go ahead and ", "hi, can you ", "I'd like you to ",
        "kindly ", "I need you to ", "you should ", "let's ", "try to ",
        "i want to ", "help me ", "can u ", "plz ", "you can ", "go and ", "just ", "then ",
        "would you be so kind and ", "your task: ", "I would like to ", "we need to ", "first ",
    ],
    "de": [
        "bitte ", "bitte ", "hallo, bitte ", "jetzt ", "bitte mal ", "dann ", "sei so gut: ",
        "und ", "kurz: ", "los, ",
    ],
}  # fmt: skip
_CLOSINGS = {
    "en": [
        " please", ", please", " for me", " now", ", thanks", " thx", " thank you", " pls", " plz",
        " if you can", " when you have a second", ", will you", " real quick", " asap", ", ok?",
        " - thanks!", " :)", ", that would be great", " if that's ok", ", cheers",
    ],
    "de": [
        " bitte", ", bitte", ", danke", " mal bitte", ", danke dir", ", wenn du kannst", " :)",
        ", geht das?", ", ja?", " bitte schnell", ", das wäre super",
    ],
}  # fmt: skip
_WHY = {
    "en": [
        ", I need it for {}", " because of {}", " because {} asked me to", ", it is for {}",
        ", {} is waiting for it", " before I forget it", " so that I can go on", ", it's urgent",
        " since {} needs it today", ", I have to send it to {} later", " as we agreed with {}",
        ", otherwise the build fails", " so I can finish {}", ", it's the last thing for today",
        " because I keep losing track", ", I'm in a meeting", ", {} asked twice already",
        " before {} gets back", ", no need to explain", ", and nothing else", " - it's for {}",
    ],
    "de": [
        ", ich brauche das für {}", " wegen {}", ", {} wartet darauf", ", es ist für {}",
        ", es eilt", ", bevor ich es vergesse", ", damit ich weitermachen kann",
        ", sonst geht der Build nicht", ", {} hat schon gefragt", ", sonst nichts", " - ist für {}",
        ", ich sitze im Meeting", ", weil ich das für {} brauche",
    ],
}  # fmt: skip
_REASONS = {
    "en": [
        "I am working on {}. ", "I need this for {}. ", "Let's get started. ", "One more thing. ",
        "This is about {}. ", "Sorry to bother you again. ", "My boss wants to know about {}. ",
        "We are preparing {} with the team. ", "I'm a bit in a hurry. ", "I have trouble with {}. ",
        "I just came back from {}. ", "Something is odd here. ", "I'm trying to clean up {}. ",
        "Since {} is almost done: ", "Thanks, that worked. ", "I keep forgetting things. ",
        "The deadline is today. ", "I'm on the train, so briefly: ", "We are about to deploy. ",
        "I can't find my glasses. ", "My colleague broke it again. ", "For {}: ", "Next task. ",
        "The tests fail since yesterday. ", "I'm new to this. ", "Not sure if this works, but: ",
    ],
    "de": [
        "Ich arbeite an {}. ", "Ich brauche das für {}. ", "Noch etwas: ", "Es geht um {}. ",
        "Ich habe es eilig. ", "Mein Chef fragt nach {}. ", "Wir bereiten gerade {} vor. ",
        "Kurze Frage. ", "Irgendetwas stimmt hier nicht. ", "Danke, das hat geklappt. ",
        "Die Deadline ist heute. ", "Wir deployen gleich. ", "Für {}: ", "Nächste Aufgabe. ",
        "Ich bin neu hier. ", "Seit gestern scheitern die Tests. ", "Ich sitze im Zug, also kurz: ",
    ],
}  # fmt: skip
_ASIDES = {
    "en": [
        "quick question: ", "hey clawd, ", "just wondering: ", "so, ", "dumb question: ",
        "one question: ", "tell me, ", "ok, ", "hi, ", "by the way, ", "for a quiz: ",
        "I keep forgetting: ", "sorry, ", "my son asks: ", "random question, ",
    ],
    "de": [
        "kurze Frage: ", "mal ne Frage: ", "sag mal, ", "eine Frage: ", "hey, ", "hallo, ",
        "blöde Frage: ", "übrigens, ", "nur so aus Interesse: ", "fürs Quiz: ", "äh, ", "du, ",
        "ich vergess das immer: ", "meine Tochter fragt: ", "ganz was anderes: ",
    ],
}  # fmt: skip
# English questions the base answers by itself; most are left out (prepare.py), no German ones.
_QUESTION_KINDS = {"en": "question", "de": "question_de"}
_WEB_OFFER = "search the web"
_AFTER_WORDS = ["", *" ,.?:;!)-\n"]  # what may follow a number in words: not `twenty%`
_ANSWERED = " ==> "  # what follows it in a phrasing is what is answered
_THANKS = {
    "en": ["thanks. ", "ok. ", "great. ", "perfect! ", "good. ", "nice, thanks. ", "Thank you. "],
    "de": ["danke. ", "ok. ", "super. ", "gut. ", "prima, danke. ", "Danke dir. ", "passt. "],
}  # fmt: skip
_SUMMED_UP = {"calculator", "time", "file_write", "file_append", "file_edit"}
_DEEDS = {"rm", "mv", "cp", "mkdir", "chmod", "touch", "tar", "git", "pip", "systemctl", "docker"}
_ONCE = re.compile(r"(rm|mv|cp|mkdir|touch|chmod|git (add|commit|checkout|merge|stash|push)) ?")
_SHORT = 100  # letters of a sentence about a command that is told beside the next one's
_PLAIN = {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss"}
_SLOT = re.compile(r"\{([A-Z]{1,2}[0-9]?)\}")
_SHELL_SLOT = re.compile(r"\{sh:([A-Z]{1,2}[0-9]?)\}")
_QUOTED = re.compile(r"\{quoted:(\w+)\}")
_BEFORE = re.compile(r"\{before:(\w+)\}")
_NUMBER_SET = re.compile(r"(\w+(?: = |: |=))\d+")
_TEXT_FILE = re.compile(r".*\.(txt|md|py|sh|json|ya?ml|toml|ini|cfg|csv|js|ts|html|css|log|go|rs)")
_ASKS = re.compile(
    r"(what|which|who|where|when|how|is|are|does|do|did|have|has|was|"
    r"wie|was|wer|wo|wann|welche[rsn]?|gibt|ist|hast|haben|habe)\b",
    re.IGNORECASE,
)
_VERBS = re.compile(
    r"(add|append|ask|attach|book|browse|calculate|call|change|check|compare|compute|copy|correct|create|"
    r"delete|display|do|download|draw|drop|dump|edit|erase|evaluate|execute|exchange|extend|extract|fetch|file|"
    r"fill|find|fix|forget|get|give|go|google|keep|learn|list|load|locate|look|make|mark|memorize|multiply|note|"
    r"open|overwrite|plan|post|print|pull|put|query|read|recall|remember|remove|rename|render|replace|request|"
    r"revert|rewrite|roll|run|save|search|see|send|set|show|start|stop|store|strip|substitute|summari[sz]e|swap|"
    r"take|tell|tick|turn|undo|update|use|view|visit|wait|work|write|"
    r"commit|convert|count|divide|explain|insert|install|move|push|sort|split|subtract|tack|"
    r"addiere|behebe|benenne?|committe|entferne|installiere?|kopiere?|korrigiere?|teile|trage?|verschiebe?|"
    r"ändere|bearbeite|berechne|durchsuche|ergänze|ersetze|erstelle|finde|füge|führe|gib|"
    r"hänge?|hol|lade|leg|lies|liste|lösche|mach|merke?|nimm|notiere|öffne|prüfe|rechne|schau|"
    r"schreibe?|setze?|speichere|starte|suche?|such|zeige?|zieh)\b",
    re.IGNORECASE,
)
# What begins like a request to do something and is none: `do I have a file`, `load average`.
_NO_VERBS = re.compile(
    r"do (i|we|you|they|these)\b|do .*\b(pass|differ|say|match)\b|"
    r"(commit|file|load|exchange|search) (history|log|mode|size|average|rate|engine)\b",
    re.IGNORECASE,
)
_GERMAN_STOP_WORDS = """
der die das ein eine einen mein meine unser dein ist sind und oder in im am um von zu für mit auf
aus bei den dem des es ich du wir kommt mag lautet wohnt neue alte kleine
"""
# Where nothing says that a file is new or is replaced, a list is added to, never written anew.
_REPLACES = re.compile(
    r"\b(creat\w*|crate|new|make|generate\w*|overwrit\w*|replac\w*|rewrite|empty|contain\w*|called|"
    r"named?|only|exactly|whole|start|set up|"
    r"neue?[mnrs]?|erstell\w*|erzeug\w*|anlegen|legt?|lege|überschreib\w*|ersetz\w*|namens|nenn|nur|genau|mach)\b",
    re.IGNORECASE,
)
# What may be lost of a file that is there: by these words, or by the second where nothing is new.
_REPLACES_ALL = re.compile(
    r"\b(overwrit\w*|replac\w*|rewrite|wipe|truncate|clear|erase|reset|start .{1,60} over|"
    r"start over|scratch|throw (away|out)|forget the old|delete everything|empty out|"
    r"überschreib\w*|ersetz\w*|nur noch|wirf|lösch\w*|behalte|fang)\b",
    re.IGNORECASE,
)
_LEAVES_ONLY = re.compile(
    r"\b(empty|nothing but|(contain|say|have|be|hold)s? (only|just)|(should|shall) (only|just)|"
    r"leer\w*|nur [^.]{1,60} (stehen|enthalten))\b",
    re.IGNORECASE,
)
_IS_NEW = re.compile(
    r"\b(creat\w*|crate|new|make an?|blank|an empty|a file|exist|"
    r"neue?[mnrs]?|erstell\w*|erzeug\w*|anlegen|legt?|lege|eine?|geben|brauch\w*)\b",
    re.IGNORECASE,
)
_LIST_NAME = re.compile(
    r"list|to-?do|tasks?\b|aufgaben|shopping|einkauf|grocer|notes?\b|notiz|log\b|journal|diary|tagebuch|"
    r"ideas?|idee|termine|contacts|kontakt|gitignore|requirements|expenses|ausgaben|birthdays|books|movies|"
    r"geschenke|changelog|minutes|protokoll",
    re.IGNORECASE,
)
_STOP = STOP_WORDS | frozenset(_GERMAN_STOP_WORDS.split())


@dataclass(frozen=True)
class Conversation:
    """One conversation, whole or ending right after a call.

    Attributes:
        kind: what the request wants, a heading of the word lists.
        language: `en` or `de`.
        offer: the key of the list of tools; the same key has the same tools.
        tools: what is offered, in OpenAI's form.
        messages: in OpenAI's form; arguments of calls are objects.
    """

    kind: str
    language: str
    offer: str
    tools: list[dict[str, Any]] = field(repr=False)
    messages: list[dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """One sort of request that calls tools."""

    name: str
    calls: list[dict[str, Any]]
    phrasings: dict[str, list[str]]
    share: float
    derived: bool = False  # what the call carries does not stand in the request as it is
    reads: str = ""  # what stands in the file that the first call reads
    says: dict[str, str] = field(default_factory=dict)  # what is told of it in the end
    shows: str = ""  # a file that a listing has; where there are several, it has no other
    tells: bool = False  # every result is told, not the last one alone
    otherwise: dict[str, str] = field(default_factory=dict)  # told where a condition does not hold
    then: list[dict[str, Any]] = field(default_factory=list)  # asked next, answered without a call
    unit: str = ""  # in which the result of a sum is, where the phrasing does not say it
    calls_de: list[dict[str, Any]] = field(default_factory=list)  # if German ones differ
    finds: str = ""  # what the first call finds or fetches, if it does

    def calls_in(self, language: str) -> list[dict[str, Any]]:
        """Return the calls as a request of this language wants them."""
        return self.calls_de if language == "de" and self.calls_de else self.calls

    @property
    def tools(self) -> list[str]:
        """The tools it calls, in order."""
        return [call["tool"] for call in self.calls]


@cache
def request_kinds() -> dict[str, Kind]:
    """Return what can be asked of the tools, by name."""
    tables = tomllib.loads((WORDS / "assistant_requests.toml").read_text("utf-8"))
    return {
        name: Kind(
            name=name,
            calls=table["calls"],
            phrasings={each: _phrasings(tables, table, each) for each in ("en", "de")},
            share=table["share"],
            derived=table.get("derived", False),
            reads=table.get("reads", ""),
            says=table.get("says", {}),
            unit=table.get("unit", ""),
            calls_de=table.get("calls_de", []),
            shows=table.get("shows", ""),
            tells=table.get("tells", False),
            otherwise=table.get("otherwise", {}),
            then=table.get("then", []),
            finds=table.get("finds", ""),
        )
        for name, table in tables.items()
    }


def _phrasings(tables: dict[str, Any], table: dict[str, Any], language: str) -> list[str]:
    """Return how a kind is asked for; one that is asked for like another has its words."""
    like = tables[table["like"]][language] if "like" in table else []
    return [*like, *table.get(language, [])]


@cache
def talk() -> dict[str, Any]:
    """Return what is said without a tool: topics, refusals, follow-ups."""
    return tomllib.loads((WORDS / "assistant_talk.toml").read_text("utf-8"))


@cache
def answers(language: str) -> list[list[str]]:
    """Return general questions with a short answer, some with a second question and its answer.

    Some answers are the base model's own, where they are right; the others were written by hand.
    """
    lines = (WORDS / f"assistant_answers_{language}.tsv").read_text("utf-8").splitlines()
    return [line.split("\t") for line in lines]


def normalized(request: str) -> str:
    """Return a request as two of them are compared: letters and digits, lower case."""
    return " ".join(re.findall(r"\w+", request.lower()))


@cache
def kept_back() -> frozenset[str]:
    """Return the requests by which models are judged; they are nobody's to learn from."""
    files = [WORDS / "handwritten.toml", *sorted(_JUDGED.glob("assistant_requests*.toml"))]
    texts = (text for path in files for text in _strings(tomllib.loads(path.read_text("utf-8"))))
    return frozenset(normalized(text) for text in texts)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def keywords(text: str, limit: int = 2) -> str:
    """Return the first words of a text that tell it from others, or `note`."""
    found: list[str] = []
    for word in text.split():
        word = word.strip(".,:;!?'\"=()`#„“")
        wanted = re.fullmatch(r"[\w.+-]{1,32}", word) and word.lower() not in _STOP
        if wanted and word not in found:
            found.append(word)
    return " ".join(found[:limit]) or "note"


class Conversations:
    """An endless iterator of conversations.

    Args:
        seed: the same seed gives the same conversations.
        avoid: requests that must never be drawn, beside those kept back anyway; compared after
            `normalized`.
        held_out: fill them with words that training never sees.
        only: draw only requests of these sorts, with their tools offered.
    """

    def __init__(
        self,
        seed: int,
        *,
        avoid: Collection[str] = (),
        held_out: bool = False,
        only: Collection[str] = (),
    ) -> None:
        self._rng = random.Random(seed)
        self._values = Values(self._rng, held_out=held_out)
        self._outcomes = Outcomes(self._rng, self._values)
        self._documents = Documents(self._rng, self._values, held_out=held_out)
        self._told = ""
        self._avoided = kept_back() | {normalized(request) for request in avoid}
        self._only = frozenset(only)
        kinds = request_kinds().values()
        self._kinds = [kind for kind in kinds if not only or kind.name in self._only]
        self._shares = _shares(self._kinds)
        needed = {tool for kind in self._kinds if only for tool in kind.tools}
        self._lists = [offered for offered in offered_lists() if needed <= set(offered.names)]
        self._list_shares = [offered.share for offered in self._lists]

    def __iter__(self) -> Iterator[Conversation]:
        while True:
            drawn = self._draw()
            asked = [each["content"] for each in drawn.messages if each["role"] == "user"]
            if any(len(text) > MAX_REQUEST for text in asked):
                continue
            if any(normalized(text) in self._avoided for text in asked):
                continue
            yield drawn

    def _draw(self) -> Conversation:
        rng = self._rng
        self._outcomes.begin()
        offered = rng.choices(self._lists, self._list_shares)[0]
        language = "de" if rng.random() < GERMAN_SHARE else "en"
        kind, messages = self._turn(offered, language)
        is_short = sum(len(each["content"]) for each in messages) < 240
        if is_short and "tool_calls" not in messages[-1] and rng.random() < SECOND_SUBJECT_SHARE:
            messages += self._turn(offered, language, is_first=False)[1]
        return Conversation(
            kind=kind, language=language, offer=offered.key, tools=offered.tools, messages=messages
        )

    def _turn(
        self, offered: OfferedList, language: str, *, is_first: bool = True
    ) -> tuple[str, list[dict[str, Any]]]:
        if not self._only and (self._rng.random() < TALK_SHARE or not offered.tools):
            return self._talk(offered, language, is_first=is_first)
        return self._work(offered, language)

    # requests that call tools

    def _work(self, offered: OfferedList, language: str) -> tuple[str, list[dict[str, Any]]]:
        rng = self._rng
        of_document = not self._only and rng.random() < DOCUMENT_SHARE
        if of_document and "file_read" in offered.names:
            return self._of_document(offered, language)
        kind = rng.choices(self._kinds, self._shares)[0]
        while not set(kind.tools) <= set(offered.names):
            if rng.random() < 0.12 and kind.tools[0] not in offered.names:
                return self._not_offered(kind, language)
            kind = rng.choices(self._kinds, self._shares)[0]
        slots, request = self._request(kind, language)
        for _ in kind.calls[2:] * OTHER_DRAWS:  # what needs many calls is asked for shortly
            other = self._request(kind, language)
            slots, request = min((slots, request), other, key=lambda each: len(each[1]))
        if not slots and rng.random() < 0.05:
            request = request.upper()
        request = self._named_tool(request, offered.names[kind.tools[0]], language)
        turn = _Turn(self, offered, language, request)
        turn.work(kind, slots, self._told)
        return kind.name, turn.messages

    def _of_document(self, offered: OfferedList, language: str) -> tuple[str, list[dict[str, Any]]]:
        """Return a conversation in which a question is answered by what stands in a file."""
        if self._rng.random() < DOCUMENT_TWO_SHARE:
            document, both = self._documents.two(language, offered.names)
            turn = _Turn(self, offered, language, self._question(both, language))
            turn.look_up(document, both)
            return f"document_{document.family}", turn.messages
        if "file_list" in offered.names and self._rng.random() < FOLDER_SHARE:
            folder = self._documents.folder(language)
            turn = _Turn(self, offered, language, self._question(folder.asked, language))
            turn.look_through(folder)
            return "document_in_folder", turn.messages
        document, asked = self._documents.draw(language, 2, offered.names)
        turn = _Turn(self, offered, language, self._question(asked[0], language))
        turn.look_up(document, asked[0])
        answered = turn.messages[-1].get("content") == asked[0].answer
        if answered and self._rng.random() < DOCUMENT_AGAIN_SHARE:
            again = self._question(asked[1], language, courteous=False)
            turn.messages += [_user(again), _said(asked[1].answer)]
        return f"document_{document.family}", turn.messages

    def _question(self, asked: Asked, language: str, *, courteous: bool = True) -> str:
        phrasing = expand(self._rng, asked.phrasing)
        return self.sentence(phrasing, asked.slots, language, courteous=courteous)

    def _named_tool(self, request: str, name: str, language: str) -> str:
        """Return a request that says which tool to use, now and then."""
        rng = self._rng
        if rng.random() < 0.02:
            forms = [f"use {name}: ", f"{name}: ", f"with {name}, ", f"call {name}: "]
            if language == "de":
                forms = [f"mit {name}: ", f"{name}: ", f"nimm {name}: "]
            return rng.choice(forms) + request
        return request

    def _not_offered(self, kind: Kind, language: str) -> tuple[str, list[dict[str, Any]]]:
        _, request = self._request(kind, language)
        texts = talk()["not_offered"]
        what = texts["acts"][kind.tools[0]][language]
        answer = self._rng.choice(texts[language]).replace("{act}", what)
        return "not_offered", [_user(request), _said(answer)]

    def _request(self, kind: Kind, language: str) -> tuple[dict[str, Value], str]:
        rng = self._rng
        phrasing, _, answered = expand(rng, rng.choice(kind.phrasings[language])).partition(
            _ANSWERED
        )
        self._told = (
            answered or kind.says.get(language, "") or _in_its_unit(kind, phrasing, language)
        )
        calls = str(kind.calls_in(language)) + kind.reads + kind.finds + self._told
        calls += str(kind.then)
        wanted = {*_SLOT.findall(phrasing + calls), *_SHELL_SLOT.findall(calls)}
        slots = self._values.all(wanted, language)
        while _is_absurd(kind, slots) and rng.random() < 0.98:
            slots = self._values.all(wanted, language)
        if "AR" in slots:  # it has words of its own
            phrasing = expand(rng, str(slots["AR"].sent))
        if not _REPLACES.search(phrasing):
            self._spare_lists(kind, slots, language)
        return slots, self.sentence(phrasing, slots, language)

    def _spare_lists(self, kind: Kind, slots: dict[str, Value], language: str) -> None:
        """Write to no list what should rather be added to it."""
        for call in kind.calls:
            if call["tool"] != "file_write":
                continue
            name = _SLOT.findall(call["arguments"]["path"])[-1]
            if name == "LF":  # the sort says itself which words replace a list
                continue
            while _is_list(str(slots[name].sent)):
                slots[name] = self._values.of(name, language)

    def sentence(
        self, phrasing: str, slots: dict[str, Value], language: str, *, courteous: bool = True
    ) -> str:
        """Return a phrasing with its slots filled, said in one of the ways that people have."""
        rng = self._rng
        shown = {name: self._shown(phrasing, name, value) for name, value in slots.items()}
        last = next((each.group(1) for each in _SLOT.finditer(phrasing)), "")
        for each in _SLOT.finditer(phrasing):
            last = each.group(1)
        at_end = bool(last) and phrasing.endswith("{" + last + "}")
        ends_open = at_end and slots[last].open_end and shown[last] == slots[last].shown
        is_bare = phrasing.startswith("{")
        text = phrasing
        if not is_bare:
            text = self._disturbed(text)
            if courteous:
                text = self._opened(text, language)
            if rng.random() < 0.4:
                text = text[0].upper() + text[1:]
            if courteous and rng.random() < 0.06 and text[0] not in "$/":
                text = self._because(_REASONS, language) + text[0].upper() + text[1:]
        if not ends_open and "\n" not in phrasing:
            if courteous and not is_bare and rng.random() < 0.17:
                text += (
                    self._because(_WHY, language)
                    if rng.random() < 0.25
                    else rng.choice(_CLOSINGS[language])
                )
            text += self._mark(text, phrasing, at_end)
        elif "E" in last and _ASKS.match(phrasing) and rng.random() < 0.5:
            text += "?"
        return _SLOT.sub(lambda match: shown[match.group(1)], text)

    def _because(self, forms: dict[str, list[str]], language: str) -> str:
        return self._rng.choice(forms[language]).format(self._values.subject(language))

    def _opened(self, text: str, language: str) -> str:
        rng = self._rng
        chance = rng.random()
        if chance < 0.08 and text[:2] not in {"I ", "$ "}:
            return rng.choice(_GREETINGS[language]) + text
        is_told = _VERBS.match(text) and not _NO_VERBS.match(text)
        if chance < 0.35 and is_told:
            return rng.choice(_COURTESIES[language]) + text
        if chance < 0.5 and language == "de" and is_told:
            return re.sub(r"^\w+(?: (?:mir|mal|dir))? ", r"\g<0>bitte ", text)
        return text

    def _shown(self, phrasing: str, name: str, value: Value) -> str:
        """Return how a value stands in a request: quoted if it could swallow what follows."""
        here = "{" + name + "}"
        follows = phrasing.partition(here)[2]
        in_words = value.shown[-1:].isalpha() and str(value.sent).replace(".", "").isdigit()
        if (
            in_words
            and name != "IO"
            and (follows[:1] not in _AFTER_WORDS or follows.startswith(" %"))
        ):
            return str(value.sent)
        if not value.open_end or not isinstance(value.sent, str) or "\n" in value.sent:
            return value.shown
        if follows[:1] in {"", "\n"} or name[0] in "EBV" or value.shown != value.sent:
            return value.shown
        short = " " not in value.sent or name[0] in "GQK" or name == "LI"
        if short or self._rng.random() < 0.3:
            return value.shown
        free = [quote for quote in "\"'" if quote not in value.sent]
        quote = self._rng.choice(free) if free else ""
        return quote + value.sent + quote

    def _mark(self, text: str, phrasing: str, at_end: bool) -> str:
        rng = self._rng
        chance = rng.random()
        if text.rstrip()[-1] in "=:?!.":
            return ""
        if _ASKS.match(phrasing) or "can you" in text or "could you" in text:
            return "?" if chance < 0.6 else ""
        if at_end:
            return "." if chance < 0.12 else ""
        return rng.choice(["", "", ".", "!", "", "."])

    def _disturbed(self, text: str) -> str:
        """Return the text with a slip of the hand, now and then; slots stay whole."""
        rng = self._rng
        chance = rng.random()
        if chance < 0.04:
            text = re.sub(r"(?<=[a-z])'(?=[a-z])", "", text)
        elif chance < 0.08:
            text = re.sub("[äöüß]", lambda each: _PLAIN[each[0]], text)
        elif chance < 0.11:
            text = re.sub(r"[A-ZÄÖÜ](?=[^{}]*(?:{|$))", lambda each: each[0].lower(), text)
        if rng.random() >= 0.1:
            return text
        parts = text.split(" ")
        free = [
            index
            for index, part in enumerate(parts)
            if part.isalpha() and part[1:].islower() and len(part) > 3
        ]
        if not free:
            return text
        index = rng.choice(free)
        word = parts[index]
        at = rng.randrange(1, len(word) - 1)
        chance = rng.random()
        if chance < 0.5:
            word = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        elif chance < 0.8:
            word = word[:at] + word[at + 1 :]
        else:
            word = word[:at] + word[at] + word[at:]
        parts[index] = word
        return " ".join(parts)

    # without a tool

    def _talk(
        self, offered: OfferedList, language: str, *, is_first: bool
    ) -> tuple[str, list[dict[str, Any]]]:
        rng = self._rng
        if rng.random() < QUESTION_SHARE:
            said: list[dict[str, Any]] = []
            for index, text in enumerate(rng.choice(answers(language))):
                is_asked = index % 2 == 0
                text = self._varied(expand(rng, text), language, index) if is_asked else text
                said.append(_user(text) if is_asked else {**_said(text), "known": True})
            return _QUESTION_KINDS[language], said
        # "Delete it" lacks what it needs at the beginning alone: later it means what was before.
        topics = [
            each
            for each in talk()["topic"]
            if _suits(each, offered)
            and (is_first or not (each.get("asks", False) or each.get("refers", False)))
        ]
        weights = [each["share"] * (ASKS if each.get("asks") else 1) for each in topics]
        topic = rng.choices(topics, weights)[0]
        asked = rng.choice(topic[language])
        phrasing = expand(rng, asked)
        slots = self._values.all(_SLOT.findall(phrasing), language)
        wants = topic.get("asks", False) or topic.get("declines", False)
        courteous = wants and rng.random() < 0.6
        request = self.sentence(phrasing, slots, language, courteous=courteous)
        fitting = [
            each
            for each in topic["answers"][language]
            if "web_search" in offered.names or _WEB_OFFER not in each
        ]
        answer = expand(rng, rng.choice(fitting))
        for name, value in slots.items():
            answer = answer.replace("{" + name + "}", str(value.sent))
        messages = [_user(request)]
        asks = topic.get("asks", False) and "ask_user" in offered.names and rng.random() < 0.35
        if asks:
            messages.append(_called(offered.names["ask_user"], {"question": answer}))
        else:
            messages.append(_said(answer))
        then = topic.get("then", {})
        if asks and rng.random() < 0.35:
            told = {"en": "You did not answer.", "de": "Du hast nicht geantwortet."}[language]
            messages += [_result(rng.choice(NO_ANSWERS)), _said(f"{told} {answer}")]
        elif rng.random() < OTHER_REPLY_SHARE and ("asks" in topic or "declines" in topic):
            other = talk()["taken_back" if "asks" in topic else "insisted"]
            reply = self.sentence(rng.choice(other[language]), {}, language, courteous=False)
            messages.append(_result(reply) if asks else _user(reply))
            messages.append(_said(rng.choice(other["answers"][language])))
        elif then and then["tool"] in offered.names and rng.random() < 0.45:
            phrasing = expand(rng, rng.choice(then[language]))
            slots = self._values.all(_SLOT.findall(phrasing), language) | slots
            reply = self.sentence(phrasing, slots, language, courteous=False)
            messages.append(_result(reply) if asks else _user(reply))
            wanted = then.get(f"arguments_{language}", then["arguments"])
            arguments = filled(wanted, slots, Outcome("", ""))
            messages.append(_called(offered.names[then["tool"]], arguments))
        return topic["name"], messages

    def _varied(self, question: str, language: str, index: int) -> str:
        """Return a question as people type it: without its mark, in lower case, after a word."""
        rng = self._rng
        question = self._disturbed(question)
        chance = rng.random()
        if chance < 0.3:
            question = question.rstrip("?.!")
        if chance < 0.15 or 0.3 < chance < 0.4:
            question = question[0].lower() + question[1:]
        if not index and rng.random() < 0.15:
            question = rng.choice(_ASIDES[language]) + question[0].lower() + question[1:]
        return question.lower() if rng.random() < 0.15 else question

    # for turns

    @property
    def outcomes(self) -> Outcomes:
        """The maker of results."""
        return self._outcomes

    @property
    def rng(self) -> random.Random:
        """The source of all chance."""
        return self._rng

    @property
    def values(self) -> Values:
        """The maker of values."""
        return self._values


class _Turn:
    """A conversation as it grows."""

    def __init__(
        self, source: Conversations, offered: OfferedList, language: str, request: str
    ) -> None:
        self._source, self._offered, self._language = source, offered, language
        self.messages = [_user(request)]
        self._scene = Scene(source.values, source.outcomes, language)
        self._names: list[str] = []  # of the files that were found, or worked with, last
        self._instead = ""  # says which file was read where the one that was named is not there
        self._retry: Callable[[], None] | None = None  # does again what has failed, and the rest

    def work(self, kind: Kind, slots: dict[str, Value], told: str) -> None:
        """Make the calls of a kind, tell how it ended, and maybe go on.

        Args:
            kind: what is wanted.
            slots: what fills it.
            told: what is said in the end if all went well; "" for the words of the outcome.
        """
        if kind.shows:
            paths = filled(kind.shows, slots, Outcome("", "")).split("\n")
            for path in paths:
                self._scene.show(path, alone=len(paths) > 1)
        self._go_on(kind, slots, told, 0, Outcome("", ""), Outcome("", ""))

    def _go_on(
        self,
        kind: Kind,
        slots: dict[str, Value],
        told: str,
        start: int,
        outcome: Outcome,
        earlier: Outcome,
    ) -> None:
        """Make the calls of a kind from one of them on, and tell how it ended."""
        rng = self._source.rng
        whole = rng.random() >= CALL_ONLY_SHARE
        arguments: dict[str, Any] = {}
        tool = ""
        said: list[str] = []
        calls = kind.calls_in(self._language)
        has_read, is_done = "file_read" in kind.tools[:start], False
        for index, call in enumerate(calls[start:], start):
            if index > start and not _may_follow(call, outcome):
                said = [each for each in said if each != outcome.answer]
                outcome = outcome._replace(answer=self._not_done(kind, outcome))
                break
            before = (outcome, earlier)
            tool, arguments = call["tool"], filled(call["arguments"], slots, outcome, earlier)
            if not self._slip(tool, arguments):
                self._slip_of_edit(tool, arguments)
            if self._is_there(tool, arguments):
                self._ask_which(arguments, said)
                return
            self.messages.append(_called(self._offered.names[tool], arguments))
            if not whole and (index == len(calls) - 1 or rng.random() < EARLY_END_SHARE):
                return
            following = calls[index + 1] if index + 1 < len(calls) else {}
            earlier, outcome = outcome, self._outcome(tool, arguments, following)
            reads = call.get("reads", "" if has_read else kind.reads)
            if reads and tool == "file_read" and not outcome.failed:
                outcome = self._found(arguments["path"], filled(reads, slots, outcome))
            if kind.finds and index == 0 and outcome.value and not outcome.failed:
                outcome = _with_line(tool, outcome, filled(kind.finds, slots, outcome))
            has_read = has_read or tool == "file_read"
            self._scene.note(tool, arguments, outcome)
            self.messages.append(_result(outcome.result))
            needed = str(following.get("arguments", ""))
            if kind.tells or _is_told(kind, tool, arguments, outcome, needed):
                said.append(outcome.answer)
            if outcome.failed and "if_failed" in following and _may_follow(following, outcome):
                said = [each.partition(": ")[2] or each for each in said]
                continue
            if outcome.failed:
                self._retry = partial(self._go_on, kind, slots, told, index, *before)
            is_error = outcome.result.startswith("error: ")  # or it exited with another code than 0
            if is_error or outcome.failed or _lacks(following, outcome) or outcome.answer == "":
                break
            is_done = index + 1 == len(calls)
        if told and is_done:
            told = told.replace("{sum}", str(arguments.get("expression", "")))
            plain = outcome
            if tool == "evaluate":
                plain = outcome._replace(value=outcome.value.strip("'"))
            said, answer = [], filled(told, slots, plain)
            outcome = outcome._replace(answer=answer, value="")
        self._tell(outcome, said)
        if self._length() < GOES_ON_LONGEST and rng.random() < NEXT_TURN_SHARE:
            paths = [str(slots[name].sent) for name in ("P", "P2") if name in slots]
            if {str(call["arguments"].get("path")) for call in kind.calls} == {"{P}", "{P2}"}:
                self._names = paths
            if kind.then and not outcome.failed and rng.random() < 0.6:
                self._ask_again(kind, slots, outcome)
            else:
                self._next(tool, arguments, outcome)

    def _tell(self, outcome: Outcome, said: list[str]) -> None:
        """Say how a request ended, after what was said of its calls before."""
        answers = list(dict.fromkeys([*said, outcome.answer]))
        if outcome.failed:
            answers.remove(outcome.answer)
            answers = [outcome.answer, *([self._before(answers)] if answers else [])]
        self.messages.append(self._ended("\n".join(answers)))

    def look_up(self, document: Document, asked: Asked) -> None:
        """Read a file and answer a question, without any other call."""
        source, arguments, tool = self._source, document.arguments, document.tool
        rng = source.rng
        if document.listed:
            listing = {"path": document.listed}
            self._scene.show(document.path)
            seen = self._scene.outcome("file_list", listing)
            self._scene.note("file_list", listing, seen)
            self.messages += [_called(self._offered.names["file_list"], listing)]
            self.messages += [_result(seen.result)]
            name = document.path.rpartition("/")[2]
            if seen.failed or name not in seen.result:
                self.messages.append(self._ended(seen.answer))
                return
        else:
            self._slip(tool, arguments)
        self.messages.append(_called(self._offered.names[tool], arguments))
        if rng.random() < DOCUMENT_CALL_ONLY_SHARE:
            return
        outcome = source.outcomes.reading(document.path, document.lines, self._language)
        outcome = outcome._replace(answer=asked.answer, value="")
        if tool == "pdf_extract":
            text = "\n".join(document.lines)
            page = document.page or "1"
            count = rng.randint(int(page), int(page) + 20) if document.page else 1
            outcome = outcome._replace(result=f"pages: {count}\n\n--- page {page} ---\n{text}")
        elif tool == "web_fetch":
            title, text = document.lines[0], "\n".join(document.lines[1:])
            outcome = outcome._replace(result=f"title: {title}\nurl: {document.path}\n\n{text}")
        if rng.random() < 0.4:
            other = source.outcomes.of(tool, arguments, self._language)
            outcome = other if other.failed else outcome
        if outcome.failed:
            self._retry = partial(self.look_up, document, asked)
        self._scene.note(tool, arguments, outcome)
        self.messages.append(_result(outcome.result))
        if asked.expression and not outcome.failed:
            self._add_up(asked)
            return
        self.messages.append(self._ended(outcome.answer))
        if rng.random() < (NEXT_TURN_SHARE if outcome.failed else NEXT_TURN_SHARE / 3):
            self._next(tool, arguments, outcome)

    def look_through(self, folder: Folder) -> None:
        """List a folder, read the files in it that matter, and answer."""
        source = self._source
        listed = source.outcomes.listing(folder.path, folder.names, self._language)
        calls = [("file_list", folder.path, listed)]
        for path, lines in folder.read:
            calls.append(("file_read", path, source.outcomes.reading(path, lines, self._language)))
        for tool, path, outcome in calls:
            self._scene.note(tool, {"path": path}, outcome)
            self.messages.append(_called(self._offered.names[tool], {"path": path}))
            self.messages.append(_result(outcome.result))
        self.messages.append(self._ended(folder.asked.answer))

    def _add_up(self, asked: Asked) -> None:
        """Work out the sum that was asked for, and say it."""
        arguments = {"expression": asked.expression}
        outcome = self._source.outcomes.of("calculator", arguments, self._language)
        self._scene.note("calculator", arguments, outcome)
        self.messages += [_called(self._offered.names["calculator"], arguments)]
        is_done = not outcome.failed and outcome.value
        answer = filled(asked.answer, {}, outcome) if is_done else outcome.answer
        self.messages += [_result(outcome.result), self._ended(answer)]

    def _slip(self, tool: str, arguments: dict[str, Any]) -> bool:
        """Let a name be written wrongly now and then, and the tool say which it is near to.

        Where the assistant was wrong its call is not learnt from: only what is to be done then.
        Where the person was, what is read is one that they did not name, and they are told so.
        """
        rng, request = self._source.rng, self.messages[0]
        name = _NAMES_A_FILE.get(tool, "")
        path = str(arguments.get(name, ""))
        if not _SLIPS.fullmatch(path) or rng.random() >= SLIP_SHARE:
            return False
        wrong, near = _misspelt(path, rng), [path]
        is_asked_so = tool == "file_read" and len(self.messages) == 1 and rng.random() < 0.4
        is_asked_so = is_asked_so and request["content"].count(path) == 1
        if is_asked_so:
            request["content"] = request["content"].replace(path, wrong)
            self._instead = f"{wrong} does not exist; I took {path}."
            if self._language == "de":
                self._instead = f"{wrong} gibt es nicht; ich nahm {path}."
        elif rng.random() < 0.25:
            near.insert(rng.randint(0, 1), _misspelt(path, rng))
        call = _called(self._offered.names[tool], arguments | {name: wrong})
        told = f"error: {wrong} does not exist; near names are {', '.join(near)}"
        self.messages += [call | {"learnt": is_asked_so}, _result(told)]
        return True

    def _slip_of_edit(self, tool: str, arguments: dict[str, Any]) -> None:
        """Let the texts of an edit be wrong now and then: as they are, swapped, or misquoted.

        The wrong call is not learnt from, only what is to be done after the tool's error.
        """
        rng, old, new = self._source.rng, arguments.get("old_text"), arguments.get("new_text")
        if tool != "file_edit" or not old or rng.random() >= EDIT_SLIP_SHARE:
            return
        path = arguments["path"]
        text = "\n".join(self._scene.lines(path) or [old])
        if text.count(old) != 1:
            return
        wrong = rng.choice([(old, old), (new, old), *[(_misquoted(old, rng), new)] * 2])
        edit = file_text.Edit(new_text=wrong[1], old_text=wrong[0])
        try:
            if not edit.old_text or file_text.edited(text, [edit], path) != text:
                return
            told = as_it_is(path)
        except file_text.EditError as error:
            told = error.message
        call = _called(
            self._offered.names[tool],
            arguments | {"old_text": edit.old_text, "new_text": edit.new_text},
        )
        self.messages += [call | {"learnt": False}, _result(f"error: {told}")]

    def _is_there(self, tool: str, arguments: dict[str, Any]) -> bool:
        """Let what is written be there already, unread, now and then, so that it is refused.

        What was to be added is added then, and what the request replaces is read before it is
        written again; returns whether it is for the person to say which is meant.
        """
        rng, names, path = self._source.rng, self._offered.names, arguments.get("path", "")
        if tool not in {"file_append", "file_write"} or self._scene.knows(path):
            return False
        said = next(each["content"] for each in reversed(self.messages) if each["role"] == "user")
        loses = _REPLACES_ALL.search(said) or (
            _LEAVES_ONLY.search(said) and not _IS_NEW.search(said)
        )
        replaces = tool == "file_write" and bool(loses)
        share = APPEND_SLIP_SHARE if tool == "file_append" else THERE_SHARE
        if rng.random() >= (REPLACED_SHARE if replaces else share):
            return False
        if {"file_append", "file_read", "file_write"} - names.keys():
            return False
        call = _called(names["file_write"], arguments)
        told = f"{names['file_append']} adds to it, {names['file_read']} comes before replacing it"
        result = _result(f"error: {path} is there already and was not read: {told}")
        self.messages += [call | {"learnt": tool == "file_write"}, result]
        if replaces:
            self._read_before(path)
        return tool == "file_write" and not replaces

    def _read_before(self, path: str) -> None:
        """Read a file that is to be replaced."""
        values, count = self._source.values, self._source.rng.choice([1, 2, 2, 3, 4])
        lines = [values.short(self._language) for _ in range(count)]
        outcome = self._source.outcomes.reading(path, lines, self._language)
        call = {"path": path}
        self._scene.note("file_read", call, outcome)
        self.messages += [_called(self._offered.names["file_read"], call), _result(outcome.result)]

    def _ask_which(self, arguments: dict[str, Any], said: list[str]) -> None:
        """Ask whether a file that is there is to be replaced or added to, and do what is said.

        Args:
            arguments: of what was to be written.
            said: what is told of the calls before.
        """
        rng, path = self._source.rng, arguments["path"]
        asked = rng.choice(talk()["is_there"][self._language]).format(path)
        before = [self._before(said)] if said else []
        self.messages.append(self._ended("\n".join([asked, *before])))
        if rng.random() >= CHOSEN_SHARE:
            return
        tool = rng.choice(["file_append", "file_write"])
        chosen = expand(rng, rng.choice(talk()[f"then_{tool}"][self._language]))
        self.messages.append(_user(chosen))
        if tool == "file_write":
            self._read_before(path)
        outcome = self._scene.outcome(tool, arguments)
        self._scene.note(tool, arguments, outcome)
        self.messages.append(_called(self._offered.names[tool], arguments))
        self.messages += [_result(outcome.result), _said(outcome.answer)]

    def _ended(self, answer: str) -> dict[str, Any]:
        """Return the last message of a request; what was taken for what was named comes first."""
        instead, self._instead = self._instead, ""
        return _said(f"{instead}\n{answer}" if instead else answer)

    def _not_done(self, kind: Kind, outcome: Outcome) -> str:
        """Return what is told where the next call was not to be made."""
        otherwise = kind.otherwise.get(self._language, "")
        between = " " if outcome.answer.endswith(".") else "\n"
        return outcome.answer + (between + otherwise if otherwise else "")

    def _before(self, told: list[str]) -> str:
        """Return what was done before something failed."""
        start = "Davor: " if self._language == "de" else "Before that: "
        return start + "\n".join(told)

    def _ask_again(self, kind: Kind, slots: dict[str, Value], outcome: Outcome) -> None:
        """Ask for something else that stands in what was read."""
        source, language = self._source, self._language
        again = source.rng.choice(kind.then)
        phrasing = expand(source.rng, source.rng.choice(again[language]))
        asked = source.sentence(phrasing, slots, language, courteous=False)
        self.messages += [_user(asked), _said(filled(again["says"][language], slots, outcome))]

    def _found(self, path: str, line: str) -> Outcome:
        """Return what reading a short file with this line, or of these lines, gives."""
        source = self._source
        if "\n" in line:
            return self._scene.found(path, line.split("\n"))
        lines = [
            source.values.short(self._language) for _ in range(source.rng.choice([0, 1, 1, 2]))
        ]
        lines.insert(source.rng.randint(0, len(lines)), line)
        return self._scene.found(path, lines)

    def _outcome(
        self, tool: str, arguments: dict[str, Any], following: dict[str, Any] | None = None
    ) -> Outcome:
        """Return what a call gives; more often than not so that a condition of the next holds."""
        outcome = self._scene.outcome(tool, arguments)
        if not following or not _CONDITIONS & set(following):
            return outcome
        if self._source.rng.random() < HOLDS_SHARE:
            for _ in range(40):
                is_fit = outcome.failed == ("if_failed" in following)
                if is_fit and _may_follow(following, outcome):
                    break
                outcome = self._scene.outcome(tool, arguments)
        return outcome

    def _next(self, tool: str, arguments: dict[str, Any], outcome: Outcome) -> None:
        """Ask something that refers to what was before."""
        rng, language = self._source.rng, self._language
        retry, self._retry = self._retry, None
        state = "failed" if outcome.failed else "done"
        seen = arguments | self._seen(tool, arguments, outcome)
        fitting = [
            each
            for each in talk()["follow_up"]
            if _fits(each, tool, state, seen, outcome)
            and (each.get("tool", "") in {"", *self._offered.names})
        ]
        if not fitting:
            return
        follow = rng.choices(fitting, [each["share"] for each in fitting])[0]
        phrasing = expand(rng, rng.choice(follow[language]))
        sent = str(follow.get("arguments", ""))
        names = {*_SLOT.findall(phrasing + sent), *_SHELL_SLOT.findall(sent)}
        slots = self._source.values.all(names, language)
        steps = self._source.outcomes.steps
        if "I" in slots and steps:
            slots["I"] = self._source.values.step(rng.choice(list(steps)), language)
        lines = self._scene.lines(str(seen.get("path", "")))
        if lines and "start_line" in sent and rng.random() < LINE_THERE_SHARE:
            slots |= self._lines_there(len(lines), slots)
        courteous = "answers" not in follow
        said = self._source.sentence(phrasing, slots, language, courteous=courteous)
        thanks = courteous and not outcome.failed and not phrasing.startswith("{")
        if thanks and rng.random() < THANKS_SHARE:
            said = rng.choice(_THANKS[language]) + said
        self.messages.append(_user(said))
        if "answers" in follow:
            answer = expand(rng, rng.choice(follow["answers"][language]))
            answer = answer.replace("{reason}", outcome.reason)
            self.messages.append(_said(answer.replace("{answer}", outcome.answer)))
            return
        is_same = follow.get("again") or follow["arguments"] == {"command": "{before:command}"}
        if is_same and retry:
            retry()
            return
        called, new = follow.get("tool", tool), arguments
        if not follow.get("again"):
            new = filled(_of_before(follow["arguments"], seen, outcome), slots, outcome)
        self.messages.append(_called(self._offered.names[called], new))
        if rng.random() < CALL_ONLY_SHARE:
            return
        ended = self._outcome(called, new)
        self._scene.note(called, new, ended)
        self.messages += [_result(ended.result), _said(ended.answer)]
        if self._length() < GOES_ON_LONGEST and rng.random() < THIRD_TURN_SHARE:
            self._next(called, new, ended)

    def _length(self) -> int:
        """Return about how many letters the conversation has, with what stands around them."""
        calls = [each["tool_calls"][0] for each in self.messages if "tool_calls" in each]
        sent = sum(len(str(call["function"]["arguments"])) for call in calls)
        said = sum(len(each["content"]) for each in self.messages)
        return sent + said + 30 * len(self.messages) + 60 * len(calls)

    def _lines_there(self, count: int, slots: dict[str, Value]) -> dict[str, Value]:
        """Return numbers of lines that a file of so many lines has."""
        first, last = sorted(self._source.rng.choices(range(1, count + 1), k=2))
        there = {"N": first, "LA": first, "LB": last, "LC": last - first + 1}
        if "LA" in slots and first == last:
            return {}
        return {name: Value(str(number), number) for name, number in there.items() if name in slots}

    def _seen(self, tool: str, arguments: dict[str, Any], outcome: Outcome) -> dict[str, str]:
        """Return what else a next request may refer to: names that were found, what was made."""
        path = str(arguments.get("path", ""))
        if tool in {"file_list", "glob", "grep"} and not outcome.failed:
            self._names = _listed_files(tool, path, outcome)
        names = self._names
        seen = dict(zip(("one", "two", "three"), names, strict=False))
        if len(names) == 1:
            seen["only"] = names[0]
        if len(names) == 2:
            seen["pair"] = names[1]
        if len(names) > 2:
            seen["last"] = names[-1]
        if path in names[:-1] and tool == "file_read":
            seen["next"] = names[names.index(path) + 1]
            if len(names) == 2:
                seen["other"] = names[1]
        if tool == "file_edit" and (was := _NUMBER_SET.fullmatch(arguments["new_text"])):
            seen["setting"] = was[1]
        if tool == "shell" and not outcome.failed:
            seen |= _of_command(arguments["command"])
        if tool == "shell" and not _ONCE.match(arguments["command"]):
            seen["again"] = "again"
        return seen


HOLDS_SHARE = 0.6  # of the conditions that must hold do; of the others it depends
_CONDITIONS = {"if", "unless", "one", "if_failed"}


_NAMES_A_FILE = {
    "file_read": "path",
    "file_edit": "path",
    "file_list": "path",
    "grep": "path",
    "pdf_extract": "source",
}
_SLIPS = re.compile(r"[^:]{4,40}")


def _misspelt(path: str, rng: random.Random) -> str:
    """Return a path as it is written by mistake: without its folder, or with a letter wrong."""
    folder, slash, name = path.rstrip("/").rpartition("/")
    stem, dot, ending = name.rpartition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    chance = rng.random()
    if folder and chance < 0.35:
        return name
    if ending and chance < 0.45:
        return folder + slash + stem
    at = rng.randrange(len(stem))
    letter = rng.choice("aeinrst")
    if chance < 0.65:
        stem = stem[:at] + letter + stem[at:]
    elif chance < 0.85 and len(stem) > 2:
        stem = stem[:at] + stem[at + 1 :]
    else:
        stem = stem[:at] + stem[at : at + 1] + stem[at:]
    return folder + slash + stem + dot + ending


def _shares(kinds: list[Kind]) -> list[float]:
    """Return how often each sort is drawn: rare ones, and those of rare tools, more often."""
    of_tool: Counter[str] = Counter()
    for kind in kinds:
        of_tool[kind.tools[0]] += kind.share**SHARE_POWER
    shares = []
    for kind in kinds:
        share = kind.share**SHARE_POWER * of_tool[kind.tools[0]] ** (TOOL_POWER - 1)
        is_alone = len(kind.calls) == 1
        share *= FORMULA_SHARES.get(kind.tools[0], 1.0) if is_alone else CHAIN_SHARE
        shares.append(share)
    return shares


def _misquoted(text: str, rng: random.Random) -> str:
    """Return a text of a file as it is quoted by mistake: with marks around, or a letter off."""
    chance = rng.random()
    if chance < 0.4:
        return f'"{text}"' + rng.choice(["", ","])
    at = rng.randrange(len(text))
    if chance < 0.6:
        return text[:at] + text[at + 1 :]
    if chance < 0.8:
        return text[:at] + rng.choice("aeinrst ") + text[at:]
    return rng.choice([text + rng.choice([".", ",", ";"]), text.swapcase(), "- " + text])


def _with_line(tool: str, outcome: Outcome, line: str) -> Outcome:
    """Return an outcome that has another line for the one it found."""
    found = outcome.value
    if tool == "web_search":  # the first result's text, not its title
        found = outcome.result.split("\n")[2].strip()
    return outcome._replace(
        result=outcome.result.replace(found, line),
        answer=outcome.answer.replace(found, line),
        value=line,
    )


def _may_follow(call: dict[str, Any], outcome: Outcome) -> bool:
    """Return whether a call is to be made after what the one before gave."""
    if "if_failed" in call:
        is_error = outcome.failed and outcome.result.startswith("error: ")
        return is_error and call["if_failed"] in outcome.result
    if call.get("if", "") not in outcome.result:
        return False
    if "unless" in call and call["unless"] in outcome.result:
        return False
    return not call.get("one") or "\n" not in outcome.result


def _lacks(following: dict[str, Any], outcome: Outcome) -> bool:
    """Return whether the next call has not what it needs of what the one before gave."""
    needed = str(following.get("arguments", ""))
    if outcome.result.startswith("Nothing found") and needed and not _CONDITIONS & set(following):
        return True
    if ("{result}" in needed or "keys:result" in needed) and not outcome.value:
        return True
    return ("{first}" in needed or "{sh:first}" in needed) and not outcome.first


def _is_told(
    kind: Kind, tool: str, arguments: dict[str, Any], outcome: Outcome, needed: str
) -> bool:
    """Return whether a result is told though another call follows."""
    if tool in _SUMMED_UP or {tool} == set(kind.tools):
        return True
    if tool != "shell" or "{result}" in needed or "{first}" in needed:
        return False
    is_deed = arguments["command"].split(" ")[0] in _DEEDS
    return is_deed and "\n" not in outcome.answer and len(outcome.answer) < _SHORT


def _listed_files(tool: str, path: str, outcome: Outcome) -> list[str]:
    """Return the files that a listing or a search has shown."""
    lines = outcome.result[:MAX_RESULT].split("\n") if outcome.first else []
    if tool == "grep":
        lines = [line.partition(":")[0] for line in lines]
    if tool == "file_list":
        folder = "" if path in {"", "."} else path.rstrip("/") + "/"
        lines = [folder + line for line in lines if not line.endswith("/")]
    return list(dict.fromkeys(lines))


def _of_command(command: str) -> dict[str, str]:
    """Return what a command was about, as a next request may refer to it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    match words:
        case ["mkdir", "-p", folder]:
            return {"folder": folder.rstrip("/"), "mkdir": folder}
        case ["touch", path] | ["cp", _, path] | ["mv", _, path] if _TEXT_FILE.fullmatch(path):
            return {"path": path}
        case ["rm", path] | ["wc", "-l", path] | ["pip", "install", path]:
            return {words[0]: path}
        case ["python3", path]:
            return {"script": path}
        case ["git", verb, *_]:
            return {"git_" + verb: verb}
        case ["systemctl", verb, name]:
            return {"service": name, "service_" + verb: name}
        case ["docker", verb, name] if verb != "ps":
            return {"container": name, "container_" + verb: name}
        case _:
            return {}


def _in_its_unit(kind: Kind, phrasing: str, language: str) -> str:
    """Return how the result of a sum is told with its unit; "" where there is none."""
    if kind.tools != ["calculator"]:
        return ""
    unit = kind.unit or unit_asked_for(phrasing, language)
    if unit == "percent" and language == "de":
        unit = "Prozent"
    if not unit:
        return ""
    return "{sum} = {MU}." if unit == "{MU}" else f"{{sum}} = {{result}} {unit}."


def _is_absurd(kind: Kind, slots: dict[str, Value]) -> bool:
    """Return whether a sum told in words is below zero, or has no result."""
    call = kind.calls[0]
    if call["tool"] != "calculator" or not kind.derived:
        return False
    result = computed(filled(call["arguments"]["expression"], slots, Outcome("", "")))
    return not result or result.startswith("-")


def _suits(topic: dict[str, Any], offered: OfferedList) -> bool:
    """Return whether a topic is talked about where these tools are offered."""
    needed = topic.get("needs", "")
    return topic.get("unless", "") not in offered.names and (not needed or needed in offered.names)


def _fits(
    follow: dict[str, Any], tool: str, state: str, arguments: dict[str, Any], outcome: Outcome
) -> bool:
    """Return whether somebody could say that after this call."""
    if not {tool, "any"} & set(follow["after"]):
        return False
    if follow.get("state", "done") not in {state, "either"}:
        return False
    if not all(name in arguments for name in follow.get("needs", [])):
        return False
    if not str(arguments.get("path", "")).endswith(follow.get("ends", "")):
        return False
    has_value = bool(outcome.value) and "\n" not in outcome.value
    if follow.get("says", "") not in outcome.result:
        return False
    if "{first}" in str(follow) and not outcome.first:
        return False
    return has_value or "{value}" not in str(follow)


def _is_list(path: str) -> bool:
    """Return whether a file is a list, a log or notes by its name."""
    name = path.rpartition("/")[2]
    return name in growing_files() or bool(_LIST_NAME.search(name))


def filled(
    template: Any, slots: dict[str, Value], outcome: Outcome, earlier: Outcome | None = None
) -> Any:
    """Return arguments with their slots filled."""
    if isinstance(template, dict):
        return {key: filled(value, slots, outcome, earlier) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, slots, outcome, earlier) for value in template]
    if not isinstance(template, str):
        return template
    whole = _SLOT.fullmatch(template)
    if whole:
        return slots[whole.group(1)].sent
    text = _SHELL_SLOT.sub(lambda match: _shell_word(slots[match.group(1)].sent), template)
    text = _SLOT.sub(lambda match: str(slots[match.group(1)].sent), text)
    if text.startswith("{keys:"):
        about = text[6:-1]
        return keywords(outcome.value if about == "result" else str(slots[about].sent))
    text = text.replace("{earlier}", earlier.value if earlier else "")
    text = text.replace("{sh:first}", _shell_word(outcome.first))
    return text.replace("{result}", outcome.value).replace("{first}", outcome.first)


def _shell_word(text: str) -> str:
    """Return a word as a shell takes it: in quotes only where it needs them."""
    return text if re.fullmatch(r"[\w./~@%+:,=-]+", text) else shlex.quote(text)


def _of_before(template: Any, arguments: dict[str, Any], outcome: Outcome) -> Any:
    """Return arguments that take over what the call before had."""
    if not isinstance(template, dict):
        return template
    taken: dict[str, Any] = {}
    for key, value in template.items():
        if isinstance(value, str) and (whole := _BEFORE.fullmatch(value)):
            taken[key] = arguments[whole[1]]
        elif isinstance(value, str):
            path = str(arguments.get("path", "."))
            folder = "" if path == "." else path.rstrip("/") + "/"
            value = _QUOTED.sub(lambda match: _shell_word(str(arguments[match.group(1)])), value)
            value = _BEFORE.sub(lambda match: str(arguments[match.group(1)]), value)
            value = value.replace("{value}", outcome.value).replace("{folder}", folder)
            taken[key] = value.replace("{name}", path.rsplit("/", 1)[-1])
        else:
            taken[key] = value
    return taken


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _called(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }


def _result(text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": "call_0", "content": text[:MAX_RESULT]}


def all_tools() -> list[str]:
    """Return the names of clawd's own tools."""
    return list(product_tools())
