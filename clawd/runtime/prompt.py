"""The system prompt: fragments in a fixed order, stable first, each computed when it is needed.

Order: base, tool addenda, operator text, rules, catalogue; then the agent's own prompt and the
guidance. Every spliced text passes a sanitizer. What changes from turn to turn, and what is another
in each workspace, is not in here: it rides as a block on the user message it was new for (see
`context_facts`), so that what a model has read of a prompt serves in every folder.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from clawd.config.sections import PromptSection
from clawd.tools.base import Tool
from clawd.tools.offer import LOOKUP, WRITE_RULE, RequestTools, names_of, stands_for
from clawd.wire.safe_text import NAME_LIMIT, paragraph, single_line

ADDENDUM_LIMIT_BYTES = 8 * 1024
OPERATOR_LIMIT_BYTES = 16 * 1024

BASE = """\
You are clawd, an assistant that works on the user's own machine. Each call of a tool is checked \
by a policy, may need the user's approval, and leaves a receipt."""

GUIDANCE = """\
Choose one way and carry it through. Prefer a tool to a guess about files, commands or the time. \
When a call is denied, say so and do not get around it."""

_WRITING = frozenset({"file_write", "file_edit", "file_append", "fs_ops"})
_REMEMBERING = frozenset({"knowledge_search", "knowledge_load", "memory_search"})
_SEARCHING = frozenset({"web_search", "web_fetch"})

Text = str | Callable[[], str]


class PromptSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator says about the prompt.

    Attributes:
        base: replaces the built-in base; empty keeps it.
        operator: text of the operator, at most 16 KiB, or what returns it: that is asked when the
            fragment is computed, so once until somebody marks it dirty.
        agent: the prompt of the chosen agent.
        knowledge_cutoff: `YYYY-MM` of the model, or empty.
        parts: which fragments stand in the prompt, and which rules in theirs.
    """

    base: str = ""
    operator: Text = ""
    agent: str = ""
    knowledge_cutoff: str = ""
    parts: PromptSection = PromptSection()


class PromptInputs(msgspec.Struct, frozen=True, kw_only=True):
    """All that a prompt is made of: settings, and the tools told."""

    settings: PromptSettings
    told: RequestTools

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All that may be called."""
        return (*self.told.tools, *self.told.others)


class _Fragment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the prompt.

    Attributes:
        id: its key in the section of the prompt.
        needs: what of the inputs it is made of; it is dirty when that is not what it was.
        text: makes it; empty leaves it out.
    """

    id: str
    needs: Callable[[PromptInputs], object]
    text: Callable[[PromptInputs], str]


@dataclass(eq=False)
class Preamble:
    """The system prompt of one conversation; the same inputs give the same bytes.

    Args:
        inputs: what it is made of at first.
    """

    _inputs: PromptInputs
    _clean: dict[str, str] = field(default_factory=dict)

    def adopt(self, inputs: PromptInputs) -> None:
        """Take other inputs; fragments that are made of what differs become dirty."""
        before, self._inputs = self._inputs, inputs
        if before == inputs:
            return
        for fragment in FRAGMENTS:
            if fragment.needs(before) != fragment.needs(inputs):
                self.mark_dirty(fragment.id)

    def anew(self, inputs: PromptInputs) -> "Preamble":
        """Return that of a new conversation; what the same inputs gave here is not made again."""
        is_known = self._inputs == inputs and isinstance(inputs.settings.operator, str)
        return Preamble(inputs, dict(self._clean) if is_known else {})

    def copy(self) -> "Preamble":
        """Return one that goes its own way from here."""
        return Preamble(self._inputs, dict(self._clean))

    def mark_dirty(self, *ids: str) -> None:
        """Have fragments computed anew when the prompt is rendered next; none means all."""
        for fragment_id in ids or tuple(self._clean):
            self._clean.pop(fragment_id, None)

    def fragments(self) -> tuple[tuple[str, str], ...]:
        """Return id and text of the fragments that stand in the prompt, in their order."""
        parts = self._inputs.settings.parts
        wanted = [fragment for fragment in FRAGMENTS if getattr(parts, fragment.id)]
        for fragment in wanted:
            if fragment.id not in self._clean:
                self._clean[fragment.id] = fragment.text(self._inputs).strip()
        return tuple((each.id, self._clean[each.id]) for each in wanted if self._clean[each.id])

    def render(self) -> str:
        """Return the whole system prompt."""
        return "\n\n".join(text for _, text in self.fragments())


def system_prompt(settings: PromptSettings, told: RequestTools) -> str:
    """Return the system prompt; the same input gives the same text."""
    return Preamble(PromptInputs(settings=settings, told=told)).render()


def clipped(text: str, limit_bytes: int) -> str:
    """Return at most so many bytes of the text, cut between characters, the cut marked."""
    data = text.encode(errors="replace")
    if len(data) <= limit_bytes:
        return text
    mark = "\n[cut]"
    return data[: limit_bytes - len(mark)].decode(errors="ignore") + mark


def _addenda(inputs: PromptInputs) -> str:
    texts = (clipped(paragraph(tool.addendum), ADDENDUM_LIMIT_BYTES) for tool in inputs.told.tools)
    return "\n\n".join(text.strip() for text in texts if text.strip())


def _operator(inputs: PromptInputs) -> str:
    operator = inputs.settings.operator
    text = operator if isinstance(operator, str) else operator()
    return clipped(paragraph(text), OPERATOR_LIMIT_BYTES)


def _rules(inputs: PromptInputs) -> str:
    settings, offered = inputs.settings, stands_for(inputs.tools)
    parts = settings.parts
    lines: list[str] = []
    if parts.rule_tools:
        where = f", and those that {LOOKUP} shows" if inputs.told.others else ""
        only = f"Call only the tools you are offered{where}; there are no others."
        lines.append(only if offered else "You have no tools in this conversation.")
    if parts.rule_writing and offered & _WRITING:
        lines.append(WRITE_RULE)
    if parts.rule_cutoff and settings.knowledge_cutoff:
        cutoff = single_line(settings.knowledge_cutoff, NAME_LIMIT)
        lines.append(f"Your knowledge ends in {cutoff}; say so when it matters.")
    if parts.rule_lookup and offered & _REMEMBERING and offered & _SEARCHING:
        saves = "knowledge_save" in offered
        saving = ", and save with knowledge_save what is new" if saves else ""
        lines.append(
            "What you do not know: look into memory first, into the web second; where they differ, "
            f"prefer the recent{saving}."
        )
    if parts.rule_sources:
        lines.append("Name your sources: files, pages and memory.")
    return "\n".join(["[rules]", *lines]) if lines else ""


def _catalogue(inputs: PromptInputs) -> str:
    """Return the names of the tools that requests do not describe; the others stand there once."""
    if not inputs.told.others:
        return ""
    names = names_of(inputs.told.others)
    return f"[tools]\nThere are more; {LOOKUP}(name) shows how to call one: {names}"


def _rule_inputs(inputs: PromptInputs) -> object:
    settings = inputs.settings
    names = [tool.name for tool in inputs.tools]
    return names, bool(inputs.told.others), settings.knowledge_cutoff, settings.parts


FRAGMENTS = (
    _Fragment(
        id="base",
        needs=lambda i: i.settings.base,
        text=lambda i: paragraph(i.settings.base).strip() or BASE,
    ),
    _Fragment(id="addenda", needs=lambda i: [t.addendum for t in i.told.tools], text=_addenda),
    _Fragment(id="operator", needs=lambda i: i.settings.operator, text=_operator),
    _Fragment(id="rules", needs=_rule_inputs, text=_rules),
    _Fragment(id="catalogue", needs=lambda i: names_of(i.told.others), text=_catalogue),
    _Fragment(
        id="agent", needs=lambda i: i.settings.agent, text=lambda i: paragraph(i.settings.agent)
    ),
    _Fragment(id="guidance", needs=lambda _: None, text=lambda _: f"[guidance]\n{GUIDANCE}"),
)
