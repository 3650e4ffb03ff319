"""Greedy evaluation of a GGUF through llama.cpp on conversations no training text contains.

    python -m training.evaluate [MODEL.gguf] [--conversations 300] [--failures 10]
        [--rows known,unseen,first,fresh]

Rows: `known` phrasings with unseen arguments, `unseen` phrasings with unseen arguments, and the two
groups of words/handwritten.toml (first turn only). In the first two rows each call gets its
invented result back as if it had been right, so that later turns are judged on their own; `whole
conversation` wants everything right.
"""

import argparse
import json
import time
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from jinja2.sandbox import ImmutableSandboxedEnvironment
from llama_cpp import Llama

from clawd.engine.embedded import embedded_model_path
from training.data.conversations import Conversation, Conversations
from training.data.lists import WORDS
from training.data.rendering import call_text

HANDWRITTEN = WORDS / "handwritten.toml"
SEEDS = {"known": 9242, "unseen": 9343}
MAX_ANSWER_TOKENS = 320
BAD_NEWS = ("I did not do that", "That did not work", "The command failed")


class Subject:
    """The model under test, one thread, temperature 0."""

    def __init__(self, path: Path) -> None:
        self._llama = Llama(
            str(path), n_ctx=1024, n_threads=1, n_threads_batch=1, verbose=False, seed=1
        )
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(self._llama.metadata["tokenizer.chat_template"])
        self.turns = 0
        self.seconds = 0.0

    def answer(self, messages: list[dict], *, has_tools: bool = True) -> str:
        tools = [{"type": "function"}] if has_tools else None
        prompt = self._template.render(messages=messages, tools=tools, add_generation_prompt=True)
        started = time.perf_counter()
        reply = self._llama.create_completion(
            prompt, temperature=0, max_tokens=MAX_ANSWER_TOKENS, stop=["<|im_end|>"]
        )
        self.seconds += time.perf_counter() - started
        self.turns += 1
        return reply["choices"][0]["text"]


def parsed_call(text: str) -> tuple[str, object] | None:
    """Returns name and arguments of the call in an answer, None if it is plain text."""
    if not text.startswith("<tool_call>"):
        return None
    body = text.removeprefix("<tool_call>").split("</tool_call>")[0]
    try:
        call = json.loads(body)
        return call["name"], call["arguments"]
    except (ValueError, KeyError, TypeError):
        return "(not JSON)", body


@dataclass
class Row:
    """The counts of one row of the table."""

    counts: Counter = field(default_factory=Counter)
    kinds: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    failures: list[str] = field(default_factory=list)

    def share(self, part: str, whole: str) -> str:
        right, all_of_them = self.counts[part], self.counts[whole]
        return f"{100 * right / max(1, all_of_them):.1f} % ({right}/{all_of_them})"


def judge(subject: Subject, conversation: Conversation, row: Row) -> None:
    """Plays one conversation and adds to the counts."""
    counts = row.counts
    messages: list[dict] = [{"role": "user", "content": conversation.request}]
    right = True
    for step in conversation.steps:
        said = subject.answer(messages)
        call = parsed_call(said)
        counts["calls"] += 1
        named = call is not None and call[0] == step.tool
        exact = call == (step.tool, step.arguments)
        counts["name"] += named
        counts["arguments"] += exact
        if not exact:
            right = False
            wanted = call_text(step.tool, step.arguments)
            row.failures.append(
                f"{conversation.kind}: {conversation.request!r} wants {wanted!r} got {said!r}"
            )
        function = {"name": step.tool, "arguments": step.arguments}
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [{"function": function}]},
            {"role": "tool", "content": step.result},
        ]
    said = subject.answer(messages, has_tools=conversation.has_tools)
    right = _judge_answer(conversation, said, row) and right
    counts["conversations"] += 1
    counts["whole"] += right
    row.kinds[conversation.kind][0] += right
    row.kinds[conversation.kind][1] += 1


def _judge_answer(conversation: Conversation, said: str, row: Row) -> bool:
    counts, wanted = row.counts, conversation.answer
    if conversation.steps:
        right = _essence(wanted) in said
        counts["answers"] += 1
        counts["mentions"] += right
        if wanted.startswith(BAD_NEWS):
            counts["bad"] += 1
            counts["honest"] += said.startswith(BAD_NEWS)
    else:
        right = said == wanted
        counts["talks"] += 1
        counts["no call"] += parsed_call(said) is None
    if not right:
        row.failures.append(
            f"{conversation.kind}: {conversation.request!r} wants {wanted!r} got {said!r}"
        )
    return right


def _essence(answer: str) -> str:
    """The part of an answer that comes from the result."""
    if answer.startswith(("I did not", "That did not", "I found nothing")):
        return answer.rstrip(".")
    for opening in ("It is ", "Done, I wrote "):
        if answer.startswith(opening):
            return answer.removeprefix(opening).rstrip(".")
    return answer.split(": ", 1)[-1].rstrip(".")


def run_row(subject: Subject, name: str, conversations: int) -> Row:
    source = Conversations(SEEDS[name], held_out=True, unseen=name == "unseen", for_training=False)
    row = Row()
    for _ in range(conversations):
        judge(subject, source.draw(), row)
    return row


def run_handwritten(subject: Subject, group: str) -> Row:
    row = Row()
    for request in tomllib.loads(HANDWRITTEN.read_text("utf-8"))[group]:
        said = subject.answer([{"role": "user", "content": request["text"]}])
        call = parsed_call(said)
        tool = request.get("tool")
        if tool is None:
            named = exact = call is None
        else:
            named = call is not None and call[0] == tool
            exact = named and _unjudged_keywords_dropped(call[1], request) == request["arguments"]
        row.counts += Counter({"calls": 1, "name": named, "arguments": exact})
        if not exact:
            row.failures.append(f"{request['text']!r} got {said!r}")
    return row


def _unjudged_keywords_dropped(arguments: object, request: dict) -> object:
    if request["tool"] != "knowledge_save" or "keywords" in request["arguments"]:
        return arguments
    if not isinstance(arguments, dict) or not arguments.get("keywords"):
        return None
    return {key: value for key, value in arguments.items() if key != "keywords"}


def report(name: str, row: Row, shown_failures: int) -> None:
    print(f"{name}: tool name {row.share('name', 'calls')}")
    print(f"  exact arguments {row.share('arguments', 'calls')}")
    if row.counts["conversations"]:
        print(f"  answer mentions the result {row.share('mentions', 'answers')}")
        print(f"  says so after a denial or error {row.share('honest', 'bad')}")
        print(f"  no call in small talk {row.share('no call', 'talks')}")
        print(f"  whole conversation {row.share('whole', 'conversations')}")
        kinds = sorted(row.kinds.items())
        print("  whole, by kind: " + ", ".join(f"{kind} {right}/{n}" for kind, (right, n) in kinds))
    for failure in row.failures[:shown_failures]:
        print("  - " + failure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model", type=Path, nargs="?", default=embedded_model_path())
    parser.add_argument("--conversations", type=int, default=300)
    parser.add_argument("--rows", default="known,unseen,first,fresh")
    parser.add_argument("--failures", type=int, default=10)
    given = parser.parse_args()
    subject = Subject(given.model)
    for name in given.rows.split(","):
        if name in SEEDS:
            row = run_row(subject, name, given.conversations)
        else:
            row = run_handwritten(subject, name)
        report(name, row, given.failures)
    print(f"{subject.turns} turns, {1000 * subject.seconds / max(1, subject.turns):.0f} ms a turn")


if __name__ == "__main__":
    main()
