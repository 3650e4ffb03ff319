"""Renders a conversation to training text: what the chat template renders, in marked segments."""

import json

from training.data.conversations import Conversation
from training.data.results import READ_CHARS

_ESCAPES = (("<|", "< |"), ("<tool_call>", "< tool_call>"), ("</tool_call>", "< /tool_call>"))


def call_text(tool: str, arguments: dict) -> str:
    """Returns the call as the model writes it."""
    body = json.dumps({"name": tool, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{body}\n</tool_call>"


def segments(conversation: Conversation) -> list[tuple[str, bool]]:
    """Returns the text in parts; the model learns to write those marked true."""
    parts = [] if conversation.has_tools else [("<|im_start|>system\nno tools<|im_end|>\n", False)]
    request = _safe(conversation.request)
    parts.append((f"<|im_start|>user\n{request}<|im_end|>\n<|im_start|>assistant\n", False))
    for step in conversation.steps:
        result = _safe(step.result[:READ_CHARS])
        parts += [
            (call_text(step.tool, step.arguments) + "<|im_end|>", True),
            (f"\n<|im_start|>tool\n{result}<|im_end|>\n<|im_start|>assistant\n", False),
        ]
    parts.append((conversation.answer + "<|im_end|>", True))
    return parts


def _safe(text: str) -> str:
    """Keeps what a user or a tool says from becoming a special token."""
    for token, shown in _ESCAPES:
        text = text.replace(token, shown)
    return text
