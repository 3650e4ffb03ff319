"""The system prompt: stable first, so that every turn extends the one before. Pure.

Order: base, tool addenda, operator text, rules, catalogue; then the agent's own prompt, the
environment and the guidance. Every spliced text passes a sanitizer. What changes from turn to turn
is not in here: it rides as a block on the user message it was new for (`volatile`).
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from clawd.tools.base import Tool
from clawd.tools.offer import inline_list
from clawd.wire.safe_text import NAME_LIMIT, paragraph, single_line

ADDENDUM_LIMIT_BYTES = 8 * 1024
OPERATOR_LIMIT_BYTES = 16 * 1024

BASE = """\
You are clawd, an assistant that works on the user's own machine. You act only through the tools \
you are offered; each call is checked by a policy, may need the user's approval, and leaves a \
receipt."""

GUIDANCE = """\
Choose one way to do what was asked and carry it through. Prefer a tool to a guess about files, \
commands or the time. When a call is denied, say so and do not try to get around it."""


class PromptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says about the prompt.

    Attributes:
        base: replaces the built-in base; empty keeps it.
        operator: text of the operator, at most 16 KiB.
        agent: the prompt of the chosen agent.
        knowledge_cutoff: `YYYY-MM` of the model, or empty.
    """

    base: str = ""
    operator: str = ""
    agent: str = ""
    knowledge_cutoff: str = ""


def system_prompt(settings: PromptSettings, tools: Iterable[Tool], *, workspace: str) -> str:
    """Return the system prompt; the same input gives the same text."""
    offered = list(tools)
    sections = [
        paragraph(settings.base) or BASE,
        *(clipped(paragraph(tool.addendum), ADDENDUM_LIMIT_BYTES) for tool in offered),
        clipped(paragraph(settings.operator), OPERATOR_LIMIT_BYTES),
        _rules(settings, offered),
        _catalogue(offered),
        paragraph(settings.agent),
        f"[environment]\nworkspace: {single_line(workspace, 4096)}",
        f"[guidance]\n{GUIDANCE}",
    ]
    return "\n\n".join(section.strip() for section in sections if section.strip())


def volatile(facts: Mapping[str, str], shown: Mapping[str, str]) -> str:
    """Return the block of those facts that are not as they were last shown; "" for none."""
    changed = [(name, text) for name, text in facts.items() if shown.get(name) != text]
    return "\n".join(
        f"{single_line(name, NAME_LIMIT)}: {paragraph(text)}" for name, text in changed
    )


def facts_now(now: datetime) -> dict[str, str]:
    """Return the facts that change by themselves: the date, and the time to the hour."""
    return {
        "date": now.strftime("%Y-%m-%d (%A)"),
        "time": now.strftime("about %H:00 %Z").strip(),
    }


def clipped(text: str, limit_bytes: int) -> str:
    """Return at most so many bytes of the text, cut between characters, the cut marked."""
    data = text.encode(errors="replace")
    if len(data) <= limit_bytes:
        return text
    mark = "\n[cut]"
    return data[: limit_bytes - len(mark)].decode(errors="ignore") + mark


def _rules(settings: PromptSettings, tools: list[Tool]) -> str:
    lines = ["[rules]"]
    if tools:
        lines.append("Call only the tools listed below; there are no others.")
        if any(tool.name in {"file_write", "file_edit", "file_append"} for tool in tools):
            lines.append("Write files only when the user asked for it.")
    else:
        lines.append("You have no tools in this conversation.")
    if settings.knowledge_cutoff:
        cutoff = single_line(settings.knowledge_cutoff, NAME_LIMIT)
        lines.append(f"Your knowledge ends in {cutoff}; say so when it matters.")
    lines.append("Name your sources when an answer comes from a file, a page or memory.")
    return "\n".join(lines)


def _catalogue(tools: list[Tool]) -> str:
    if not tools:
        return ""
    return "\n".join(["[tools]", *inline_list(tools)])
