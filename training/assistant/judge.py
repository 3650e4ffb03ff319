"""Judges an adapter as it ships: base and adapter in llama.cpp, greedy, nothing constrained.

    python -m training.assistant.judge BASE.gguf [--adapter A.gguf] HELD.jsonl [--count 150]
        [--failures 10] [--talk] [--log LOG.jsonl]

HELD.jsonl comes from `prepare`. What each message of the assistant should say is asked for after
what was right before it, so that later messages are judged on their own. A call is judged by tool
and by exact arguments; where text is due, what counts is that it calls nothing.
"""

import argparse
import json
import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, Protocol

from training.assistant.texts import CALL_BEGIN, Texts

MAX_ANSWER = 160  # tokens
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)
TALK = (
    "Hello! How are you?",
    "Who are you?",
    "What is the capital of Japan?",
    "Tell me a joke.",
    "Explain photosynthesis in one sentence.",
    "Who wrote Hamlet?",
    "Write two lines of verse on the sea.",
    "Give me a tip to fall asleep.",
    "What is recursion?",
    "Thanks, that was helpful!",
)


def call_of(answer: str) -> tuple[str, object] | None:
    """Returns name and arguments of the first call, None where there is none."""
    found = _CALL.search(answer)
    if not found:
        return None
    try:
        call = json.loads(found[1])
        return call["name"], call["arguments"]
    except (ValueError, KeyError, TypeError):
        return "(not JSON)", found[1]


class Completing(Protocol):
    """What continues a prompt: `runner.Runner`."""

    def complete(self, prompt: str, *, limit: int) -> str: ...


class Judge:
    """Counts what a model says right."""

    def __init__(self, runner: Completing) -> None:
        self._runner, self._texts = runner, Texts()
        self.counts: Counter[str] = Counter()
        self.kinds: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.failures: list[str] = []

    def ask(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        return self._runner.complete(self._texts.prompt(messages, tools), limit=MAX_ANSWER)

    def judge(self, row: dict[str, Any]) -> None:
        """Asks for each message of the assistant."""
        messages, is_right = row["messages"], True
        for index, message in enumerate(messages):
            if message["role"] == "assistant" and message.get("learnt", True):
                answer = self.ask(messages[:index], row["tools"])
                said_right = self._judge_answer(message, answer)
                is_right = is_right and said_right
                if not said_right:
                    self.failures.append(f"{row['kind']}: {_shown(messages[:index])} -> {answer!r}")
        self.counts += Counter(conversations=1, whole=is_right)
        self.kinds[row["kind"]][0] += is_right
        self.kinds[row["kind"]][1] += 1

    def _judge_answer(self, message: dict[str, Any], answer: str) -> bool:
        called = call_of(answer)
        if not message.get("tool_calls"):
            self.counts += Counter(texts=1, uncalled=called is None)
            self.counts += Counter(same=answer.strip() == message["content"].strip())
            return called is None
        wanted = message["tool_calls"][0]["function"]
        is_tool = called is not None and called[0] == wanted["name"]
        is_exact = called == (wanted["name"], wanted["arguments"])
        self.counts += Counter(calls=1, tool=is_tool, exact=is_exact)
        return is_exact

    def figures(self) -> dict[str, Any]:
        """Returns the counts, and the kinds in which something was wrong."""
        wrong = {kind: f"{r}/{n}" for kind, (r, n) in sorted(self.kinds.items()) if r < n}
        names = ("calls", "tool", "exact", "texts", "uncalled", "same", "conversations", "whole")
        return {**{name: self.counts[name] for name in names}, "wrong": wrong}


def _shown(messages: list[dict[str, Any]]) -> str:
    return " | ".join(each["content"] or "(call)" for each in messages)[-200:]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("held", type=Path)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--failures", type=int, default=10)
    parser.add_argument("--talk", action="store_true", help="print answers to ten questions")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--log", type=Path, help="append the figures to this file")
    given = parser.parse_args()
    from training.assistant.runner import Runner

    judge = Judge(Runner(given.base, given.adapter, threads=given.threads))
    rows = [json.loads(line) for line in given.held.read_text("utf-8").splitlines()]
    rows = rows[: given.count]
    everything = max((row["tools"] for row in rows), key=len)
    started = time.monotonic()
    # What conversations with the same tools begin with is evaluated once.
    for row in sorted(rows, key=lambda row: json.dumps(row["tools"])):
        judge.judge(row)
    figures = {"event": "judged", "adapter": str(given.adapter), **judge.figures()}
    figures["seconds"] = round(time.monotonic() - started)
    for failure in judge.failures[: given.failures]:
        print("-", failure)
    if given.talk:
        for question in TALK:
            answer = judge.ask([{"role": "user", "content": question}], everything)
            mark = "CALLS" if CALL_BEGIN in answer else "talks"
            print(f"- {mark}: {question} -> {' '.join(answer.split())[:240]}")
    text = json.dumps(figures)
    print(text)
    if given.log:
        with given.log.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
