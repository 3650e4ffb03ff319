"""The tokenizer's tables as `tokenizer.json` holds them, without the tokenizers package."""

import json
from functools import cache
from pathlib import Path

TOKENIZER = Path(__file__).parent / "tokenizer.json"
TOOL_CALL_TOKENS = ("<tool_call>", "</tool_call>")
SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    *TOOL_CALL_TOKENS,
    "<|pad|>",
)


@cache
def _model() -> dict:
    return json.loads(TOKENIZER.read_text("utf-8"))["model"]


def vocabulary() -> list[str]:
    """Returns the tokens in the order of their ids, in the byte-level alphabet of GPT-2."""
    ids = _model()["vocab"]
    return sorted(ids, key=ids.__getitem__)


def merges() -> list[str]:
    """Returns the merges in order of rank, each as `left right`."""
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in _model()["merges"]]
