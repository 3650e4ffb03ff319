"""Whether the messages of a client can be answered, and as what a model is shown them. Pure."""

from collections.abc import Sequence

import msgspec

from clawd.channels.http.exchange import ModelRequest
from clawd.errors import InvalidRequestError
from clawd.providers.base import Message
from clawd.runtime.context import open_calls, repair_orphans

MAX_MESSAGES = 20_000


def checked(request: ModelRequest) -> ModelRequest:
    """Return the request with messages that a template can render.

    The results of a round of calls stand in the order of its calls. A call that was never answered
    gets a result that says so, unless the messages end with it.

    Raises:
        InvalidRequestError: the messages cannot be meant; the error's data names the field.
    """
    if request.prompt is not None:
        if request.messages or request.tools:
            raise _bad("prompt", "a raw prompt goes with neither messages nor tools")
        return request
    messages = request.messages
    if not messages:
        raise _bad("messages", "expected at least one message")
    if len(messages) > MAX_MESSAGES:
        raise _bad("messages", f"{len(messages)} messages; the limit is {MAX_MESSAGES}")
    _check_roles(messages)
    _check_results(messages)
    if open_calls(messages):
        names = ", ".join(call.name for call in open_calls(messages))
        if messages[-1].role in {"assistant", "tool"}:
            raise _bad("messages", f"the calls of {names} have no results")
    return msgspec.structs.replace(request, messages=repair_orphans(_in_order(messages)))


def _check_roles(messages: Sequence[Message]) -> None:
    for number, message in enumerate(messages):
        if message.role == "system":
            raise _bad(f"messages[{number}]", "a system message stands apart from the others")
    if len(messages) > 1 and messages[-1].role == messages[-2].role == "assistant":
        raise _bad("messages", "the last two are both of the assistant; one can be gone on with")


def _check_results(messages: Sequence[Message]) -> None:
    """Refuse results of calls that no assistant message right before them made."""
    waiting: set[str] = set()
    for number, message in enumerate(messages):
        if message.role != "tool":
            waiting = {call.id for call in message.tool_calls}
        elif message.tool_call_id not in waiting:
            named = message.tool_call_id or "no call at all"
            raise _bad(
                f"messages[{number}]",
                f"it is the result of {named}, which no assistant message before it asked for",
            )
        else:
            waiting.discard(message.tool_call_id)


def _in_order(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the results of every round in the order of its calls."""
    ordered: list[Message] = []
    places: dict[str, int] = {}
    results: list[Message] = []
    for message in messages:
        if message.role == "tool":
            results.append(message)
            continue
        ordered += sorted(results, key=lambda result: places[result.tool_call_id])
        results = []
        places = {call.id: place for place, call in enumerate(message.tool_calls)}
        ordered.append(message)
    return ordered + sorted(results, key=lambda result: places[result.tool_call_id])


def _bad(where: str, problem: str) -> InvalidRequestError:
    return InvalidRequestError(f"{where}: {problem}", data={"param": where})
