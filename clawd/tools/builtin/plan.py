"""The tool `plan`: what is to be done in this conversation, kept and shown while it changes.

What a call says is read kindly: statuses by other words, ids as text, an item by its text, no id
where there is one item only. What stays in doubt is refused with the plan and an example.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
from typing_extensions import override

from clawd.errors import InvalidRequestError
from clawd.security.risk import Assessment
from clawd.tools.base import Arguments, Tool, ToolContext, ToolResult, failed, succeeded
from clawd.tools.builtin.deps import BuiltinDeps, object_schema
from clawd.tools.plans import (
    MARKS,
    Plan,
    PlanItem,
    PlanKey,
    Status,
    added,
    found,
    markdown,
    replaced,
    status_of,
    text_of,
)
from clawd.wire.events import PlanChanged

MAX_ITEMS = 20
EMPTY = "the plan is empty"
EVERY = "all"
_EXAMPLES = {
    "add": '{"action": "add", "items": [{"text": "read the notes"}, {"text": "write the report"}]}',
    "update": '{"action": "update", "id": "1", "status": "done"}',
    "delete": '{"action": "delete", "id": "1"}',
}
_TEXT, _ID = {"type": "string", "description": "What to do."}, {"type": "string"}
_STATUS = {"type": "string", "description": "pending, working, done, error or deleted."}

Given = dict[str, Any]


class PlanTool(Tool):
    """Keeps a plan."""

    name: ClassVar[str] = "plan"
    short: ClassVar[str] = "Keep a list of steps: add, update, delete or list them."
    description: ClassVar[str] = (
        "Keeps what is to be done in this conversation. `add` takes `text`, or `items` for several "
        f"(at most {MAX_ITEMS} a call); each gets a number that stays. `update` changes the "
        "`status` (pending, working, done, error) or the `text` of the item `id`, or of several in "
        "`items`. `delete` takes an `id`, `items`, or the id `all`; deleted items keep their "
        "number, and a status brings one back. `list` shows the plan. `items` wins over single "
        f"arguments. Marks: {', '.join(f'{mark} {name}' for name, mark in MARKS.items())}."
    )
    parameters: ClassVar[dict[str, Any]] = object_schema(
        {
            "action": {"type": "string", "enum": ["list", "add", "update", "delete"]},
            "text": _TEXT,
            "id": {"type": "string", "description": "Number of the item, or all."},
            "status": _STATUS,
            "items": {
                "type": "array",
                "description": "Several items at once.",
                "items": {
                    "anyOf": [
                        {
                            "type": "object",
                            "properties": {"text": _TEXT, "id": _ID, "status": _STATUS},
                        },
                        {"type": "string"},
                    ]
                },
            },
        },
        "action",
    )
    outward: ClassVar[bool | None] = False

    def __init__(self, deps: BuiltinDeps) -> None:
        self._plans = deps.plans
        self.timeout_s = deps.tool_timeout_s

    @override
    def risk(self, arguments: Arguments, context: ToolContext) -> Assessment:
        return Assessment(risk="low", reason="keeps a plan")

    @override
    async def invoke(self, arguments: Arguments, context: ToolContext) -> ToolResult:
        plans, action = self._plans, arguments["action"]
        if plans is None:
            return failed("no plan is kept here")
        key = PlanKey(
            conversation_id=context.conversation_id,
            owner=context.principal.uid,
            workspace="" if context.conversation_id else str(context.workspace),
        )
        if action == "list":
            plan = await plans.load(key)
            return succeeded(markdown(plan.open) or EMPTY, count=len(plan.open))
        changing = _Changing(action, _given(arguments))
        try:
            plan = await plans.change(key, changing)
        except InvalidRequestError as error:
            seen = await plans.load(key)
            example = f"Correct arguments look like this: {_EXAMPLES[action]}"
            return failed(f"{error.message}. {example}", output=markdown(seen.open))
        context.emit(PlanChanged(markdown=changing.shown(plan)))
        return succeeded(changing.answer(plan), count=len(plan.open))


class _Changing:
    """One change of a plan; called in the thread that writes.

    Args:
        action: add, update or delete.
        given: what was said of each item.
    """

    def __init__(self, action: str, given: list[Given]) -> None:
        self._action = action
        self._given = given
        self._changed: set[int] = set()

    def __call__(self, plan: Plan) -> Plan:
        """Return the changed plan.

        Raises:
            InvalidRequestError: it is not clear what is meant; nothing is changed.
        """
        if len(self._given) > MAX_ITEMS:
            raise InvalidRequestError(
                f"a call takes at most {MAX_ITEMS} items, this one has {len(self._given)}"
            )
        acts: dict[str, Callable[[Plan], Plan]] = {
            "add": self._added,
            "update": self._updated,
            "delete": self._deleted,
        }
        changed = acts[self._action](plan)
        before = {item.id: item for item in plan.items}
        self._changed = {item.id for item in changed.items if before.get(item.id) != item}
        return changed

    def answer(self, plan: Plan) -> str:
        """Return what the model is told: what was added or deleted, or the plan as it is now."""
        if self._action == "update":
            return self.shown(plan)
        changed = [item for item in plan.items if item.id in self._changed]
        return markdown(changed) or self.shown(plan)

    def shown(self, plan: Plan) -> str:
        """Return the plan for those who follow, with what was deleted just now."""
        items = [i for i in plan.items if i.status != "deleted" or i.id in self._changed]
        return markdown(items) or EMPTY

    def _added(self, plan: Plan) -> Plan:
        if not self._given:
            raise InvalidRequestError("say what to add: text, or items")
        items: list[tuple[str, Status]] = []
        for each in self._given:
            status = status_of(each["status"]) if each.get("status") else "pending"
            items.append((text_of(each.get("text", "")), status))
        return added(plan, items)

    def _updated(self, plan: Plan) -> Plan:
        if not self._given:
            raise InvalidRequestError("say which item, and its new status or text")
        changed = plan
        for each in self._given:
            status = status_of(each["status"]) if each.get("status") else None
            chosen, text = _chosen(changed, each, may_be_renamed=status is None)
            if status is None and not text:
                raise InvalidRequestError("say what is new: a status or a text")
            if text and len(chosen) > 1:
                raise InvalidRequestError("several items cannot have the same text")
            changed = replaced(changed, [_with(item, status, text) for item in chosen])
        return changed

    def _deleted(self, plan: Plan) -> Plan:
        changed = plan
        for each in self._given or [{}]:
            chosen, _ = _chosen(changed, each, may_be_renamed=False)
            gone = [_with(item, "deleted", "") for item in chosen]
            changed = replaced(changed, gone)
        return changed


def _with(item: PlanItem, status: Status | None, text: str) -> PlanItem:
    if status is None and item.status == "deleted":
        raise InvalidRequestError(f"item {item.id} is deleted; a status brings it back")
    return msgspec.structs.replace(
        item, status=status or item.status, text=text_of(text) if text else item.text
    )


def _given(arguments: Arguments) -> list[Given]:
    """Return what is said of each item; `items` wins over the single arguments."""
    if items := arguments.get("items"):
        return [{"text": each} if isinstance(each, str) else each for each in items]
    single = {name: arguments[name] for name in ("text", "id", "status") if arguments.get(name)}
    return [single] if single else []


def _chosen(plan: Plan, given: Given, *, may_be_renamed: bool) -> tuple[list[PlanItem], str]:
    """Return the items that are meant, and the new text that is meant for them, if any.

    An item is meant by its id, else by its text, else it is the only one there is. A text that
    none has is then its new one, where it may be renamed.

    Raises:
        InvalidRequestError: that cannot be told.
    """
    name, text, items = given.get("id", ""), given.get("text", ""), plan.open
    wanted = name or text
    if name.strip().lower() == EVERY and items:
        return list(items), text
    item = found(plan, wanted) if wanted else None
    if item is not None:
        return [item], text if name else ""
    if len(items) == 1 and not name and (may_be_renamed or not text):
        return list(items), text
    which = f"there is no item {wanted[:60]!r}" if wanted else "say which item: its id"
    raise InvalidRequestError(which if items else EMPTY)
