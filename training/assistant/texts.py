"""Renders conversations to training text, through the chat template that ships.

A conversation is a list of messages and a list of tools, both in OpenAI's form.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from clawd.engine import embedded
from clawd.engine.protocol import ChatCall, ChatMessage
from clawd.engine.worker.template import ChatTemplate, RenderInput

TEMPLATE = Path(embedded.__file__).parent / "assistant.jinja"
TURN_END = "<|im_end|>"
CALL_BEGIN = "<tool_call>"
_PROMPT_END = "<|im_start|>assistant\n"
_HEAD_END = f"{TURN_END}\n"
# Nobody else can open a turn of the assistant: the template keeps the marks out of what is said.
_SAID = re.compile(r"(?<=<\|im_start\|>assistant\n)(.*?<\|im_end\|>)", re.DOTALL)


class Texts:
    """Renders conversations as the product does."""

    def __init__(self) -> None:
        self._template = ChatTemplate(TEMPLATE.read_text("utf-8"))

    def prompt(self, messages: Sequence[dict[str, Any]], tools: list[dict[str, Any]]) -> str:
        """Returns the text up to where the next answer begins."""
        given = [_message(each) for each in messages]
        text = self._template.render(RenderInput(messages=given, tools=tools))
        if self._template.fallback or self._template.notes:
            raise SystemExit(f"the template did not render plainly: {self._template.notes}")
        return text

    def parts(
        self, messages: Sequence[dict[str, Any]], tools: list[dict[str, Any]]
    ) -> tuple[str, list[tuple[str, bool]]]:
        """Returns the head, which names the tools, and the rest in parts; the true ones are learnt.

        What an assistant says is a part, with the mark that ends it; where its message has `learnt`
        as false, it is not learnt.
        """
        if messages[-1]["role"] != "assistant":
            raise ValueError("a conversation to learn from ends with what the assistant says")
        text = self.prompt(messages, tools).removesuffix(_PROMPT_END).removesuffix("\n")
        head, end, rest = text.partition(_HEAD_END)
        pieces = _SAID.split(rest)
        learnt = [each.get("learnt", True) for each in messages if each["role"] == "assistant"]
        parts = [
            (piece, index % 2 == 1 and learnt[index // 2])
            for index, piece in enumerate(pieces)
            if piece
        ]
        return head + end, parts


def _message(given: dict[str, Any]) -> ChatMessage:
    calls = []
    for index, call in enumerate(given.get("tool_calls") or []):
        function = call.get("function", call)
        arguments = function.get("arguments") or {}
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        calls.append(ChatCall(id=f"call_{index}", name=function["name"], arguments=arguments))
    role, content = given["role"], given.get("content") or ""
    if role == "tool":
        return ChatMessage(role=role, content=content, tool_call_id="call_0")
    return ChatMessage(role=role, content=content, tool_calls=tuple(calls))
