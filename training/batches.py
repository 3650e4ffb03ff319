"""Conversations to batches of token ids, grouped by length so that little is padding."""

import random
from collections.abc import Iterator

import torch
from tokenizers import Tokenizer

from training.data.conversations import Conversation, Conversations
from training.data.rendering import segments
from training.gguf_file import PAD_ID
from training.tokens import TOKENIZER

TOKENS_PER_BATCH = 2048
DRAWN_AT_ONCE = 1500
MIN_BATCH = 4
Example = tuple[list[int], list[bool]]


class Batches:
    """An endless source of (ids, mask); the mask marks where the next token is to be learnt."""

    def __init__(self, seed: int, max_tokens: int) -> None:
        self._conversations = Conversations(seed)
        self._max_tokens = max_tokens
        self._tokenizer = Tokenizer.from_file(str(TOKENIZER))
        self._rng = random.Random(seed + 1)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        while True:
            drawn = [self._conversations.draw() for _ in range(DRAWN_AT_ONCE)]
            examples = [e for e in self._encoded(drawn) if len(e[0]) <= self._max_tokens]
            for batch in self._grouped(examples):
                if len(batch) >= MIN_BATCH:
                    yield _padded(batch)

    def _encoded(self, conversations: list[Conversation]) -> list[Example]:
        parts = [(n, *part) for n, one in enumerate(conversations) for part in segments(one)]
        encodings = self._tokenizer.encode_batch([text for _, text, _ in parts])
        examples: list[Example] = [([], []) for _ in conversations]
        for (owner, _, learnt), encoding in zip(parts, encodings, strict=True):
            examples[owner][0].extend(encoding.ids)
            examples[owner][1].extend([learnt] * len(encoding.ids))
        return examples

    def _grouped(self, examples: list[Example]) -> list[list[Example]]:
        examples.sort(key=lambda example: len(example[0]) + self._rng.random() * 50)
        batches: list[list[Example]] = [[]]
        longest = 0
        for example in examples:
            longest = max(longest, len(example[0]))
            if batches[-1] and _rounded(longest) * (len(batches[-1]) + 1) > TOKENS_PER_BATCH:
                batches.append([])
                longest = len(example[0])
            batches[-1].append(example)
        self._rng.shuffle(batches)
        return batches


def copying_batch(rng: random.Random, vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns random tokens that come twice; the second time is to be learnt."""
    length = rng.randint(6, 24)
    rows = TOKENS_PER_BATCH // (2 * length + 16)
    text = torch.randint(PAD_ID + 1, vocab, (rows, length))
    before = torch.randint(PAD_ID + 1, vocab, (rows, rng.randint(1, 14)))
    between = torch.full((rows, 1), PAD_ID - 1)
    ids = torch.cat((before, text, between, text), 1)
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, -length:-1] = True
    return ids, mask


def _rounded(length: int) -> int:
    return -(-length // 16) * 16


def _padded(batch: list[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    length = _rounded(max(len(ids) for ids, _ in batch))
    ids = torch.full((len(batch), length), PAD_ID)
    mask = torch.zeros(len(batch), length, dtype=torch.bool)
    for row, (tokens, learnt) in enumerate(batch):
        ids[row, : len(tokens)] = torch.tensor(tokens)
        mask[row, : len(tokens) - 1] = torch.tensor(learnt[1:], dtype=torch.bool)
    return ids, mask
