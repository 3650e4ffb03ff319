"""The plan of a conversation: what is to be done, and how far it is. Values and pure changes.

    - [x] 1. read the notes
    - [~] 2. write the summary
    - [ ] 3. send it

`memory` keeps plans (`PlanStore`); the tool `plan` and the client's /plan show them.
"""

import difflib
import re
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from clawd.errors import InvalidRequestError
from clawd.wire.safe_text import single_line

MAX_TEXT = 500
MAX_OPEN = 200
_MAX_KEPT = 500
# Comparing long texts with each other takes long, and the thread that writes memory waits for it.
_MAX_COMPARED = 80

Status = Literal["pending", "working", "done", "error", "deleted"]

MARKS: dict[Status, str] = {
    "pending": "[ ]", "working": "[~]", "done": "[x]", "error": "[!]", "deleted": "[-]",
}  # fmt: skip
# What models call them elsewhere.
_WORDS: dict[Status, tuple[str, ...]] = {
    "pending": ("todo", "open", "new", "notstarted", "waiting", "planned", "incomplete"),
    "working": ("inprogress", "doing", "active", "started", "current", "running", "wip"),
    "done": ("completed", "complete", "finished", "closed", "ok", "success", "true"),
    "error": ("failed", "failure", "blocked", "stuck", "broken"),
    "deleted": ("removed", "cancelled", "canceled", "dropped", "skipped"),
}


class PlanItem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do; its id never changes and is never given to another."""

    id: int
    text: str
    status: Status = "pending"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, in the order in which things were added.

    Attributes:
        items: deleted ones too.
        next_id: what the next item gets.
    """

    items: tuple[PlanItem, ...] = ()
    next_id: int = 1

    @property
    def open(self) -> tuple[PlanItem, ...]:
        """All that was not deleted."""
        return tuple(item for item in self.items if item.status != "deleted")


class PlanKey(msgspec.Struct, frozen=True, kw_only=True):
    """Whose plan is meant: that of a conversation, else that of an owner in a workspace."""

    conversation_id: str
    owner: int
    workspace: str


class PlanStore(Protocol):
    """Keeps plans. Both methods raise `StorageError` when the disk fails."""

    async def load(self, key: PlanKey) -> Plan:
        """Return a plan; an empty one when there is none."""
        ...

    async def change(self, key: PlanKey, act: Callable[[Plan], Plan]) -> Plan:
        """Put what `act` makes of a plan in its place, durably, and return it.

        No other change comes between. What `act` raises is raised, and nothing is changed.

        Raises:
            NotFoundError: the conversation is not there (any more).
        """
        ...


def markdown(items: Sequence[PlanItem]) -> str:
    """Return the items as a list, one a line."""
    return "\n".join(f"- {MARKS[item.status]} {item.id}. {item.text}" for item in items)


def status_of(word: str) -> Status:
    """Return the status that a word means.

    Raises:
        InvalidRequestError: it means none.
    """
    plain = re.sub(r"[^a-z]", "", word.lower())
    for status, others in _WORDS.items():
        if plain in (status, *others) or word.strip() in (MARKS[status], MARKS[status][1]):
            return status
    raise InvalidRequestError(f"{word[:40]!r} is no status; it must be {', '.join(MARKS)}")


def text_of(text: str) -> str:
    """Return the text of an item as it is kept: one line.

    Raises:
        InvalidRequestError: nothing is left of it.
    """
    kept = single_line(text, MAX_TEXT)
    if not kept:
        raise InvalidRequestError("an item needs a text")
    return kept


def added(plan: Plan, items: Sequence[tuple[str, Status]]) -> Plan:
    """Return the plan with these at its end.

    Raises:
        InvalidRequestError: it would be too long.
    """
    if len(plan.open) + len(items) > MAX_OPEN:
        raise InvalidRequestError(
            f"a plan has at most {MAX_OPEN} items; delete those that are done"
        )
    fresh = tuple(
        PlanItem(id=plan.next_id + at, text=text, status=status)
        for at, (text, status) in enumerate(items)
    )
    kept = plan.items
    if len(kept) + len(fresh) > _MAX_KEPT:
        kept = plan.open
    return Plan(items=(*kept, *fresh), next_id=plan.next_id + len(fresh))


def replaced(plan: Plan, changed: Sequence[PlanItem]) -> Plan:
    """Return the plan with these items in place of those with their ids."""
    by_id = {item.id: item for item in changed}
    items = tuple(by_id.get(item.id, item) for item in plan.items)
    return msgspec.structs.replace(plan, items=items)


def found(plan: Plan, wanted: str) -> PlanItem | None:
    """Return the item that is meant by its number, else by its text; None when none is."""
    plain = single_line(wanted, MAX_TEXT).casefold()
    number = re.fullmatch(r"#?(?:item|task|step)?\s*([0-9]{1,9})[.:)]?", plain)
    if number:
        return next((item for item in plan.items if item.id == int(number[1])), None)
    texts = {item.text.casefold(): item for item in reversed(plan.open)}
    if plain in texts:
        return texts[plain]
    if len(plain) > _MAX_COMPARED:
        return None
    short = [text for text in texts if len(text) <= _MAX_COMPARED]
    near = difflib.get_close_matches(plain, short, n=2, cutoff=0.8)
    return texts[near[0]] if len(near) == 1 else None
