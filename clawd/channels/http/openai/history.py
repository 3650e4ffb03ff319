"""A conversation as a client tells it, gathered message by message into clawd's own form."""

import msgspec

from clawd.channels.http.body import invalid
from clawd.errors import InvalidRequestError
from clawd.providers.base import Message, ToolCall


class History:
    """Gathers messages; a result learns of which tool it is."""

    def __init__(self) -> None:
        self._system: list[str] = []
        self._messages: list[Message] = []
        self._names: dict[str, str] = {}
        self._made = 0

    @property
    def system(self) -> str | None:
        """The system messages as one text, wherever they stood; None where there were none."""
        return "\n\n".join(self._system) or None

    @property
    def messages(self) -> tuple[Message, ...]:
        """The others, oldest first; what nobody said where there is a system message alone."""
        return tuple(self._messages) or (Message(role="user", content=""),)

    @property
    def is_one_pass(self) -> bool:
        """Whether nobody says anything: it ends with the beginning of an answer, or is empty."""
        last = self._messages[-1] if self._messages else None
        return last is None or (last.role == "assistant" and not last.tool_calls)

    def add_system(self, text: str) -> None:
        """Take a message of role system or developer."""
        if text:
            self._system.append(text)

    def add_user(self, text: str) -> None:
        """Take what the user said."""
        self._messages.append(Message(role="user", content=text))

    def add_assistant(self, text: str, calls: tuple[ToolCall, ...] = ()) -> None:
        """Take what the model said, and the calls it made."""
        for call in calls:
            self._names[call.id] = call.name
        self._messages.append(Message(role="assistant", content=text or None, tool_calls=calls))

    def go_on(self, text: str) -> None:
        """Take more of what the model said; it joins what it said and called just before."""
        last = self._messages[-1] if self._messages else None
        if last is None or last.role != "assistant":
            self.add_assistant(text)
            return
        said = (last.content or "") + text
        self._messages[-1] = msgspec.structs.replace(last, content=said or None)

    def add_call(self, call: ToolCall) -> None:
        """Take one call; it joins what the model said just before."""
        last = self._messages[-1] if self._messages else None
        if last is None or last.role != "assistant":
            self.add_assistant("", (call,))
            return
        self._names[call.id] = call.name
        self._messages[-1] = msgspec.structs.replace(last, tool_calls=(*last.tool_calls, call))

    def add_result(self, call_id: str, text: str) -> None:
        """Take the result of a call; one without an id is that of the next call without one."""
        call_id = call_id or self._next_unanswered()
        name = self._names.get(call_id, "")
        self._messages.append(Message(role="tool", content=text, tool_call_id=call_id, name=name))

    def made_id(self) -> str:
        """Return an id for a call that came without one."""
        self._made += 1
        return f"call_unnamed_{self._made}"

    def checked(self, name: str = "messages") -> None:
        """Refuse what no model can answer; `name` is the field it came in.

        Raises:
            InvalidRequestError: nothing was said, or two assistant messages stand at the end.
        """
        if not self._messages and not self._system:
            raise invalid(name, "expected at least one message")
        if len(self._messages) > 1 and all(
            message.role == "assistant" for message in self._messages[-2:]
        ):
            raise InvalidRequestError(
                f"{name}: two assistant messages stand at the end",
                hint="One, the beginning of the answer, is gone on with.",
                data={"param": name},
            )

    def _next_unanswered(self) -> str:
        answered = {message.tool_call_id for message in self._messages}
        return next((call_id for call_id in self._names if call_id not in answered), "")
