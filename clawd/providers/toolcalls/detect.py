"""Chooses the parser for a model by its chat template."""

import msgspec

from clawd.providers.toolcalls import hermes, plain
from clawd.providers.toolcalls.base import ParserFactory, ParserOptions, ToolCallParser

_PROMPT_END = "add_generation_prompt"


def detect(template: str) -> ParserFactory:
    """Return what makes the parser for the answers of a model with this chat template.

    A model without a template of its own, or of a family that is not known, is parsed as Hermes:
    that is what the built-in fallback template asks for.
    """
    starts_in_reasoning = _opens_reasoning(template)

    def make(options: ParserOptions) -> ToolCallParser:
        if starts_in_reasoning:
            options = msgspec.structs.replace(options, starts_in_reasoning=True)
        return hermes.HermesParser(options) if options.calls else plain.PlainParser(options)

    return make


def looks_like_call(text: str) -> bool:
    """Say whether an answer's text holds a call that could not be parsed."""
    return hermes.OPEN in text


def _opens_reasoning(template: str) -> bool:
    """Say whether a prompt ends with `<think>`, so that the answer begins inside of it."""
    end = template.rpartition(_PROMPT_END)[2] if _PROMPT_END in template else ""
    return end.rfind(plain.OPEN) > end.rfind(plain.CLOSE)
