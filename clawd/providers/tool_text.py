"""Tool turns as text of the next user turn, for models that know no role for them. Pure.

assistant: Let me look.                 assistant: Let me look.
                                                   [call: file_list]
  + call file_list {"path": "."}   ──▶             {"path": "."}
tool: notes.md                          user:      [tool: file_list]
user: and now?                                     notes.md

                                                   and now?
"""

from collections.abc import Callable, Sequence

import msgspec

from clawd.providers.base import Message


def calls_as_text(message: Message) -> Message:
    """Return an assistant's message with its calls written out as text."""
    if not message.tool_calls:
        return message
    calls = [f"[call: {call.name}]\n{call.arguments}" for call in message.tool_calls]
    texts = [message.content, *calls] if message.content else calls
    return Message(role=message.role, content="\n\n".join(texts))


def calls_kept(message: Message) -> Message:
    """Return an assistant's message as it is, for templates that refuse the tool role alone."""
    return message


def without_tool_role(
    messages: Sequence[Message], *, calls: Callable[[Message], Message] = calls_as_text
) -> tuple[Message, ...]:
    """Turn tool turns into `[tool: name]` blocks on the next user turn; make one where none is.

    `calls` says how an assistant's message with calls is shown.
    """
    out: list[Message] = []
    results: list[str] = []
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    for message in messages:
        if message.role == "tool":
            name = message.name or names.get(message.tool_call_id, "")
            results.append(f"[tool: {name}]\n{message.content or ''}")
        elif message.role == "user" and results:
            text = "\n\n".join((*results, message.content or ""))
            results.clear()
            out.append(msgspec.structs.replace(message, content=text))
        else:
            _flush(results, out)
            out.append(calls(message))
    _flush(results, out)
    return tuple(out)


def _flush(results: list[str], out: list[Message]) -> None:
    if results:
        out.append(Message(role="user", content="\n\n".join(results)))
        results.clear()
