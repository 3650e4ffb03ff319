"""The items of an answer of /v1/responses as they grow, and the events that tell it.

    reasoning      output_item.added, reasoning_text.delta …, reasoning_text.done, output_item.done
    message        output_item.added, content_part.added, output_text.delta …, output_text.done,
                   content_part.done, output_item.done
    function_call  output_item.added, function_call_arguments.delta …, .done, output_item.done

An event is a name and the fields beside its type and number.
"""

from typing import Any, Protocol

from clawd.channels.http.openai.wording import logprob_value, new_id
from clawd.providers.base import TokenLogprob

Told = tuple[str, dict[str, Any]]


class Item(Protocol):
    """An item on its way; `index` is its place in the output, `status` how it stands."""

    index: int
    status: str

    def open(self) -> list[Told]:
        """Return the events that begin it."""
        ...

    def close(self, status: str = "completed") -> list[Told]:
        """Return the events that end it; one that was cut off is `incomplete`."""
        ...

    def value(self) -> dict[str, Any]:
        """Return it as it is now."""
        ...


class _Base:
    """What all items share."""

    def __init__(self, index: int, prefix: str) -> None:
        self.index = index
        self.id = new_id(prefix)
        self.status = "in_progress"

    def at(self, **fields: Any) -> dict[str, Any]:
        """Return the fields of an event of this item."""
        return {"item_id": self.id, "output_index": self.index, **fields}


class MessageItem(_Base):
    """What the model says."""

    def __init__(self, index: int) -> None:
        super().__init__(index, "msg_")
        self._text: list[str] = []
        self._logprobs: list[dict[str, Any]] = []

    def open(self) -> list[Told]:
        """Return the events that begin it."""
        item = {**self.value(), "content": []}
        part = self._part("", [])
        return [
            ("response.output_item.added", {"output_index": self.index, "item": item}),
            ("response.content_part.added", self.at(content_index=0, part=part)),
        ]

    def add(self, text: str, logprobs: tuple[TokenLogprob, ...] = ()) -> list[Told]:
        """Take a piece of text and return its event."""
        told = [logprob_value(token) for token in logprobs]
        self._text.append(text)
        self._logprobs += told
        fields = self.at(content_index=0, delta=text, logprobs=told)
        return [("response.output_text.delta", fields)]

    @property
    def text(self) -> str:
        """What was said so far."""
        return "".join(self._text)

    def has_logprobs(self) -> bool:
        """Say whether tokens came with the text."""
        return bool(self._logprobs)

    def close(self, status: str = "completed") -> list[Told]:
        """Return the events that end it."""
        self.status = status
        part = self._part(self.text, self._logprobs)
        done = self.at(content_index=0, text=self.text, logprobs=self._logprobs)
        item = self.value()
        return [
            ("response.output_text.done", done),
            ("response.content_part.done", self.at(content_index=0, part=part)),
            ("response.output_item.done", {"output_index": self.index, "item": item}),
        ]

    def value(self) -> dict[str, Any]:
        """Return it as it is now."""
        return {
            "id": self.id,
            "type": "message",
            "status": self.status,
            "role": "assistant",
            "content": [self._part(self.text, self._logprobs)],
        }

    @staticmethod
    def _part(text: str, logprobs: list[dict[str, Any]]) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


class ReasoningItem(_Base):
    """What the model thinks: as a summary for who asked for one, else as content."""

    def __init__(self, index: int, *, is_summary: bool) -> None:
        super().__init__(index, "rs_")
        self._is_summary = is_summary
        self._text: list[str] = []

    def open(self) -> list[Told]:
        """Return the events that begin it."""
        item = {**self.value(), "summary": [], "content": []}
        opened: list[Told] = [
            ("response.output_item.added", {"output_index": self.index, "item": item})
        ]
        if self._is_summary:
            part = self.at(summary_index=0, part={"type": "summary_text", "text": ""})
            opened.append(("response.reasoning_summary_part.added", part))
        return opened

    def add(self, text: str) -> list[Told]:
        """Take a piece of text and return its event."""
        self._text.append(text)
        if self._is_summary:
            fields = self.at(summary_index=0, delta=text)
            return [("response.reasoning_summary_text.delta", fields)]
        return [("response.reasoning_text.delta", self.at(content_index=0, delta=text))]

    def close(self, status: str = "completed") -> list[Told]:
        """Return the events that end it."""
        self.status = status
        text, item = "".join(self._text), self.value()
        done: Told = ("response.output_item.done", {"output_index": self.index, "item": item})
        if not self._is_summary:
            return [("response.reasoning_text.done", self.at(content_index=0, text=text)), done]
        part = {"type": "summary_text", "text": text}
        return [
            ("response.reasoning_summary_text.done", self.at(summary_index=0, text=text)),
            ("response.reasoning_summary_part.done", self.at(summary_index=0, part=part)),
            done,
        ]

    def value(self) -> dict[str, Any]:
        """Return it as it is now."""
        text = "".join(self._text)
        summary = [{"type": "summary_text", "text": text}] if self._is_summary else []
        content = [] if self._is_summary else [{"type": "reasoning_text", "text": text}]
        return {
            "id": self.id,
            "type": "reasoning",
            "status": self.status,
            "summary": summary,
            "content": content,
        }


class CallItem(_Base):
    """A call of a function that the client brought, in a namespace or in none."""

    def __init__(self, index: int, *, call_id: str, name: str, namespace: str = "") -> None:
        super().__init__(index, "fc_")
        self._call_id = call_id
        self._name = name
        self._namespace = namespace
        self._arguments: list[str] = []

    def open(self) -> list[Told]:
        """Return the events that begin it."""
        item = {**self.value(), "arguments": ""}
        return [("response.output_item.added", {"output_index": self.index, "item": item})]

    def add(self, arguments: str) -> list[Told]:
        """Take a piece of the arguments and return its event."""
        self._arguments.append(arguments)
        return [("response.function_call_arguments.delta", self.at(delta=arguments))]

    def close(self, status: str = "completed") -> list[Told]:
        """Return the events that end it."""
        self.status = status
        events: list[Told] = [] if self._arguments else self.add("{}")
        arguments, item = "".join(self._arguments), self.value()
        done = self.at(name=self._name, arguments=arguments)
        return [
            *events,
            ("response.function_call_arguments.done", done),
            ("response.output_item.done", {"output_index": self.index, "item": item}),
        ]

    def value(self) -> dict[str, Any]:
        """Return it as it is now."""
        return {
            "id": self.id,
            "type": "function_call",
            "status": self.status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._arguments),
        } | ({"namespace": self._namespace} if self._namespace else {})
