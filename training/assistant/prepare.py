"""Draws conversations and writes them as token ids, by llama.cpp's own tokenizer.

    python -m training.assistant.prepare BASE.gguf OUT.npz [--tokens 1000000] [--seed 1]
        [--longest 272] [--known 0.4]

Beside OUT.npz stands OUT.held.jsonl: conversations with words that training never sees, and with
no request of theirs, for `judge`. The first are in OUT.npz too, marked, for figures on the way.
"""

import argparse
import bisect
import itertools
import json
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from training.assistant.conversations import Conversation, Conversations
from training.assistant.mask import ANSWER, CALL, CHOICE, GIVEN, KNOWN
from training.assistant.runner import Runner
from training.assistant.texts import CALL_BEGIN, Texts

HELD_OUT = 300
WATCHED = 48  # of the held-out ones, while training runs
HELD_OUT_SEED = 900_000
KNOWN_KIND = "question"  # the base's own answers, which are to stay, not to be learnt by heart
_IN_CALLS = [
    re.compile(rb'"(?:name|expression)": "([^"]*)'),
    re.compile(rb'": "?([^"{]{1,6})'),  # how an argument begins
    re.compile(rb'[^\\]"([,}])'),  # whether another argument follows
]
_IN_ANSWERS = [
    re.compile(rb"\n(.{1,6})"),  # each line
    re.compile(rb"(<\|im_end\|>)"),  # whether another follows
]
_FIRST_IN_ANSWERS = re.compile(rb'(?:: "|: |^\w\w is\w? )(.{1,6})')  # how a quote, or a day, begins


@dataclass
class Rows:
    """Conversations as token ids."""

    ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    heads: dict[str, int] = field(default_factory=dict)
    head_of: list[int] = field(default_factory=list)
    held_out: list[bool] = field(default_factory=list)
    too_long: int = 0


class Writer:
    """Appends conversations to rows."""

    def __init__(self, runner: Runner, longest: int) -> None:
        self.rows = Rows()
        self._runner, self._texts, self._longest = runner, Texts(), longest

    def add(self, conversation: Conversation, *, held_out: bool) -> bool:
        """Returns whether the conversation was short enough."""
        head, parts = self._texts.parts(conversation.messages, conversation.tools)
        said = (
            each
            for each in conversation.messages
            if each["role"] == "assistant" and each.get("learnt", True)
        )
        pieces = []
        for text, learnt in parts:
            # By itself: an answer begins where generation will begin.
            tokens = self._runner.tokens(text)
            pieces.append((tokens, self._mask(tokens, text, next(said) if learnt else None)))
        if sum(len(piece) for piece, _ in pieces) > self._longest:
            self.rows.too_long += 1
            return False
        rows = self.rows
        for piece, mask in pieces:
            rows.ids += piece
            rows.mask += mask
        rows.starts.append(len(rows.ids))
        rows.head_of.append(rows.heads.setdefault(head, len(rows.heads)))
        rows.held_out.append(held_out)
        return True

    def _mask(self, tokens: list[int], text: str, said: dict[str, Any] | None) -> list[int]:
        """Returns what each token of a part is; `said` is the message that is learnt."""
        if said is None or said.get("known"):
            return [KNOWN if said else GIVEN] * len(tokens)
        is_call, raw = CALL_BEGIN in text, text.encode()
        mask = [CALL if is_call else ANSWER] * len(tokens)
        ends = list(itertools.accumulate(len(self._runner.bytes(token)) for token in tokens))
        for begin, end in _chosen(raw, is_call):
            first, last = bisect.bisect_right(ends, begin), bisect.bisect_left(ends, end)
            for at in range(first, min(last + 1, len(tokens))):
                mask[at] |= CHOICE
        return mask

    def save(self, path: Path) -> None:
        rows = self.rows
        heads = [self._runner.tokens(head) for head in rows.heads]
        np.savez(
            path,
            ids=np.array(rows.ids, np.int32),
            mask=np.array(rows.mask, np.uint8),
            starts=np.array(rows.starts, np.int64),
            head_of=np.array(rows.head_of, np.int32),
            held_out=np.array(rows.held_out, bool),
            heads=np.array(list(itertools.chain.from_iterable(heads)), np.int32),
            head_starts=np.cumsum([0, *map(len, heads)]),
        )


def _chosen(raw: bytes, is_call: bool) -> Iterator[tuple[int, int]]:
    """Yields where something is chosen in what an assistant says."""
    for each in _IN_CALLS if is_call else _IN_ANSWERS:
        yield from (found.span(1) for found in each.finditer(raw))
    if not is_call and (quote := _FIRST_IN_ANSWERS.search(raw)):
        yield quote.span(1)


def key_of(request: list[dict[str, Any]]) -> str:
    """Returns what tells a held-out conversation from those to learn from: its first request."""
    return " ".join(request[0]["content"].lower().split())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--longest", type=int, default=272, help="tokens of one, without its head")
    parser.add_argument("--known", type=float, default=0.4, help="share kept of the base's answers")
    given = parser.parse_args()
    writer, started = Writer(Runner(given.base), given.longest), time.monotonic()
    rng = random.Random(given.seed)
    judged, kept = set(), []
    for conversation in Conversations(HELD_OUT_SEED, held_out=True):
        key = key_of(conversation.messages)
        if key in judged or (len(kept) < WATCHED and not writer.add(conversation, held_out=True)):
            continue
        judged.add(key)
        kept.append(conversation)
        if len(kept) == HELD_OUT:
            break
    with given.out.with_suffix(".held.jsonl").open("w", encoding="utf-8") as file:
        for conversation in kept:
            row = {
                "kind": conversation.kind,
                "language": conversation.language,
                "messages": conversation.messages,
                "tools": conversation.tools,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    begin, count = len(writer.rows.ids), 0
    for conversation in Conversations(given.seed):
        is_known = conversation.kind == KNOWN_KIND
        if is_known and rng.random() >= given.known:
            continue
        if key_of(conversation.messages) not in judged:
            count += writer.add(conversation, held_out=False)
        if len(writer.rows.ids) - begin >= given.tokens:
            break
    writer.save(given.out)
    rows = writer.rows
    figures = {
        "conversations": count,
        "tokens": len(rows.ids) - begin,
        "learnt": sum(1 for each in rows.mask[begin:] if each),
        "heads": len(rows.heads),
        "too_long": rows.too_long,
        "seconds": round(time.monotonic() - started),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
