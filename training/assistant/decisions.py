"""Tells at which probability an answer should begin with a call: `[calls]` of the card.

    python -m training.assistant.decisions BASE.gguf HELD.jsonl [--adapter A.gguf] [--count 300]

For each message of the assistant in HELD.jsonl, which comes from `prepare`: how likely a call is as
its beginning, after what was right before it. Printed for the answer to a person and for the one
behind a tool's result: how many calls each threshold would miss, and how many it would make where
text is due. `make.CALLS` holds what was chosen.
"""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.assistant.texts import CALL_BEGIN, Texts

THRESHOLDS = (0.1, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.99)


class Decision(NamedTuple):
    """How likely a call was, whether one was due, and whether a tool's result stood before."""

    likely: float
    is_call: bool
    is_further: bool


def table(decisions: list[Decision]) -> list[str]:
    """Returns lines: what each threshold would miss, and call without need, in both places."""
    lines = []
    for is_further in (False, True):
        found = [each for each in decisions if each.is_further == is_further]
        calls = sum(each.is_call for each in found)
        place = "behind a result" if is_further else "to a person"
        lines.append(f"{place}: {calls} calls, {len(found) - calls} texts")
        for least in THRESHOLDS:
            missed = sum(each.is_call and each.likely < least for each in found)
            wrong = sum(not each.is_call and each.likely >= least for each in found)
            lines.append(f"  from {least}: {missed} missed, {wrong} wrong")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("held", type=Path)
    parser.add_argument("--adapter", type=Path)
    parser.add_argument("--count", type=int, default=300)
    given = parser.parse_args()
    from training.assistant.runner import Runner

    runner, texts = Runner(given.base, given.adapter), Texts()
    opening = runner.tokens(CALL_BEGIN)[0]
    rows = [json.loads(line) for line in given.held.read_text("utf-8").splitlines()]
    decisions = []
    # What conversations with the same tools begin with is evaluated once.
    for row in sorted(rows[: given.count], key=lambda row: json.dumps(row["tools"])):
        messages = row["messages"]
        for index, message in enumerate(messages):
            if message["role"] != "assistant" or not message.get("learnt", True):
                continue
            logits = runner.next_logits(texts.prompt(messages[:index], row["tools"]))
            shares = np.exp(logits - logits.max())
            likely = float(shares[opening] / shares.sum())
            is_further = messages[index - 1]["role"] == "tool"
            decisions.append(Decision(likely, bool(message.get("tool_calls")), is_further))
    print("\n".join(table(decisions)))


if __name__ == "__main__":
    main()
