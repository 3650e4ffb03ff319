"""Chooses the parser for a model by its chat template; Hermes is for those that no family knows."""

import msgspec

from clawd.providers.toolcalls import hermes, plain
from clawd.providers.toolcalls.base import ParserFactory, ParserOptions, ToolCallParser
from clawd.providers.toolcalls.families_a import FAMILIES_A, OPENINGS_A
from clawd.providers.toolcalls.families_b import CALL_MARKERS_B, FAMILIES_B

FAMILIES = (*FAMILIES_A, *FAMILIES_B)
CALL_MARKERS = (hermes.OPEN, *OPENINGS_A, *CALL_MARKERS_B)

_PROMPT_END = "add_generation_prompt"


def detect(template: str) -> ParserFactory:
    """Return what makes the parser for the answers of a model with this chat template.

    A model without a template of its own is parsed as Hermes: that is what the built-in fallback
    template asks for. Without calls to look for only reasoning is split off, where the family
    marks it as most do.
    """
    family = family_of(template)
    starts_in_reasoning = _opens_reasoning(template)

    def make(options: ParserOptions) -> ToolCallParser:
        if starts_in_reasoning:
            options = msgspec.structs.replace(options, starts_in_reasoning=True)
        found = next((each for each in FAMILIES if each.name == family), None)
        if found is not None:
            return found.make(options)
        return hermes.HermesParser(options) if options.calls else plain.PlainParser(options)

    return make


def family_of(template: str) -> str:
    """Return the name of the first family whose template this is; `hermes` for none of them."""
    return next((each.name for each in FAMILIES if each.matches(template)), "hermes")


def looks_like_call(text: str) -> bool:
    """Say whether an answer's text holds a call that could not be parsed."""
    return any(marker in text for marker in CALL_MARKERS)


def _opens_reasoning(template: str) -> bool:
    """Say whether a prompt ends with `<think>`, so that the answer begins inside of it.

    A template that closes it there as often as it opens it (Qwen3, DeepSeek V3.1) does so only
    when it is asked to, and nobody asks.
    """
    end = template.rpartition(_PROMPT_END)[2] if _PROMPT_END in template else ""
    return end.count(plain.OPEN) > end.count(plain.CLOSE)
