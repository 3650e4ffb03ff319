"""llama.cpp's chat cases, and conversations through its chat templates: what is read is right."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from clawd.engine.protocol import ChatCall, ChatMessage
from clawd.engine.worker.chat_fallback import calls_in_frame
from clawd.engine.worker.prompt import Part, PromptBuilder, tokens_of
from clawd.engine.worker.template import ChatTemplate, RenderInput
from clawd.providers.base import SWITCHES, CallDelta, thinking
from clawd.providers.toolcalls.base import ParserOptions
from clawd.providers.toolcalls.detect import (
    also_in_tags,
    habits_of,
    parser_of,
    thinking_variables,
)
from clawd.providers.toolcalls.families import family_for
from clawd.wire.events import ReasoningDelta, TextDelta
from tests.support.chat_cases import Case, Said, cases, templates
from tests.support.rows import thorough

pytestmark = [pytest.mark.llama_sources, pytest.mark.timeout(300)]

CASES = 463
TEMPLATES = 70
CONTENT, THOUGHT = 2, 3
# Where it is not as llama.cpp has it: by the lines of test-chat.cpp (llama-cpp-python 0.3.36).
THEIRS = {
    2377: "a second <think> behind the prompt's own is told as reasoning",
    5793: "markup becomes a string, where oneOf takes an object as well",
    6211: "a line that the prompt itself holds is told as reasoning",
    6219: "the same",
}
OURS = {
    2116: "a call is told from its first argument on, so half a one is not (three templates)",
    2648: "JSON in a fence keeps the fence: what is held to a schema has none",
    2847: "a call is told from its first argument on",
    2962: "the same",
    6302: "the fence again",
    6547: "without tools nothing is a call, and what was written stays",
    6556: "the same",
}
Folded = tuple[str, str, list[tuple[str, str]]]


def normal(arguments: str) -> str:
    """Return arguments so that they can be compared; "" for what was cut, as llama.cpp has it."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return ""


def read(
    source: str, text: str, options: ParserOptions, *, in_reasoning: bool, is_cut: bool = False
) -> Folded:
    habits = habits_of(source)._replace(starts_in_reasoning=in_reasoning)
    parser = parser_of(source, options, habits)
    deltas = [*parser.feed(text), *parser.finish(is_cut=is_cut)]
    calls: dict[int, list[str]] = {}
    for delta in deltas:
        if isinstance(delta, CallDelta):
            call = calls.setdefault(delta.index, ["", ""])
            call[0] += delta.name
            call[1] += delta.arguments
    return (
        "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)),
        "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)),
        [(name, normal(arguments)) for name, arguments in calls.values()],
    )


def functions(tools: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}
        for name, schema in tools.items()
    ]


def as_message(said: Said) -> ChatMessage:
    calls = [ChatCall(id=c.id, name=c.name, arguments=c.arguments) for c in said.tool_calls]
    role: Any = said.role
    return ChatMessage(role=role, content=said.content, tool_calls=tuple(calls))


def difference(case: Case, template: ChatTemplate) -> str:
    """Return how what is read differs from what is expected; "" for not at all."""
    source = template.source
    given = case.messages or [Said(role="user", content="Hey", reasoning="", tool_calls=[])]
    begun = given[-1] if case.continuation else None
    shown = given[:-1] if begun else given
    prompt = template.render(
        RenderInput(
            messages=[as_message(said) for said in shown],
            tools=functions(case.tools),
            variables={"enable_thinking": case.enable_thinking},
        )
    )
    thoughts = family_for(source).thoughts
    in_reasoning = prompt.rstrip().endswith(tuple(opening for opening, _ in thoughts))
    if begun:
        in_reasoning = case.continuation == THOUGHT
    options = ParserOptions(
        calls=bool(case.tools),
        schemas=case.tools,
        streams=case.is_partial,
        has_begun=begun is not None,
    )
    text, reasoning, calls = read(
        source, case.input, options, in_reasoning=in_reasoning, is_cut=case.is_partial
    )
    expected = [(call.name, normal(call.arguments)) for call in case.expect.tool_calls]
    got, want = (text, reasoning), (case.expect.content, case.expect.reasoning)
    if begun:
        got = (begun.content + text, begun.reasoning + reasoning)
    if not case.reasoning_format:  # reasoning is wanted within the text, with its markers
        marks = "|".join(re.escape(mark) for pair in thoughts for mark in pair)
        whole = f"{reasoning}{begun.content if begun else ''}{text}"
        got, want = ((re.sub(rf"{marks}|\s", "", one), "") for one in (whole, want[0]))
    got, want = ((one.strip(), other.strip()) for one, other in (got, want))
    return "" if (got, calls) == (want, expected) else f"{(got, calls)} for {(want, expected)}"


def test_the_chat_cases_of_llama_cpp_are_read_as_llama_cpp_does_but_for_known_ones() -> None:
    compiled = {name: ChatTemplate(source) for name, source in templates().items()}
    found: dict[str, str] = {}
    for case in cases():
        name = case.template.removeprefix("models/templates/").removesuffix(".jinja")
        if differs := difference(case, compiled[name]):
            found[f"{case.line} {name}"] = differs
    assert len(cases()) == CASES
    lines = {int(key.split()[0]) for key in found}
    assert lines == THEIRS.keys() | OURS.keys(), found
    assert len(found) <= 0.03 * CASES, found


# --- conversations through the templates

SYSTEM = ChatMessage(role="system", content="Be brief.")
QUESTION = ChatMessage(role="user", content="What is there?")
TOOLS: dict[str, dict[str, Any]] = {
    "file_list": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Where."},
            "depth": {"type": "integer", "description": "How deep."},
        },
        "required": ["path"],
    },
    "time_now": {
        "type": "object",
        "properties": {"zone": {"type": "string", "description": "Which."}},
        "required": ["zone"],
    },
}
ONE = ChatCall(id="call_0123456789ab", name="file_list", arguments='{"path": "é/b", "depth": 2}')
TWO = ChatCall(id="call_abcdef012345", name="time_now", arguments='{"zone": "Europe/Paris"}')


class Talk:
    """A conversation that a template renders, and what its family's parser reads of it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.template = ChatTemplate(source, bos="<s>", eos="</s>")
        self.options = ParserOptions(schemas=TOOLS)
        self.fallback = ""

    def prompt(self, messages: list[ChatMessage]) -> str:
        text = self.template.render(
            RenderInput(
                messages=messages, tools=functions(TOOLS), frames=habits_of(self.source).frames
            )
        )
        self.fallback = self.template.fallback
        return text

    def calls(self, text: str) -> list[tuple[str, str]]:
        habits = habits_of(self.source)._replace(starts_in_reasoning=False)
        parser = parser_of(self.source, self.options, habits)
        if self.fallback:
            parser = also_in_tags(parser, self.options)
        deltas = [*parser.feed(text), *parser.finish()]
        return [(d.name, normal(d.arguments)) for d in deltas if isinstance(d, CallDelta)]


def results(calls: tuple[ChatCall, ...], number: int = 1) -> list[ChatMessage]:
    return [
        ChatMessage(
            role="tool", content=f"RESULT-{number} of {c.name}", tool_call_id=c.id, name=c.name
        )
        for c in calls
    ]


def common(first: Sequence[object], second: Sequence[object]) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )


def trip(source: str, calls: tuple[ChatCall, ...]) -> str:
    """Return what is wrong with calls that are rendered and read back; "" for nothing."""
    talk = Talk(source)
    before = talk.prompt([SYSTEM, QUESTION])
    asked = talk.fallback
    answer = ChatMessage(role="assistant", tool_calls=calls)
    after = talk.prompt([SYSTEM, QUESTION, answer, *results(calls)])
    if talk.fallback != asked:
        return f"the form changed: {asked!r}, then {talk.fallback!r}"
    question = before.rfind(QUESTION.content) + len(QUESTION.content)
    at = common(before, after)
    if at < question:
        return f"the prompt changed before {before[at : at + 80]!r}"
    while question < at < len(before) and before[at - 1] not in ">]\n":  # never within a marker
        at -= 1
    header = before[question:at].strip()[-40:] or "\0"
    found: list[tuple[str, str]] = []
    first, *parts = after[at:].split("RESULT-1")
    for part in [first, *(part.rpartition(header)[2] for part in parts[:-1] if header in part)]:
        found += talk.calls(part)
    wanted = [(call.name, normal(call.arguments)) for call in calls]
    lost = [message.content for message in results(calls) if message.content not in after]
    return f"read {found}, lost {lost}" if lost or found != wanted else ""


def test_a_call_survives_being_rendered_and_read_in_all_templates() -> None:
    sources = templates()
    assert len(sources) == TEMPLATES
    kinds = {"one": (ONE,), "two": (ONE, TWO)}
    wrong = {
        f"{name}, {kind}": problem
        for name, source in sources.items()
        for kind, calls in kinds.items()
        if (problem := trip(source, calls))
    }
    assert wrong == {}


FAMILIES = (
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen3-Coder",
    "meta-llama-Llama-3.2-3B-Instruct",
    "Mistral-Small-3.2-24B-Instruct-2506",
    "mistralai-Mistral-Nemo-Instruct-2407",
    "deepseek-ai-DeepSeek-V3.1",
    "openai-gpt-oss-120b",
    "GLM-4.6",
    "ibm-granite-granite-3.3-2B-Instruct",
    "LFM2-8B-A1B",
    "google-gemma-4-31B-it",
    "Kimi-K2-Instruct",
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
    "HuggingFaceTB-SmolLM3-3B",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
    "meetkai-functionary-medium-v3.2",
    "unsloth-mistral-Devstral-Small-2507",
)


def test_six_hops_keep_prefix_and_form_in_the_templates_of_ten_families() -> None:
    sources = templates()
    wrong: list[str] = []
    for name in sources if thorough() else FAMILIES:
        talk, messages = Talk(sources[name]), [SYSTEM, QUESTION]
        seen, last, forms = "", QUESTION.content, set[str]()
        for hop in range(1, 7):
            prompt = talk.prompt(messages)
            forms.add(talk.fallback)
            kept = seen[: seen.rfind(last) + len(last)] if seen else ""
            if not prompt.startswith(kept):
                wrong.append(f"{name}, hop {hop}: {kept[common(kept, prompt) :][:80]!r} changed")
            asked = tuple(
                ChatCall(id=f"call_{hop}{c.id[6:]}", name=c.name, arguments=c.arguments)
                for c in ((ONE, TWO) if hop % 2 else (ONE,))
            )
            # What a model writes that is held to its family's form, or to what a fallback asks for.
            frames = habits_of(talk.source).frames
            texts = [calls_in_frame((c,), None if talk.fallback else frames[0]) for c in asked]
            found = [call for text in texts for call in talk.calls(text)]
            if found != [(c.name, normal(c.arguments)) for c in asked]:
                wrong.append(f"{name}, hop {hop}: {texts} read as {found}")
            answers = results(asked, hop)
            messages += [ChatMessage(role="assistant", tool_calls=asked), *answers]
            seen, last = prompt, QUESTION.content if hop == 1 else f"RESULT-{hop - 1}"
        if len(forms) != 1:
            wrong.append(f"{name}: forms {forms}")
    assert wrong == []


_MARKS = re.compile(r"<[^<>\s{}'\"]{1,40}>|\[/?[A-Z_]{2,24}\]")


class Mark(NamedTuple):
    text: str
    is_control: bool = True


class Letters:
    """A vocabulary of one token a character, whose special tokens are a template's markers."""

    leading_token = None
    infill_tokens = None
    n_vocab = 0x110000

    def __init__(self, source: str) -> None:
        self.special_tokens = tuple(map(Mark, sorted(set(_MARKS.findall(source)))))

    def piece(self, token: int) -> bytes:
        return chr(token).encode()

    def tokenize(self, text: str, *, parse_special: bool, add_special: bool = False) -> list[int]:
        return list(map(ord, text))


def answered(text: str, *then: ChatMessage) -> tuple[str, list[ChatMessage]]:
    return text, [ChatMessage(role="assistant", content=text), *then]


def evaluated_again(source: str) -> tuple[list[int], int]:
    """Return what of each answer of a story is evaluated again, without thinking, and of a call.

    In characters; of the call no more than it is long is to be lost, as templates write it anew.
    """
    frames = habits_of(source).frames
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    builder = PromptBuilder(Letters(source), template, max_characters=1_000_000)
    called = calls_in_frame((ONE,), frames[0])
    story = [
        answered(ANSWERS[0], QUESTION),
        answered(ANSWERS[1], QUESTION),
        (called, [ChatMessage(role="assistant", tool_calls=(ONE,)), *results((ONE,))]),
        answered(ANSWERS[2], QUESTION),
        answered(""),
    ]
    messages, lost = [SYSTEM, QUESTION], []
    history: tuple[Part, ...] = ()
    for said, news in story:
        parts = builder.build(messages, functions(TOOLS), thinking("off"), [history], frames)
        known = tokens_of(history)
        lost.append(len(known) - common(known, tokens_of(parts)))
        history = (*parts, Part(text=said, tokens=tuple(map(ord, said)), generated=True))
        messages = [*messages, *news]
    _, first, second, of_call, last = lost
    return [first, second, last], max(of_call - len(called), 0)


ANSWERS = ("It is empty.", "It is empty still.", "There is one file.")
# An empty thought before the call, which is written anew with it.
MOST_THOUGHT = 30
UNMARKED = "what is behind an answer is a line break, where a tokeniser need not cut"
NO_HEADER = "an answer behind a result has a header only while it is being written"
# Where an answer is evaluated again all the same, and why; its thought is not the reason.
ANEW = {
    "Apertus-8B-Instruct": NO_HEADER,
    "Bielik-11B-v3.0-Instruct": NO_HEADER,
    "CohereForAI-c4ai-command-r7b-12-2024-tool_use": "its models put a marker before an answer",
    "Reka-Edge": UNMARKED,
    "llama-cpp-rwkv-world": UNMARKED,
    "poolside-Laguna-XS-2.1": UNMARKED,
    "poolside-Laguna-XS.2": UNMARKED,
}


def test_without_thinking_no_answer_is_evaluated_again_in_any_family() -> None:
    sources = templates()
    off = {name: s for name, s in sources.items() if thinking_variables(s) & SWITCHES}
    assert len(off) >= 20
    lost = {name: evaluated_again(source) for name, source in off.items()}
    whole = {name for name, (answers, _) in lost.items() if any(answers)}
    assert whole == ANEW.keys(), lost
    assert {name: call for name, (_, call) in lost.items() if call > MOST_THOUGHT} == {}
